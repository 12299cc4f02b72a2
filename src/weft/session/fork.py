"""Fork: a new session that begins with a copy of another's history, up to a message and without it.

The copy is cut by position: ids are names and say nothing of order. Every reference from one copied thing to another
leads to the copy, so what the model is shown next is what it would have been shown there, after a compaction too.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from weft.model.diff import Tree
from weft.model.event import Durable, MessageUpdated, PartUpdated, TodoUpdated
from weft.model.ids import MessageID, Mint, PartID, SessionID
from weft.model.message import MessageWithParts, place_of
from weft.model.part import AnyPart, CompletedState, ToolPart
from weft.model.session import ForkedFrom, Session, SessionOwn, SessionTime, make_slug, own_of, with_own
from weft.model.spending import Ledger
from weft.model.transcript import Transcript
from weft.session.lifecycle import Maker
from weft.session.revert_point import trees_in, trees_of
from weft.session.settle import to_settle
from weft.store.contract import Store
from weft.version import VERSION

Names = Mapping[str, str]

_FORKED = re.compile(r"(.*) \(fork #(\d{1,9})\)", re.DOTALL)

# What was said, asked for and answered stays as it was, even where it happens to be an id.
_WORDS = frozenset({"text", "input", "output", "raw", "prompt", "system", "url"})


class Pin(Protocol):
    """Keep snapshots for a session, as long as it is there."""

    async def __call__(self, session: SessionID, trees: Sequence[Tree], /) -> None: ...


async def nothing_kept(session: SessionID, trees: Sequence[Tree], /) -> None:
    """For where there are no snapshots."""
    del session, trees


async def fork(
    maker: Maker, store: Store, source: Session, *, at: MessageID | None = None, pin: Pin = nothing_kept
) -> Session:
    """A fork of a session, whole and on disk, or none: up to the message `at`, else to the end."""
    await maker.journal.flush()
    history = settled(await store.list_messages(source.id))
    copied = history[: place_of(at, (message.info.id for message in history))]
    session = forked(maker, source, at=at)
    names = rename(maker.mint, copied, source.id, session.id)
    session = _taken_back(session, source, names)
    # Beside the event loop: of a long session that takes long enough to hold up what others are streaming.
    events: list[Durable] = await asyncio.to_thread(_copies, copied, names)
    todos = await store.list_todos(source.id) if at is None else []
    if todos:
        events.append(TodoUpdated(session_id=session.id, todos=tuple(todos)))
    # First: the original may be removed as soon as there is a copy.
    await pin(session.id, sorted(trees_in(copied) | trees_of(own_of(session).undo)))
    await maker.journal.begin(session, *events)
    return session


def forked(maker: Maker, source: Session, *, at: MessageID | None) -> Session:
    """The new session itself. It has spent nothing yet; what its messages cost, they cost the other one.

    OpenCode drops the rules of the session as well: a fork may then do what its original may not.
    """
    now, place = maker.clock.now(), maker.place
    at_home = source.project_id == place.project.id
    return Session(
        id=maker.mint.session(),
        slug=make_slug(maker.random),
        version=VERSION,
        project_id=source.project_id,
        directory=place.directory if at_home else source.directory,
        title=fork_title(source.title),
        permission=source.permission,
        time=SessionTime(created=now, updated=now),
        weft=SessionOwn(
            forked_from=ForkedFrom(session_id=source.id, message_id=at),
            spent=Ledger(until=now),
            limits=own_of(source).limits,
        ),
    )


def fork_title(title: str) -> str:
    """The title and the number of the fork, as OpenCode names them from 1.1.42 on."""
    known = _FORKED.fullmatch(title)
    return f"{known[1]} (fork #{int(known[2]) + 1})" if known else f"{title} (fork #1)"


def settled(history: Sequence[MessageWithParts]) -> Sequence[MessageWithParts]:
    """The history with nothing left open: what runs on in the original does not run on in the fork."""
    left_open = to_settle(history)
    if not left_open:
        return history
    transcript = Transcript(history)
    transcript.feed(*left_open)
    return transcript.messages()


def rename(mint: Mint, history: Sequence[MessageWithParts], source: SessionID, to: SessionID) -> Names:
    """New names for all that is copied, in the order of the old ones; of a part by its place, too.

    A part that was made by hand may bear the name of one in another message: only its place says which it is.
    """
    names: dict[str, str] = {source: to}
    for message in history:
        names[message.info.id] = mint.message()
        for part in message.parts:
            names[part.id] = names[_place(part)] = mint.part()
            if isinstance(part, ToolPart) and isinstance(part.state, CompletedState):
                names.update({each.id: mint.part() for each in part.state.attachments or ()})
    return names


def _copies(messages: Sequence[MessageWithParts], names: Names) -> list[Durable]:
    return [event for message in messages for event in _copied(message, names)]


def _copied(message: MessageWithParts, names: Names) -> Iterator[Durable]:
    yield MessageUpdated(info=remapped(message.info, names))
    for part in message.parts:
        copy: AnyPart = remapped(part, names)
        yield PartUpdated(part=replace(copy, id=PartID(names[_place(part)])))


def _place(part: AnyPart) -> str:
    return f"{part.message_id}/{part.id}"


def remapped(value: Any, names: Names) -> Any:
    """The value with every name in it replaced, in fields that we do not know as well."""
    match value:
        case str():
            return names.get(value, value)
        case msgspec.Struct():
            return _remapped_struct(value, names)
        case dict():
            return {key: remapped(item, names) for key, item in value.items()}
        case tuple() | list():
            return type(value)(remapped(item, names) for item in value)
        case _:
            return value


def _remapped_struct(value: msgspec.Struct, names: Names) -> msgspec.Struct:
    changes = {}
    for field in value.__struct_fields__:
        if field not in _WORDS:
            known = getattr(value, field)
            new = remapped(known, names)
            if new is not known:
                changes[field] = new
    return replace(value, **changes) if changes else value


def _taken_back(session: Session, source: Session, names: Names) -> Session:
    """Taken back to where the original was, if that is in the fork, with the way forward."""
    if source.revert is None or source.revert.message_id not in names:
        return session
    own = replace(own_of(session), undo=own_of(source).undo)
    return with_own(replace(session, revert=remapped(source.revert, names)), own)
