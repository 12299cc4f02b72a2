"""Slash commands (pure): built-in and configured ones, and their templates."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from msgspec import Struct

from weft.config.schema import CommandConfig, Config
from weft.errors import NotFoundError
from weft.model.agent import Command

ARGUMENTS: Final = "$ARGUMENTS"

_INSERTION: Final = re.compile(r"!`([^`]+)`")
_PLACEHOLDER: Final = re.compile(r"\$(?:(?P<number>[1-9][0-9]{0,8})(?![0-9])|ARGUMENTS)")
_NAMED: Final = re.compile(r"(?<!\S)(?P<name>[^\s=\"']+)=(?P<value>\"[^\"]*\"|'[^']*'|\S*)")
_ARGUMENT: Final = re.compile(r"\[Image\s+[0-9]+\]|\"[^\"]*\"|'[^']*'|[^\s\"']+", re.IGNORECASE)


class TemplateText(Struct, frozen=True):
    """A part of a template that is plain text."""

    text: str


class ShellInsertion(Struct, frozen=True):
    """A shell command in a template, which its output replaces."""

    command: str


TemplatePiece = TemplateText | ShellInsertion


def parse_template(template: str) -> tuple[TemplatePiece, ...]:
    """Split a template into text and shell insertions."""
    pieces: list[TemplatePiece] = []
    end = 0
    for found in _INSERTION.finditer(template):
        pieces += [TemplateText(template[end : found.start()]), ShellInsertion(found[1])]
        end = found.end()
    return (*pieces, TemplateText(template[end:]))


def list_insertions(pieces: Sequence[TemplatePiece]) -> list[str]:
    """Return the shell commands, in order."""
    return [piece.command for piece in pieces if isinstance(piece, ShellInsertion)]


def list_hints(pieces: Sequence[TemplatePiece]) -> list[str]:
    """Return the placeholders in a template, the numbered ones first."""
    return [f"${number}" for number in sorted(_list_numbers(pieces))] + [ARGUMENTS] * _takes_all(pieces)


def split_arguments(text: str) -> list[str]:
    """Split the text after a command into arguments. Quotes keep words together and are removed."""
    return [_unquote(found[0]) for found in _ARGUMENT.finditer(text)]


def bind_arguments(text: str, names: Sequence[str]) -> tuple[dict[str, str], str]:
    """Assign the text after a command to named arguments. Return them, and the text that is left.

    `name=value` sets that argument. Other words fill the remaining names in order; the last name takes all the rest.
    """
    given: dict[str, str] = {}

    def take(found: re.Match[str]) -> str:
        if found["name"] not in names or found["name"] in given:
            return found[0]
        given[found["name"]] = _unquote(found["value"])
        return ""

    rest = _NAMED.sub(take, text).strip()
    left = [name for name in names if name not in given]
    if not left:
        return given, rest
    words = split_arguments(rest)
    for place, name in enumerate(left):
        values = words[place:] if name == left[-1] else words[place : place + 1]
        if values:
            given[name] = " ".join(values)
    return given, ""


def fill_template(pieces: Sequence[TemplatePiece], arguments: str, outputs: Sequence[str] = ()) -> str:
    """Fill in a template's arguments, and the output of each insertion.

    The highest number takes all remaining arguments. If a template has no placeholder, the arguments are appended.
    """
    given, highest = split_arguments(arguments), max(_list_numbers(pieces), default=0)

    def value(found: re.Match[str]) -> str:
        if found["number"] is None:
            return arguments
        number = int(found["number"])
        return " ".join(given[number - 1 :] if number == highest else given[number - 1 : number])

    rest = iter(outputs)
    filled = [
        _PLACEHOLDER.sub(value, piece.text) if isinstance(piece, TemplateText) else next(rest, "")
        for piece in pieces
    ]
    if not highest and not _takes_all(pieces) and arguments.strip():
        filled.append(f"\n\n{arguments}")
    return "".join(filled).strip()


def _iterate_placeholders(pieces: Sequence[TemplatePiece]) -> Iterator[re.Match[str]]:
    """Yield the placeholders in the text. Those in an insertion are for the shell."""
    for piece in pieces:
        if isinstance(piece, TemplateText):
            yield from _PLACEHOLDER.finditer(piece.text)


def _list_numbers(pieces: Sequence[TemplatePiece]) -> set[int]:
    return {int(found["number"]) for found in _iterate_placeholders(pieces) if found["number"] is not None}


def _takes_all(pieces: Sequence[TemplatePiece]) -> bool:
    return any(found["number"] is None for found in _iterate_placeholders(pieces))


def _unquote(argument: str) -> str:
    without = argument[1:] if argument[:1] in ("'", '"') else argument
    return without[:-1] if without[-1:] in ("'", '"') else without


INIT = "init"
REVIEW = "review"

_WORKTREE = "{worktree}"
# A path with one of these characters would be read as part of the template.
_TEMPLATE_CHARACTERS = frozenset("$`@")


def build_commands(config: Config, worktree: str) -> dict[str, Command]:
    """Return every command by its name, the built-in ones first. A configured command replaces a built-in one of the
    same name.
    """
    built_in = {
        INIT: CommandConfig(
            description="write or improve AGENTS.md", template=_read_template(INIT, worktree)
        ),
        REVIEW: CommandConfig(
            description="review changes: not committed (default), a commit, a branch or a pull request",
            template=_read_template(REVIEW, worktree),
            subtask=True,
        ),
    }
    return {
        name: _to_command(name, configured)
        for name, configured in (built_in | (config.command or {})).items()
    }


def get_command(commands: Mapping[str, Command], name: str) -> Command:
    """Return a command by its name. Raise `NotFoundError` with similar names. OpenCode fails with a type error."""
    found = commands.get(name.removeprefix("/"))
    if found is None:
        near = get_close_matches(name, commands, n=3)
        raise NotFoundError(
            "command", name, near=near, hint=f"available commands: {', '.join(commands) or 'none'}"
        )
    return found


def _to_command(name: str, configured: CommandConfig) -> Command:
    return Command(
        name=name,
        description=configured.description,
        agent=configured.agent,
        model=configured.model,
        template=configured.template,
        subtask=configured.subtask,
        hints=tuple(list_hints(parse_template(configured.template))),
    )


def _read_template(name: str, worktree: str) -> str:
    path = os.path.join(os.path.dirname(__file__), "prompts", f"{name}.md")
    with open(path, encoding="utf-8") as file:
        text = file.read().strip()
    return text.replace(_WORKTREE, "its root" if _TEMPLATE_CHARACTERS & set(worktree) else worktree)
