"""Open a store by its URL. Imports are late, so that only the requested kind of store is loaded."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import unquote

from weft.errors import GitError, InvalidInputError
from weft.model.damage import Damage
from weft.store.contract import RootCommit, Store

URL_FORMS = "file:<path> or memory:"


@asynccontextmanager
async def open_store(
    url: str, *, root_commit: RootCommit | None = None, damaged: Callable[[Damage], None] | None = None
) -> AsyncIterator[Store]:
    """Open the store at `file:<path>`, or an empty one at `memory:`.

    `root_commit` returns the first commit of a checkout; only sessions of the oldest versions need it.
    `damaged` is called once for each document that turns out to be unreadable.
    """
    scheme, colon, rest = url.partition(":")
    if scheme == "memory" and colon and not rest.strip("/"):
        from weft.store.memory import MemoryStore  # noqa: PLC0415  only the chosen store is imported

        yield MemoryStore()
    elif scheme == "file" and colon:
        from weft.store.files.store import open_file_store  # noqa: PLC0415  only the chosen store is imported

        async with open_file_store(_parse_path(rest), root_commit or find_root_commit, damaged) as store:
            yield store
    else:
        raise InvalidInputError("store", f"{url!r} is not the URL of a store", hint=f"use {URL_FORMS}")


def store_exists(url: str) -> bool:
    """Return False if opening the store at a URL would create it."""
    scheme, _, rest = url.partition(":")
    return scheme != "file" or os.path.isdir(_parse_path(rest))


def _parse_path(rest: str) -> str:
    """Return the path in `file:/a/b`, `file:///a/b` (percent-encoded, as in a URL) or `file:~/a`."""
    path = unquote(rest.removeprefix("//")) if rest.startswith("//") else rest
    if not path:
        raise InvalidInputError("store", "'file:' needs a path", hint="use file:<path>")
    return os.path.expanduser(path)


def find_root_commit(worktree: str) -> str | None:
    """Return the first commit of a checkout, None if git cannot tell."""
    from weft.host.git import Git  # noqa: PLC0415  only the chosen store is imported

    try:
        return next(iter(Git(os.environ).root_commits(worktree)), None)
    except GitError:
        return None
