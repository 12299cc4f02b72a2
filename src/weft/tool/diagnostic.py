"""Diagnostics: what a language server finds wrong with a file, and how a model is told of it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from msgspec import Struct

ERROR: Final = 1
SHOWN: Final = 20
OTHER_FILES: Final = 5

_NAMES: Final = {1: "ERROR", 2: "WARN", 3: "INFO", 4: "HINT"}


class Position(Struct, frozen=True):
    """From 0 on, as servers count."""

    line: int
    character: int


class Range(Struct, frozen=True):
    start: Position
    end: Position


class Diagnostic(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """In the protocol's own words; one that does not say how bad it is, is an error."""

    range: Range
    message: str
    severity: int = ERROR
    code: Any = None
    source: str | None = None


Diagnostics = Mapping[str, tuple[Diagnostic, ...]]


class Lookout(Protocol):
    """Who knows what is wrong with files, if anybody does.

    * `look` tells of the file as it now stands, and of others that are known to be wrong; it has an end, whatever a
      server does, and then tells what is known by then;
    * `warm` gets ready for a file that is likely to be changed, and is not waited for;
    * `ask` puts a question of the protocol's, and gives all that is answered, None if nobody is there to answer. It
      waits for a server that starts: whoever asks gives it an end.
    """

    async def look(self, *paths: str) -> Diagnostics: ...

    def warm(self, path: str) -> None: ...

    async def ask(self, path: str, method: str, params: dict[str, Any]) -> list[Any] | None: ...


class Unwatched:
    """No server, nothing known."""

    async def look(self, *paths: str) -> Diagnostics:
        del paths
        return {}

    def warm(self, path: str) -> None:
        pass

    async def ask(self, path: str, method: str, params: dict[str, Any]) -> list[Any] | None:
        del path, method, params
        return None


def told_of(path: str, found: Diagnostics, *, where: str = "this file") -> str:
    """What is wrong with one file, to stand below a tool's output; nothing if nothing is."""
    errors = _errors(path, found)
    return f"\n\nLSP errors detected in {where}, please fix:\n{_block(path, errors)}" if errors else ""


def told_of_others(path: str, found: Diagnostics) -> str:
    """What is wrong elsewhere: a change here may have broken it."""
    others = [other for other in found if other != path and _errors(other, found)][:OTHER_FILES]
    return "".join(
        f"\n\nLSP errors detected in other files:\n{_block(other, _errors(other, found))}" for other in others
    )


def to_metadata(found: Diagnostics, *paths: str) -> dict[str, Any]:
    """For screens: what was changed first, then others, no more of either than a model is told.

    OpenCode stores all that is known of all files with every edit.
    """
    return dict(_bounded(found, paths))


def _bounded(found: Diagnostics, paths: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    others = [path for path in found if path not in paths and _errors(path, found)][:OTHER_FILES]
    for path in (*(each for each in paths if each in found), *others):
        yield path, [_plain(each) for each in found[path][:SHOWN]]


def _errors(path: str, found: Diagnostics) -> list[Diagnostic]:
    return [each for each in found.get(path, ()) if each.severity == ERROR]


def _block(path: str, errors: list[Diagnostic]) -> str:
    lines = [line_of(each) for each in errors[:SHOWN]]
    if len(errors) > SHOWN:
        lines.append(f"... and {len(errors) - SHOWN} more")
    return "\n".join([f'<diagnostics file="{path}">', *lines, "</diagnostics>"])


def line_of(each: Diagnostic) -> str:
    """As people count, from 1 on."""
    start = each.range.start
    name = _NAMES.get(each.severity, "ERROR")
    return f"{name} [{start.line + 1}:{start.character + 1}] {each.message}"


def _plain(each: Diagnostic) -> dict[str, Any]:
    start, end = each.range.start, each.range.end
    plain = {
        "range": {
            "start": {"line": start.line, "character": start.character},
            "end": {"line": end.line, "character": end.character},
        },
        "severity": each.severity,
        "message": each.message,
    }
    return plain | ({"source": each.source} if each.source else {})
