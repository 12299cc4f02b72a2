"""An answer in words where a value was asked for, and the word of ours that follows it (pure)."""

from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from weft.model.ids import PartID
from weft.model.message import AssistantMessage, JsonFormat, MessageWithParts, UserMessage
from weft.model.part import Moment, TextPart, ToolPart
from weft.window.notes import remind

# The tool by which a model hands a value over.
NAME: Final = "StructuredOutput"


def wanted(prompt: UserMessage) -> JsonFormat | None:
    """The format of the value a prompt asks for, if it asks for one."""
    return prompt.format if isinstance(prompt.format, JsonFormat) else None


def ended_in_words(message: MessageWithParts) -> bool:
    """Whether an answer came to its end without a call of any kind."""
    info = message.info
    ended = isinstance(info, AssistantMessage) and info.error is None and info.finish is not None
    return ended and not any(isinstance(part, ToolPart) for part in message.parts)


def is_without(message: MessageWithParts) -> bool:
    """Whether it is an answer, to a prompt that asks for a value, that ended without one."""
    info = message.info
    return (
        isinstance(info, AssistantMessage)
        and not info.summary
        and info.structured is UNSET
        and ended_in_words(message)
    )


def reminder(prompt: UserMessage, answer: AssistantMessage) -> MessageWithParts:
    """What the model is told after such an answer."""
    words = TextPart(
        id=PartID("prt_reminder"),
        session_id=answer.session_id,
        message_id=answer.id,
        text=remind(f"You ended without handing over the value. Call {NAME} now."),
        synthetic=True,
    )
    shown = replace(prompt, id=answer.id, time=Moment(created=answer.time.created))
    return MessageWithParts(info=shown, parts=(words,))
