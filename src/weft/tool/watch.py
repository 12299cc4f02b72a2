"""Watching what a call changes, so that it can be taken back."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol


class Watch(Protocol):
    """Around a change of these files, or with none named, of any: what they were like is kept.

    Not around a question to a person: what they do while they think is theirs.
    """

    def __call__(self, *files: str) -> AbstractAsyncContextManager[None]: ...


@asynccontextmanager
async def unwatched(*files: str) -> AsyncIterator[None]:
    """For where nothing can be taken back."""
    del files
    yield
