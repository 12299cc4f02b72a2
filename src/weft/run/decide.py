"""Decide what a run does next, from the history alone (pure).

A prompt is answered when the last answer to it needs nothing more from us. `parent_id` and tool results that the model has not
seen decide that; neither the order of ids nor the finish reason does. OpenCode 1.1.34 uses both: it stops answering when ids
wrap, and never stops when a provider gives no finish reason.
"""

from collections.abc import Sequence

from msgspec import UNSET, Struct

from weft.context.history import USER_RAN_TOOL
from weft.model.ids import MessageID
from weft.model.message import (
    AssistantMessage,
    JsonFormat,
    MessageWithParts,
    UserMessage,
    is_human_prompt,
    list_from,
)
from weft.model.part import CompactionPart, SubtaskPart, TextPart, ToolPart


class StopRun(Struct, frozen=True):
    """Nothing is left to answer."""


class ModelStep(Struct, frozen=True):
    """Request an answer to this prompt. On the `last` step the model gets no tools; `summary` asks for a summary."""

    prompt: UserMessage
    last: bool = False
    summary: bool = False


class Compact(Struct, frozen=True):
    """Request a summary first: the next request would not fit the model's context."""

    prompt: UserMessage


class Subtask(Struct, frozen=True):
    """Run a child session for this part of the prompt."""

    prompt: UserMessage
    part: SubtaskPart


NextAction = StopRun | ModelStep | Compact | Subtask


def decide(
    history: Sequence[MessageWithParts],
    *,
    steps_taken: int = 0,
    step_limit: int | None = None,
    overflows: bool = False,
) -> NextAction:
    """Return what to do next.

    `step_limit` is the number of steps that the agent may take. `overflows` says that the next request would not fit the model's
    context.
    """
    summary_request = find_summary_request(history)
    if summary_request is not None:
        return ModelStep(summary_request, summary=True)
    subtask = find_subtask(history)
    if subtask is not None:
        return subtask
    prompt = find_newest_prompt(history)
    if (
        prompt is None
        or is_manual_command(history, prompt)
        or (step_limit is not None and steps_taken >= step_limit)
    ):
        return StopRun()
    answer = find_last_answer(history, prompt)
    if answer is None or is_incomplete(answer, prompt):
        return (
            Compact(prompt)
            if overflows
            else ModelStep(prompt, last=step_limit is not None and steps_taken + 1 >= step_limit)
        )
    return StopRun()


def find_unanswered_step(
    history: Sequence[MessageWithParts], last_prompt: MessageID | None
) -> ModelStep | None:
    """Return the step that would come next if the run did not end now, or None if everything is answered.

    Prompts that a person sent after `last_prompt` are left to the next run.
    """
    since = list_from(history, last_prompt)
    own = (message for message in since if message.info.id == last_prompt or not is_human_prompt(message))
    match decide([*history[: len(history) - len(since)], *own]):
        case ModelStep() as step:
            return step
        case Compact(prompt=prompt) | Subtask(prompt=prompt):
            return ModelStep(prompt)
        case StopRun():
            return None


def find_summary_request(history: Sequence[MessageWithParts]) -> UserMessage | None:
    """Return the oldest prompt that requests a summary and has none. OpenCode takes the newest prompt instead, so that a prompt
    queued behind the request undoes the cut.

    A summary comes before any other answer. So everything before a finished answer is settled.
    """
    found: UserMessage | None = None
    answered: set[MessageID] = set()
    for message in reversed(history):
        info = message.info
        if isinstance(info, UserMessage):
            wants_summary = any(isinstance(part, CompactionPart) for part in message.parts)
            found = info if wants_summary and info.id not in answered else found
        elif info.finish is not None:
            break
        else:
            answered.add(info.parent_id)
    return found


def find_subtask(history: Sequence[MessageWithParts]) -> Subtask | None:
    """Return the oldest subtask that has not run. All subtasks of a prompt run, in order.

    The call that runs a subtask has the id of the subtask's part. Subtasks of a prompt do not run any more if its answers have no
    such id (they are OpenCode's, or a fork's), if one of its answers failed or was aborted, or if a later prompt was answered
    instead. OpenCode 1.1.34 stops looking at the first answer, and runs only the last subtask of a prompt.
    """
    found: Subtask | None = None
    answers: dict[MessageID, list[MessageWithParts]] = {}
    for message in reversed(history):
        match message.info:
            case AssistantMessage(parent_id=prompt):
                answers.setdefault(prompt, []).append(message)
            case UserMessage(id=prompt):
                subtask = _find_next_subtask(message, answers.get(prompt, ()))
                found = subtask or found
                if prompt in answers and subtask is None:
                    break  # everything before an answered prompt is settled
    return found


def _find_next_subtask(prompt: MessageWithParts, answers: Sequence[MessageWithParts]) -> Subtask | None:
    assert isinstance(prompt.info, UserMessage)
    parts = [part for part in prompt.parts if isinstance(part, SubtaskPart)]
    if not parts:
        return None
    calls = {part.call_id for answer in answers for part in answer.parts if isinstance(part, ToolPart)}
    failed = any(isinstance(answer.info, AssistantMessage) and answer.info.error for answer in answers)
    if failed or (answers and calls.isdisjoint(part.id for part in parts)):
        return None
    return next((Subtask(prompt.info, part) for part in parts if part.id not in calls), None)


def is_manual_command(history: Sequence[MessageWithParts], prompt: UserMessage) -> bool:
    """Return True if the prompt only records a command that the person ran. It needs no answer."""
    parts = next(message.parts for message in reversed(history) if message.info.id == prompt.id)
    return bool(parts) and all(
        isinstance(part, TextPart) and part.synthetic and part.text == USER_RAN_TOOL for part in parts
    )


def find_newest_prompt(history: Sequence[MessageWithParts]) -> UserMessage | None:
    """Return the newest prompt, written by a person or by weft itself."""
    return next(
        (message.info for message in reversed(history) if isinstance(message.info, UserMessage)), None
    )


def find_last_answer(history: Sequence[MessageWithParts], prompt: UserMessage) -> MessageWithParts | None:
    """Return the last answer to a prompt. Old answers have no parent, and count by their position."""
    for message in reversed(history):
        if message.info.id == prompt.id:
            return None
        if isinstance(message.info, AssistantMessage) and message.info.parent_id in (prompt.id, ""):
            return message
    return None


def is_incomplete(answer: MessageWithParts, prompt: UserMessage) -> bool:
    """Return True if the model has not seen the results of its calls yet, or has not given the value that the prompt asks for."""
    info = answer.info
    if not isinstance(info, AssistantMessage) or info.error is not None:
        return False
    if isinstance(prompt.format, JsonFormat):
        return info.structured is UNSET
    return any(isinstance(part, ToolPart) for part in answer.parts)
