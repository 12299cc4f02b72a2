"""Slash commands (pure): built-in and configured ones, and their templates."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from weft.config.schema import CommandConfig, Config
from weft.errors import NotFoundError, find_similar
from weft.model.agent import Command

ARGUMENTS: Final = "$ARGUMENTS"

_INSERTION: Final = r"!`([^`]+)`"
_PLACEHOLDER: Final = r"\$(?:(?P<number>[1-9][0-9]{0,8})(?![0-9])|ARGUMENTS)"
_NAMED_ARGUMENT: Final = r"(?<!\S)(?P<name>[^\s=\"']+)=(?P<value>\"[^\"]*\"|'[^']*'|\S*)"
_ARGUMENT: Final = r"(?i)\[Image\s+[0-9]+\]|\"[^\"]*\"|'[^']*'|[^\s\"']+"


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
    for match in re.finditer(_INSERTION, template):
        pieces += [TemplateText(template[end : match.start()]), ShellInsertion(match[1])]
        end = match.end()
    return (*pieces, TemplateText(template[end:]))


def list_insertions(pieces: Sequence[TemplatePiece]) -> list[str]:
    """Return the shell commands, in order."""
    return [piece.command for piece in pieces if isinstance(piece, ShellInsertion)]


def list_hints(pieces: Sequence[TemplatePiece]) -> list[str]:
    """Return the placeholders in a template, the numbered ones first."""
    numbered = [f"${number}" for number in sorted(_list_numbers(pieces))]
    return [*numbered, ARGUMENTS] if _has_all_arguments(pieces) else numbered


def split_arguments(text: str) -> list[str]:
    """Split the text after a command into arguments. Quotes keep words together and are removed."""
    return [_unquote(match[0]) for match in re.finditer(_ARGUMENT, text)]


def bind_arguments(text: str, names: Sequence[str]) -> tuple[dict[str, str], str]:
    """Assign the text after a command to named arguments. Return them, and the text that is left.

    `name=value` sets that argument. Other words fill the remaining names in order; the last name takes all the rest.
    """
    values: dict[str, str] = {}

    def take_named(match: re.Match[str]) -> str:
        if match["name"] not in names or match["name"] in values:
            return match[0]
        values[match["name"]] = _unquote(match["value"])
        return ""

    rest = re.sub(_NAMED_ARGUMENT, take_named, text).strip()
    unbound = [name for name in names if name not in values]
    if not unbound:
        return values, rest
    words = split_arguments(rest)
    for index, name in enumerate(unbound):
        words_for_name = words[index:] if name == unbound[-1] else words[index : index + 1]
        if words_for_name:
            values[name] = " ".join(words_for_name)
    return values, ""


def fill_template(pieces: Sequence[TemplatePiece], arguments: str, outputs: Sequence[str] = ()) -> str:
    """Fill in a template's arguments, and the output of each insertion.

    The highest number takes all remaining arguments. If a template has no placeholder, the arguments are appended.
    """
    values, highest = split_arguments(arguments), max(_list_numbers(pieces), default=0)

    def get_value(match: re.Match[str]) -> str:
        if match["number"] is None:
            return arguments
        number = int(match["number"])
        return " ".join(values[number - 1 :] if number == highest else values[number - 1 : number])

    remaining_outputs = iter(outputs)
    filled = [
        re.sub(_PLACEHOLDER, get_value, piece.text)
        if isinstance(piece, TemplateText)
        else next(remaining_outputs, "")
        for piece in pieces
    ]
    if not highest and not _has_all_arguments(pieces) and arguments.strip():
        filled.append(f"\n\n{arguments}")
    return "".join(filled).strip()


def _iterate_placeholders(pieces: Sequence[TemplatePiece]) -> Iterator[re.Match[str]]:
    """Yield the placeholders in the text. Those in an insertion are for the shell."""
    for piece in pieces:
        if isinstance(piece, TemplateText):
            yield from re.finditer(_PLACEHOLDER, piece.text)


def _list_numbers(pieces: Sequence[TemplatePiece]) -> set[int]:
    return {int(match["number"]) for match in _iterate_placeholders(pieces) if match["number"] is not None}


def _has_all_arguments(pieces: Sequence[TemplatePiece]) -> bool:
    return any(match["number"] is None for match in _iterate_placeholders(pieces))


def _unquote(argument: str) -> str:
    text = argument[1:] if argument[:1] in ("'", '"') else argument
    return text[:-1] if text[-1:] in ("'", '"') else text


INIT = "init"
REVIEW = "review"

_WORKTREE_PLACEHOLDER = "{worktree}"
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
    """Return a command by its name. Raise `NotFoundError` with similar names. OpenCode raises a type error."""
    command = commands.get(name.removeprefix("/"))
    if command is None:
        near = find_similar(name, commands)
        raise NotFoundError(
            "command", name, near=near, hint=f"available commands: {', '.join(commands) or 'none'}"
        )
    return command


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
    return text.replace(
        _WORKTREE_PLACEHOLDER, "its root" if _TEMPLATE_CHARACTERS & set(worktree) else worktree
    )
