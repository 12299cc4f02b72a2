"""Notes: what has changed since a session's model was told of it (pure).

A note goes into the next prompt, and is stored with it. What the model was told before is never written anew, so what a
provider remembers of the conversation stays good. Only where a compaction cuts the conversation, and notes with it, do
they go into what comes first.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.context.system import Basis, Environment, describe, headed
from weft.errors import DocumentError
from weft.model.agent import Instruction
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import TextPart
from weft.model.wire import from_plain, to_plain

OURS = "weft"
END = "\n</system-reminder>"


class Note(Struct, frozen=True, kw_only=True):
    """Words of ours in a person's prompt; `about` says to us what they are."""

    text: str
    about: dict[str, Any]


def remind(text: str) -> str:
    return f"<system-reminder>\n{text}{END}"


def list_notes(known: Basis, found: Basis) -> list[Note]:
    """What to tell a model that knows one basis, and is to work on another."""
    before = {each.source: each.text for each in known.instructions}
    after = {each.source for each in found.instructions}
    notes = [_environment(found.environment, before=known.environment)]
    notes += [
        _instruction(each, new=each.source not in before)
        for each in found.instructions
        if before.get(each.source) != each.text
    ]
    notes += [_gone(source) for source in before if source not in after]
    return [note for note in notes if note is not None]


def _environment(environment: Environment, *, before: Environment) -> Note | None:
    if environment == before:
        return None
    moved = replace(environment, today=before.today) != before
    said = (
        f"You work in another place now.\n\n{describe(environment)}"
        if moved
        else f"Today's date is now {environment.today}."
    )
    return Note(text=remind(said), about={"environment": to_plain(environment)})


def _instruction(instruction: Instruction, *, new: bool) -> Note:
    said = (
        "There are further instructions to keep to."
        if new
        else "These instructions have changed. They now say the following, and what they said before no longer holds."
    )
    text = remind(f"{said}\n\n{headed(instruction)}")
    end = len(text) - len(END)
    span = [end - len(instruction.text), end]
    return Note(text=text, about={"instruction": {"source": instruction.source, "span": span}})


def _gone(source: str) -> Note:
    text = remind(f"The instructions from {source} no longer hold: they are gone.")
    return Note(text=text, about={"instruction": {"source": source}})


def as_told(basis: Basis, history: Iterable[MessageWithParts]) -> Basis:
    """What a model knows that was told a basis, and then every note in a history."""
    return with_notes(basis, (part for message in history for part in notes_in(message)))


def notes_in(message: MessageWithParts) -> list[TextPart]:
    """What we wrote into a prompt beside the person's words."""
    if not isinstance(message.info, UserMessage):
        return []
    return [part for part in message.parts if isinstance(part, TextPart) and OURS in (part.metadata or {})]


def with_notes(basis: Basis, notes: Iterable[TextPart]) -> Basis:
    for part in notes:
        basis = _taken_in(basis, part.text, (part.metadata or {}).get(OURS))
    return basis


def _taken_in(basis: Basis, text: str, about: Any) -> Basis:
    match about:
        case {"environment": dict(told)}:
            try:
                return replace(basis, environment=from_plain(told, Environment, where="note"))
            except DocumentError:
                return basis
        case {"instruction": {"source": str(source), "span": [int(start), int(end)]}}:
            return _with(basis, Instruction(source=source, text=text[start:end]))
        case {"instruction": {"source": str(source)}}:
            rest = tuple(each for each in basis.instructions if each.source != source)
            return replace(basis, instructions=rest)
        case _:
            return basis


def _with(basis: Basis, instruction: Instruction) -> Basis:
    sources = [each.source for each in basis.instructions]
    if instruction.source not in sources:
        return replace(basis, instructions=(*basis.instructions, instruction))
    at = sources.index(instruction.source)
    return replace(basis, instructions=(*basis.instructions[:at], instruction, *basis.instructions[at + 1 :]))
