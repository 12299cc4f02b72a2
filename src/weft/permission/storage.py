"""Records of permissions in a store: lists of open requests and grants, and where each record is."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar

from weft.errors import DocumentError
from weft.model.ids import ProjectID
from weft.model.wire import Wire, from_plain, to_plain

T = TypeVar("T", bound=Wire)
RecordKey = tuple[str, ...]

RECORDS: Final = "permissions"
REQUESTS_KEY: Final[RecordKey] = (RECORDS, "requests")
GRANTS_KEY: Final[RecordKey] = (RECORDS, "grants")


def log_key(project: ProjectID) -> RecordKey:
    """Return the key of a project's audit log."""
    return (RECORDS, project)


def end_key(project: ProjectID) -> RecordKey:
    """Return the key of the value that records where a project's audit log ends."""
    return (RECORDS, "end", project)


class RecordStore(Protocol):
    """The part of a store that holds records of permissions."""

    async def find_value(self, key: RecordKey) -> Any: ...

    async def update_value(self, key: RecordKey, change: Callable[[Any], Any]) -> Any: ...

    async def append_log(self, log: RecordKey, extend: Callable[[bytes | None], Sequence[bytes]]) -> None: ...

    async def read_log(self, log: RecordKey) -> list[bytes]: ...

    async def trim_log(self, log: RecordKey, *, keep: int) -> int: ...


def read_items(stored: Any, kind: type[T]) -> tuple[T, ...]:
    """Return the items of a stored list. Leave out what cannot be read."""
    return tuple(item for item, _ in _decode(stored, kind) if item is not None)


def _decode(stored: Any, kind: type[T]) -> list[tuple[T | None, Any]]:
    """Return each entry of a stored list with the item that it is, None if it cannot be read."""
    entries = stored if isinstance(stored, list) else [] if stored is None else [stored]
    decoded: list[tuple[T | None, Any]] = []
    for entry in entries:
        item: T | None = None
        with suppress(DocumentError):
            item = from_plain(entry, kind, where=RECORDS)
        decoded.append((item, entry))
    return decoded


class ItemStore(Generic[T]):
    """A list of items in a store. Changes are all or nothing, one at a time over all who share the store.

    An entry that cannot be read, such as one of a later version, is skipped, and survives changes of the others. `shared` says
    that other processes may change the list, too.
    """

    def __init__(self, store: RecordStore, key: RecordKey, kind: type[T], *, shared: bool) -> None:
        self._store = store
        self._key = key
        self._kind = kind
        self.shared = shared

    async def read(self) -> tuple[T, ...]:
        return read_items(await self._store.find_value(self._key), self._kind)

    async def change(self, editor: Callable[[tuple[T, ...]], tuple[T, ...]]) -> tuple[T, ...]:
        """Replace the items with those that `editor` returns. Raise `StoreError` if they cannot be stored."""
        changed: tuple[T, ...] = ()

        def change(stored: Any) -> Any:
            nonlocal changed
            decoded = _decode(stored, self._kind)
            items = tuple(item for item, _ in decoded if item is not None)
            changed = editor(items)
            if changed == items:
                return stored
            unreadable = [entry for item, entry in decoded if item is None]
            return [*unreadable, *(to_plain(item) for item in changed)]

        await self._store.update_value(self._key, change)
        return changed
