"""The `apply_patch` tool: parse a patch and apply it to several files."""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import ToolError
from weft.tool.changes import TextChange, apply_changes, make_diff
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.diagnostic import Diagnostics, format_errors, to_metadata
from weft.tool.edit import MAX_SHOWN_CHARACTERS, preserve_format, replace_surrogates
from weft.tool.files import TextFile, find_stamp, find_text
from weft.tool.inputs import PatchInput
from weft.tool.paths import ToolPath, format_title, list_edit_patterns, list_lasting_patterns, resolve_path
from weft.tool.write import save_unsaved

_PUNCTUATION: Final = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2009\u200a\u202f\u205f\u3000", " "),
        "\u2026": "...",
    }
)


def _simplify_punctuation(line: str) -> str:
    return line.translate(_PUNCTUATION).strip()


def _keep_line(line: str) -> str:
    return line


# From strict to loose: lines are compared as they are, without trailing blanks, without surrounding blanks, and with
# plain punctuation.
LINE_FORMS: Final[tuple[Callable[[str], str], ...]] = (
    _keep_line,
    str.rstrip,
    str.strip,
    _simplify_punctuation,
)


def find_lines(lines: Sequence[str], wanted: Sequence[str], start: int, *, last: bool = False) -> int | None:
    """Return the first place from `start` on where the lines are, or None. With `last`, prefer the end of the file."""
    for form in LINE_FORMS:
        found = _find_lines([form(line) for line in lines], [form(line) for line in wanted], start, last=last)
        if found is not None:
            return found
    return None


def _find_lines(lines: list[str], wanted: list[str], start: int, *, last: bool) -> int | None:
    final = len(lines) - len(wanted)
    if last and final >= start and lines[final:] == wanted:
        return final
    for at in range(start, final + 1):
        if lines[at] == wanted[0] and lines[at : at + len(wanted)] == wanted:
            return at
    return None


BEGIN: Final = "*** Begin Patch"
END: Final = "*** End Patch"
END_OF_FILE: Final = "*** End of File"
ADD: Final = "*** Add File:"
DELETE: Final = "*** Delete File:"
UPDATE: Final = "*** Update File:"
MOVE: Final = "*** Move to:"

_HEREDOC: Final = re.compile(r"\s*(?:cat\s+)?<<-?\s*(['\"]?)(\w+)\1[ \t]*\n(.*)\n\2\s*", re.DOTALL)
# A hunk header as `diff -u` writes it: line numbers, and after them the context that we search for.
_NUMBERED: Final = re.compile(r"-\d+(?:,\d+)? \+\d+(?:,\d+)?(?: @@ ?(.*))?")


class PatchChunk(Struct, frozen=True, kw_only=True):
    """Lines and their replacement.

    `above` is a context line to find first, and `last` means that the lines end the file.
    """

    above: str = ""
    old: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    last: bool = False


class AddFile(Struct, frozen=True, kw_only=True):
    path: str
    content: str


class DeleteFile(Struct, frozen=True, kw_only=True):
    path: str


class UpdateFile(Struct, frozen=True, kw_only=True):
    path: str
    chunks: tuple[PatchChunk, ...]
    target: str | None = None


PatchSection = AddFile | DeleteFile | UpdateFile


def parse_patch(text: str) -> tuple[PatchSection, ...]:
    """Parse a patch into sections. Raise a `ToolError` that names the line which cannot be understood."""
    lines = _unwrap_heredoc(text).replace("\r\n", "\n").split("\n")
    starts = [number for number, line in enumerate(lines) if line.strip() == BEGIN]
    # Take the last end marker: an earlier one may be a quoted line of a file.
    ends = [number for number, line in enumerate(lines) if line.strip() == END]
    if not starts or not ends or ends[-1] < starts[0]:
        raise ToolError(f"the patch must begin with a line {BEGIN!r} and end with a line {END!r}")
    return tuple(_PatchReader(lines, starts[0] + 1, ends[-1]).sections())


def _unwrap_heredoc(text: str) -> str:
    """Return the patch without the here-document that some models put around it."""
    found = _HEREDOC.fullmatch(text)
    return found[3] if found else text


class _PatchReader:
    """Reads the sections of a patch line by line."""

    def __init__(self, lines: list[str], start: int, end: int) -> None:
        self._lines = lines
        self._at = start
        self._end = end

    def sections(self) -> Iterator[PatchSection]:
        while self._at < self._end:
            line = self._next()
            if path := _read_path(ADD, line):
                yield AddFile(path=path, content="".join(f"{each}\n" for each in self._added(path)))
            elif path := _read_path(DELETE, line):
                yield DeleteFile(path=path)
            elif path := _read_path(UPDATE, line):
                target = _read_path(MOVE, self._peek())
                self._at += bool(target)
                yield self._update(path, target)
            elif line.strip() not in ("", BEGIN, END):  # several patches in a row count as one
                raise self._wrong(f"expected {ADD!r}, {DELETE!r} or {UPDATE!r} and a path")

    def _update(self, path: str, target: str | None) -> UpdateFile:
        chunks = tuple(self._chunks(path))
        if not chunks and target is None:
            raise self._wrong(f"the section does not say what to change in {path}")
        return UpdateFile(path=path, chunks=chunks, target=target)

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

    def _chunks(self, path: str) -> Iterator[PatchChunk]:
        while not self._is_section() and self._at < self._end:
            if self._is_blank_to_the_end():
                self._at += 1
                continue
            above = _read_context(self._next()) if self._peek().startswith("@@") else ""
            yield self._chunk(above, path)

    def _is_blank_to_the_end(self, *, since: int = 0) -> bool:
        """Return True if only blank lines follow in this section, from here or from `since` lines before."""
        at = self._at - since
        while at < self._end and not self._lines[at].strip():
            at += 1
        return at > self._at - since and (at == self._end or self._lines[at].startswith("*** "))

    def _chunk(self, above: str, path: str) -> PatchChunk:
        old: list[str] = []
        new: list[str] = []
        while self._at < self._end and not self._is_section() and not self._peek().startswith("@@"):
            line = self._next()
            if not line.strip() and self._is_blank_to_the_end(since=1):
                continue
            if line.strip() == END_OF_FILE:
                return PatchChunk(above=above, old=tuple(old), new=tuple(new), last=True)
            # OpenCode skips lines it does not know, and so applies a different change than the model meant.
            if line and line[0] not in " -+":
                raise self._wrong(f"a line of a change to {path} must begin with a blank, - or +")
            if line[:1] != "+":
                old.append(line[1:])
            if line[:1] != "-":
                new.append(line[1:])
        return PatchChunk(above=above, old=tuple(old), new=tuple(new))


def _read_path(head: str, line: str) -> str | None:
    """Return the path after a section header, or None. OpenCode cuts the path at the next colon."""
    return (line[len(head) :].strip() or None) if line.startswith(head) else None


def _read_context(line: str) -> str:
    """Return the context line of a hunk header."""
    quoted = line[2:].strip()
    numbered = _NUMBERED.fullmatch(quoted)
    return (numbered[1] or "").strip() if numbered else quoted


def apply_chunks(content: str, chunks: Sequence[PatchChunk], path: str) -> str:
    """Apply the chunks, searching each below the one before. The result ends with a newline, as in OpenCode."""
    lines = content.split("\n")
    if not lines[-1]:
        lines.pop()
    changes: list[_LineReplacement] = []
    at = 0
    for chunk in chunks:
        at = _find_context(chunk, lines, at, path)
        change = _locate_chunk(chunk, lines, at, path)
        changes.append(change)
        at = max(at, change.start + change.removed) if chunk.old else at
    # Apply from the end on, so that line numbers above stay valid.
    ordered = sorted(changes, key=lambda each: (each.start, each.ends))
    for change in reversed(ordered):
        lines[change.start : change.start + change.removed] = change.added
    return "".join(f"{line}\n" for line in lines)


class _LineReplacement(NamedTuple):
    """From line `start` on, `removed` lines are replaced by the lines `added`.

    One that `ends` the file is applied below all others.
    """

    start: int
    removed: int
    added: tuple[str, ...]
    ends: bool = False


def _find_context(chunk: PatchChunk, lines: list[str], at: int, path: str) -> int:
    if not chunk.above:
        return at
    found = find_lines(lines, (chunk.above,), at)
    if found is None:
        raise ToolError(f"Failed to find context '{chunk.above}' in {path}")
    return found + 1


def _locate_chunk(chunk: PatchChunk, lines: list[str], at: int, path: str) -> _LineReplacement:
    if not chunk.old:
        # OpenCode appends an insertion without old lines to the end of the file, even if it follows `@@ class A`.
        below = bool(chunk.above) and not chunk.last
        return _LineReplacement(at if below else len(lines), 0, chunk.new, ends=not below)
    found = find_lines(lines, chunk.old, at, last=chunk.last)
    if found is not None:
        return _LineReplacement(found, len(chunk.old), chunk.new)
    # A trailing empty line in the quoted lines may be the one before the next change.
    if not chunk.old[-1] and len(chunk.old) > 1:
        found = find_lines(lines, chunk.old[:-1], at, last=chunk.last)
        if found is not None:
            new = chunk.new[:-1] if chunk.new and not chunk.new[-1] else chunk.new
            return _LineReplacement(found, len(chunk.old) - 1, new)
    quoted = "\n".join(chunk.old)
    raise ToolError(f"Failed to find expected lines in {path}:\n{quoted}")


UNVERIFIED_PREFIX: Final = "apply_patch verification failed: "
EMPTY_PATCH: Final = "patch rejected: empty patch"
MARKS: Final = {"add": "A", "delete": "D", "update": "M", "move": "M"}


class PatchedFile(Struct, frozen=True, kw_only=True):
    """What a section of a patch does to a file: its text before and after, and its new path if it moves."""

    kind: Literal["add", "delete", "update", "move"]
    place: ToolPath
    before: str = ""
    after: str = ""
    target: ToolPath | None = None

    @property
    def final_path(self) -> ToolPath:
        """Return the path of the file after the change."""
        return self.target or self.place


Places = Mapping[str, ToolPath]
Texts = Mapping[str, TextFile | None]


async def apply_patch(wanted: PatchInput, ctx: ToolContext) -> ToolResult:
    sections = _parse_sections(wanted.patch_text)
    places = {path: await resolve_path(path, ctx) for path in dict.fromkeys(_list_paths(sections))}
    _check_links(sections, places)
    changes = await _verify(sections, places, await _read_current(places, ctx))
    await _ask(changes, ctx)
    async with AsyncExitStack() as locks:
        for real in sorted({place.real for place in places.values()}):
            await locks.enter_async_context(ctx.resources.guard.lock(real))
        # The question may take an hour. Changes by this session are kept, and the guard refuses changes by anybody
        # else.
        texts = await _read_current(places, ctx)
        changes = await _verify(sections, places, texts)
        for place in places.values():
            await save_unsaved(place, ctx)
        async with ctx.watch(*(place.real for place in places.values())):
            await apply_changes(list(_to_text_changes(changes, texts)))
            changes = [await _format_written(change, ctx) for change in changes]
    remaining = [change.final_path.path for change in changes if change.kind != "delete"]
    found = await ctx.resources.language_servers.diagnose(*remaining)
    return await asyncio.to_thread(_to_result, changes, found, ctx)


def _parse_sections(text: str) -> tuple[PatchSection, ...]:
    try:
        sections = parse_patch(text)
    except ToolError as error:
        raise ToolError(f"{UNVERIFIED_PREFIX}{error}") from error
    if not sections:
        raise ToolError(EMPTY_PATCH)
    return sections


def _list_paths(sections: Sequence[PatchSection]) -> Iterator[str]:
    for section in sections:
        yield section.path
        if isinstance(section, UpdateFile) and section.target is not None:
            yield section.target


def _check_links(sections: Sequence[PatchSection], places: Places) -> None:
    """Refuse to move or delete a link: the patch does not say whether it means the link or its target."""
    for section in sections:
        removed = isinstance(section, DeleteFile) or (
            isinstance(section, UpdateFile) and section.target is not None
        )
        place = places[section.path]
        if removed and place.is_link:
            raise ToolError(
                f"{UNVERIFIED_PREFIX}{place.path} is a link. Move or remove it with a shell command."
            )


async def _read_current(places: Places, ctx: ToolContext) -> dict[str, TextFile | None]:
    """Return the texts of all files by real path. Raise `ToolError` unless the session has read their current state."""
    texts = {}
    for place in places.values():
        texts[place.real] = found = await ctx.resources.files.find_text(place.real)
        if found is not None:
            # OpenCode lets a patch overwrite and delete files that nobody has read.
            ctx.resources.guard.check(place.real, found.stamp)
    return texts


async def _verify(sections: Sequence[PatchSection], places: Places, texts: Texts) -> list[PatchedFile]:
    try:
        return await asyncio.to_thread(lambda: list(_compute_changes(sections, places, texts)))
    except ToolError as error:
        raise ToolError(f"{UNVERIFIED_PREFIX}{error}") from error


def _compute_changes(sections: Sequence[PatchSection], places: Places, texts: Texts) -> Iterator[PatchedFile]:
    """Yield the change of each section, based on the sections before it."""
    view = {real: text.content if text else None for real, text in texts.items()}
    for section in sections:
        place = places[section.path]
        before = view[place.real]
        if before is None and not isinstance(section, AddFile):
            raise ToolError(
                f"there is no file {place.path} to {'delete' if isinstance(section, DeleteFile) else 'update'}"
            )
        change = _compute_change(section, places, before or "")
        view[place.real] = None
        if change.kind != "delete":
            view[change.final_path.real] = change.after
        yield change


def _compute_change(section: PatchSection, places: Places, before: str) -> PatchedFile:
    place = places[section.path]
    match section:
        case AddFile(content=content):
            return PatchedFile(kind="add", place=place, before=before, after=content)
        case DeleteFile():
            return PatchedFile(kind="delete", place=place, before=before)
        case UpdateFile(chunks=chunks, target=target):
            after = (
                preserve_format(before, lambda body: apply_chunks(body, chunks, place.path))
                if chunks
                else before
            )
            to = places[target] if target is not None else place
            moves = to.real != place.real
            return PatchedFile(
                kind="move" if moves else "update",
                place=place,
                before=before,
                after=after,
                target=to if moves else None,
            )


def _to_text_changes(changes: Sequence[PatchedFile], texts: Texts) -> Iterator[TextChange]:
    """Yield the resulting change of each file, writes before deletions."""
    after: dict[str, str | None] = {}
    like: dict[str, str] = {}
    for change in changes:
        after[change.place.real] = None
        if change.kind != "delete":
            after[change.final_path.real] = change.after
        if change.target is not None:
            like[change.target.real] = change.place.real
    for real in sorted(after, key=lambda each: after[each] is None):
        found = texts[real]
        before = found.content if found else None
        if before != after[real]:
            yield TextChange(path=real, before=before, after=after[real], like=like.get(real))


async def _ask(changes: Sequence[PatchedFile], ctx: ToolContext) -> None:
    # OpenCode checks only the sources against the rules, so a file may be moved to where writing is denied.
    places = [place for change in changes for place in (change.place, change.final_path)]
    patterns = tuple(dict.fromkeys(pattern for place in places for pattern in list_edit_patterns(place, ctx)))
    files = await asyncio.to_thread(lambda: [_to_metadata(change, ctx) for change in changes])
    metadata = {
        "filepath": ", ".join(dict.fromkeys(format_title(change.place, ctx) for change in changes)),
        "diff": "".join(f"{file['diff']}\n" for file in files),
        "files": files,
    }
    await ctx.ask("edit", *patterns, always=list_lasting_patterns(patterns), metadata=metadata)


async def _format_written(change: PatchedFile, ctx: ToolContext) -> PatchedFile:
    """Have a written file formatted, and remember its resulting state."""
    if change.kind == "delete":
        return change
    place = change.final_path
    if (stamp := await find_stamp(place.real)) is None:
        return change  # a later section deleted it again
    ctx.resources.guard.remember(place.real, stamp)
    await ctx.resources.after_edit(place.path)
    final_path = await find_text(place.real)
    if final_path is None:
        return change
    ctx.resources.guard.remember(place.real, final_path.stamp)
    await ctx.resources.files.show(place.real, change.before)
    return replace(change, after=final_path.content)


def _to_result(changes: Sequence[PatchedFile], found: Diagnostics, ctx: ToolContext) -> ToolResult:
    files = [_to_metadata(change, ctx) for change in changes]
    lines = [f"{MARKS[change.kind]} {format_title(change.final_path, ctx)}" for change in changes]
    summary = "\n".join(["Success. Updated the following files:", *lines])
    remaining = list(dict.fromkeys(change.final_path for change in changes if change.kind != "delete"))
    output = summary + "".join(
        format_errors(place.path, found, where=format_title(place, ctx)) for place in remaining
    )
    metadata = {
        "diff": "".join(f"{file['diff']}\n" for file in files),
        "files": files,
        "diagnostics": to_metadata(found, *(place.path for place in remaining)),
    }
    return ToolResult(title=summary, output=output, metadata=metadata)


def _to_metadata(change: PatchedFile, ctx: ToolContext) -> dict[str, Any]:
    """Return a change as clients show it."""
    shown = make_diff(change.place.path, change.before, change.after)
    whole = len(change.before) + len(change.after) <= MAX_SHOWN_CHARACTERS
    metadata = {
        "filePath": change.place.path,
        "relativePath": format_title(change.final_path, ctx),
        "type": change.kind,
        "diff": replace_surrogates(shown.text),
        "before": replace_surrogates(change.before) if whole else "",
        "after": replace_surrogates(change.after) if whole else "",
        "additions": shown.additions,
        "deletions": shown.deletions,
    }
    return metadata | ({"movePath": change.target.path} if change.target is not None else {})
