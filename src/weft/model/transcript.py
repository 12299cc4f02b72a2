"""Transcript: a session's messages with their parts, folded from events.

The run keeps one so that a step reads nothing again, the memory store keeps one per session, a screen draws one.
The same events give the same transcript wherever they are folded.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from weft.model.event import Event, MessageRemoved, MessageUpdated, PartGrew, PartRemoved, PartUpdated
from weft.model.ids import MessageID, PartID
from weft.model.message import AnyMessage, AssistantMessage, MessageWithParts, message_order, sort_parts
from weft.model.part import AnyPart, ReasoningPart, TextPart

P = TypeVar("P", bound=AnyPart)


class Transcript:
    """Messages oldest first. Parts may come before their message: they wait for it."""

    def __init__(self, messages: Iterable[MessageWithParts] = ()) -> None:
        self._messages: dict[MessageID, AnyMessage] = {}
        self._parts: dict[MessageID, dict[PartID, AnyPart]] = {}
        self._order: list[tuple[tuple[int, int, str], MessageID]] = []
        self._wholes: dict[MessageID, MessageWithParts] = {}
        self._listed: list[MessageWithParts] = []
        self._fresh = 0  # so many of the listed still hold
        self._latest = 0
        for message in messages:
            self._put(message.info)
            self._parts[message.info.id] = {part.id: part for part in message.parts}

    def feed(self, *events: Event) -> None:
        """Take in what happened; events of other kinds are passed over."""
        for event in events:
            match event:
                case MessageUpdated(info=info):
                    self._put(info)
                case MessageRemoved(message_id=id):
                    self._drop(id)
                    self._parts.pop(id, None)
                case PartUpdated(part=part):
                    self._parts_of(part.message_id)[part.id] = part
                case PartRemoved(message_id=message, part_id=id):
                    self._parts_of(message).pop(id, None)
                case PartGrew(message_id=message, part_id=id):
                    self._grow(message, id, event)
                case _:
                    pass

    def messages(self) -> list[MessageWithParts]:
        """A list of the caller's own. A message that did not change is the same object as the last time."""
        if self._fresh < max(len(self._order), len(self._listed)):
            changed = [id for _, id in self._order[self._fresh :]]
            self._listed[self._fresh :] = [self._wholes.get(id) or self._whole(id) for id in changed]
            self._fresh = len(self._order)
        return list(self._listed)

    def find(self, id: MessageID) -> MessageWithParts | None:
        return None if id not in self._messages else self._wholes.get(id) or self._whole(id)

    def newest_answer(self) -> AssistantMessage | None:
        found = (self._messages[id] for _, id in reversed(self._order))
        return next((each for each in found if isinstance(each, AssistantMessage)), None)

    def next_time(self, now: int) -> int:
        """A time for a new message: now, but later than every message there is and every time given out before,
        whatever the clock did meanwhile. Two that are made at once do not get the same."""
        self._latest = max(now, self._latest + 1)
        return self._latest

    def _whole(self, id: MessageID) -> MessageWithParts:
        info = self._messages[id]
        whole = MessageWithParts(info=info, parts=sort_parts(self._parts.get(info.id, {}).values(), info))
        self._wholes[id] = whole
        return whole

    def _parts_of(self, message: MessageID) -> dict[PartID, AnyPart]:
        self._change(message)
        return self._parts.setdefault(message, {})

    def _put(self, info: AnyMessage) -> None:
        known = self._messages.get(info.id)
        if known is None or known.time.created != info.time.created:
            self._drop(info.id)
            self._order.insert(self._place(info), (message_order(info), info.id))
        self._messages[info.id] = info
        self._latest = max(self._latest, info.time.created)
        self._change(info.id)

    def _drop(self, id: MessageID) -> None:
        if id in self._messages:
            self._change(id)
            del self._order[self._place(self._messages.pop(id))]

    def _change(self, id: MessageID) -> None:
        """What was put together of this message no longer holds, nor the list from its place on."""
        self._wholes.pop(id, None)
        if id in self._messages:
            self._fresh = min(self._fresh, self._place(self._messages[id]))

    def _place(self, info: AnyMessage) -> int:
        return bisect_left(self._order, (message_order(info), info.id))

    def _grow(self, message: MessageID, id: PartID, event: PartGrew) -> None:
        part = self._parts.get(message, {}).get(id)
        if part is not None:
            self._parts_of(message)[id] = grown(part, event)


def grown(part: P, event: PartGrew) -> P:
    """The part with its text grown. What cannot grow, or has no such place to grow from, stays as it is."""
    if not isinstance(part, TextPart | ReasoningPart) or event.field != "text":
        return part
    text, offset = part.text, event.offset
    if not 0 <= offset <= len(text) or text.startswith(event.delta, offset):
        return part  # it does not join on, or it was said before
    return replace(part, text=text[:offset] + event.delta)
