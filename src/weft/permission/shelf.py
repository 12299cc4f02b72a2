"""Shelf: where open questions and grants are kept, in memory or in files."""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from weft.model.wire import Wire
from weft.permission.kept import Kept

T = TypeVar("T", bound=Wire)


class Shelf(Protocol[T]):
    """Changes are whole or not at all, one after the other over all who share it.

    `shared` says that others may change it too, so that it is worth looking again.
    """

    shared: bool

    async def read(self) -> tuple[T, ...]: ...

    async def change(self, editor: Callable[[tuple[T, ...]], tuple[T, ...]]) -> tuple[T, ...]: ...


class MemoryShelf(Generic[T]):
    """One that nobody else sees, and that is gone with the process."""

    def __init__(self) -> None:
        self.shared = False
        self._items: tuple[T, ...] = ()

    async def read(self) -> tuple[T, ...]:
        return self._items

    async def change(self, editor: Callable[[tuple[T, ...]], tuple[T, ...]]) -> tuple[T, ...]:
        self._items = editor(self._items)
        return self._items


class FileShelf(Generic[T]):
    def __init__(self, kept: Kept[T]) -> None:
        self.shared = True
        self._kept = kept

    async def read(self) -> tuple[T, ...]:
        return await asyncio.to_thread(self._kept.read)

    async def change(self, editor: Callable[[tuple[T, ...]], tuple[T, ...]]) -> tuple[T, ...]:
        return await asyncio.to_thread(self._kept.change, editor)
