"""Diagnostics of language servers: their types, the contract for these servers, and texts for models."""

import os
from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote_to_bytes, urlsplit

from msgspec import Struct

ERROR_SEVERITY: Final = 1
MAX_DIAGNOSTICS: Final = 20  # of one file
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
    """A diagnostic as the protocol defines it. One without a severity is an error."""

    range: DiagnosticRange
    message: str
    severity: int = ERROR_SEVERITY
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
    """Return the URI by which the protocol of language servers names a file. Names need not be UTF-8."""
    return "file://" + quote(os.fsencode(path))


def to_path(uri: Any) -> str | None:
    """Return the path that a URI names, or None if it names no file."""
    if not isinstance(uri, str) or not uri.startswith("file:"):
        return None
    try:
        return os.fsdecode(unquote_to_bytes(urlsplit(uri).path)) or None
    except ValueError:
        return None


def format_errors(path: str, diagnostics: Diagnostics, *, where: str = "this file") -> str:
    """Return a block with the errors of one file for a tool's output, or "" if there are none."""
    errors = _select_errors(path, diagnostics)
    return f"\n\nLSP errors detected in {where}, please fix:\n{_format_block(path, errors)}" if errors else ""


def format_other_errors(path: str, diagnostics: Diagnostics) -> str:
    """Return blocks with the errors of other files, which the change may have broken."""
    others = [other for other in diagnostics if other != path and _select_errors(other, diagnostics)][
        :MAX_OTHER_FILES
    ]
    return "".join(
        f"\n\nLSP errors detected in other files:\n{_format_block(other, _select_errors(other, diagnostics))}"
        for other in others
    )


def to_metadata(diagnostics: Diagnostics, *paths: str) -> dict[str, Any]:
    """Return diagnostics for clients: of the changed files first, then of others, each bounded as for models.

    OpenCode stores all known diagnostics of all files with every edit.
    """
    changed = [path for path in paths if path in diagnostics]
    others = [path for path in diagnostics if path not in paths and _select_errors(path, diagnostics)]
    return {
        path: [_to_plain(diagnostic) for diagnostic in diagnostics[path][:MAX_DIAGNOSTICS]]
        for path in (*changed, *others[:MAX_OTHER_FILES])
    }


def _select_errors(path: str, diagnostics: Diagnostics) -> list[Diagnostic]:
    return [diagnostic for diagnostic in diagnostics.get(path, ()) if diagnostic.severity == ERROR_SEVERITY]


def _format_block(path: str, errors: list[Diagnostic]) -> str:
    lines = [format_diagnostic(error) for error in errors[:MAX_DIAGNOSTICS]]
    if len(errors) > MAX_DIAGNOSTICS:
        lines.append(f"... and {len(errors) - MAX_DIAGNOSTICS} more")
    return "\n".join([f'<diagnostics file="{path}">', *lines, "</diagnostics>"])


def format_diagnostic(diagnostic: Diagnostic) -> str:
    """Format a diagnostic on one line. Line and character count from 1, as people count."""
    start = diagnostic.range.start
    name = _SEVERITY_NAMES.get(diagnostic.severity, "ERROR")
    return f"{name} [{start.line + 1}:{start.character + 1}] {diagnostic.message}"


def _to_plain(diagnostic: Diagnostic) -> dict[str, Any]:
    start, end = diagnostic.range.start, diagnostic.range.end
    plain = {
        "range": {
            "start": {"line": start.line, "character": start.character},
            "end": {"line": end.line, "character": end.character},
        },
        "severity": diagnostic.severity,
        "message": diagnostic.message,
    }
    return plain | ({"source": diagnostic.source} if diagnostic.source else {})
