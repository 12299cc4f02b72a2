"""Reduce documents for comparison: JSON to strict values, and conversations to text."""

import json
from collections.abc import Sequence
from typing import Any

from weft.model.message import MessageWithParts
from weft.model.part import AnyPart, ReasoningPart, TextPart, ToolPart
from weft.model.session import SessionInfo
from weft.model.wire import encode


def parse_strictly(raw: bytes | str) -> Any:
    """Parse JSON with numbers as they are spelled: 1 is not 1.0."""
    return json.loads(raw, parse_float=str)


def to_export(session: SessionInfo, messages: Sequence[MessageWithParts]) -> Any:
    """Return a session as OpenCode exports it."""
    return {
        "info": parse_strictly(encode(session)),
        "messages": [parse_strictly(encode(each)) for each in messages],
    }


def list_shapes(message: MessageWithParts) -> list[str]:
    return [shape(part) for part in message.parts]


def shape(part: AnyPart) -> str:
    if isinstance(part, ToolPart):
        return f"{part.tool} {part.state.__struct_config__.tag}"
    return str(part.__struct_config__.tag)


def texts(messages: Sequence[MessageWithParts]) -> list[str]:
    """Return all text and reasoning, in order."""
    parts = [part for message in messages for part in message.parts]
    return [part.text for part in parts if isinstance(part, TextPart | ReasoningPart)]


def to_conversation(request: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the conversation in a request: roles and texts, without the system prompt."""
    said = [(each["role"], each.get("content") or "") for each in request["messages"]]
    return [(role, _join_text(content)) for role, content in said if role != "system"]


def _join_text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(piece.get("text", "") for piece in content)
