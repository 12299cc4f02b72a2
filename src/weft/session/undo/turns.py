"""Turns of a conversation, as a person counts them: which message somebody means, and which prompt was the last (pure)."""

from collections.abc import Sequence

from weft.errors import AmbiguousError, NotFoundError
from weft.model.ids import MessageID
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import CompactionPart, TextPart


def last_turn(history: Sequence[MessageWithParts]) -> MessageID | None:
    """The last prompt that is a person's own: what we said ourselves to go on with it is no turn."""
    return next((each.info.id for each in reversed(history) if _is_said(each)), None)


def _is_said(message: MessageWithParts) -> bool:
    ours = all(
        isinstance(part, CompactionPart) or (isinstance(part, TextPart) and part.synthetic)
        for part in message.parts
    )
    return isinstance(message.info, UserMessage) and not ours


def choose_message(history: Sequence[MessageWithParts], given: str) -> MessageID:
    """The one message that somebody means: by id, or by the beginning of one."""
    found = [each.info.id for each in history if each.info.id.startswith((given, f"msg_{given}"))]
    exact = [id for id in found if id == given]
    if exact or len(found) == 1:
        return (exact or found)[0]
    if found:
        raise AmbiguousError("message", given, found)
    raise NotFoundError("message", given, hint="see them all: weft session show")


def words_of(history: Sequence[MessageWithParts], id: MessageID) -> str:
    """The first line of what was said in a message."""
    for message in history:
        if message.info.id == id:
            texts = (part.text for part in message.parts if isinstance(part, TextPart) and not part.synthetic)
            return next((line.strip() for text in texts for line in text.splitlines() if line.strip()), "")
    return ""
