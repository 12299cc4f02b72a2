"""Reminders to the model that are shown and not stored: plan mode, messages sent meanwhile, the last step, a missing value (pure)."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from weft.context.notes import PLAN_AGENT, wrap_reminder
from weft.context.system import read_text
from weft.model.ids import PartID
from weft.model.message import AssistantMessage, JsonFormat, MessageWithParts, UserMessage
from weft.model.part import AnyPart, CompactionPart, Moment, TextPart, ToolPart
from weft.provider.contract import ModelMessage, TextContent, UserModelMessage


class ReminderState(Struct, frozen=True, kw_only=True):
    """The facts about earlier messages that decide which reminders a message gets.

    `busy_until` is when the last answer ended. `planned` says that plan mode was on, and no reminder has said yet that it ended.
    """

    busy_until: float = 0
    planned: bool = False


def add_reminders(history: Iterable[MessageWithParts], *, plan_files: bool) -> list[MessageWithParts]:
    """Return the history with the reminders that are shown and not stored. With `plan_files`, those on plans are stored instead."""
    shown: list[MessageWithParts] = []
    state = ReminderState()
    for message in history:
        reminded, state = show_message(message, state, plan_files=plan_files)
        shown.append(reminded)
    return shown


def show_message(
    message: MessageWithParts, state: ReminderState, *, plan_files: bool
) -> tuple[MessageWithParts, ReminderState]:
    """Return the message with its reminders, and the state for the next message."""
    info = message.info
    if isinstance(info, UserMessage):
        reminders = [] if plan_files else _list_plan_reminders(info.agent, planned=state.planned)
        queued = info.time.created < state.busy_until
        if not (reminders or queued) or _has_compaction(message):
            return message, state
        planned = state.planned and info.agent == PLAN_AGENT
        return _add_reminders(message, reminders, queued=queued), replace(state, planned=planned)
    if info.error is not None:
        return message, state
    completed = info.time.completed
    busy_until = max(state.busy_until, float("inf") if completed is None else completed)
    return message, ReminderState(busy_until=busy_until, planned=state.planned or info.agent == PLAN_AGENT)


def _has_compaction(message: MessageWithParts) -> bool:
    return any(isinstance(part, CompactionPart) for part in message.parts)


def _list_plan_reminders(agent: str, *, planned: bool) -> list[str]:
    if agent == PLAN_AGENT:
        return [wrap_reminder(read_text("plan"))]
    return [wrap_reminder(read_text("build_switch"))] if planned else []


def _add_reminders(message: MessageWithParts, reminders: Sequence[str], *, queued: bool) -> MessageWithParts:
    if not message.parts:
        return message
    parts = [_wrap_queued(part) for part in message.parts] if queued else list(message.parts)
    for number, text in enumerate(reminders):
        info = message.info
        parts.append(
            TextPart(
                id=PartID(f"prt_reminder_{number}"),
                session_id=info.session_id,
                message_id=info.id,
                text=text,
                synthetic=True,
            )
        )
    return replace(message, parts=tuple(parts))


def _wrap_queued(part: AnyPart) -> AnyPart:
    """Mark a text that the person sent during a run, so that the model neither ignores it nor starts over."""
    if not isinstance(part, TextPart) or part.synthetic or part.ignored or not part.text.strip():
        return part
    # OpenCode's text, so that a model reads such a message the same way in both engines.
    text = (
        f"The user sent the following message:\n{part.text}\n\n"
        "Please address this message and continue with your tasks."
    )
    return replace(part, text=wrap_reminder(text))


def with_last_step(messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Append the notice that this is the last step.

    OpenCode adds it as a message of the model itself, which newer models refuse to continue.
    """
    notice = TextContent(text=wrap_reminder(read_text("last_step")))
    if messages and isinstance(last := messages[-1], UserModelMessage):
        return (*messages[:-1], UserModelMessage(content=(*last.content, notice)))
    return (*messages, UserModelMessage(content=(notice,)))


# --- a value that is missing ---

# The tool that a model calls to hand over a value.
VALUE_TOOL: Final = "StructuredOutput"


def find_json_format(prompt: UserMessage) -> JsonFormat | None:
    """Return the format of the value that a prompt asks for, or None."""
    return prompt.format if isinstance(prompt.format, JsonFormat) else None


def ended_without_calls(message: MessageWithParts) -> bool:
    """Return True if an answer is complete and has no tool calls."""
    info = message.info
    is_complete = isinstance(info, AssistantMessage) and info.error is None and info.finish is not None
    return is_complete and not any(isinstance(part, ToolPart) for part in message.parts)


def is_missing_value(message: MessageWithParts) -> bool:
    """Return True for a complete answer without the value. Use it only if the prompt asks for one."""
    info = message.info
    return (
        isinstance(info, AssistantMessage)
        and not info.summary
        and info.structured is UNSET
        and ended_without_calls(message)
    )


def make_value_reminder(prompt: UserMessage, answer: AssistantMessage) -> MessageWithParts:
    """Return a message that reminds the model to hand over the value. It is shown after an answer without the value."""
    part = TextPart(
        id=PartID("prt_reminder"),
        session_id=answer.session_id,
        message_id=answer.id,
        text=wrap_reminder(f"You ended without handing over the value. Call {VALUE_TOOL} now."),
        synthetic=True,
    )
    info = replace(prompt, id=answer.id, time=Moment(created=answer.time.created))
    return MessageWithParts(info=info, parts=(part,))
