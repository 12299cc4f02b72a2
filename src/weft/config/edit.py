"""Change keys of a JSONC file and leave every other character as it is."""

import json
import os
import re
from typing import Any

from msgspec import Struct

from weft.config.check import check_config
from weft.config.jsonc import JsoncDocument
from weft.config.layer import read_text
from weft.config.secrets import REDACTED
from weft.config.sources import ConfigScope
from weft.errors import ConfigError, InvalidInputError, OutsideError
from weft.host.files import hold_lock, write_atomic
from weft.model.project import is_within

INDENT = "  "

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<mark>[{}\[\],:])|(?P<word>[^\s{}\[\],:"/]+)""",
    re.DOTALL,
)
# One comment is never read as part of another: a text with many comments and no comma would take for ever.
_COMMA = re.compile(r"(?:\s|//[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*,")
_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\n]*|/\*[^\n]*?\*/[ \t]*(?=\n))")


class TextPosition(Struct):
    """The position of a value in the text. For an object, `members` holds each key's offset and value."""

    start: int
    end: int = 0
    members: dict[str, "tuple[int, TextPosition]"] | None = None


def amend_text(path: str, text: str, change: dict[str, Any]) -> str:
    """Return the text with a change merged into it. None removes a key. Raise `ConfigError` if the text is not an
    object.
    """
    for key_path, value in _flatten_change(change):
        text = _set_key(path, text if text.strip() else "{}\n", key_path, value)
    return text


def merge_change(old: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return the value that the amended text has: `old` with the change merged into it."""
    merged: dict[str, Any] = _merge_value(old, change)
    return merged


def _merge_value(old: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        new = _merge_value(merged.get(key), value)
        if new is None:
            merged.pop(key, None)
        else:
            merged[key] = new
    # Removing a key from something that is not an object changes nothing.
    return merged if merged or not change or isinstance(old, dict) else old


def _flatten_change(
    change: dict[str, Any], prefix: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], Any]]:
    steps: list[tuple[tuple[str, ...], Any]] = []
    for key, value in change.items():
        key_path = (*prefix, key)
        steps += (
            _flatten_change(value, key_path) if isinstance(value, dict) and value else [(key_path, value)]
        )
    return steps


def _set_key(path: str, text: str, keys: tuple[str, ...], value: Any) -> str:
    """Set one key, creating objects on the way to it, or remove it."""
    target, depth = _PositionReader(path, text).read(), 0
    while depth < len(keys) - 1 and target.members is not None and keys[depth] in target.members:
        child = target.members[keys[depth]][1]
        if child.members is None:
            break
        target, depth = child, depth + 1
    if target.members is None:
        raise ConfigError(path, "expected an object")
    key, rest = keys[depth], keys[depth + 1 :]
    if value is None:
        is_present = key in target.members and not rest
        return _remove_member(text, target.members[key]) if is_present else text
    for name in reversed(rest):
        value = {name: value}
    formatted = _format_value(value, INDENT * (depth + 1))
    if key in target.members:
        old = target.members[key][1]
        if value == {} and old.members is not None:
            return text  # an empty object changes nothing inside it
        return text[: old.start] + formatted + text[old.end :]
    return _add_member(text, target, f"{json.dumps(key, ensure_ascii=False)}: {formatted}", depth)


def _format_value(value: Any, indent: str) -> str:
    return json.dumps(value, ensure_ascii=False, indent=len(INDENT)).replace("\n", f"\n{indent}")


def _add_member(text: str, target: TextPosition, member: str, depth: int) -> str:
    """Add a member after the last one and after the comment on its line."""
    indent = "\n" + INDENT * (depth + 1)
    if not target.members:
        closing = "" if "\n" in text[target.start : target.end] else "\n" + INDENT * depth
        return text[: target.start + 1] + indent + member + closing + text[target.start + 1 :]
    last = max(value.end for _, value in target.members.values())
    comma = _COMMA.match(text, last)
    end = comma.end() if comma else last
    comment = _REST_OF_LINE.match(text, end)
    offset = comment.end() if comment else end
    return text[:last] + ("" if comma else ",") + text[last:offset] + indent + member + text[offset:]


def _remove_member(text: str, member: "tuple[int, TextPosition]") -> str:
    start, end = member[0], member[1].end
    comma = _COMMA.match(text, end)
    if comma:
        end = comma.end()
    else:  # the last member: remove the comma before it
        before = re.search(r",\s*$", text[:start])
        start = before.start() if before else start
        return text[:start] + text[end:]
    blank = re.search(r"\n[ \t]*$", text[:start])
    return text[: blank.start() if blank else start] + text[end:]


class _PositionReader:
    """Parses a JSONC text once to find the position of every value."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._text = text
        self._offset = 0

    def read(self) -> TextPosition:
        """Return the position of the root. Raise `ConfigError` if the text is not JSONC."""
        try:
            return self._read_value()
        except (KeyError, RecursionError) as error:
            raise ConfigError(
                self._path, "cannot be changed: its syntax is not understood; change it by hand"
            ) from error

    def _read_token(self) -> tuple[str, int]:
        """Return the next token that is not white space or a comment, and its offset."""
        while True:
            token = _TOKEN.match(self._text, self._offset)
            if token is None:
                raise KeyError(self._offset)
            self._offset = token.end()
            if token.lastgroup != "space":
                return token[0], token.start()

    def _read_value(self) -> TextPosition:
        token, start = self._read_token()
        value = TextPosition(start)
        if token == "{":
            value.members = {}
            self._read_members(value.members)
        elif token == "[":
            self._read_items()
        elif token in "}],:":
            raise KeyError(start)
        value.end = self._offset
        return value

    def _read_members(self, members: "dict[str, tuple[int, TextPosition]]") -> None:
        while True:
            token, start = self._read_token()
            if token == "}":
                return
            if token == ",":
                continue
            if not token.startswith('"') or self._read_token()[0] != ":":
                raise KeyError(start)
            members[json.loads(token, strict=False)] = (start, self._read_value())

    def _read_items(self) -> None:
        while True:
            before = self._offset
            token, _ = self._read_token()
            if token == "]":
                return
            if token != ",":
                self._offset = before
                self._read_value()


PROJECT_NAMES = ("opencode.json", "opencode.jsonc")
USER_NAMES = ("opencode.jsonc", "opencode.json", "config.json")
SHARED_MODE = 0o644
PRIVATE_MODE = 0o600


def choose_project_file(scope: ConfigScope) -> str:
    """Return the file for the project's settings: the existing one with the highest precedence, or a new one at the top."""
    top = scope.worktree if scope.worktree != os.sep else scope.directory
    for directory in (scope.directory, top):
        for name in PROJECT_NAMES:
            path = os.path.join(directory, name)
            if os.path.lexists(path):
                return _require_inside(path, top)
    return _require_inside(os.path.join(top, PROJECT_NAMES[0]), top)


def _require_inside(path: str, top: str) -> str:
    """Return the real path. Raise `OutsideError` if a link leads out of the project: OpenCode follows it."""
    real, root = os.path.realpath(path), os.path.realpath(top)
    if not is_within(real, root):
        raise OutsideError(path)
    return real


def choose_user_file(config: str) -> str:
    """Return the file for the user's own settings."""
    paths = [os.path.join(config, name) for name in USER_NAMES]
    return os.path.realpath(next((path for path in paths if os.path.lexists(path)), paths[1]))


def check_change(change: dict[str, Any]) -> None:
    """Raise `InvalidInputError` for a change that would have no effect, or that contains what stands for a redacted secret."""
    if _contains(change, REDACTED):
        raise InvalidInputError(
            "config",
            f"{REDACTED} stands for a redacted secret, and is not a value",
            hint="leave this key out",
        )
    _, findings = check_config(merge_change({}, change))
    if findings:
        finding = findings[0]
        hint = f"did you mean {finding.near!r}?" if finding.near else ""
        # A file may contain unknown keys, a change may not.
        reason = finding.reason.partition(",")[0] if finding.is_warning else finding.reason
        raise InvalidInputError(".".join(finding.path) or "config", reason, hint=hint)


def _contains(value: Any, word: str) -> bool:
    if isinstance(value, dict):
        return any(_contains(item, word) for item in value.values())
    if isinstance(value, list):
        return any(_contains(item, word) for item in value)
    return isinstance(value, str) and word in value


def write_change(path: str, change: dict[str, Any], *, lock: str, mode: int = SHARED_MODE) -> tuple[str, str]:
    """Merge a change into a file. Return the text before and after. Raise `ConfigError` if other content would be lost."""
    with hold_lock(lock):
        before = read_text(path) or ""
        old = JsoncDocument(path, before, None).value
        after = amend_text(path, before, change)
        if JsoncDocument(path, after, None).value != merge_change(old, change):
            raise ConfigError(path, "cannot be changed without losing content; change it by hand")
        if after != before:
            write_text(path, after, mode=mode)
        return before, after


def write_text(path: str, text: str, *, mode: int = SHARED_MODE) -> None:
    """Replace a file. An existing file keeps its permissions."""
    try:
        mode = os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    write_atomic(path, text.encode(), temp=f"{path}.{os.getpid()}.new", flush=True)
    os.chmod(path, mode)
