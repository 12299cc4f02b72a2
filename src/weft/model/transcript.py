"""Transcript: a session's messages with their parts, folded from events.

The run keeps one so that a step reads nothing again, the memory store keeps one per session, a screen draws one.
The same events give the same transcript wherever they are folded.
"""

from bisect import insort
from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from weft.model.event import Event, MessageRemoved, MessageUpdated, PartGrew, PartRemoved, PartUpdated
from weft.model.ids import MessageID, PartID
from weft.model.message import AnyMessage, MessageWithParts, message_order, sort_parts
from weft.model.part import AnyPart, ReasoningPart, TextPart

P = TypeVar("P", bound=AnyPart)


class Transcript:
    """Messages oldest first. Parts may come before their message: they wait for it."""

    def __init__(self, messages: Iterable[MessageWithParts] = ()) -> None:
        self._messages: dict[MessageID, AnyMessage] = {}
        self._parts: dict[MessageID, dict[PartID, AnyPart]] = {}
        self._order: list[tuple[tuple[int, int, str], MessageID]] = []
        self._wholes: dict[MessageID, MessageWithParts] = {}
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
        return [self._wholes.get(each) or self._whole(self._messages[each]) for _, each in self._order]

    def find(self, id: MessageID) -> MessageWithParts | None:
        info = self._messages.get(id)
        return None if info is None else self._whole(info)

    def newest(self) -> AnyMessage | None:
        return self._messages[self._order[-1][1]] if self._order else None

    def _whole(self, info: AnyMessage) -> MessageWithParts:
        whole = MessageWithParts(info=info, parts=sort_parts(self._parts.get(info.id, {}).values(), info))
        self._wholes[info.id] = whole
        return whole

    def _parts_of(self, message: MessageID) -> dict[PartID, AnyPart]:
        self._wholes.pop(message, None)
        return self._parts.setdefault(message, {})

    def _put(self, info: AnyMessage) -> None:
        known = self._messages.get(info.id)
        if known is None or known.time.created != info.time.created:
            self._drop(info.id)
            insort(self._order, (message_order(info), info.id))
        self._messages[info.id] = info
        self._wholes.pop(info.id, None)

    def _drop(self, id: MessageID) -> None:
        known = self._messages.pop(id, None)
        self._wholes.pop(id, None)
        if known is not None:
            self._order.remove((message_order(known), id))

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
