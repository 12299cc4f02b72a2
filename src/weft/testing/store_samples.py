"""Values that the checks of a store are made of."""

from collections.abc import Awaitable, Callable
from decimal import Decimal

from weft.errors import NotFoundError
from weft.model.event import PartGrew
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.message import AnyMessage, AssistantMessage, AssistantTime, MessageWithParts, UserMessage
from weft.model.part import (
    AnyPart,
    CallTime,
    CompletedState,
    Moment,
    ReasoningPart,
    Span,
    StepFinishPart,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.model.session import SessionInfo, SessionSummary, SessionTime
from weft.store.contract import Store

Check = Callable[[Store], Awaitable[None]]

NOW = 1_790_000_000_000
# Ids carry the low 48 bits of a number that passed a multiple of 2**48 in this millisecond: 2026-08-14.
WRAP = 26 << 36

PROJECT = ProjectID("p1")
SESSION = SessionID("ses_1")
PROMPT = MessageID("msg_1")
ANSWER = MessageID("msg_2")

HOSTILE = (
    "nul \x00 inside",
    "half a pair \ud83d alone",
    "emoji 👩‍👩‍👧 and \u202eright to left",
    "\ufeffbom\r\ncrlf\u2028line",
    '"quotes" \\ back {} [] </script>',
    "x" * 1_000_000,
)


def session(id: str = SESSION, *, project: str = PROJECT, created: int = NOW, title: str = "") -> SessionInfo:
    return SessionInfo(
        id=SessionID(id),
        slug="quiet-otter",
        version="1.0",
        project_id=ProjectID(project),
        directory="/work",
        title=title,
        time=SessionTime(created=created, updated=created),
        summary=SessionSummary(additions=1, deletions=2, files=3),
    )


def prompt(id: str = PROMPT, *, of: str = SESSION, created: int = NOW) -> UserMessage:
    return UserMessage(
        id=MessageID(id), session_id=SessionID(of), time=Moment(created=created), agent="build"
    )


def answer(id: str = ANSWER, *, of: str = SESSION, created: int = NOW + 1) -> AssistantMessage:
    return AssistantMessage(
        id=MessageID(id),
        session_id=SessionID(of),
        time=AssistantTime(created=created),
        parent_id=PROMPT,
        cost=Decimal("0.0123"),
    )


def text(id: str, words: str, *, of: str = PROMPT, session: str = SESSION) -> TextPart:
    return TextPart(id=PartID(id), session_id=SessionID(session), message_id=MessageID(of), text=words)


def growth(id: str, delta: str, offset: int, *, of: str = PROMPT) -> PartGrew:
    return PartGrew(
        session_id=SESSION,
        message_id=MessageID(of),
        part_id=PartID(id),
        field="text",
        delta=delta,
        offset=offset,
    )


def with_parts(info: AnyMessage, *parts: AnyPart) -> MessageWithParts:
    return MessageWithParts(info=info, parts=parts)


async def find_text(store: Store, part: str = "prt_1") -> str | None:
    """Return the stored text of a part of the prompt."""
    message = await store.find_message(SESSION, PROMPT)
    assert message is not None
    found = [each for each in message.parts if each.id == part]
    return found[0].text if found and isinstance(found[0], TextPart | ReasoningPart) else None


async def expect_missing(work: Awaitable[object]) -> NotFoundError:
    """Return the `NotFoundError` that an operation raises."""
    try:
        await work
    except NotFoundError as error:
        return error
    raise AssertionError("no NotFoundError")


def many_parts(message: MessageID) -> tuple[AnyPart, ...]:
    """Return parts of several kinds with unusual values."""
    return (
        TextPart(
            id=PartID("prt_1"),
            session_id=SESSION,
            message_id=message,
            text="words",
            synthetic=True,
            time=Span(start=1, end=2),
        ),
        ReasoningPart(
            id=PartID("prt_2"),
            session_id=SESSION,
            message_id=message,
            text="hm",
            metadata={"provider": {"signature": "x"}},
            time=Span(start=1),
        ),
        ToolPart(
            id=PartID("prt_3"),
            session_id=SESSION,
            message_id=message,
            call_id="call_1",
            tool="bash",
            state=CompletedState(
                input={"command": "ls", "deep": [1, None, {"a": 1.5}]},
                output="a\nb",
                title="ls",
                metadata={"exit": 0},
                time=CallTime(start=1, end=2),
            ),
        ),
        StepFinishPart(
            id=PartID("prt_4"),
            session_id=SESSION,
            message_id=message,
            reason="stop",
            cost=Decimal("0.000001"),
            tokens=Tokens(input=3),
        ),
    )
