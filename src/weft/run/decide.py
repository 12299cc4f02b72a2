"""What next? Decided from the history alone (pure).

A prompt is answered when the last answer to it needs nothing more from us. That is told by `parent_id` and by tool
results the model has not seen, never by comparing ids or by the finish word alone: OpenCode 1.1.34 does both, goes
silent when ids wrap, and calls again for ever when a provider gives no finish word.
"""

from collections.abc import Sequence

from msgspec import Struct

from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import CompactionPart, ToolPart


class Stop(Struct, frozen=True):
    """Nothing is left to answer."""


class Step(Struct, frozen=True):
    """The model is to be called for this prompt. On the `last` step it gets no tools."""

    prompt: UserMessage
    last: bool = False
    summary: bool = False


class Compact(Struct, frozen=True):
    """There is no room for the next step: ask for a summary first."""

    prompt: UserMessage


Next = Stop | Step | Compact


def decide(
    history: Sequence[MessageWithParts], *, taken: int = 0, limit: int | None = None, crowded: bool = False
) -> Next:
    """`taken` is how many steps this run has made, `limit` how many the agent may make; `crowded` when the next
    request would not fit."""
    request = unsummarised(history)
    if request is not None:
        return Step(request, summary=True)
    prompt = newest_prompt(history)
    if prompt is None or (limit is not None and taken >= limit):
        return Stop()
    answer = last_answer(history, prompt)
    if answer is None or _wants_more(answer):
        return Compact(prompt) if crowded else Step(prompt, last=limit is not None and taken + 1 >= limit)
    return Stop()


def unsummarised(history: Sequence[MessageWithParts]) -> UserMessage | None:
    """The oldest request for a summary that nobody has answered: the message that holds the request, not the newest
    one. OpenCode takes the newest, so that a prompt queued behind the request undoes the cut."""
    answered = {message.info.parent_id for message in history if isinstance(message.info, AssistantMessage)}
    for message in history:
        asks = any(isinstance(part, CompactionPart) for part in message.parts)
        if asks and isinstance(message.info, UserMessage) and message.info.id not in answered:
            return message.info
    return None


def newest_prompt(history: Sequence[MessageWithParts]) -> UserMessage | None:
    return next(
        (message.info for message in reversed(history) if isinstance(message.info, UserMessage)), None
    )


def last_answer(history: Sequence[MessageWithParts], prompt: UserMessage) -> MessageWithParts | None:
    """The last message that answers a prompt. What says no parent was written before parents were: it counts by place."""
    for message in reversed(history):
        if message.info.id == prompt.id:
            return None
        if isinstance(message.info, AssistantMessage) and message.info.parent_id in (prompt.id, ""):
            return message
    return None


def _wants_more(answer: MessageWithParts) -> bool:
    """Whether an answer ends in results the model has yet to see."""
    info = answer.info
    failed = isinstance(info, AssistantMessage) and info.error is not None
    return not failed and any(isinstance(part, ToolPart) for part in answer.parts)
