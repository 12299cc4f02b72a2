"""Show growth of local runs before it is in the log that all nodes share, without a gap and without a repeat (pure).

Everything that a node stores reaches its own listeners through the log, like the events of other nodes, so that all see the same order
and the same positions. Growth is written to the log every few milliseconds only; listeners here see it at once.
"""

from msgspec import Struct
from msgspec.structs import replace

from weft.model.event import Event, MessageRemoved, PartGrew, PartRemoved, PartUpdated, session_of
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.part import ReasoningPart, TextPart

MAX_DIGITS = 20


class ShownPart(Struct):
    """A part that grows here: how much of it was shown, and the shown text that is not in the log yet."""

    message: MessageID
    end: int
    unlogged: str = ""
    last: PartGrew | None = None


class EarlyGrowth:
    """The growing parts of one directory."""

    def __init__(self) -> None:
        # How many events of each session were published here and are not in the log yet.
        self._ahead: dict[SessionID, int] = {}
        self._parts: dict[PartID, ShownPart] = {}

    def reset(self) -> None:
        """Forget everything, because events were missed. Text that is not shown early comes through the log."""
        self._ahead.clear()
        self._parts.clear()

    def expect(self, event: Event) -> None:
        """Note an event that was published here and will come through the log."""
        self._count(session_of(event), 1)

    def show_early(self, event: PartGrew) -> PartGrew | None:
        """Return growth that may be shown now, None if something before it has not come through the log yet."""
        part = self._parts.get(event.part_id)
        if part is None or event.offset != part.end or self._ahead.get(event.session_id, 0):
            return None
        part.end += len(event.delta)
        part.unlogged += event.delta
        part.last = event
        return event

    def pass_logged(self, event: Event) -> Event | None:
        """Return the rest of one of our own events that came through the log, without what was shown early; None if nothing is left."""
        match event:
            case PartGrew():
                return self._pass_growth(event)
            case PartUpdated(part=TextPart() | ReasoningPart() as part) if (
                part.time and part.time.end is None
            ):
                self._parts[part.id] = ShownPart(part.message_id, len(part.text))
            case _:
                self.give_up(event)
        self._count(session_of(event), -1)
        return event

    def give_up(self, event: Event) -> None:
        """Show no more growth of the parts that an event replaces or removes.

        If it is an event of another node, that node has taken over the session, and later text of a run here is not stored.
        """
        match event:
            case PartUpdated(part=part):
                self._parts.pop(part.id, None)
            case PartRemoved(part_id=id):
                self._parts.pop(id, None)
            case MessageRemoved(message_id=message):
                self._parts = {id: each for id, each in self._parts.items() if each.message != message}
            case _:
                pass

    def list_unlogged(self) -> list[PartGrew]:
        """Return the text of each part that was shown early and is not in the log yet, for a listener that joins now."""
        return [
            replace(part.last, delta=part.unlogged, offset=part.end - len(part.unlogged))
            for part in self._parts.values()
            if part.last is not None and part.unlogged
        ]

    def place(self, position: int) -> "EventID":
        """Return the place of a listener that has everything up to a position, and perhaps text that was shown early."""
        part = next((id for id, each in reversed(self._parts.items()) if each.unlogged), None)
        return EventID(position) if part is None else EventID(position, part, self._parts[part].end)

    def _pass_growth(self, event: PartGrew) -> PartGrew | None:
        part, end = self._parts.get(event.part_id), event.offset + len(event.delta)
        if part is None:
            return event
        part.unlogged = part.unlogged[max(0, len(part.unlogged) - max(0, part.end - end)) :]
        if part.end <= event.offset:
            part.end = end
            return event
        if end <= part.end:
            return None
        shown, part.end = trim_growth(event, part.end), end
        return shown

    def _count(self, session: SessionID | None, change: int) -> None:
        if session is not None:
            count = self._ahead.pop(session, 0) + change
            if count:
                self._ahead[session] = count


def trim_growth(event: PartGrew, start: int) -> PartGrew | None:
    """Return the growth from a character of the text on, None if nothing is left."""
    delta = event.delta[max(0, start - event.offset) :]
    return replace(event, delta=delta, offset=max(start, event.offset)) if delta else None


class EventID(Struct, frozen=True):
    """The place of a listener: it has everything up to `position`, and the text of `part` up to character `end`, shown early."""

    position: int
    part: str = ""
    end: int = 0

    def format(self, name: str) -> str:
        early = f"~{self.part}:{self.end}" if self.part else ""
        return f"{name}.{self.position}{early}"


def parse_event_id(name: str, given: str) -> EventID | None:
    """Read the id of an event of the log `name`. Return None if it is something else."""
    rest, _, early = given.partition("~")
    log, _, position = rest.rpartition(".")
    part, _, end = early.rpartition(":")
    if log != name or not _is_number(position) or (early and not (part and _is_number(end))):
        return None
    return EventID(int(position), part, int(end) if early else 0)


def _is_number(digits: str) -> bool:
    # Checked first: Python refuses to convert thousands of digits.
    return len(digits) <= MAX_DIGITS and digits.isascii() and digits.isdecimal()
