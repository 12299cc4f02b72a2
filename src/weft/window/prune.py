"""Which old tool outputs to forget (pure). They stay on disk; only the model no longer sees them."""

from collections.abc import Sequence

from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import CompletedState, ToolPart
from weft.window.overflow import estimate

KEPT_TURNS = 2
PROTECTED_TOKENS = 40_000
WORTHWHILE_TOKENS = 20_000
PROTECTED_TOOLS = frozenset({"skill"})


def to_forget(history: Sequence[MessageWithParts]) -> list[ToolPart]:
    """Outputs beyond the newest forty thousand tokens of them, none of the last two turns, if it is worth the bother."""
    seen = total = 0
    found: list[tuple[ToolPart, int]] = []
    for message in reversed(history):
        if isinstance(message.info, UserMessage):
            seen += 1
        if seen < KEPT_TURNS:
            continue
        if isinstance(message.info, AssistantMessage) and message.info.summary:
            break
        for part in reversed(message.parts):
            if not isinstance(part, ToolPart) or not isinstance(part.state, CompletedState):
                continue
            if part.tool in PROTECTED_TOOLS:
                continue
            if part.state.time.compacted is not None:
                return _worthwhile(found)
            size = estimate(part.state.output)
            total += size
            if total > PROTECTED_TOKENS:
                found.append((part, size))
    return _worthwhile(found)


def _worthwhile(found: list[tuple[ToolPart, int]]) -> list[ToolPart]:
    worth = sum(size for _, size in found) > WORTHWHILE_TOKENS
    return [part for part, _ in found] if worth else []
