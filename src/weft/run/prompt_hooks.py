"""Merge the changes of plugins into a prompt before it is stored (pure).

A hook may change text, add and remove parts, and name another agent or model. Ids, session and time of the prompt are restored
silently, since a hook that adds a part has to write some id into it.
"""

from typing import Final

from msgspec.structs import replace

from weft.errors import InvalidInputError
from weft.model.ids import Mint
from weft.model.input import PromptInput
from weft.model.message import UserMessage
from weft.model.part import AgentPart, AnyPart, FilePart, SubtaskPart, TextPart
from weft.plugin.hooks import ChatMessage, ChatMessageInput

CHANGED: Final = "chat.message"
OF_A_PROMPT: Final = (TextPart, FilePart, AgentPart, SubtaskPart)


def to_hook_input(input: PromptInput, message: UserMessage) -> ChatMessageInput:
    """Return the prompt as the caller sent it, before defaults were filled in."""
    return ChatMessageInput(
        session_id=message.session_id,
        agent=input.agent,
        model=input.model,
        message_id=input.message_id,
        variant=input.variant,
    )


def merge_hooked_prompt(given: ChatMessage, ours: ChatMessage, mint: Mint) -> ChatMessage:
    """Return the prompt of a hook with our session, message and time, and its parts in their order.

    Parts are stored in the order of their ids, so all parts behind a new one get new ids. Raise `InvalidInputError` if a part
    has a type that no prompt can have, or if no part is left.
    """
    message = replace(
        given.message, id=ours.message.id, session_id=ours.message.session_id, time=ours.message.time
    )
    if message.model != ours.message.model and message.fallback == ours.message.fallback:
        message = replace(message, fallback=())  # the fallbacks belonged to the model that was replaced
    left = [part.id for part in ours.parts]
    parts: list[AnyPart] = []
    for part in given.parts:
        if not isinstance(part, OF_A_PROMPT):
            raise InvalidInputError(
                CHANGED, f"a plugin put a part of the type {_get_type(part)!r} into a prompt"
            )
        if part.id in left:
            id, left = part.id, left[left.index(part.id) + 1 :]
        else:
            id, left = mint.part(), []
        parts.append(replace(part, id=id, session_id=message.session_id, message_id=message.id))
    if not parts and ours.parts:
        raise InvalidInputError(CHANGED, "a plugin left nothing of the prompt")
    return ChatMessage(message=message, parts=tuple(parts))


def _get_type(part: object) -> str:
    return str(getattr(part, "type", type(part).__name__))
