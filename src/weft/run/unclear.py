"""A call that a crash cut off may have had its effect already: made again, it would have it twice (pure)."""

from collections.abc import Iterator, Sequence
from typing import Any

from weft.model.message import MessageWithParts
from weft.model.part import ErrorState, ToolPart
from weft.session.settle import INTERRUPTED

# Made twice, these change no more than made once.
HARMLESS = frozenset(
    {"read", "glob", "grep", "list", "lsp", "todoread", "todowrite", "recall", "skill", "question", "invalid"}
    | {"webfetch", "websearch", "codesearch", "task", "batch", "plan_enter", "plan_exit", "jobs"}
)
NOT_AGAIN = (
    "This call was cut off earlier, and may have had its effect. It was not made again, because nobody agreed to that. "
    "Look whether it took effect, and go on from there."
)


def is_unclear(history: Sequence[MessageWithParts], call_id: str, tool: str, input: dict[str, Any]) -> bool:
    """Whether the last call like this one was interrupted, so that nobody knows how far it came."""
    if tool in HARMLESS:
        return False
    alike = (
        part.state
        for part in _calls(history)
        if part.call_id != call_id and part.tool == tool and part.state.input == input
    )
    last = next(alike, None)
    return isinstance(last, ErrorState) and last.error == INTERRUPTED


def _calls(history: Sequence[MessageWithParts]) -> Iterator[ToolPart]:
    """The newest first."""
    for message in reversed(history):
        yield from (part for part in reversed(message.parts) if isinstance(part, ToolPart))
