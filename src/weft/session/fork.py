"""Fork a session: create a new one with a copy of the history before a message.

The copy is cut by position, since ids do not define an order. Every reference between copied things points to the copy, so the
model is shown exactly what it would have been shown in the original, also after a compaction.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from weft.model.diff import Tree
from weft.model.event import Durable, MessageUpdated, PartUpdated, TodoUpdated
from weft.model.ids import MessageID, Mint, PartID, SessionID
from weft.model.message import MessageWithParts, find_end
from weft.model.part import AnyPart, CompletedState, ToolPart
from weft.model.session import (
    ForkedFrom,
    SessionInfo,
    SessionTime,
    WeftSessionData,
    get_weft_data,
    make_slug,
    with_weft_data,
)
from weft.model.spending import Ledger
from weft.model.transcript import Transcript
from weft.session.lifecycle import SessionMaker
from weft.session.revert_point import get_history_trees, get_patch_trees
from weft.session.settle import to_settling_events
from weft.store.contract import Store
from weft.version import VERSION

# The new id for each old id.
NewIds = Mapping[str, str]

_FORK_TITLE = re.compile(r"(.*) \(fork #(\d{1,9})\)", re.DOTALL)

# Fields with text of people, models and tools. Nothing in them is replaced, even if it looks like an id.
_TEXT_FIELDS = frozenset({"text", "input", "output", "raw", "prompt", "system", "url"})


class PinTrees(Protocol):
    """Keep snapshots as long as this session exists."""

    async def __call__(self, session: SessionID, trees: Sequence[Tree], /) -> None: ...


async def pin_nothing(session: SessionID, trees: Sequence[Tree], /) -> None:
    """Keep nothing: there are no snapshots."""
    del session, trees


EditFork = Callable[[SessionInfo, Sequence[MessageWithParts]], tuple[SessionInfo, Sequence[MessageWithParts]]]


def keep_fork(
    session: SessionInfo, messages: Sequence[MessageWithParts]
) -> tuple[SessionInfo, Sequence[MessageWithParts]]:
    """Change nothing."""
    return session, messages


async def fork(
    maker: SessionMaker,
    store: Store,
    source: SessionInfo,
    *,
    at: MessageID | None = None,
    pin: PinTrees = pin_nothing,
    edit: EditFork = keep_fork,
) -> SessionInfo:
    """Fork a session before the message `at`, or at its end, and return the new session. It is stored all or nothing.

    `edit` may change the session and its messages before they are stored.
    """
    await maker.journal.flush()
    history = settle_history(await store.list_messages(source.id))
    copied = history[: find_end(at, (message.info.id for message in history))]
    session, copied = edit(make_fork(maker, source, at=at), copied)
    new_ids = make_new_ids(maker.mint, copied, source.id, session.id)
    session = _with_revert(session, source, new_ids)
    # In a thread: copying a long session would block the event loop noticeably.
    events: list[Durable] = await asyncio.to_thread(_copy_messages, copied, new_ids)
    todos = await store.list_todos(source.id) if at is None else []
    if todos:
        events.append(TodoUpdated(session_id=session.id, todos=tuple(todos)))
    # Pin first: the original may be removed at any time.
    await pin(session.id, sorted(get_history_trees(copied) | get_patch_trees(get_weft_data(session).undo)))
    await maker.journal.begin(session, *events)
    return session


def make_fork(maker: SessionMaker, source: SessionInfo, *, at: MessageID | None) -> SessionInfo:
    """Return the new session. It has spent nothing: the original paid for the copied messages.

    OpenCode drops the rules of the session, so that a fork may do what its original may not.
    """
    now, place = maker.clock.now(), maker.place
    same_project = source.project_id == place.project.id
    return SessionInfo(
        id=maker.mint.session(),
        slug=make_slug(maker.random),
        version=VERSION,
        project_id=source.project_id,
        directory=place.directory if same_project else source.directory,
        title=fork_title(source.title),
        permission=source.permission,
        time=SessionTime(created=now, updated=now),
        weft=WeftSessionData(
            forked_from=ForkedFrom(session_id=source.id, message_id=at),
            spent=Ledger(until=now),
            limits=get_weft_data(source).limits,
        ),
    )


def fork_title(title: str) -> str:
    """Return the title with the number of the fork, as OpenCode does from 1.1.42 on."""
    match = _FORK_TITLE.fullmatch(title)
    return f"{match[1]} (fork #{int(match[2]) + 1})" if match else f"{title} (fork #1)"


def settle_history(history: Sequence[MessageWithParts]) -> Sequence[MessageWithParts]:
    """Return the history with all open parts closed: a call that runs in the original does not run in the fork."""
    settling = to_settling_events(history)
    if not settling:
        return history
    transcript = Transcript(history)
    transcript.feed(*settling)
    return transcript.messages()


def make_new_ids(mint: Mint, history: Sequence[MessageWithParts], source: SessionID, to: SessionID) -> NewIds:
    """Return a new id for each copied session, message and part, in the same order.

    Parts are also listed by message and id, because imported parts of two messages may have the same id.
    """
    new_ids: dict[str, str] = {source: to}
    for message in history:
        new_ids[message.info.id] = mint.message()
        for part in message.parts:
            new_ids[part.id] = new_ids[_get_part_key(part)] = mint.part()
            if isinstance(part, ToolPart) and isinstance(part.state, CompletedState):
                new_ids.update({each.id: mint.part() for each in part.state.attachments or ()})
    return new_ids


def _copy_messages(messages: Sequence[MessageWithParts], new_ids: NewIds) -> list[Durable]:
    return [event for message in messages for event in _copy_message(message, new_ids)]


def _copy_message(message: MessageWithParts, new_ids: NewIds) -> Iterator[Durable]:
    yield MessageUpdated(info=remap_ids(message.info, new_ids))
    for part in message.parts:
        copy: AnyPart = remap_ids(part, new_ids)
        yield PartUpdated(part=replace(copy, id=PartID(new_ids[_get_part_key(part)])))


def _get_part_key(part: AnyPart) -> str:
    return f"{part.message_id}/{part.id}"


def remap_ids(value: Any, new_ids: NewIds) -> Any:
    """Return the value with every known id replaced, also in fields that weft does not know."""
    match value:
        case str():
            return new_ids.get(value, value)
        case msgspec.Struct():
            return _remap_struct(value, new_ids)
        case dict():
            return {key: remap_ids(item, new_ids) for key, item in value.items()}
        case tuple() | list():
            return type(value)(remap_ids(item, new_ids) for item in value)
        case _:
            return value


def _remap_struct(value: msgspec.Struct, new_ids: NewIds) -> msgspec.Struct:
    changes = {}
    for field in value.__struct_fields__:
        if field not in _TEXT_FIELDS:
            old = getattr(value, field)
            new = remap_ids(old, new_ids)
            if new is not old:
                changes[field] = new
    return replace(value, **changes) if changes else value


def _with_revert(session: SessionInfo, source: SessionInfo, new_ids: NewIds) -> SessionInfo:
    """Return the fork with the undo state of its original, if the point of the undo was copied."""
    if source.revert is None or source.revert.message_id not in new_ids:
        return session
    data = replace(get_weft_data(session), undo=get_weft_data(source).undo)
    return with_weft_data(replace(session, revert=remap_ids(source.revert, new_ids)), data)
