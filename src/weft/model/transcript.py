"""Transcript: the messages of a session with their parts, folded from events.

A run keeps one so that it reads the store only once. The memory store keeps one per session, and front ends display one.
"""

from bisect import bisect_left
from collections.abc import Iterable
from operator import le
from typing import Literal, TypeVar

from msgspec.structs import replace

from weft.model.event import (
    Event,
    MessageRemoved,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    SessionCreated,
    SessionUpdated,
    session_of,
)
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AnyMessage, AssistantMessage, MessageWithParts, message_sort_key, sort_parts
from weft.model.part import AnyPart, ReasoningPart, TextPart

P = TypeVar("P", bound=AnyPart)


class Transcript:
    """Messages in order, oldest first. A part may arrive before its message.

    The initial messages may be in any order; the parts of each must be sorted. A message that does not change stays the same
    object.
    """

    def __init__(self, messages: Iterable[MessageWithParts] = ()) -> None:
        self._built: dict[MessageID, MessageWithParts] = {each.info.id: each for each in messages}
        self._list = list(self._built.values())
        times = [each.info.time.created for each in self._list]
        if any(map(le, times[1:], times)):  # a time is not later than the one before it
            self._list.sort(key=lambda each: _sort_key(each.info))
        self._valid_count = len(self._list)  # how many entries at the start of _list are up to date
        self._messages: dict[MessageID, AnyMessage] = {each.info.id: each.info for each in self._list}
        self._order = list(self._messages)
        self._parts: dict[MessageID, dict[PartID, AnyPart]] = {}  # only of changed messages
        self._latest = max(times, default=0)

    def feed(self, *events: Event) -> None:
        """Apply events. Events that do not concern messages are ignored."""
        for event in events:
            match event:
                case MessageUpdated(info=info):
                    self._put(info)
                case MessageRemoved(message_id=id):
                    self._drop(id)
                    self._parts.pop(id, None)
                case PartUpdated(part=part):
                    self._get_parts(part.message_id)[part.id] = part
                case PartRemoved(message_id=message, part_id=id):
                    self._get_parts(message).pop(id, None)
                case PartGrew(message_id=message, part_id=id):
                    self._grow(message, id, event)
                case _:
                    pass

    def messages(self) -> list[MessageWithParts]:
        """Return a new list of all messages. An unchanged message is the same object as in the last call."""
        if self._valid_count < max(len(self._order), len(self._list)):
            changed = self._order[self._valid_count :]
            self._list[self._valid_count :] = [self._built.get(id) or self._build(id) for id in changed]
            self._valid_count = len(self._order)
        return list(self._list)

    def find(self, id: MessageID) -> MessageWithParts | None:
        return None if id not in self._messages else self._built.get(id) or self._build(id)

    def newest_answer(self) -> AssistantMessage | None:
        newest_first = (self._messages[id] for id in reversed(self._order))
        return next((message for message in newest_first if isinstance(message, AssistantMessage)), None)

    def next_time(self, now: int) -> int:
        """Return the time for a new message: now, or later than every existing message and every time returned before."""
        self._latest = max(now, self._latest + 1)
        return self._latest

    def _build(self, id: MessageID) -> MessageWithParts:
        info = self._messages[id]
        message = MessageWithParts(info=info, parts=sort_parts(self._parts.get(info.id, {}).values(), info))
        self._built[id] = message
        return message

    def _get_parts(self, message: MessageID) -> dict[PartID, AnyPart]:
        self._invalidate(message)
        return self._parts.setdefault(message, {})

    def _put(self, info: AnyMessage) -> None:
        previous = self._messages.get(info.id)
        if previous is None or previous.time.created != info.time.created:
            self._drop(info.id)
            self._order.insert(self._find_index(info), info.id)
        self._messages[info.id] = info
        self._latest = max(self._latest, info.time.created)
        self._invalidate(info.id)

    def _drop(self, id: MessageID) -> None:
        if id in self._messages:
            self._invalidate(id)
            del self._order[self._find_index(self._messages[id])]
            del self._messages[id]

    def _invalidate(self, id: MessageID) -> None:
        """Drop the cached message, and mark the list as outdated from its place on."""
        message = self._built.pop(id, None)
        if message is not None and id not in self._parts:
            self._parts[id] = {part.id: part for part in message.parts}
        if id in self._messages:
            is_last = self._order[-1] == id  # most changes are to the last message
            index = len(self._order) - 1 if is_last else self._find_index(self._messages[id])
            self._valid_count = min(self._valid_count, index)

    def _find_index(self, info: AnyMessage) -> int:
        return bisect_left(self._order, _sort_key(info), key=self._get_sort_key)

    def _get_sort_key(self, id: MessageID) -> tuple[tuple[int, int, str], MessageID]:
        return _sort_key(self._messages[id])

    def _grow(self, message: MessageID, id: PartID, event: PartGrew) -> None:
        if self._has_part(message, id):
            parts = self._get_parts(message)
            parts[id] = grow_part(parts[id], event)

    def _has_part(self, message: MessageID, part: PartID) -> bool:
        if message in self._parts:
            return part in self._parts[message]
        built = self._built.get(message)
        return built is not None and any(each.id == part for each in built.parts)


def _sort_key(info: AnyMessage) -> tuple[tuple[int, int, str], MessageID]:
    return message_sort_key(info), info.id


def grow_part(part: P, event: PartGrew) -> P:
    """Return the part with the text of the event at its offset, in place of what followed there.

    Return it unchanged if the event does not fit or was applied before.
    """
    if not isinstance(part, TextPart | ReasoningPart) or event.field != "text":
        return part
    text, offset = part.text, event.offset
    if not 0 <= offset <= len(text) or text.startswith(event.delta, offset):
        return part  # a gap, or applied before
    return replace(part, text=text[:offset] + event.delta)


class SessionDescendants:
    """A session and its descendants, learned from events."""

    def __init__(self, session: SessionID) -> None:
        self._session = session
        self._below: set[SessionID] = set()

    def classify(self, event: Event) -> Literal["own", "below"] | None:
        """Return whether an event is about the session itself (`own`), a descendant (`below`), or neither (None)."""
        match event:
            # A child session is created or updated before it runs, and both events name its parent.
            case SessionCreated(info=info) | SessionUpdated(info=info):
                if info.parent_id == self._session or info.parent_id in self._below:
                    self._below.add(info.id)
            case _:
                pass
        about = session_of(event)
        if about == self._session:
            return "own"
        return "below" if about in self._below else None
