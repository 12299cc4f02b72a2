"""Slash commands: built-in and configured ones, and their templates (pure)."""

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


class Words(Struct, frozen=True):
    """A stretch of a template that is not run."""

    text: str


class Insertion(Struct, frozen=True):
    """A shell command whose output is to stand in its place."""

    command: str


Piece = Words | Insertion


def parse(template: str) -> tuple[Piece, ...]:
    """The stretches of a template, in order."""
    pieces: list[Piece] = []
    end = 0
    for found in _INSERTION.finditer(template):
        pieces += [Words(template[end : found.start()]), Insertion(found[1])]
        end = found.end()
    return (*pieces, Words(template[end:]))


def list_insertions(pieces: Sequence[Piece]) -> list[str]:
    """The shell commands, in order."""
    return [piece.command for piece in pieces if isinstance(piece, Insertion)]


def list_hints(pieces: Sequence[Piece]) -> list[str]:
    """The placeholders there are, the numbered ones first."""
    return [f"${number}" for number in sorted(_numbers(pieces))] + [ARGUMENTS] * _takes_all(pieces)


def split_arguments(text: str) -> list[str]:
    """What was typed behind a command, argument by argument: quotes keep words together, and are taken off."""
    return [_unquoted(found[0]) for found in _ARGUMENT.finditer(text)]


def bind_arguments(text: str, names: Sequence[str]) -> tuple[dict[str, str], str]:
    """What was typed behind a command that takes arguments by name, and the rest that has no place.

    `name=value` goes to that name, whatever else there is to the names that are left, in order; the last one takes all
    the rest.
    """
    given: dict[str, str] = {}

    def take(found: re.Match[str]) -> str:
        if found["name"] not in names or found["name"] in given:
            return found[0]
        given[found["name"]] = _unquoted(found["value"])
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


def fill(pieces: Sequence[Piece], arguments: str, outputs: Sequence[str] = ()) -> str:
    """The template with its arguments in it, and in the place of each insertion its output.

    The highest number takes all arguments that are left. A template without a place for arguments gets them at its
    end.
    """
    given, highest = split_arguments(arguments), max(_numbers(pieces), default=0)

    def value(found: re.Match[str]) -> str:
        if found["number"] is None:
            return arguments
        number = int(found["number"])
        return " ".join(given[number - 1 :] if number == highest else given[number - 1 : number])

    rest = iter(outputs)
    filled = [
        _PLACEHOLDER.sub(value, piece.text) if isinstance(piece, Words) else next(rest, "")
        for piece in pieces
    ]
    if not highest and not _takes_all(pieces) and arguments.strip():
        filled.append(f"\n\n{arguments}")
    return "".join(filled).strip()


def _placeholders(pieces: Sequence[Piece]) -> Iterator[re.Match[str]]:
    """Those in the words: what stands in an insertion is for the shell."""
    for piece in pieces:
        if isinstance(piece, Words):
            yield from _PLACEHOLDER.finditer(piece.text)


def _numbers(pieces: Sequence[Piece]) -> set[int]:
    return {int(found["number"]) for found in _placeholders(pieces) if found["number"] is not None}


def _takes_all(pieces: Sequence[Piece]) -> bool:
    return any(found["number"] is None for found in _placeholders(pieces))


def _unquoted(argument: str) -> str:
    without = argument[1:] if argument[:1] in ("'", '"') else argument
    return without[:-1] if without[-1:] in ("'", '"') else without


INIT = "init"
REVIEW = "review"

_WORKTREE = "{worktree}"
# A path with one of these in it would be read as part of the template.
_SPEAKS = frozenset("$`@")


def build_commands(config: Config, worktree: str) -> dict[str, Command]:
    """Every command by its name, the built-in ones first. What is configured takes the place of one of these."""
    built_in = {
        INIT: CommandConfig(description="write or improve AGENTS.md", template=_written(INIT, worktree)),
        REVIEW: CommandConfig(
            description="review changes: not committed (default), a commit, a branch or a pull request",
            template=_written(REVIEW, worktree),
            subtask=True,
        ),
    }
    return {name: _to_command(name, said) for name, said in (built_in | (config.command or {})).items()}


def get_command(commands: Mapping[str, Command], name: str) -> Command:
    """OpenCode fails with a type error for a name it does not know."""
    found = commands.get(name.removeprefix("/"))
    if found is None:
        near = get_close_matches(name, commands, n=3)
        raise NotFoundError("command", name, near=near, hint=f"there are {', '.join(commands) or 'none'}")
    return found


def _to_command(name: str, said: CommandConfig) -> Command:
    return Command(
        name=name,
        description=said.description,
        agent=said.agent,
        model=said.model,
        template=said.template,
        subtask=said.subtask,
        hints=tuple(list_hints(parse(said.template))),
    )


def _written(name: str, worktree: str) -> str:
    path = os.path.join(os.path.dirname(__file__), "prompts", f"{name}.md")
    with open(path, encoding="utf-8") as file:
        text = file.read().strip()
    return text.replace(_WORKTREE, "its root" if _SPEAKS & set(worktree) else worktree)
