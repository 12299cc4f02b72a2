"""What next? Decided from the history alone (pure).

A prompt is answered when the last answer to it needs nothing more from us. That is told by `parent_id` and by tool
results the model has not seen, never by comparing ids or by the finish word alone: OpenCode 1.1.34 does both, goes
silent when ids wrap, and calls again for ever when a provider gives no finish word.
"""

from collections.abc import Sequence

from msgspec import UNSET, Struct

from weft.model.ids import MessageID
from weft.model.message import AssistantMessage, JsonFormat, MessageWithParts, UserMessage
from weft.model.part import CompactionPart, SubtaskPart, TextPart, ToolPart

# OpenCode's sentence, in its sessions and in ours.
RUN_BY_HAND = "The following tool was executed by the user"


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


class Subtask(Struct, frozen=True):
    """A part of this prompt is work for a child session."""

    prompt: UserMessage
    part: SubtaskPart


Next = Stop | Step | Compact | Subtask


def decide(
    history: Sequence[MessageWithParts], *, taken: int = 0, limit: int | None = None, crowded: bool = False
) -> Next:
    """`taken` is how many steps this run has made, `limit` how many the agent may make; `crowded` when the next
    request would not fit."""
    request = unsummarised(history)
    if request is not None:
        return Step(request, summary=True)
    subtask = undone(history)
    if subtask is not None:
        return subtask
    prompt = newest_prompt(history)
    if prompt is None or done_by_hand(history, prompt) or (limit is not None and taken >= limit):
        return Stop()
    answer = last_answer(history, prompt)
    if answer is None or wants_more(answer, prompt):
        return Compact(prompt) if crowded else Step(prompt, last=limit is not None and taken + 1 >= limit)
    return Stop()


def find_owed(history: Sequence[MessageWithParts], asked: MessageID | None) -> Step | None:
    """The answer that a run leaves owing if it ends now. What came in after the last prompt that it was `asked` is for
    another run."""
    places = [place for place, message in enumerate(history) if message.info.id == asked]
    later = [message for message in history[places[-1] + 1 :] if is_request(message)] if places else []
    match decide([message for message in history if not any(message is each for each in later)]):
        case Step() as step:
            return step
        case Compact(prompt=prompt) | Subtask(prompt=prompt):
            return Step(prompt)
        case Stop():
            return None


def unsummarised(history: Sequence[MessageWithParts]) -> UserMessage | None:
    """The oldest request for a summary that nobody has answered: the message that holds the request, not the newest
    one. OpenCode takes the newest, so that a prompt queued behind the request undoes the cut.

    A summary comes before any other answer. So what stands before an answer that came to its end is settled.
    """
    found: UserMessage | None = None
    answered: set[MessageID] = set()
    for message in reversed(history):
        info = message.info
        if isinstance(info, UserMessage):
            asks = any(isinstance(part, CompactionPart) for part in message.parts)
            found = info if asks and info.id not in answered else found
        elif info.finish is not None:
            break
        else:
            answered.add(info.parent_id)
    return found


def undone(history: Sequence[MessageWithParts]) -> Subtask | None:
    """The oldest part of a prompt that is work for a child and was not handed over: every one of them is, in order.

    The call that hands it over bears the part's id. OpenCode 1.1.34 stops looking once anything was answered, and runs
    the last subtask of a prompt alone. Of a prompt whose answers bear no such id (OpenCode's, or a fork's), or one of
    whose answers failed or was aborted, nothing is done any more; nor of one that was passed over for a later one.
    """
    found: Subtask | None = None
    answers: dict[MessageID, list[MessageWithParts]] = {}
    for message in reversed(history):
        match message.info:
            case AssistantMessage(parent_id=prompt):
                answers.setdefault(prompt, []).append(message)
            case UserMessage(id=prompt):
                subtask = _next_subtask(message, answers.get(prompt, ()))
                found = subtask or found
                if prompt in answers and subtask is None:
                    break  # all before it was settled before it was answered
    return found


def _next_subtask(prompt: MessageWithParts, answers: Sequence[MessageWithParts]) -> Subtask | None:
    assert isinstance(prompt.info, UserMessage)
    parts = [part for part in prompt.parts if isinstance(part, SubtaskPart)]
    if not parts:
        return None
    calls = {part.call_id for answer in answers for part in answer.parts if isinstance(part, ToolPart)}
    failed = any(isinstance(answer.info, AssistantMessage) and answer.info.error for answer in answers)
    if failed or (answers and calls.isdisjoint(part.id for part in parts)):
        return None
    return next((Subtask(prompt.info, part) for part in parts if part.id not in calls), None)


def done_by_hand(history: Sequence[MessageWithParts], prompt: UserMessage) -> bool:
    """Whether it is no prompt: it says that the person ran a command themselves, which asks nothing of anybody."""
    found = next(message for message in reversed(history) if message.info.id == prompt.id)
    return bool(found.parts) and all(
        isinstance(part, TextPart) and part.synthetic and part.text == RUN_BY_HAND for part in found.parts
    )


def newest_prompt(history: Sequence[MessageWithParts]) -> UserMessage | None:
    return next(
        (message.info for message in reversed(history) if isinstance(message.info, UserMessage)), None
    )


def newest_request(history: Sequence[MessageWithParts]) -> MessageID | None:
    """The newest prompt in which somebody but us had a word."""
    return next((message.info.id for message in reversed(history) if is_request(message)), None)


def is_request(message: MessageWithParts) -> bool:
    return isinstance(message.info, UserMessage) and not is_ours(message)


def is_ours(message: MessageWithParts) -> bool:
    """Whether nobody but us had a word in it."""
    return bool(message.parts) and all(
        isinstance(part, CompactionPart) or (isinstance(part, TextPart) and part.synthetic)
        for part in message.parts
    )


def last_answer(history: Sequence[MessageWithParts], prompt: UserMessage) -> MessageWithParts | None:
    """The last message that answers a prompt. What says no parent was written before parents were: it counts by place."""
    for message in reversed(history):
        if message.info.id == prompt.id:
            return None
        if isinstance(message.info, AssistantMessage) and message.info.parent_id in (prompt.id, ""):
            return message
    return None


def wants_more(answer: MessageWithParts, prompt: UserMessage) -> bool:
    """Whether an answer ends in results the model has yet to see, or without the value it was asked for."""
    info = answer.info
    if not isinstance(info, AssistantMessage) or info.error is not None:
        return False
    if isinstance(prompt.format, JsonFormat):
        return info.structured is UNSET
    return any(isinstance(part, ToolPart) for part in answer.parts)
