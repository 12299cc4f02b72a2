"""What a child's last answer comes to, for the one who sent it (pure)."""

from weft.errors import DeadlineError, ToolError
from weft.model.failure import AnyFailure
from weft.model.ids import SessionID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import ErrorState, TextPart, ToolPart

NO_WORDS = "The subagent ended without an answer."


def words_of(answer: MessageWithParts, child: SessionID) -> str:
    """Its last words. A child that failed is an error, so that nobody takes half an answer for a whole one.

    OpenCode gives the words of a failed child as if nothing had happened.
    """
    info = answer.info
    if not isinstance(info, AssistantMessage):
        raise ToolError(f"{NO_WORDS} {_again(child)}")
    said = _last_text(answer)
    if info.error is not None:
        before = f"\nBefore that it said: {said}" if said else ""
        raise ToolError(f"The subagent failed: {to_reason(info.error)}.{before}\n{_again(child)}")
    return said or _in_place_of_words(answer)


def late(child: SessionID, error: DeadlineError) -> ToolError:
    said = str(error)
    return ToolError(f"{said[:1].upper()}{said[1:]}. {_again(child)}")


def to_reason(failure: AnyFailure) -> str:
    data = failure.data
    said = data.get("message", "") if isinstance(data, dict) else getattr(data, "message", "")
    name = str(failure.__struct_config__.tag)
    return (str(said) or name).rstrip(".")


def _again(child: SessionID) -> str:
    return f"Go on with it by session_id {child}, or do without it."


def _last_text(answer: MessageWithParts) -> str:
    texts = [
        part.text for part in answer.parts if isinstance(part, TextPart) and part.text and not part.ignored
    ]
    return texts[-1] if texts else ""


def _in_place_of_words(answer: MessageWithParts) -> str:
    failed = [
        f"{part.tool}: {part.state.error}"
        for part in answer.parts
        if isinstance(part, ToolPart) and isinstance(part.state, ErrorState)
    ]
    return "\n".join([NO_WORDS, *failed])
