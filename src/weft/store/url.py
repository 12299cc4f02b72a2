"""Open a store by its URL. Imports are late, so that only the requested kind of store is loaded."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from weft.errors import GitError, InvalidInputError
from weft.host.paths import parse_store_path
from weft.model.url import redact_url

if TYPE_CHECKING:  # a command that only reads must not load these
    from weft.model.damage import Damage
    from weft.model.principal import Principal
    from weft.store.contract import RootCommit, Store, UpgradeProgress

URL_FORMS = "file:<path>, sqlite:<path>, postgres://<user>@<host>/<database> or memory:"
ADDRESS_SOURCES = "the address is that of --store, WEFT_STORE or experimental.weft.store"


@asynccontextmanager
async def open_store(
    url: str,
    *,
    root_commit: RootCommit | None = None,
    damaged: Callable[[Damage], None] | None = None,
    cache: str | None = None,
    principal: str | None = None,
    opened: Store | None = None,
    upgrading: UpgradeProgress = lambda _done, _total: None,
) -> AsyncIterator[Store]:
    """Open the store at `file:<path>`, `sqlite:<path>` or `postgres://<host>/<database>`, or an empty one at `memory:`.

    `root_commit` returns the first commit of a checkout; only sessions of the oldest versions need it.
    `damaged` is called once for each document that turns out to be unreadable. The search index of files is below the directory
    `cache`, or in memory without one; other stores contain theirs. With a `principal`, Postgres shows only what belongs to it;
    `open_owned_store` opens the store of a principal in any kind of store. `opened` is the same store without a principal, if it is
    open: Postgres then uses its connections. `upgrading` is called after each step in which a database is created or upgraded, with
    the number of steps so far and of all.
    """
    scheme, colon, rest = url.partition(":")
    if scheme == "memory" and colon and not rest.strip("/"):
        from weft.store.memory import MemoryStore  # noqa: PLC0415  only the chosen store is imported

        yield MemoryStore()
    elif scheme == "file" and colon:
        from weft.store.files.store import open_file_store  # noqa: PLC0415  only the chosen store is imported

        async with open_file_store(
            parse_store_path(url), root_commit or find_root_commit, damaged=damaged, cache=cache
        ) as store:
            yield store
    elif scheme == "sqlite" and colon:
        from weft.store.sqlite.store import open_sqlite_store  # noqa: PLC0415  only the chosen store is imported

        async with open_sqlite_store(parse_store_path(url), damaged=damaged, upgrading=upgrading) as database:
            yield database
    elif scheme in ("postgres", "postgresql") and colon:
        from weft.store.postgres.store import (  # noqa: PLC0415  only the chosen store is imported
            PostgresStore,
            open_postgres_store,
        )

        whole = opened if isinstance(opened, PostgresStore) else None
        async with open_postgres_store(
            url, damaged=damaged, principal=principal, opened=whole, upgrading=upgrading
        ) as postgres:
            yield postgres
    else:
        raise InvalidInputError(
            "store", f"{redact_url(url)!r} is not the URL of a store", hint=f"use {URL_FORMS}"
        )


@asynccontextmanager
async def open_owned_store(
    url: str,
    principal: Principal,
    *,
    damaged: Callable[[Damage], None] | None = None,
    cache: str | None = None,
    opened: Store | None = None,
) -> AsyncIterator[Store]:
    """Open what belongs to a principal in the store at a URL, as a store of its own. `opened` is the whole store, if it is open."""
    from weft.store.ownership import OwnedStore  # noqa: PLC0415  few servers have principals

    async with open_store(
        url, damaged=damaged, cache=cache, principal=principal.name, opened=opened
    ) as store:
        yield OwnedStore(store, principal.name, max_running=principal.limits.sessions)


def is_persistent(url: str) -> bool:
    """Return False if the store at a URL ends with the process that opens it."""
    return not url.startswith("memory:")


def store_exists(url: str) -> bool:
    """Return False if opening the store at a URL would create it."""
    if url.startswith(("postgres:", "postgresql:")):
        from weft.store.postgres.reader import has_store  # noqa: PLC0415  only the chosen store is imported

        return has_store(url)
    path = find_store_path(url)
    return path is None or os.path.exists(path)


def check_store_exists(url: str) -> None:
    """Raise `InvalidInputError` if there is no store at a path. Whether a server has one is found out when it is read."""
    path = find_store_path(url)
    if path is not None and not os.path.exists(path):
        raise InvalidInputError(
            "store",
            f"there is no store at {path}",
            hint=f"check the path for a mistake; a new store is made by weft run; {ADDRESS_SOURCES}",
        )


def find_store_path(url: str) -> str | None:
    """Return where a store is on the disk of this machine, None if it is not."""
    return parse_store_path(url) if url.startswith(("file:", "sqlite:")) else None


def find_root_commit(worktree: str) -> str | None:
    """Return the first commit of a checkout, None if git cannot tell."""
    from weft.host.git import Git  # noqa: PLC0415  only the chosen store is imported

    if not os.path.isdir(worktree):
        return None  # a document may name anything, even what no path can contain
    try:
        return next(iter(Git(os.environ).root_commits(worktree)), None)
    except GitError:
        return None
