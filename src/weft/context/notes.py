"""Notes that tell a model what changed since its briefing, and where the plan is (pure).

A note is added to the next prompt, and stored with it. The briefing itself does not change, so the provider's cache of the
conversation stays valid. When a compaction cuts notes off, their content goes into the system prompt; the note on a
plan is made again.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.context.system import Briefing, Environment, describe_environment, format_instruction, read_text
from weft.errors import DocumentError
from weft.model.agent import Instruction
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.move import SessionArrival, SessionResumption
from weft.model.part import TextPart
from weft.model.wire import from_plain, to_plain

WEFT_KEY = "weft"
MOVE_KEY = "move"
RESUME_KEY = "resume"
PLAN_KEY = "reminder"
PLAN_AGENT = "plan"
REMINDER_END = "\n</system-reminder>"


class ContextNote(Struct, frozen=True, kw_only=True):
    """A text that weft adds to a prompt. `about` is stored with it, to recognise it later."""

    text: str
    about: dict[str, Any]


def wrap_reminder(text: str) -> str:
    return f"<system-reminder>\n{text}{REMINDER_END}"


def list_notes(known: Briefing, current: Briefing) -> list[ContextNote]:
    """Return the notes for a model that knows one briefing, and is to work with another."""
    known_texts = {instruction.source: instruction.text for instruction in known.instructions}
    current_sources = {instruction.source for instruction in current.instructions}
    notes = [_make_environment_note(current.environment, before=known.environment)]
    notes += [
        _make_instruction_note(instruction, new=instruction.source not in known_texts)
        for instruction in current.instructions
        if known_texts.get(instruction.source) != instruction.text
    ]
    notes += [_make_removed_note(source) for source in known_texts if source not in current_sources]
    return [note for note in notes if note is not None]


def _make_environment_note(environment: Environment, *, before: Environment) -> ContextNote | None:
    if environment == before:
        return None
    is_new_place = replace(environment, today=before.today) != before
    text = (
        f"Your working environment has changed.\n\n{describe_environment(environment)}"
        if is_new_place
        else f"Today's date is now {environment.today}."
    )
    return ContextNote(text=wrap_reminder(text), about={"environment": to_plain(environment)})


def list_move_notes(
    arrived: SessionArrival | None, directory: str, history: Iterable[MessageWithParts]
) -> list[ContextNote]:
    """Return the note about a move to this machine, unless the history has it. `directory` is the top of the checkout here."""
    if arrived is None or any(
        (part.metadata or {}).get(WEFT_KEY) == {MOVE_KEY: arrived.move}
        for message in history
        for part in list_note_parts(message)
    ):
        return []
    text = (
        f"This session was moved to another machine. It worked in {arrived.directory} on {arrived.host}, and now works in {directory}. "
        "The conversation, the files of the checkout and all uncommitted changes came along. Paths in earlier output that begin with "
        f"{arrived.directory} are below {directory} now. Files that git ignores, such as installed packages and build results, running "
        "processes and environment variables did not come along."
    )
    return [ContextNote(text=wrap_reminder(text), about={MOVE_KEY: arrived.move})]


def list_resume_notes(
    resumed: SessionResumption | None, history: Iterable[MessageWithParts]
) -> list[ContextNote]:
    """Return the note that another node continues a session, unless the history has it."""
    if resumed is None or is_resumption_told(resumed, history):
        return []
    text = (
        f"This session was interrupted on the machine {resumed.host}, and continues on another one. The files are as they were after the "
        "last completed step. Changes that the interrupted step made may be missing: look at the files before you rely on them. "
        if resumed.interrupted
        else f"This session continues on another machine. It worked on {resumed.host} before, and its files came along. "
    )
    text += (
        "Files that git ignores, such as installed packages and build results, running processes and environment variables did not "
        "come along."
    )
    return [ContextNote(text=wrap_reminder(text), about={RESUME_KEY: resumed.id})]


def is_resumption_told(resumed: SessionResumption, history: Iterable[MessageWithParts]) -> bool:
    """Return True if the model was told that another node continues the session."""
    return any(
        (part.metadata or {}).get(WEFT_KEY) == {RESUME_KEY: resumed.id}
        for message in history
        for part in list_note_parts(message)
    )


def _make_instruction_note(instruction: Instruction, *, new: bool) -> ContextNote:
    text = (
        "Follow these additional instructions."
        if new
        else "These instructions have changed. They now say the following, and what they said before no longer holds."
    )
    text = wrap_reminder(f"{text}\n\n{format_instruction(instruction)}")
    end = len(text) - len(REMINDER_END)
    span = [end - len(instruction.text), end]
    return ContextNote(text=text, about={"instruction": {"source": instruction.source, "span": span}})


def _make_removed_note(source: str) -> ContextNote:
    text = wrap_reminder(f"The instructions from {source} no longer apply: the file was removed.")
    return ContextNote(text=text, about={"instruction": {"source": source}})


def make_plan_note(
    history: Sequence[MessageWithParts], prompt: UserMessage, path: str, *, exists: bool
) -> ContextNote | None:
    """Return the note on the plan file that a prompt needs, or None. `history` is what came before the prompt."""
    # A summary cuts off earlier notes, so its agent counts as the last one. But it has done no work that another agent takes over.
    answers = [message.info for message in history if isinstance(message.info, AssistantMessage)]
    last_agent = answers[-1].agent if answers else None
    working_agent = next((answer.agent for answer in reversed(answers) if not answer.summary), None)
    if prompt.agent == PLAN_AGENT and last_agent != PLAN_AGENT:
        state = "It exists: read it, and go on from it." if exists else "It does not exist yet: create it."
        text = read_text("plan_file").replace("{path}", path).replace("{state}", state)
        return ContextNote(text=wrap_reminder(text), about={PLAN_KEY: "plan"})
    if prompt.agent != PLAN_AGENT and working_agent == PLAN_AGENT and exists:
        instruction = f"A plan file exists at {path}. You should execute on the plan defined within it"
        text = f"{read_text('build_switch')}\n\n{instruction}"
        return ContextNote(text=wrap_reminder(text), about={PLAN_KEY: "build"})
    return None


def has_plan_note(message: MessageWithParts) -> bool:
    """Return True if the prompt already has a note on plans."""
    return any(
        isinstance(part, TextPart) and PLAN_KEY in ((part.metadata or {}).get(WEFT_KEY) or {})
        for part in message.parts
    )


def apply_history_notes(briefing: Briefing, history: Iterable[MessageWithParts]) -> Briefing:
    """Return what a model knows from its briefing and all notes in a history."""
    prompts = [message for message in history if isinstance(message.info, UserMessage)]
    return apply_notes(briefing, (part for message in prompts for part in list_note_parts(message)))


def list_note_parts(message: MessageWithParts) -> list[TextPart]:
    """Return the notes in a prompt."""
    if not isinstance(message.info, UserMessage):
        return []
    return [
        part
        for part in message.parts
        if isinstance(part, TextPart) and part.metadata is not None and WEFT_KEY in part.metadata
    ]


def apply_notes(briefing: Briefing, notes: Iterable[TextPart]) -> Briefing:
    """Return the briefing with the changes that the notes announced."""
    for part in notes:
        briefing = _apply_note(briefing, part.text, (part.metadata or {}).get(WEFT_KEY))
    return briefing


def _apply_note(briefing: Briefing, text: str, about: Any) -> Briefing:
    match about:
        case {"environment": dict(environment)}:
            try:
                return replace(briefing, environment=from_plain(environment, Environment, where="note"))
            except DocumentError:
                return briefing
        case {"instruction": {"source": str(source), "span": [int(start), int(end)]}}:
            return _with_instruction(briefing, Instruction(source=source, text=text[start:end]))
        case {"instruction": {"source": str(source)}}:
            rest = tuple(each for each in briefing.instructions if each.source != source)
            return replace(briefing, instructions=rest)
        case _:
            return briefing


def _with_instruction(briefing: Briefing, instruction: Instruction) -> Briefing:
    sources = [each.source for each in briefing.instructions]
    if instruction.source not in sources:
        return replace(briefing, instructions=(*briefing.instructions, instruction))
    index = sources.index(instruction.source)
    return replace(
        briefing,
        instructions=(*briefing.instructions[:index], instruction, *briefing.instructions[index + 1 :]),
    )
