"""Short constructors for conversations: user messages, assistant messages, text parts and tool parts."""

from decimal import Decimal
from typing import Any

from msgspec.structs import replace

from weft.model.failure import AnyFailure
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage, AssistantTime, MessageWithParts, UserMessage
from weft.model.part import AnyPart, CallTime, CompletedState, ModelRef, Moment, TextPart, Tokens, ToolPart

SESSION = SessionID("ses_test")


def ids(message: str, number: int) -> dict[str, Any]:
    return {
        "id": PartID(f"prt_{number:012x}{message}"),
        "session_id": SESSION,
        "message_id": MessageID(message),
    }


def text(message: str, words: str, number: int = 1, **more: Any) -> TextPart:
    return TextPart(**ids(message, number), text=words, **more)


def tool_part(message: str, number: int = 1, tool: str = "read") -> ToolPart:
    state = CompletedState(
        input={"x": 1}, output="out", title="t", metadata={}, time=CallTime(start=1, end=2)
    )
    return ToolPart(**ids(message, number), call_id=f"call_{number}", tool=tool, state=state)


def user_message(id: str, at: int, *parts: AnyPart) -> MessageWithParts:
    info = UserMessage(
        id=MessageID(id),
        session_id=SESSION,
        time=Moment(created=at),
        agent="build",
        model=ModelRef(provider_id="p", model_id="m"),
    )
    return MessageWithParts(info=info, parts=parts or (text(id, f"prompt {id}"),))


def assistant_message(
    id: str,
    at: int,
    to: str,
    *parts: AnyPart,
    finish: str | None = "stop",
    error: AnyFailure | None = None,
    summary: bool = False,
) -> MessageWithParts:
    info = AssistantMessage(
        id=MessageID(id),
        session_id=SESSION,
        time=AssistantTime(created=at, completed=at),
        parent_id=MessageID(to),
        provider_id="p",
        model_id="m",
        agent="build",
        mode="build",
        finish=finish,
        error=error,
        summary=summary,
        cost=Decimal(0),
        tokens=Tokens(),
    )
    return MessageWithParts(info=info, parts=parts)


def with_agent(agent: str, message: MessageWithParts) -> MessageWithParts:
    """Return the message as one of, or to, this agent."""
    match message.info:
        case UserMessage() as info:
            return replace(message, info=replace(info, agent=agent))
        case AssistantMessage() as info:
            return replace(message, info=replace(info, agent=agent, mode=agent))
