"""Find and shrink documents whose diffs contain whole files."""

from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from weft.model.diff import cap_diffs, is_capped
from weft.model.event import Durable, MessageUpdated, SessionDiffed
from weft.model.ids import MessageID, SessionID
from weft.model.message import AnyMessage
from weft.store.files.backup import BackupWriter
from weft.store.files.inventory import Inventory, measure_usage
from weft.store.files.layout import session_lock
from weft.store.files.tree import Tree
from weft.store.findings import LargeDocument
from weft.store.repair import shrink_message
from weft.store.sizes import ProgressCallback

# A smaller document cannot contain a diff that exceeds the bounds.
SUSPECT_BYTES = 64 << 10


class _Suspect(Struct, frozen=True, kw_only=True):
    path: str
    session: SessionID
    message: MessageID | None = None


def find_large(tree: Tree, inventory: Inventory, on_progress: ProgressCallback) -> list[LargeDocument]:
    """Return the documents whose diffs exceed the bounds."""
    return [
        LargeDocument(where=found.path, bytes=measure_usage(found.path).bytes)
        for found in _list_suspects(tree, inventory, on_progress)
        if _cap(tree, found) is not None
    ]


def shrink_large(
    backup: BackupWriter, inventory: Inventory, on_progress: ProgressCallback
) -> list[LargeDocument]:
    """Cap the diffs that exceed the bounds, each under the lock of its session."""
    shrunk: list[LargeDocument] = []
    for found in _list_suspects(backup.tree, inventory, on_progress):
        with suppress(FileNotFoundError), backup.holding(session_lock(found.session)) as held:
            event = _cap(backup.tree, found)
            if event is not None:
                before = measure_usage(found.path).bytes
                backup.write(held, event)
                after = measure_usage(found.path).bytes
                shrunk.append(LargeDocument(where=found.path, bytes=before, after=after))
    return shrunk


def _list_suspects(tree: Tree, inventory: Inventory, on_progress: ProgressCallback) -> Iterator[_Suspect]:
    for number, session in enumerate(sorted(inventory.sessions)):
        on_progress(number)
        id = SessionID(session)
        if session in inventory.diffs and measure_usage(tree.layout.diff(id)).bytes > SUSPECT_BYTES:
            yield _Suspect(path=tree.layout.diff(id), session=id)
        for name in sorted(inventory.messages.get(session, ())):
            path = tree.layout.message(id, MessageID(name))
            if measure_usage(path).bytes > SUSPECT_BYTES:
                yield _Suspect(path=path, session=id, message=MessageID(name))


def _cap(tree: Tree, found: _Suspect) -> Durable | None:
    """Return the event that caps a document, None if it is small enough or unreadable."""
    if found.message is None:
        diffs = tree.list_diff(found.session)
        return None if is_capped(diffs) else SessionDiffed(session_id=found.session, diff=cap_diffs(diffs))
    info: AnyMessage | None = tree.documents.find(found.path, AnyMessage)
    small = None if info is None else shrink_message(info)
    if small is None:
        return None
    return MessageUpdated(info=replace(small, id=found.message, session_id=found.session))
