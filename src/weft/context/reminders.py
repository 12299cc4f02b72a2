"""Reminders we add to a person's words: modes, messages sent meanwhile, the last step, a value that is due (pure)."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from weft.context.notes import OURS, Note, remind
from weft.context.system import written
from weft.model.ids import PartID
from weft.model.message import AssistantMessage, JsonFormat, MessageWithParts, UserMessage
from weft.model.part import AnyPart, CompactionPart, Moment, TextPart, ToolPart
from weft.provider.contract import ModelMessage, TextContent, UserTurn

PLAN = "plan"


class Before(Struct, frozen=True, kw_only=True):
    """What of the messages before one matters for how it is shown: until when they were worked on, and whether there was
    planning that nobody was told is over."""

    busy_until: float = 0
    planned: bool = False


def as_shown(history: Iterable[MessageWithParts], *, plan_files: bool) -> list[MessageWithParts]:
    """The history with what is shown and not stored. With `plan_files`, what concerns plans is stored (see `plan_note`)."""
    shown: list[MessageWithParts] = []
    before = Before()
    for message in history:
        changed, before = show(message, before, plan_files=plan_files)
        shown.append(changed)
    return shown


def show(message: MessageWithParts, before: Before, *, plan_files: bool) -> tuple[MessageWithParts, Before]:
    """The message as it is shown, and what matters for the next one."""
    info = message.info
    if isinstance(info, UserMessage):
        reminders = [] if plan_files else _on_plans(info.agent, planned=before.planned)
        queued = info.time.created < before.busy_until
        if not (reminders or queued) or _asks_for_summary(message):
            return message, before
        planned = before.planned and info.agent == PLAN
        return _with(message, reminders, queued=queued), replace(before, planned=planned)
    if info.error is not None:
        return message, before
    completed = info.time.completed
    until = max(before.busy_until, float("inf") if completed is None else completed)
    return message, Before(busy_until=until, planned=before.planned or info.agent == PLAN)


def _asks_for_summary(message: MessageWithParts) -> bool:
    return any(isinstance(part, CompactionPart) for part in message.parts)


def _on_plans(agent: str, *, planned: bool) -> list[str]:
    if agent == PLAN:
        return [remind(written("plan"))]
    return [remind(written("build_switch"))] if planned else []


def _with(message: MessageWithParts, reminders: Sequence[str], *, queued: bool) -> MessageWithParts:
    if not message.parts:
        return message
    parts = [_wrapped(part) for part in message.parts] if queued else list(message.parts)
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


def _wrapped(part: AnyPart) -> AnyPart:
    """What a person says while the work goes on, so that it is neither overlooked nor taken for a new beginning."""
    if not isinstance(part, TextPart) or part.synthetic or part.ignored or not part.text.strip():
        return part
    # The words are OpenCode's, so that a model reads such a message the same way in both.
    said = (
        f"The user sent the following message:\n{part.text}\n\n"
        "Please address this message and continue with your tasks."
    )
    return replace(part, text=remind(said))


def with_last_step(messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """The conversation, and at its end that there is no further step.

    OpenCode puts it into the model's own mouth, which newer models refuse to go on from.
    """
    notice = TextContent(text=remind(written("last_step")))
    if messages and isinstance(last := messages[-1], UserTurn):
        return (*messages[:-1], UserTurn(content=(*last.content, notice)))
    return (*messages, UserTurn(content=(notice,)))


# --- with plan files ---


def plan_note(
    history: Sequence[MessageWithParts], prompt: UserMessage, path: str, *, exists: bool
) -> Note | None:
    """What a prompt is to be told of plans, if anything. `history` is what came before it."""
    # Whoever made a summary cut off what was said of plans before, and is not whom the work is taken over from.
    answers = [message.info for message in history if isinstance(message.info, AssistantMessage)]
    last = answers[-1].agent if answers else None
    worked = next((answer.agent for answer in reversed(answers) if not answer.summary), None)
    if prompt.agent == PLAN and last != PLAN:
        state = "It exists: read it, and go on from it." if exists else "It does not exist yet: create it."
        said = written("plan_file").replace("{path}", path).replace("{state}", state)
        return Note(text=remind(said), about={"reminder": "plan"})
    if prompt.agent != PLAN and worked == PLAN and exists:
        handed_over = f"A plan file exists at {path}. You should execute on the plan defined within it"
        said = f"{written('build_switch')}\n\n{handed_over}"
        return Note(text=remind(said), about={"reminder": "build"})
    return None


def is_reminded(message: MessageWithParts) -> bool:
    """Whether a prompt has been told of plans already."""
    return any(
        isinstance(part, TextPart) and "reminder" in ((part.metadata or {}).get(OURS) or {})
        for part in message.parts
    )


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
