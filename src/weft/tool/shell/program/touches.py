"""Note the files that a program uses by its words."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

from weft.model.permission import has_hole
from weft.tool.shell.arguments import Field, Fields, unknown_field
from weft.tool.shell.state import FileUse, ShellState

_URL: Final = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://")


def touch_written(words: Sequence[Field], state: ShellState, *, recursive: bool) -> None:
    for field in words:
        # To these programs, a dash is an ordinary name.
        target = Field("./-") if field.text == "-" else field
        if recursive:
            state.touch_all(target, "write")
        else:
            state.touch(target, "write")


def touch_paths(arguments: Fields, state: ShellState) -> None:
    """Note the arguments of a program that is not in the table: everything that looks like a path is one."""
    for field in arguments:
        touch_path(field, state)


def touch_path(field: Field, state: ShellState, use: FileUse = "read") -> None:
    """Note the use of every part of an argument that looks like a path."""
    if field.listing is not None or field.glob_pattern:
        state.touch(field, use)
        return
    for text in _list_candidates(field.text):
        if state.looks_like_path(text):
            state.touch(Field(_expand_home(text, state)), use)


def _list_candidates(text: str) -> Iterator[str]:
    """Yield the parts of an argument that may be a path: `--file=x`, `-Ix`, `@x`, `a:b`."""
    if has_hole(text) or _URL.match(text):
        return
    text = text.removeprefix("file://")
    if text.startswith("-"):
        _, equals, value = text.partition("=")
        text = value if equals else text[2:]
    yield text
    for sign in ("=", "@", ":", ","):
        if sign in text:
            yield from (piece for piece in text.split(sign) if piece)


def _expand_home(text: str, state: ShellState) -> str:
    return state.location.home + text[1:] if text == "~" or text.startswith("~/") else text


def join_names(directory: Field, name: Field) -> Field:
    if not directory.is_known or not name.is_known:
        return unknown_field(f"{directory.text}/{name.text}")
    return Field(os.path.join(directory.text, name.text))


def append_suffix(field: Field, suffix: Field) -> Field:
    """Return the name of a file with a suffix."""
    if not field.is_known or not suffix.is_known:
        return unknown_field(f"{field.text}{suffix.text}")
    return Field(field.text + suffix.text)
