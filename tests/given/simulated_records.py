"""What was written to a store, batch by batch, and what must be there: after each read, a kill and a power failure."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import compress, product
from operator import not_
from typing import Any

from weft.errors import WeftError
from weft.model.event import (
    Durable,
    Event,
    MessageRemoved,
    MessageUpdated,
    PartRemoved,
    SessionCreated,
    SessionDeleted,
    SessionUpdated,
    session_of,
)
from weft.model.ids import SessionID
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import ReasoningPart, TextPart
from weft.model.session import SessionInfo
from weft.model.transcript import Transcript

MAX_UNKNOWN = 8
Documents = dict[str, Any]


def is_promised(event: Durable) -> bool:
    """Return True if the event survives a power failure, with everything that was applied to its session before it (`Store`)."""
    match event:
        case SessionCreated() | SessionDeleted() | MessageRemoved() | PartRemoved():
            return True
        case MessageUpdated(info=UserMessage()):
            return True
        case MessageUpdated(info=AssistantMessage(time=time)):
            return time.completed is not None
        case _:
            return False


class WrittenBatch:
    """Events that were written together. They are `acknowledged` when the store said so, and `done` when they were found.

    Others may be there or not, but not half of them.
    """

    def __init__(self, writer: str, *, edits: bool = False, leased: bool = False) -> None:
        self.events: list[Durable] = []
        self.done = False
        self.acknowledged = False
        self.refused = False
        self.may_return = False  # refused, but a power failure may undo that: the disk did not flush it
        self.writer = writer
        self.leased = leased
        self._edits = edits

    def add(self, *events: Durable) -> None:
        self.events += events

    def is_promised(self) -> bool:
        return self.acknowledged and (self._edits or any(map(is_promised, self.events)))


def to_documents(history: Sequence[MessageWithParts], info: SessionInfo | None) -> Documents:
    found: Documents = {} if info is None else {"session": info}
    for message in history:
        found[message.info.id] = message.info
        found |= {part.id: part for part in message.parts}
    return found


class SessionRecord:
    """A session: how it was when all of it was on the disk itself, and what was written since."""

    def __init__(self, history: Sequence[MessageWithParts] = (), info: SessionInfo | None = None) -> None:
        self._base = list(history)
        self._info = info
        self._batches: list[WrittenBatch] = []
        self._live: Transcript | None = Transcript(self._base)
        # True if a refused write may be there: a disk that cannot flush cannot roll it back either.
        self.is_surprising = False

    def add(self, batch: WrittenBatch) -> None:
        self._batches.append(batch)
        if not batch.done:
            self._live = None
        elif self._live is not None:
            _, self._live = apply_events(batch.events, self._info, self._live)

    def find_known(self) -> list[MessageWithParts] | None:
        """Return the history if it is certain."""
        return None if self._live is None else self._live.messages()

    def check_whole(self, history: list[MessageWithParts], info: SessionInfo | None) -> str | None:
        """Report a session that is not what was written. A batch whose end is unknown must be complete or absent."""
        unknown = [batch for batch in self._batches if not batch.done]
        if len(unknown) > MAX_UNKNOWN:
            # Too many to try: which of them are there stays unknown, and is not checked.
            self.is_surprising, self._live = True, Transcript(history)
            return None
        for choice in product((True, False), repeat=len(unknown)):
            there = {id(batch) for batch, kept in zip(unknown, choice, strict=True) if kept}
            batches = [batch for batch in self._batches if batch.done or id(batch) in there]
            if self._fold(batches) == (info, history):
                self._settle(batches, history)
                return None
        return describe_difference(self._fold(self._batches), (info, history))

    def _settle(self, batches: list[WrittenBatch], history: list[MessageWithParts]) -> None:
        self.is_surprising |= any(batch.refused for batch in batches)
        for batch in batches:
            batch.done = True
        self._batches = [batch for batch in self._batches if batch.done or batch.may_return]
        self._live = Transcript(history)

    def _fold(self, batches: Sequence[WrittenBatch]) -> tuple[SessionInfo | None, list[MessageWithParts]]:
        info, transcript = self._info, Transcript(self._base)
        for batch in batches:
            info, transcript = apply_events(batch.events, info, transcript)
        return info, transcript.messages()

    def _find_promised(self) -> int:
        """Return how many batches survive a power failure: those before a promised one of the same process or under a lease."""
        floor = 0
        for number, batch in enumerate(self._batches, 1):
            others = [each for each in self._batches[floor : number - 1] if each.writer != batch.writer]
            if batch.is_promised() and (batch.leased or not others):
                floor = number
        return floor

    def check_after_power_failure(
        self, history: list[MessageWithParts], info: SessionInfo | None
    ) -> Iterator[str]:
        """Yield each document that was promised and is neither as promised nor as something later left it."""
        floor = self._find_promised()
        unknown = [id(batch) for batch in self._batches if not batch.done]
        if len(unknown) > MAX_UNKNOWN:  # too many to try: all or none
            choices = [(False,) * len(unknown), (True,) * len(unknown)]
        else:
            choices = list(product((False, True), repeat=len(unknown)))
        absent = [set(compress(unknown, map(not_, choice))) for choice in choices]
        states = [
            to_documents(
                *reversed(self._fold([each for each in self._batches[:number] if id(each) not in gone]))
            )
            for gone in absent
            for number in range(floor, len(self._batches) + 1)
        ]
        found = to_documents(history, info)
        for key, value in states[0].items():
            if key not in found and all(key in state for state in states):
                yield f"promised, and lost by a power failure: {value}"
        for key, value in found.items():
            least = states[0].get(key)
            if not any(is_version(value, state[key], least) for state in states if key in state):
                yield f"neither as promised nor as written later: {value}"
        is_surprising = self.is_surprising or any(batch.refused for batch in self._batches)
        self.__init__(history, info)  # type: ignore[misc]
        self.is_surprising = is_surprising


def is_version(found: Any, written: Any, least: Any) -> bool:
    """Return True if a document is as it was written, or has a part of the text that it grew to, and not less than was promised."""
    if isinstance(written, TextPart | ReasoningPart) and isinstance(found, TextPart | ReasoningPart):
        promised = least.text if isinstance(least, TextPart | ReasoningPart) else ""
        return found == written or (written.text.startswith(found.text) and found.text.startswith(promised))
    return bool(found == written)


def apply_events(
    events: Sequence[Durable], info: SessionInfo | None, transcript: Transcript
) -> tuple[SessionInfo | None, Transcript]:
    for event in events:
        match event:
            case SessionCreated(info=info) | SessionUpdated(info=info):
                pass
            case SessionDeleted():
                info, transcript = None, Transcript()
            case _:
                transcript.feed(event)
    return info, transcript


def describe_difference(
    expected: tuple[SessionInfo | None, list[MessageWithParts]],
    found: tuple[SessionInfo | None, list[MessageWithParts]],
) -> str:
    wanted, there = to_documents(*reversed(expected)), to_documents(*reversed(found))
    missing = [f"missing: {wanted[key]}" for key in wanted if key not in there]
    added = [f"not written: {there[key]}" for key in there if key not in wanted]
    other = [
        f"{there[key]}\n  instead of {wanted[key]}"
        for key in there
        if there[key] != wanted.get(key, there[key])
    ]
    return "\n  ".join(["stored is not what was written:", *missing, *added, *other])


class Records:
    """Everything that is known of one world: what was written and published, what is wrong, and a log of it all."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.log: list[str] = []
        self.now = lambda: 0.0
        self.sessions: dict[SessionID, SessionRecord] = {}
        self.heard: dict[SessionID, Transcript] = {}

    def tell(self, what: str) -> None:
        self.log.append(f"{self.now():9.3f} {what}")

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.tell(f"WRONG: {otherwise}")
            self.wrong.append(otherwise)

    @contextmanager
    def record_batch(self, batch: WrittenBatch) -> Iterator[WrittenBatch]:
        """Record what becomes of a batch, whose events are added meanwhile."""
        try:
            yield batch
            batch.done = batch.acknowledged = True
        except WeftError:
            batch.events.clear()  # refused before anything was written
            raise
        finally:
            self.tell(
                f"{'wrote' if batch.done else 'did not write'} {', '.join(map(describe, batch.events))}"
            )
            for session in {id for event in batch.events if (id := session_of(event)) is not None}:
                self.sessions.setdefault(session, SessionRecord()).add(split(batch, session))

    def listen(self) -> None:
        """Begin to listen to a process. Events that it published while it was opened are missed."""
        for session in self.sessions:
            self._begin(session)

    def _begin(self, session: SessionID) -> None:
        self.heard[session] = Transcript(self.sessions[session].find_known() or ())

    def hear(self, event: Event) -> None:
        session = session_of(event)
        if isinstance(event, SessionCreated):
            self._begin(event.info.id)  # a fork publishes no messages
        elif session is not None and session in self.heard:
            self.heard[session].feed(event)

    def check_heard(self, session: SessionID, stored: list[MessageWithParts]) -> None:
        heard = self.heard[session].messages() if session in self.heard and stored else stored
        if heard != stored:
            self.expect(False, f"published: {describe_difference((None, heard), (None, stored))}")

    def check_read(self, session: SessionID, found: list[MessageWithParts]) -> None:
        known = self.sessions[session].find_known() if session in self.sessions else None
        if known is not None and known != found:
            self.expect(False, f"read: {describe_difference((None, known), (None, found))}")


def split(batch: WrittenBatch, session: SessionID) -> WrittenBatch:
    """Return the part of a batch that is about one session."""
    own = [event for event in batch.events if session_of(event) == session]
    if len(own) == len(batch.events):
        return batch
    part = WrittenBatch(batch.writer, leased=batch.leased)
    part.events, part.done, part.acknowledged = own, batch.done, batch.acknowledged
    part.refused, part.may_return = batch.refused, batch.may_return
    return part


def describe(event: Event) -> str:
    match event:
        case MessageUpdated(info=info):
            return f"{info.role} {info.id[-6:]}{' (done)' if is_promised(event) else ''}"
        case _:
            part = getattr(event, "part", None)
            return event.type if part is None else f"{part.type} {part.id[-6:]}"
