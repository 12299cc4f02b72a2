"""Diagnostics of language servers, the contract for asking those servers, and how models see their errors."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

ERROR: Final = 1
MAX_SHOWN: Final = 20
MAX_OTHER_FILES: Final = 5

_SEVERITY_NAMES: Final = {1: "ERROR", 2: "WARN", 3: "INFO", 4: "HINT"}


class DiagnosticPosition(Struct, frozen=True):
    """A position in a file. Line and character count from 0, as language servers count."""

    line: int
    character: int


class DiagnosticRange(Struct, frozen=True):
    start: DiagnosticPosition
    end: DiagnosticPosition


class Diagnostic(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A diagnostic as the protocol has it. One without a severity is an error."""

    range: DiagnosticRange
    message: str
    severity: int = ERROR
    code: Any = None
    source: str | None = None


Diagnostics = Mapping[str, tuple[Diagnostic, ...]]


class LanguageServers(Protocol):
    """The language servers of a workspace, if there are any.

    * `diagnose` returns the diagnostics of these files as they are now, and of other files with known problems. It
      always returns in bounded time, if necessary with incomplete results;
    * `warm_up` prepares the servers for a file that will probably be changed, without waiting for them;
    * `request` sends a request of the protocol and returns all answers, or None if no server serves the file. It waits
      for a server that is starting, so callers must set a timeout.
    """

    async def diagnose(self, *paths: str) -> Diagnostics: ...

    def warm_up(self, path: str) -> None: ...

    async def request(self, path: str, method: str, params: dict[str, Any]) -> list[Any] | None: ...


class NoLanguageServers:
    """No language servers."""

    async def diagnose(self, *paths: str) -> Diagnostics:
        del paths
        return {}

    def warm_up(self, path: str) -> None:
        pass

    async def request(self, path: str, method: str, params: dict[str, Any]) -> list[Any] | None:
        del path, method, params
        return None


def to_uri(path: str) -> str:
    """Return the URI by which the protocol of language servers names a file."""
    return "file://" + quote(path)


def to_path(uri: Any) -> str | None:
    """Return the path that a URI names, or None if it names no file."""
    if not isinstance(uri, str) or not uri.startswith("file:"):
        return None
    try:
        return unquote(urlsplit(uri).path) or None
    except ValueError:
        return None


def format_errors(path: str, found: Diagnostics, *, where: str = "this file") -> str:
    """Return a block with the errors of one file for a tool's output, or "" if there are none."""
    errors = _select_errors(path, found)
    return f"\n\nLSP errors detected in {where}, please fix:\n{_format_block(path, errors)}" if errors else ""


def format_other_errors(path: str, found: Diagnostics) -> str:
    """Return blocks with the errors of other files, which the change may have broken."""
    others = [other for other in found if other != path and _select_errors(other, found)][:MAX_OTHER_FILES]
    return "".join(
        f"\n\nLSP errors detected in other files:\n{_format_block(other, _select_errors(other, found))}"
        for other in others
    )


def to_metadata(found: Diagnostics, *paths: str) -> dict[str, Any]:
    """Return diagnostics for clients: of the changed files first, then of others, each bounded as for models.

    OpenCode stores all known diagnostics of all files with every edit.
    """
    return dict(_select_shown(found, paths))


def _select_shown(found: Diagnostics, paths: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    others = [path for path in found if path not in paths and _select_errors(path, found)][:MAX_OTHER_FILES]
    for path in (*(each for each in paths if each in found), *others):
        yield path, [_to_plain(each) for each in found[path][:MAX_SHOWN]]


def _select_errors(path: str, found: Diagnostics) -> list[Diagnostic]:
    return [each for each in found.get(path, ()) if each.severity == ERROR]


def _format_block(path: str, errors: list[Diagnostic]) -> str:
    lines = [format_diagnostic(each) for each in errors[:MAX_SHOWN]]
    if len(errors) > MAX_SHOWN:
        lines.append(f"... and {len(errors) - MAX_SHOWN} more")
    return "\n".join([f'<diagnostics file="{path}">', *lines, "</diagnostics>"])


def format_diagnostic(each: Diagnostic) -> str:
    """Format a diagnostic on one line. Line and character count from 1, as people count."""
    start = each.range.start
    name = _SEVERITY_NAMES.get(each.severity, "ERROR")
    return f"{name} [{start.line + 1}:{start.character + 1}] {each.message}"


def _to_plain(each: Diagnostic) -> dict[str, Any]:
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
