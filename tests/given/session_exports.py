"""Small complete sessions to export and import, with ids as OpenCode generates them."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from msgspec.structs import replace

from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.message import AssistantMessage, AssistantTime, MessagePath, MessageWithParts, UserMessage
from weft.model.part import (
    AnyPart,
    CallTime,
    CompletedState,
    ModelRef,
    Moment,
    Span,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.model.session import SessionInfo, SessionTime
from weft.model.transfer import SessionExport

AT = 1_790_000_000_000
MODEL = ModelRef(provider_id="fake", model_id="fake-model")


def id_of(prefix: str, number: int, tail: str = "") -> str:
    return f"{prefix}_{(AT * 4096 + number) % (1 << 48):012x}{tail:0<14}"


def session_id(number: int = 1) -> SessionID:
    return SessionID(id_of("ses", number, "S"))


def export(
    number: int = 1, *, turns: int = 1, directory: str = "/there/project", **more: Any
) -> SessionExport:
    """Make a session with that many `turns`, each of which is a prompt, and an answer with a tool call."""
    session = session_id(number)
    messages: list[MessageWithParts] = []
    for turn in range(turns):
        messages += turn_of(session, number * 10_000 + turn * 10, turn, directory)
    return SessionExport(
        info=info(session, directory=directory, turns=turns), messages=tuple(messages), **more
    )


def info(session: SessionID, *, directory: str = "/there/project", turns: int = 1) -> SessionInfo:
    return SessionInfo(
        id=session,
        slug="quiet-otter",
        version="1.1.34",
        project_id=ProjectID("there"),
        directory=directory,
        title="A session",
        time=SessionTime(created=AT, updated=AT + turns),
    )


def turn_of(session: SessionID, base: int, turn: int, directory: str) -> list[MessageWithParts]:
    at, asked, answered = AT + turn * 2, id_of("msg", base, "U"), id_of("msg", base + 1, "A")
    prompt = UserMessage(
        id=MessageID(asked), session_id=session, time=Moment(created=at), agent="build", model=MODEL
    )
    answer = AssistantMessage(
        id=MessageID(answered),
        session_id=session,
        time=AssistantTime(created=at + 1, completed=at + 1),
        parent_id=MessageID(asked),
        model_id=MODEL.model_id,
        provider_id=MODEL.provider_id,
        agent="build",
        mode="build",
        path=MessagePath(cwd=directory, root=directory),
        cost=Decimal("0.01"),
        tokens=Tokens(input=3, output=4),
        finish="stop",
    )
    state = CompletedState(
        input={"filePath": f"{directory}/a.py"},
        output=f"read {directory}/a.py",
        title="a.py",
        metadata={},
        time=CallTime(start=at, end=at),
    )
    ids = {"session_id": session, "message_id": MessageID(answered)}
    call = ToolPart(
        id=PartID(id_of("prt", base + 2)), **ids, call_id=f"call_{base}", tool="read", state=state
    )
    return [
        MessageWithParts(info=prompt, parts=(text(prompt, base + 3, f"prompt {turn}"),)),
        MessageWithParts(info=answer, parts=(call, text(answer, base + 4, f"answer {turn}"))),
    ]


def text(message: UserMessage | AssistantMessage, number: int, words: str) -> TextPart:
    at = message.time.created
    return TextPart(
        id=PartID(id_of("prt", number)),
        session_id=message.session_id,
        message_id=message.id,
        text=words,
        time=Span(start=at, end=at),
    )


def with_text(export: SessionExport, words: str) -> SessionExport:
    """Return the session with another text in its first prompt."""
    first, *rest = export.messages
    [part] = first.parts
    assert isinstance(part, TextPart)
    return replace(export, messages=(replace(first, parts=(replace(part, text=words),)), *rest))


def with_parts(export: SessionExport, *parts: AnyPart) -> SessionExport:
    """Return the session with more parts in its first prompt."""
    first, *rest = export.messages
    return replace(export, messages=(replace(first, parts=(*first.parts, *parts)), *rest))


def list_texts(messages: Sequence[MessageWithParts]) -> list[str]:
    return [part.text for message in messages for part in message.parts if isinstance(part, TextPart)]
