"""Summaries that outgrew their bounds: the diffs in a prompt's message and those of a session, made small again."""

from collections.abc import Callable, Iterator
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from weft.model.diff_cap import cap_diffs, is_capped
from weft.model.event import Durable, MessageUpdated, SessionDiffed
from weft.model.ids import MessageID, SessionID
from weft.model.message import AnyMessage, UserMessage
from weft.store.files_care.caretaker import Caretaker
from weft.store.files_care.heap import weigh
from weft.store.files_care.inventory import Inventory
from weft.store.layout import session_lock
from weft.store.tree import Tree

Told = Callable[[int], None]

# A smaller document cannot hold what is over the bounds of one file.
SUSPECT = 64 << 10


class Shrunk(Struct, frozen=True, kw_only=True):
    """A document that was, or could be, made smaller."""

    path: str
    bytes: int
    after: int


class _Found(Struct, frozen=True, kw_only=True):
    path: str
    session: SessionID
    message: MessageID | None = None


def find_oversized(tree: Tree, inventory: Inventory, *, told: Told = lambda _: None) -> list[Shrunk]:
    """The documents whose diffs are over the bounds. What they would come to is known once they are shrunk."""
    return [
        Shrunk(path=found.path, bytes=weigh(found.path).bytes, after=0)
        for found in _suspects(tree, inventory, told)
        if _capped(tree, found) is not None
    ]


def shrink(caretaker: Caretaker, inventory: Inventory, *, told: Told = lambda _: None) -> list[Shrunk]:
    """Cap them, each under its session's lock; the originals are copied aside first."""
    shrunk: list[Shrunk] = []
    for found in _suspects(caretaker.tree, inventory, told):
        with suppress(FileNotFoundError), caretaker.holding(session_lock(found.session)) as held:
            event = _capped(caretaker.tree, found)
            if event is not None:
                before = weigh(found.path).bytes
                caretaker.put_held(held, event)
                shrunk.append(Shrunk(path=found.path, bytes=before, after=weigh(found.path).bytes))
    return shrunk


def _suspects(tree: Tree, inventory: Inventory, told: Told) -> Iterator[_Found]:
    for number, session in enumerate(sorted(inventory.sessions)):
        told(number)
        id = SessionID(session)
        if session in inventory.diffs and weigh(tree.layout.diff(id)).bytes > SUSPECT:
            yield _Found(path=tree.layout.diff(id), session=id)
        for name in sorted(inventory.messages.get(session, ())):
            path = tree.layout.message(id, MessageID(name))
            if weigh(path).bytes > SUSPECT:
                yield _Found(path=path, session=id, message=MessageID(name))


def _capped(tree: Tree, found: _Found) -> Durable | None:
    """The event that makes it small, None if it is small enough or cannot be read."""
    if found.message is None:
        diffs = tree.list_diff(found.session)
        return None if is_capped(diffs) else SessionDiffed(session_id=found.session, diff=cap_diffs(diffs))
    info: AnyMessage | None = tree.documents.find(found.path, AnyMessage)
    if not isinstance(info, UserMessage) or info.summary is None or is_capped(info.summary.diffs):
        return None
    summary = replace(info.summary, diffs=cap_diffs(info.summary.diffs))
    return MessageUpdated(info=replace(info, id=found.message, session_id=found.session, summary=summary))
