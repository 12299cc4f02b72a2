"""`open_store(url)`: a store by its address. Late imports: only the kind of store that is asked for is loaded."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import unquote

from weft.errors import GitError, InvalidInputError
from weft.model.damage import Damage
from weft.store.contract import Store

RootCommit = Callable[[str], str | None]

KNOWN = "file:<path> or memory:"


@asynccontextmanager
async def open_store(
    url: str, *, root_commit: RootCommit | None = None, damaged: Callable[[Damage], None] | None = None
) -> AsyncIterator[Store]:
    """Open the store at `file:<path>`, or an empty one at `memory:`.

    `root_commit` says which commit a checkout began with; only sessions of the oldest versions need it.
    `damaged` is told, once each, of documents that turn out to be unreadable.
    """
    scheme, colon, rest = url.partition(":")
    if scheme == "memory" and colon and not rest.strip("/"):
        from weft.store.memory import MemoryStore  # noqa: PLC0415

        yield MemoryStore()
    elif scheme == "file" and colon:
        from weft.store.files.store import open_file_store  # noqa: PLC0415

        async with open_file_store(_path(rest), root_commit or ask_git, damaged) as store:
            yield store
    else:
        raise InvalidInputError("store", f"{url!r} is no address of a store", hint=f"use {KNOWN}")


def _path(rest: str) -> str:
    """The path of `file:/a/b`, `file:///a/b` (then percent-encoded, as URLs are) and `file:~/a`."""
    path = unquote(rest.removeprefix("//")) if rest.startswith("//") else rest
    if not path:
        raise InvalidInputError("store", "'file:' needs a path", hint="use file:<path>")
    return os.path.expanduser(path)


def ask_git(worktree: str) -> str | None:
    from weft.host.git import Git  # noqa: PLC0415

    try:
        return next(iter(Git(os.environ).root_commits(worktree)), None)
    except GitError:
        return None
