"""Storage for open requests and grants: in memory, or in files that processes share."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from weft.errors import DocumentError, StoreError
from weft.host.files import Stamp, hold_lock, is_settled, read_file, stamp_of, write_atomic
from weft.model.wire import Wire, encode_pretty, from_plain, parse

T = TypeVar("T", bound=Wire)
MAX_FILE_BYTES = 16 << 20


class ItemFile(Generic[T]):
    """A list of items in a JSON file that only its owner may read. An unreadable file is moved aside, not overwritten."""

    def __init__(self, path: str, kind: type[T]) -> None:
        self._path = path
        self._kind = kind
        self._cached: tuple[Stamp, tuple[T, ...]] | None = None

    def read(self) -> tuple[T, ...]:
        """Return all items. An unchanged file is not read again."""
        with suppress(OSError):
            cached, stamp = self._cached, stamp_of(os.stat(self._path))
            if cached is not None and cached[0] == stamp:
                return cached[1]
        return self._load()[0]

    def change(self, editor: Callable[[tuple[T, ...]], tuple[T, ...]]) -> tuple[T, ...]:
        """Replace the items with those that `editor` returns, all or nothing, one change at a time over all processes.

        Raise `StoreError` if the file cannot be written.
        """
        try:
            with hold_lock(f"{self._path}.lock"):
                items, complete = self._load()
                changed = editor(items)
                if changed != items:
                    self._write(changed, complete=complete)
                return changed
        except OSError as error:
            raise StoreError(f"{self._path} cannot be written: {error.strerror}") from error

    def _write(self, items: tuple[T, ...], *, complete: bool) -> None:
        if not complete:
            os.replace(self._path, f"{self._path}.damaged")
        write_atomic(self._path, encode_pretty(list(items)), temp=f"{self._path}~", flush=True)

    def _load(self) -> tuple[tuple[T, ...], bool]:
        """Return the readable items of the file, and whether those are all of them."""
        try:
            raw, status = read_file(self._path, limit=MAX_FILE_BYTES)
        except FileNotFoundError:
            return (), True
        except OSError:
            return (), False
        items, complete = self._decode(raw)
        self._cached = (stamp_of(status), items) if is_settled(status) else None
        return items, complete

    def _decode(self, raw: bytes) -> tuple[tuple[T, ...], bool]:
        try:
            entries = parse(raw, where=self._path)
        except DocumentError:
            return (), False
        if not isinstance(entries, list):
            return (), False
        items: list[T] = []
        for entry in entries:
            with suppress(DocumentError):
                items.append(from_plain(entry, self._kind, where=self._path))
        return tuple(items), len(items) == len(entries)


class ItemStore(Protocol[T]):
    """Stores a list of items. Changes are all or nothing, one at a time over all who share the store.

    `shared` says that other processes may change it, too.
    """

    shared: bool

    async def read(self) -> tuple[T, ...]: ...

    async def change(self, editor: Callable[[tuple[T, ...]], tuple[T, ...]]) -> tuple[T, ...]: ...


class MemoryItemStore(Generic[T]):
    """Items of this process only."""

    def __init__(self) -> None:
        self.shared = False
        self._items: tuple[T, ...] = ()

    async def read(self) -> tuple[T, ...]:
        return self._items

    async def change(self, editor: Callable[[tuple[T, ...]], tuple[T, ...]]) -> tuple[T, ...]:
        self._items = editor(self._items)
        return self._items


class FileItemStore(Generic[T]):
    """Items in a file, read and written in a thread."""

    def __init__(self, file: ItemFile[T]) -> None:
        self.shared = True
        self._file = file

    async def read(self) -> tuple[T, ...]:
        return await asyncio.to_thread(self._file.read)

    async def change(self, editor: Callable[[tuple[T, ...]], tuple[T, ...]]) -> tuple[T, ...]:
        return await asyncio.to_thread(self._file.change, editor)
