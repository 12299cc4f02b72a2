"""Where open requests and grants are kept: in memory or in files shared by processes."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from weft.errors import DocumentError, StoreError
from weft.host.files import Stamp, is_settled, locked, read_file, stamp_of, write_atomic
from weft.model.wire import Wire, encode_pretty, from_plain, parse

T = TypeVar("T", bound=Wire)
LIMIT = 16 << 20


class Kept(Generic[T]):
    """For its owner's eyes alone. What cannot be read is laid aside, not written over."""

    def __init__(self, path: str, kind: type[T]) -> None:
        self._path = path
        self._kind = kind
        self._seen: tuple[Stamp, tuple[T, ...]] | None = None

    def read(self) -> tuple[T, ...]:
        """All there is. A file that has not changed is not read again."""
        with suppress(OSError):
            seen, stamp = self._seen, stamp_of(os.stat(self._path))
            if seen is not None and seen[0] == stamp:
                return seen[1]
        return self._load()[0]

    def change(self, editor: Callable[[tuple[T, ...]], tuple[T, ...]]) -> tuple[T, ...]:
        """Whole or not at all, one change after the other over all processes."""
        try:
            with locked(f"{self._path}.lock"):
                items, whole = self._load()
                changed = editor(items)
                if changed != items:
                    self._write(changed, whole=whole)
                return changed
        except OSError as error:
            raise StoreError(f"{self._path} cannot be written: {error.strerror}") from error

    def _write(self, items: tuple[T, ...], *, whole: bool) -> None:
        if not whole:
            os.replace(self._path, f"{self._path}.damaged")
        write_atomic(self._path, encode_pretty(list(items)), temp=f"{self._path}~", flush=True)

    def _load(self) -> tuple[tuple[T, ...], bool]:
        """What can be read of the file, and whether that is all there is in it."""
        try:
            raw, found = read_file(self._path, limit=LIMIT)
        except FileNotFoundError:
            return (), True
        except OSError:
            return (), False
        items, whole = self._decode(raw)
        self._seen = (stamp_of(found), items) if is_settled(found) else None
        return items, whole

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
