"""Replace `{env:NAME}` and `{file:PATH}` in the text of a configuration file.

Inside quotes the content is escaped, so that it cannot end the string; outside, it is inserted as it is and must be
JSON. Comments are skipped. OpenCode inserts environment values unescaped, and interprets `$&` in a file as a replacement pattern.
"""

import json
import os
import re
import stat
from bisect import bisect_right
from collections.abc import Callable, Mapping

from msgspec import Struct

# Stands for missing content until the text is parsed. Nobody types private-use characters.
MISSING = "\ue000missing\ue000"
MAX_REFERENCE_BYTES = 1 << 20

_TEXT_PIECE = re.compile(
    r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)|\{(?:env|file):[^}\n]+\}', re.DOTALL
)
PLACEHOLDER = re.compile(r"\{(env|file):([^}\n]+)\}")

# Returns the content for ("env", name) or ("file", path). Raises LookupError with the reason if it cannot.
Resolve = Callable[[str, str], str]


class TextEdit(Struct, frozen=True):
    """A range of the new text, and the range of the original that it replaced."""

    start: int
    end: int
    old_start: int
    old_end: int


class FailedPlaceholder(Struct, frozen=True):
    """A placeholder without content. `at` is its offset in the new text."""

    at: int
    reason: str


class Substitution:
    """A text with its placeholders replaced, which can map positions back to the original."""

    def __init__(self, original: str, resolve: Resolve | None) -> None:
        self._original = original
        self._pieces: list[str] = []
        self._length = 0
        self._copied = 0
        self._edits: list[TextEdit] = []
        self._line_starts: list[int] | None = None
        self.failures: list[FailedPlaceholder] = []
        if resolve is not None:
            for piece in _TEXT_PIECE.finditer(original):
                self._substitute_piece(piece, resolve)
        self._copy_to(len(original))
        self.text = "".join(self._pieces)

    def locate(self, offset: int) -> tuple[int, int]:
        """Return line and column in the original for an offset in the new text."""
        number = bisect_right(self._edits, offset, key=lambda edit: edit.start)
        if number:
            edit = self._edits[number - 1]
            offset = edit.old_start if offset < edit.end else offset - (edit.end - edit.old_end)
        # A file may have a mistake in each of its lines: no search may begin at the top.
        if self._line_starts is None:
            self._line_starts = [0, *(newline.end() for newline in re.finditer("\n", self._original))]
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def _substitute_piece(self, piece: re.Match[str], resolve: Resolve) -> None:
        if piece[0].startswith("/"):
            return
        quoted = piece[0].startswith('"')
        for placeholder in PLACEHOLDER.finditer(self._original, piece.start(), piece.end()):
            self._replace(placeholder, resolve, quoted=quoted)

    def _replace(self, placeholder: re.Match[str], resolve: Resolve, *, quoted: bool) -> None:
        self._copy_to(placeholder.start())
        name = _unescape(placeholder[2]) if quoted else placeholder[2]
        try:
            content = resolve(placeholder[1], name)
            if not quoted and content == placeholder[0]:
                content = "null"  # a placeholder that the resolver left alone is not valid JSON
            replacement = json.dumps(content, ensure_ascii=False)[1:-1] if quoted else content
        except LookupError as error:
            self.failures.append(FailedPlaceholder(self._length, str(error.args[0])))
            replacement = MISSING if quoted else "null"
        self._edits.append(
            TextEdit(self._length, self._length + len(replacement), placeholder.start(), placeholder.end())
        )
        self._pieces.append(replacement)
        self._length += len(replacement)
        self._copied = placeholder.end()

    def _copy_to(self, end: int) -> None:
        self._pieces.append(self._original[self._copied : end])
        self._length += end - self._copied
        self._copied = end


def _unescape(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text


def drop_missing(value: object) -> object:
    """Remove values with missing content. A list with a missing entry is removed as a whole."""
    if isinstance(value, str):
        return None if MISSING in value else value
    if isinstance(value, list):
        items = [drop_missing(item) for item in value]
        return (
            None
            if any(new is None and old is not None for new, old in zip(items, value, strict=True))
            else items
        )
    if isinstance(value, dict):
        pairs = ((key, item, drop_missing(item)) for key, item in value.items())
        return {key: new for key, old, new in pairs if new is not None or old is None}
    return value


def make_resolver(env: Mapping[str, str], *, directory: str | None, home: str) -> Resolve:
    """Return a function that looks up placeholders in `env` and in files. Without a directory, files are refused."""

    def resolve(kind: str, name: str) -> str:
        if kind == "env":
            return env.get(name, "")
        if directory is None:
            raise LookupError("a file cannot be referenced here")
        path = os.path.join(home, name[2:]) if name.startswith("~/") else os.path.join(directory, name)
        return _read_reference(os.path.normpath(path), name)

    return resolve


def make_bounded_resolver(directory: str, is_readable: Callable[[str], bool]) -> Resolve:
    """Return a function that reads files if `is_readable` allows them. Other placeholders stay as they are."""

    def resolve(kind: str, name: str) -> str:
        path = os.path.normpath(os.path.join(directory, name))
        if kind == "file" and not name.startswith("~/") and is_readable(path):
            return _read_reference(path, name)
        return f"{{{kind}:{name}}}"

    return resolve


def _read_reference(path: str, name: str) -> str:
    reference = f'bad file reference: "{{file:{name}}}"'
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise LookupError(f"{reference} {path} is not a file")
        with open(path, "rb") as file:
            raw = file.read(MAX_REFERENCE_BYTES + 1)
    except FileNotFoundError:
        raise LookupError(f"{reference} {path} does not exist") from None
    except (OSError, ValueError):
        raise LookupError(f"{reference} {path} cannot be read") from None
    if len(raw) > MAX_REFERENCE_BYTES:
        raise LookupError(f"{reference} {path} is larger than {MAX_REFERENCE_BYTES >> 20} MB")
    try:
        return raw.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise LookupError(f"{reference} {path} is not UTF-8 text") from None
