"""Change keys of a JSONC file and leave every other character as it is."""

import json
import os
import re
from typing import Any

from msgspec import Struct

from weft.config.check import check
from weft.config.jsonc import Document
from weft.config.layer import read_text
from weft.config.secrets import MASK
from weft.config.sources import Situation
from weft.errors import ConfigError, InvalidInputError, OutsideError
from weft.host.files import locked, write_atomic

INDENT = "  "

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<mark>[{}\[\],:])|(?P<word>[^\s{}\[\],:"/]+)""",
    re.DOTALL,
)
_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\n]*|/\*[^\n]*?\*/[ \t]*(?=\n))")


class Value(Struct):
    """Where a value stands in the text; an object's members by key, each with where its key begins."""

    start: int
    end: int = 0
    members: dict[str, "tuple[int, Value]"] | None = None


def amend(path: str, text: str, change: dict[str, Any]) -> str:
    """The text with the change merged into it. What is None goes. Raises `ConfigError` for a text that is no object."""
    for key_path, value in _steps(change):
        text = _put(path, text if text.strip() else "{}\n", key_path, value)
    return text


def merged(old: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """What the amended text says, in plain values."""
    found: dict[str, Any] = _merged(old, change)
    return found


def _merged(old: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    kept = dict(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        new = _merged(kept.get(key), value)
        if new is None:
            kept.pop(key, None)
        else:
            kept[key] = new
    # To take something out of what is not there, or is no object, is to say nothing.
    return kept if kept or not change or isinstance(old, dict) else old


def _steps(change: dict[str, Any], under: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    steps: list[tuple[tuple[str, ...], Any]] = []
    for key, value in change.items():
        here = (*under, key)
        steps += _steps(value, here) if isinstance(value, dict) and value else [(here, value)]
    return steps


def _put(path: str, text: str, keys: tuple[str, ...], value: Any) -> str:
    """Set one key, making the objects on the way to it, or take it out."""
    found, depth = _Reading(path, text).read(), 0
    while depth < len(keys) - 1 and found.members is not None and keys[depth] in found.members:
        below = found.members[keys[depth]][1]
        if below.members is None:
            break
        found, depth = below, depth + 1
    if found.members is None:
        raise ConfigError(path, "expected an object")
    key, rest = keys[depth], keys[depth + 1 :]
    if value is None:
        there = key in found.members and not rest
        return _taken_out(text, found.members[key]) if there else text
    for name in reversed(rest):
        value = {name: value}
    written = _written(value, INDENT * (depth + 1))
    if key in found.members:
        old = found.members[key][1]
        if value == {} and old.members is not None:
            return text  # nothing is said of what is in it
        return text[: old.start] + written + text[old.end :]
    return _added(text, found, f"{json.dumps(key, ensure_ascii=False)}: {written}", depth)


def _written(value: Any, indent: str) -> str:
    return json.dumps(value, ensure_ascii=False, indent=len(INDENT)).replace("\n", f"\n{indent}")


def _added(text: str, found: Value, member: str, depth: int) -> str:
    """A member more, behind the last one and what is said of it on its line."""
    indent = "\n" + INDENT * (depth + 1)
    if not found.members:
        closing = "" if "\n" in text[found.start : found.end] else "\n" + INDENT * depth
        return text[: found.start + 1] + indent + member + closing + text[found.start + 1 :]
    last = max(value.end for _, value in found.members.values())
    comma = re.match(r"(?:\s|//[^\n]*\n|/\*.*?\*/)*,", text[last:], re.DOTALL)
    behind = last + (comma.end() if comma else 0)
    note = _REST_OF_LINE.match(text, behind)
    at = note.end() if note else behind
    return text[:last] + ("" if comma else ",") + text[last:at] + indent + member + text[at:]


def _taken_out(text: str, member: "tuple[int, Value]") -> str:
    start, end = member[0], member[1].end
    behind = re.match(r"[ \t]*,", text[end:])
    if behind:
        end += behind.end()
    else:  # the last one: the comma before it goes
        before = re.search(r",\s*$", text[:start])
        start = before.start() if before else start
        return text[:start] + text[end:]
    blank = re.search(r"\n[ \t]*$", text[:start])
    return text[: blank.start() if blank else start] + text[end:]


class _Reading:
    """Reads a JSONC text once through, for where things stand in it."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._text = text
        self._at = 0

    def read(self) -> Value:
        try:
            value = self._value()
        except (KeyError, RecursionError) as error:
            raise ConfigError(self._path, "cannot be changed: it is not what it should be") from error
        return value

    def _next(self) -> tuple[str, int]:
        """The next token that says something, and where it begins."""
        while True:
            found = _TOKEN.match(self._text, self._at)
            if found is None:
                raise KeyError(self._at)
            self._at = found.end()
            if found.lastgroup != "space":
                return found[0], found.start()

    def _value(self) -> Value:
        token, start = self._next()
        value = Value(start)
        if token == "{":
            value.members = {}
            self._members(value.members)
        elif token == "[":
            self._items()
        elif token in "}],:":
            raise KeyError(start)
        value.end = self._at
        return value

    def _members(self, members: "dict[str, tuple[int, Value]]") -> None:
        while True:
            token, start = self._next()
            if token == "}":
                return
            if token == ",":
                continue
            if not token.startswith('"') or self._next()[0] != ":":
                raise KeyError(start)
            members[json.loads(token, strict=False)] = (start, self._value())

    def _items(self) -> None:
        while True:
            before = self._at
            token, _ = self._next()
            if token == "]":
                return
            if token != ",":
                self._at = before
                self._value()


NAMES = ("opencode.json", "opencode.jsonc")
OWN_NAMES = ("opencode.jsonc", "opencode.json", "config.json")
SHARED_MODE = 0o644
OWN_MODE = 0o600


def project_file(situation: Situation) -> str:
    """The file a project's settings go into: the one that has the last word here, else a new one at the top."""
    top = situation.worktree if situation.worktree != os.sep else situation.directory
    for directory in (situation.directory, top):
        for name in NAMES:
            path = os.path.join(directory, name)
            if os.path.lexists(path):
                return _inside(path, top)
    return _inside(os.path.join(top, NAMES[0]), top)


def _inside(path: str, top: str) -> str:
    """OpenCode writes wherever a link leads."""
    real, root = os.path.realpath(path), os.path.realpath(top)
    if os.path.commonpath((real, root)) != root:
        raise OutsideError(path)
    return real


def own_file(config: str) -> str:
    """The file a person's own settings go into."""
    paths = [os.path.join(config, name) for name in OWN_NAMES]
    return os.path.realpath(next((path for path in paths if os.path.lexists(path)), paths[1]))


def check_change(change: dict[str, Any]) -> None:
    """Refuse what would not be in force, and what was covered when it was shown."""
    if _holds(change, MASK):
        raise InvalidInputError("config", f"{MASK} stands for a secret, and is none", hint="leave it out")
    _, findings = check(merged({}, change))
    if findings:
        first = findings[0]
        hint = f"did you mean {first.near!r}?" if first.near else ""
        # What a file is forgiven is refused here: it is not passed on, and not ignored.
        reason = first.reason.partition(",")[0] if first.mild else first.reason
        raise InvalidInputError(".".join(first.path) or "config", reason, hint=hint)


def _holds(value: Any, word: str) -> bool:
    if isinstance(value, dict):
        return any(_holds(item, word) for item in value.values())
    if isinstance(value, list):
        return any(_holds(item, word) for item in value)
    return isinstance(value, str) and word in value


def write_change(path: str, change: dict[str, Any], *, lock: str, mode: int = SHARED_MODE) -> tuple[str, str]:
    """Merge a change into a file; gives the text before and after. What cannot be changed with care is not changed."""
    with locked(lock):
        before = read_text(path) or ""
        old = Document(path, before, None).value
        after = amend(path, before, change)
        if Document(path, after, None).value != merged(old, change):
            raise ConfigError(path, "cannot be changed without losing something; change it by hand")
        if after != before:
            put_text(path, after, mode=mode)
        return before, after


def put_text(path: str, text: str, *, mode: int = SHARED_MODE) -> None:
    """Replace a file whole. One that was there keeps its permissions."""
    try:
        mode = os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    write_atomic(path, text.encode(), temp=f"{path}.{os.getpid()}.new", flush=True)
    os.chmod(path, mode)
