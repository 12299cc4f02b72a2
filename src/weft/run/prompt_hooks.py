"""What plugins make of a prompt before it is stored, and what of that can stand (pure).

A hook may change words, add and leave out parts, name another agent or model. Which prompt of which session it is, and
when it came, is not theirs to say: that is put right, and not made a fault, since a hook that adds a part has to write
some id into it.
"""

from typing import Final

from msgspec.structs import replace

from weft.errors import InvalidInputError
from weft.model.ids import Mint
from weft.model.input import PromptInput
from weft.model.message import UserMessage
from weft.model.part import AgentPart, AnyPart, FilePart, SubtaskPart, TextPart
from weft.plugin.hooks import ChatMessage, Prompted

CHANGED: Final = "chat.message"
OF_A_PROMPT: Final = (TextPart, FilePart, AgentPart, SubtaskPart)


def to_told(input: PromptInput, message: UserMessage) -> Prompted:
    """As the caller said it, not as it was understood."""
    return Prompted(
        session_id=message.session_id,
        agent=input.agent,
        model=input.model,
        message_id=input.message_id,
        variant=input.variant,
    )


def settled(given: ChatMessage, ours: ChatMessage, mint: Mint) -> ChatMessage:
    """What a hook gave, as a prompt of ours: the same session, message and time, parts in the order they were given.

    Parts are kept in the order of their ids, so whatever comes after one that was put in gets a new one.
    """
    message = replace(
        given.message, id=ours.message.id, session_id=ours.message.session_id, time=ours.message.time
    )
    if message.model != ours.message.model and message.fallback == ours.message.fallback:
        message = replace(message, fallback=())  # those were meant for the model that was to answer
    left = [part.id for part in ours.parts]
    parts: list[AnyPart] = []
    for part in given.parts:
        if not isinstance(part, OF_A_PROMPT):
            raise InvalidInputError(
                CHANGED, f"a plugin put a part of the type {_type_of(part)!r} into a prompt"
            )
        if part.id in left:
            id, left = part.id, left[left.index(part.id) + 1 :]
        else:
            id, left = mint.part(), []
        parts.append(replace(part, id=id, session_id=message.session_id, message_id=message.id))
    if not parts and ours.parts:
        raise InvalidInputError(CHANGED, "a plugin left nothing of the prompt")
    return ChatMessage(message=message, parts=tuple(parts))


def _type_of(part: object) -> str:
    return str(getattr(part, "type", type(part).__name__))
