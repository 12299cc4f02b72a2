"""The `apply_patch` tool: parse a patch and apply it to several files."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import ToolError
from weft.model.verdict import CallResult
from weft.tool.changes import TextChange, apply_changes, make_diff, note_changes, save_unsaved
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.edit import MAX_WHOLE_CHARACTERS, preserve_format, replace_surrogates
from weft.tool.files import TextFile, find_stamp, find_text
from weft.tool.inputs import PatchInput
from weft.tool.language_servers import Diagnostics, format_errors, to_metadata
from weft.tool.paths import ToolPath, format_title, list_always_patterns, list_edit_patterns, resolve_path

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


def find_lines(
    lines: Sequence[str], searched: Sequence[str], start: int, *, at_end: bool = False
) -> int | None:
    """Return the first index from `start` on where the lines occur, or None. With `at_end`, prefer the end of the file."""
    for form in LINE_FORMS:
        found = _find_exact(
            [form(line) for line in lines], [form(line) for line in searched], start, at_end=at_end
        )
        if found is not None:
            return found
    return None


def _find_exact(lines: list[str], searched: list[str], start: int, *, at_end: bool) -> int | None:
    last_start = len(lines) - len(searched)
    if at_end and last_start >= start and lines[last_start:] == searched:
        return last_start
    for index in range(start, last_start + 1):
        if lines[index] == searched[0] and lines[index : index + len(searched)] == searched:
            return index
    return None


BEGIN_MARKER: Final = "*** Begin Patch"
END_MARKER: Final = "*** End Patch"
END_OF_FILE_MARKER: Final = "*** End of File"
ADD_HEADER: Final = "*** Add File:"
DELETE_HEADER: Final = "*** Delete File:"
UPDATE_HEADER: Final = "*** Update File:"
MOVE_HEADER: Final = "*** Move to:"

_HEREDOC: Final = re.compile(r"\s*(?:cat\s+)?<<-?\s*(['\"]?)(\w+)\1[ \t]*\n(.*)\n\2\s*", re.DOTALL)
# A hunk header as `diff -u` writes it: line numbers, and after them the context that we search for.
_NUMBERED_HEADER: Final = re.compile(r"-\d+(?:,\d+)? \+\d+(?:,\d+)?(?: @@ ?(.*))?")


class PatchChunk(Struct, frozen=True, kw_only=True):
    """Lines and their replacement.

    They are searched below the line `context`, if it is set. `at_end` means that they are the last lines of the file.
    """

    context: str = ""
    old: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    at_end: bool = False


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
    starts = [number for number, line in enumerate(lines) if line.strip() == BEGIN_MARKER]
    # Take the last end marker: an earlier one may be a quoted line of a file.
    ends = [number for number, line in enumerate(lines) if line.strip() == END_MARKER]
    if not starts or not ends or ends[-1] < starts[0]:
        raise ToolError(
            f"the patch must begin with a line {BEGIN_MARKER!r} and end with a line {END_MARKER!r}"
        )
    return tuple(_PatchReader(lines, starts[0] + 1, ends[-1]).read_sections())


def _unwrap_heredoc(text: str) -> str:
    """Return the patch without the here-document that some models put around it."""
    found = _HEREDOC.fullmatch(text)
    return found[3] if found else text


class _PatchReader:
    """Reads the sections of a patch line by line."""

    def __init__(self, lines: list[str], start: int, end: int) -> None:
        self._lines = lines
        self._position = start
        self._end = end

    def read_sections(self) -> Iterator[PatchSection]:
        while self._position < self._end:
            line = self._next()
            if path := _read_path(ADD_HEADER, line):
                yield AddFile(
                    path=path, content="".join(f"{each}\n" for each in self._read_added_lines(path))
                )
            elif path := _read_path(DELETE_HEADER, line):
                yield DeleteFile(path=path)
            elif path := _read_path(UPDATE_HEADER, line):
                target = _read_path(MOVE_HEADER, self._peek())
                if target:
                    self._position += 1
                yield self._read_update(path, target)
            elif line.strip() not in ("", BEGIN_MARKER, END_MARKER):  # several patches in a row count as one
                raise self._make_error(
                    f"expected {ADD_HEADER!r}, {DELETE_HEADER!r} or {UPDATE_HEADER!r} and a path"
                )

    def _read_update(self, path: str, target: str | None) -> UpdateFile:
        chunks = tuple(self._read_chunks(path))
        if not chunks and target is None:
            raise self._make_error(f"the section does not say what to change in {path}")
        return UpdateFile(path=path, chunks=chunks, target=target)

    def _next(self) -> str:
        self._position += 1
        return self._lines[self._position - 1]

    def _peek(self) -> str:
        return self._lines[self._position] if self._position < self._end else END_MARKER

    def _make_error(self, reason: str) -> ToolError:
        line = self._lines[self._position - 1]
        return ToolError(f"line {self._position} of the patch, {line[:80]!r}: {reason}")

    def _is_at_section(self) -> bool:
        return self._peek().startswith("*** ") and self._peek().strip() != END_OF_FILE_MARKER

    def _read_added_lines(self, path: str) -> Iterator[str]:
        while not self._is_at_section() and self._position < self._end:
            is_padding = self._is_blank_to_section_end()
            line = self._next()
            if line.strip() and not line.startswith("+"):
                raise self._make_error(f"every line of the new file {path} must begin with +")
            if not is_padding:
                yield line.removeprefix("+")

    def _read_chunks(self, path: str) -> Iterator[PatchChunk]:
        while not self._is_at_section() and self._position < self._end:
            if self._is_blank_to_section_end():
                self._position += 1
                continue
            context = _read_context(self._next()) if self._peek().startswith("@@") else ""
            yield self._read_chunk(context, path)

    def _is_blank_to_section_end(self, *, since: int = 0) -> bool:
        """Return True if only blank lines follow in this section, from here or from `since` lines before."""
        index = self._position - since
        while index < self._end and not self._lines[index].strip():
            index += 1
        return index > self._position - since and (
            index == self._end or self._lines[index].startswith("*** ")
        )

    def _read_chunk(self, context: str, path: str) -> PatchChunk:
        old: list[str] = []
        new: list[str] = []
        while self._position < self._end and not self._is_at_section() and not self._peek().startswith("@@"):
            line = self._next()
            if not line.strip() and self._is_blank_to_section_end(since=1):
                continue
            if line.strip() == END_OF_FILE_MARKER:
                return PatchChunk(context=context, old=tuple(old), new=tuple(new), at_end=True)
            # OpenCode skips lines it does not know, and so applies a different change than the model meant.
            if line and line[0] not in " -+":
                raise self._make_error(f"a line of a change to {path} must begin with a blank, - or +")
            if line[:1] != "+":
                old.append(line[1:])
            if line[:1] != "-":
                new.append(line[1:])
        return PatchChunk(context=context, old=tuple(old), new=tuple(new))


def _read_path(head: str, line: str) -> str | None:
    """Return the path after a section header, or None. OpenCode cuts the path at the next colon."""
    return (line[len(head) :].strip() or None) if line.startswith(head) else None


def _read_context(line: str) -> str:
    """Return the context line of a hunk header."""
    quoted = line[2:].strip()
    numbered = _NUMBERED_HEADER.fullmatch(quoted)
    return (numbered[1] or "").strip() if numbered else quoted


def apply_chunks(content: str, chunks: Sequence[PatchChunk], path: str) -> str:
    """Apply the chunks, searching each below the one before. The result ends with a newline, as in OpenCode."""
    lines = content.split("\n")
    if not lines[-1]:
        lines.pop()
    changes: list[_LineReplacement] = []
    position = 0
    for chunk in chunks:
        position = _find_context(chunk, lines, position, path)
        change = _locate_chunk(chunk, lines, position, path)
        changes.append(change)
        position = max(position, change.start + change.removed) if chunk.old else position
    # Apply from the end on, so that line numbers above stay valid.
    ordered = sorted(changes, key=lambda change: (change.start, change.appends))
    for change in reversed(ordered):
        lines[change.start : change.start + change.removed] = change.added
    return "".join(f"{line}\n" for line in lines)


class _LineReplacement(NamedTuple):
    """From line `start` on, `removed` lines are replaced by the lines `added`.

    One that `appends` puts its lines below those that other replacements add at the same line.
    """

    start: int
    removed: int
    added: tuple[str, ...]
    appends: bool = False


def _find_context(chunk: PatchChunk, lines: list[str], start: int, path: str) -> int:
    if not chunk.context:
        return start
    found = find_lines(lines, (chunk.context,), start)
    if found is None:
        raise ToolError(f"Failed to find context '{chunk.context}' in {path}")
    return found + 1


def _locate_chunk(chunk: PatchChunk, lines: list[str], start: int, path: str) -> _LineReplacement:
    if not chunk.old:
        # OpenCode appends an insertion without old lines to the end of the file, even if it follows `@@ class A`.
        appends = not chunk.context or chunk.at_end
        return _LineReplacement(len(lines) if appends else start, 0, chunk.new, appends=appends)
    found = find_lines(lines, chunk.old, start, at_end=chunk.at_end)
    if found is not None:
        return _LineReplacement(found, len(chunk.old), chunk.new)
    # Perhaps the file does not have the empty line at the end: models write one to separate this change from the next.
    if not chunk.old[-1] and len(chunk.old) > 1:
        found = find_lines(lines, chunk.old[:-1], start, at_end=chunk.at_end)
        if found is not None:
            new = chunk.new[:-1] if chunk.new and not chunk.new[-1] else chunk.new
            return _LineReplacement(found, len(chunk.old) - 1, new)
    quoted = "\n".join(chunk.old)
    raise ToolError(f"Failed to find expected lines in {path}:\n{quoted}")


UNVERIFIED_PREFIX: Final = "apply_patch verification failed: "
EMPTY_PATCH: Final = "patch rejected: empty patch"
STATUS_LETTERS: Final = {"add": "A", "delete": "D", "update": "M", "move": "M"}


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


async def apply_patch(arguments: PatchInput, ctx: ToolContext) -> ToolResult:
    sections = _parse_sections(arguments.patch_text)
    places = {path: await resolve_path(path, ctx) for path in dict.fromkeys(_list_paths(sections))}
    _check_links(sections, places)
    async with _lock(places, ctx):  # what another call is just writing is not remembered yet
        texts = await _read_checked(places, ctx)
    changes = await _compute_in_thread(sections, places, texts)
    await _ask_permission(changes, ctx)
    async with _lock(places, ctx):
        # The person may have answered only after an hour, so compute everything again. The patch applies on top of what this
        # session changed meanwhile. If anybody else changed a file, the guard refuses it.
        texts = await _read_checked(places, ctx)
        changes = await _compute_in_thread(sections, places, texts)
        for place in places.values():
            await save_unsaved(place, ctx)
        async with ctx.watch(*(place.real for place in places.values())):
            noted = await asyncio.to_thread(_to_noted, changes, ctx)
            text_changes = list(_to_text_changes(changes, texts))
            await note_changes(text_changes, noted, ctx)
            await apply_changes(text_changes)
            formatted = [await _format_written(change, ctx) for change in changes]
            if formatted != changes:
                changes = formatted
                await note_changes(list(_to_text_changes(changes, texts)), noted, ctx)
    remaining = [change.final_path.path for change in changes if change.kind != "delete"]
    diagnostics = await ctx.resources.language_servers.diagnose(*remaining)
    return await asyncio.to_thread(_to_result, changes, diagnostics, ctx)


@asynccontextmanager
async def _lock(places: Places, ctx: ToolContext) -> AsyncIterator[None]:
    """Hold the locks of all files, taken in one order, so that two patches cannot deadlock."""
    async with AsyncExitStack() as locks:
        for real in sorted({place.real for place in places.values()}):
            await locks.enter_async_context(ctx.resources.guard.lock(real))
        yield


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


async def _read_checked(places: Places, ctx: ToolContext) -> dict[str, TextFile | None]:
    """Return the texts of all files by real path. Raise `ToolError` unless the session has read their current state."""
    texts = {}
    for place in places.values():
        texts[place.real] = file = await ctx.resources.files.find_text(place.real)
        if file is not None:
            # OpenCode lets a patch overwrite and delete files that nobody has read.
            ctx.resources.guard.check(place.real, file.stamp)
    return texts


async def _compute_in_thread(
    sections: Sequence[PatchSection], places: Places, texts: Texts
) -> list[PatchedFile]:
    """Return the changes of all sections. Raise `ToolError` if one does not fit the texts."""
    try:
        return await asyncio.to_thread(lambda: list(_compute_changes(sections, places, texts)))
    except ToolError as error:
        raise ToolError(f"{UNVERIFIED_PREFIX}{error}") from error


def _compute_changes(sections: Sequence[PatchSection], places: Places, texts: Texts) -> Iterator[PatchedFile]:
    """Yield the change of each section, based on the sections before it."""
    contents = {real: text.content if text else None for real, text in texts.items()}
    for section in sections:
        place = places[section.path]
        before = contents[place.real]
        if before is None and not isinstance(section, AddFile):
            raise ToolError(
                f"there is no file {place.path} to {'delete' if isinstance(section, DeleteFile) else 'update'}"
            )
        change = _compute_change(section, places, before or "")
        contents[place.real] = None
        if change.kind != "delete":
            contents[change.final_path.real] = change.after
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
            target_place = places[target] if target is not None else place
            is_move = target_place.real != place.real
            return PatchedFile(
                kind="move" if is_move else "update",
                place=place,
                before=before,
                after=after,
                target=target_place if is_move else None,
            )


def _to_text_changes(changes: Sequence[PatchedFile], texts: Texts) -> Iterator[TextChange]:
    """Yield the resulting change of each file, writes before deletions."""
    after: dict[str, str | None] = {}
    mode_sources: dict[str, str] = {}
    for change in changes:
        after[change.place.real] = None
        if change.kind != "delete":
            after[change.final_path.real] = change.after
        if change.target is not None:
            mode_sources[change.target.real] = change.place.real
    for real in sorted(after, key=lambda each: after[each] is None):
        file = texts[real]
        before = file.content if file else None
        if before != after[real]:
            yield TextChange(path=real, before=before, after=after[real], mode_source=mode_sources.get(real))


async def _ask_permission(changes: Sequence[PatchedFile], ctx: ToolContext) -> None:
    # OpenCode checks only the sources against the rules, so a file may be moved to where writing is denied.
    places = [place for change in changes for place in (change.place, change.final_path)]
    patterns = tuple(dict.fromkeys(pattern for place in places for pattern in list_edit_patterns(place, ctx)))
    files = await asyncio.to_thread(lambda: [_to_metadata(change, ctx) for change in changes])
    metadata = {
        "filepath": ", ".join(dict.fromkeys(format_title(change.place, ctx) for change in changes)),
        "diff": "".join(f"{file['diff']}\n" for file in files),
        "files": files,
    }
    await ctx.ask("edit", *patterns, always=list_always_patterns(patterns), metadata=metadata)


async def _format_written(change: PatchedFile, ctx: ToolContext) -> PatchedFile:
    """Have a written file formatted, and remember its resulting state."""
    if change.kind == "delete":
        return change
    place = change.final_path
    if (stamp := await find_stamp(place.real)) is None:
        return change  # a later section deleted it again
    ctx.resources.guard.remember(place.real, stamp)
    await ctx.resources.after_edit(place.path)
    formatted = await find_text(place.real)
    if formatted is None:
        return change
    ctx.resources.guard.remember(place.real, formatted.stamp)
    await ctx.resources.files.refresh_editor(place.real, change.before)
    return replace(change, after=formatted.content)


def _to_result(changes: Sequence[PatchedFile], diagnostics: Diagnostics, ctx: ToolContext) -> ToolResult:
    files = [_to_metadata(change, ctx) for change in changes]
    lines = [f"{STATUS_LETTERS[change.kind]} {format_title(change.final_path, ctx)}" for change in changes]
    summary = "\n".join(["Success. Updated the following files:", *lines])
    remaining = list(dict.fromkeys(change.final_path for change in changes if change.kind != "delete"))
    output = summary + "".join(
        format_errors(place.path, diagnostics, where=format_title(place, ctx)) for place in remaining
    )
    metadata = {
        "diff": "".join(f"{file['diff']}\n" for file in files),
        "files": files,
        "diagnostics": to_metadata(diagnostics, *(place.path for place in remaining)),
    }
    return ToolResult(title=summary, output=output, metadata=metadata)


def _to_noted(changes: Sequence[PatchedFile], ctx: ToolContext) -> CallResult:
    """Return the result to note before the patch is applied, in case the process dies while it is.

    It leaves out the contents of the files, because the diffs say enough.
    """
    result = _to_result(changes, {}, ctx)
    files = [{**file, "before": "", "after": ""} for file in result.metadata["files"]]
    return CallResult(title=result.title, output=result.output, metadata={**result.metadata, "files": files})


def _to_metadata(change: PatchedFile, ctx: ToolContext) -> dict[str, Any]:
    """Return a change as clients show it."""
    diff = make_diff(change.place.path, change.before, change.after)
    whole = len(change.before) + len(change.after) <= MAX_WHOLE_CHARACTERS
    metadata = {
        "filePath": change.place.path,
        "relativePath": format_title(change.final_path, ctx),
        "type": change.kind,
        "diff": replace_surrogates(diff.text),
        "before": replace_surrogates(change.before) if whole else "",
        "after": replace_surrogates(change.after) if whole else "",
        "additions": diff.additions,
        "deletions": diff.deletions,
    }
    return metadata | ({"movePath": change.target.path} if change.target is not None else {})
