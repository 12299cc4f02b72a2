"""The text of a patch: what it says is to be done to which files, and what it makes of a file's text (pure).

*** Begin Patch
*** Add File: path            every line after it begins with +
*** Delete File: path
*** Update File: path         *** Move to: path   may follow
@@ a line above the change    ' ' kept, '-' taken away, '+' put in
*** End of File               the change is at the very end
*** End Patch
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from weft.errors import ToolError
from weft.tool.change.seek import seek

BEGIN: Final = "*** Begin Patch"
END: Final = "*** End Patch"
END_OF_FILE: Final = "*** End of File"
ADD: Final = "*** Add File:"
DELETE: Final = "*** Delete File:"
UPDATE: Final = "*** Update File:"
MOVE: Final = "*** Move to:"

_HEREDOC: Final = re.compile(r"\s*(?:cat\s+)?<<-?\s*(['\"]?)(\w+)\1[ \t]*\n(.*)\n\2\s*", re.DOTALL)
# Written by those who think of `diff -u`: line numbers, and after them what we look for.
_NUMBERED: Final = re.compile(r"-\d+(?:,\d+)? \+\d+(?:,\d+)?(?: @@ ?(.*))?")


class Chunk(Struct, frozen=True, kw_only=True):
    """Lines that are to become other lines; `above` is a line to find first, `last` says they are the file's last."""

    above: str = ""
    old: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    last: bool = False


class Add(Struct, frozen=True, kw_only=True):
    path: str
    content: str


class Delete(Struct, frozen=True, kw_only=True):
    path: str


class Update(Struct, frozen=True, kw_only=True):
    path: str
    chunks: tuple[Chunk, ...]
    target: str | None = None


Section = Add | Delete | Update


def parse_patch(text: str) -> tuple[Section, ...]:
    """What a patch says is to be done. Raises `ToolError` naming the line that cannot be meant."""
    lines = _unwrapped(text).replace("\r\n", "\n").split("\n")
    starts = [number for number, line in enumerate(lines) if line.strip() == BEGIN]
    # The last one: an earlier one may be a line of a file that is quoted.
    ends = [number for number, line in enumerate(lines) if line.strip() == END]
    if not starts or not ends or ends[-1] < starts[0]:
        raise ToolError(f"the patch must begin with a line {BEGIN!r} and end with a line {END!r}")
    return tuple(_Reader(lines, starts[0] + 1, ends[-1]).sections())


def _unwrapped(text: str) -> str:
    """The patch itself, when it was written as a shell would be given it."""
    found = _HEREDOC.fullmatch(text)
    return found[3] if found else text


class _Reader:
    """Reads sections, line by line."""

    def __init__(self, lines: list[str], start: int, end: int) -> None:
        self._lines = lines
        self._at = start
        self._end = end

    def sections(self) -> Iterator[Section]:
        while self._at < self._end:
            line = self._next()
            if path := _after(ADD, line):
                yield Add(path=path, content="".join(f"{each}\n" for each in self._added(path)))
            elif path := _after(DELETE, line):
                yield Delete(path=path)
            elif path := _after(UPDATE, line):
                target = _after(MOVE, self._peek())
                self._at += bool(target)
                yield self._update(path, target)
            elif line.strip() not in ("", BEGIN, END):  # several patches, one after the other, are one
                raise self._wrong(f"expected {ADD!r}, {DELETE!r} or {UPDATE!r} and a path")

    def _update(self, path: str, target: str | None) -> Update:
        chunks = tuple(self._chunks(path))
        if not chunks and target is None:
            raise self._wrong(f"nothing is said of what to change in {path}")
        return Update(path=path, chunks=chunks, target=target)

    def _next(self) -> str:
        self._at += 1
        return self._lines[self._at - 1]

    def _peek(self) -> str:
        return self._lines[self._at] if self._at < self._end else END

    def _wrong(self, reason: str) -> ToolError:
        line = self._lines[self._at - 1]
        return ToolError(f"line {self._at} of the patch, {line[:80]!r}: {reason}")

    def _is_section(self) -> bool:
        return self._peek().startswith("*** ") and self._peek().strip() != END_OF_FILE

    def _added(self, path: str) -> Iterator[str]:
        while not self._is_section() and self._at < self._end:
            over = self._is_blank_to_the_end()
            line = self._next()
            if line.strip() and not line.startswith("+"):
                raise self._wrong(f"every line of the new file {path} must begin with +")
            if not over:
                yield line.removeprefix("+")

    def _chunks(self, path: str) -> Iterator[Chunk]:
        while not self._is_section() and self._at < self._end:
            if self._is_blank_to_the_end():
                self._at += 1
                continue
            above = _above(self._next()) if self._peek().startswith("@@") else ""
            yield self._chunk(above, path)

    def _is_blank_to_the_end(self, *, since: int = 0) -> bool:
        """Whether from here (or so many lines before) on nothing of this section is to come."""
        at = self._at - since
        while at < self._end and not self._lines[at].strip():
            at += 1
        return at > self._at - since and (at == self._end or self._lines[at].startswith("*** "))

    def _chunk(self, above: str, path: str) -> Chunk:
        old: list[str] = []
        new: list[str] = []
        while self._at < self._end and not self._is_section() and not self._peek().startswith("@@"):
            line = self._next()
            if not line.strip() and self._is_blank_to_the_end(since=1):
                continue
            if line.strip() == END_OF_FILE:
                return Chunk(above=above, old=tuple(old), new=tuple(new), last=True)
            # OpenCode passes over a line it does not know, and changes something else than was meant.
            if line and line[0] not in " -+":
                raise self._wrong(f"a line of a change to {path} must begin with a blank, - or +")
            if line[:1] != "+":
                old.append(line[1:])
            if line[:1] != "-":
                new.append(line[1:])
        return Chunk(above=above, old=tuple(old), new=tuple(new))


def _after(head: str, line: str) -> str | None:
    """The path behind a head. OpenCode cuts it at the next colon."""
    return (line[len(head) :].strip() or None) if line.startswith(head) else None


def _above(line: str) -> str:
    said = line[2:].strip()
    numbered = _NUMBERED.fullmatch(said)
    return (numbered[1] or "").strip() if numbered else said


def patched(content: str, chunks: Sequence[Chunk], path: str) -> str:
    """The text with the changes made, each looked for below the one before it. It ends with a newline, as in OpenCode."""
    lines = content.split("\n")
    if not lines[-1]:
        lines.pop()
    changes: list[_Change] = []
    at = 0
    for chunk in chunks:
        at = _below(chunk, lines, at, path)
        change = _place(chunk, lines, at, path)
        changes.append(change)
        at = max(at, change.start + change.gone) if chunk.old else at
    # From the end on, so that the numbers of the lines above still hold.
    ordered = sorted(changes, key=lambda each: (each.start, each.ends))
    for change in reversed(ordered):
        lines[change.start : change.start + change.gone] = change.come
    return "".join(f"{line}\n" for line in lines)


class _Change(NamedTuple):
    """From `start` on, so many lines go and these come; what `ends` a file is below everything else."""

    start: int
    gone: int
    come: tuple[str, ...]
    ends: bool = False


def _below(chunk: Chunk, lines: list[str], at: int, path: str) -> int:
    if not chunk.above:
        return at
    found = seek(lines, (chunk.above,), at)
    if found is None:
        raise ToolError(f"Failed to find context '{chunk.above}' in {path}")
    return found + 1


def _place(chunk: Chunk, lines: list[str], at: int, path: str) -> _Change:
    if not chunk.old:
        # OpenCode puts lines that replace none at the end of the file, even those below `@@ class A`.
        below = bool(chunk.above) and not chunk.last
        return _Change(at if below else len(lines), 0, chunk.new, ends=not below)
    found = seek(lines, chunk.old, at, last=chunk.last)
    if found is not None:
        return _Change(found, len(chunk.old), chunk.new)
    # An empty line at the end of what is quoted may be the one before the next change.
    if not chunk.old[-1] and len(chunk.old) > 1:
        found = seek(lines, chunk.old[:-1], at, last=chunk.last)
        if found is not None:
            new = chunk.new[:-1] if chunk.new and not chunk.new[-1] else chunk.new
            return _Change(found, len(chunk.old) - 1, new)
    said = "\n".join(chunk.old)
    raise ToolError(f"Failed to find expected lines in {path}:\n{said}")
