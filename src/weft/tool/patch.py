"""The `apply_patch` tool: parse a patch and apply it to several files."""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from weft.errors import ToolError
from weft.tool.changes import Turn, change_together, diff, to_patchers
from weft.tool.contract import Tool, ToolContext, ToolResult
from weft.tool.description import about
from weft.tool.diagnostic import Diagnostics, to_metadata, told_of
from weft.tool.edit import SHOWN_WHOLE, keeping_form, sendable
from weft.tool.files import Text, find_stamp, find_text
from weft.tool.paths import Place, enter, lasting_edit, patterns_of, title_of
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


def _plain(line: str) -> str:
    return line.translate(_PUNCTUATION).strip()


def _same(line: str) -> str:
    return line


# From the strictest on.
WAYS: Final[tuple[Callable[[str], str], ...]] = (_same, str.rstrip, str.strip, _plain)


def seek(lines: Sequence[str], wanted: Sequence[str], start: int, *, last: bool = False) -> int | None:
    """The first place from `start` on where the wanted lines stand; with `last`, at the end if they are there."""
    for way in WAYS:
        found = _seek([way(line) for line in lines], [way(line) for line in wanted], start, last=last)
        if found is not None:
            return found
    return None


def _seek(lines: list[str], wanted: list[str], start: int, *, last: bool) -> int | None:
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


UNVERIFIED: Final = "apply_patch verification failed: "
EMPTY: Final = "patch rejected: empty patch"
MARKS: Final = {"add": "A", "delete": "D", "update": "M", "move": "M"}


class PatchInput(Struct, frozen=True, kw_only=True, rename="camel"):
    patch_text: Annotated[
        str, Meta(description="The whole patch, from `*** Begin Patch` to `*** End Patch`.")
    ]


class Change(Struct, frozen=True, kw_only=True):
    """What a section of a patch does to a file: its text before and after, and where it goes."""

    kind: Literal["add", "delete", "update", "move"]
    place: Place
    before: str = ""
    after: str = ""
    target: Place | None = None

    @property
    def stands(self) -> Place:
        return self.target or self.place


Places = Mapping[str, Place]
Texts = Mapping[str, Text | None]


async def apply_patch(wanted: PatchInput, ctx: ToolContext) -> ToolResult:
    sections = _parsed(wanted.patch_text)
    places = {path: await enter(path, ctx) for path in dict.fromkeys(_paths(sections))}
    _check_links(sections, places)
    changes = await _verified(sections, places, await _seen(places, ctx))
    await _ask(changes, ctx)
    async with AsyncExitStack() as held:
        for real in sorted({place.real for place in places.values()}):
            await held.enter_async_context(ctx.desk.guard.lock(real))
        # Asking may take an hour: what this session did meanwhile is built upon, anybody else's work is refused.
        texts = await _seen(places, ctx)
        changes = await _verified(sections, places, texts)
        for place in places.values():
            await save_unsaved(place, ctx)
        async with ctx.watch(*(place.real for place in places.values())):
            await change_together(list(_turns(changes, texts)))
            changes = [await _tidied(change, ctx) for change in changes]
    left = [change.stands.path for change in changes if change.kind != "delete"]
    found = await ctx.desk.lookout.look(*left)
    return await asyncio.to_thread(_result, changes, found, ctx)


def _parsed(text: str) -> tuple[Section, ...]:
    try:
        sections = parse_patch(text)
    except ToolError as error:
        raise ToolError(f"{UNVERIFIED}{error}") from error
    if not sections:
        raise ToolError(EMPTY)
    return sections


def _paths(sections: Sequence[Section]) -> Iterator[str]:
    for section in sections:
        yield section.path
        if isinstance(section, Update) and section.target is not None:
            yield section.target


def _check_links(sections: Sequence[Section], places: Places) -> None:
    """Taking away a link is not taking away what it leads to; a patch cannot say which is meant."""
    for section in sections:
        gone = isinstance(section, Delete) or (isinstance(section, Update) and section.target is not None)
        place = places[section.path]
        if gone and place.is_link:
            raise ToolError(f"{UNVERIFIED}{place.path} is a link. Move or remove it with a shell command.")


async def _seen(places: Places, ctx: ToolContext) -> dict[str, Text | None]:
    """The texts of all the files, if the session has seen them so."""
    texts = {}
    for place in places.values():
        texts[place.real] = found = await ctx.desk.files.find_text(place.real)
        if found is not None:
            # OpenCode lets a patch overwrite and delete files that nobody has looked at.
            ctx.desk.guard.check(place.real, found.stamp)
    return texts


async def _verified(sections: Sequence[Section], places: Places, texts: Texts) -> list[Change]:
    try:
        return await asyncio.to_thread(lambda: list(_changes(sections, places, texts)))
    except ToolError as error:
        raise ToolError(f"{UNVERIFIED}{error}") from error


def _changes(sections: Sequence[Section], places: Places, texts: Texts) -> Iterator[Change]:
    """What each section does, given what those before it did."""
    view = {real: text.content if text else None for real, text in texts.items()}
    for section in sections:
        place = places[section.path]
        before = view[place.real]
        if before is None and not isinstance(section, Add):
            raise ToolError(
                f"there is no file {place.path} to {'delete' if isinstance(section, Delete) else 'update'}"
            )
        change = _change(section, places, before or "")
        view[place.real] = None
        if change.kind != "delete":
            view[change.stands.real] = change.after
        yield change


def _change(section: Section, places: Places, before: str) -> Change:
    place = places[section.path]
    match section:
        case Add(content=content):
            return Change(kind="add", place=place, before=before, after=content)
        case Delete():
            return Change(kind="delete", place=place, before=before)
        case Update(chunks=chunks, target=target):
            after = keeping_form(before, lambda body: patched(body, chunks, place.path)) if chunks else before
            to = places[target] if target is not None else place
            moves = to.real != place.real
            return Change(
                kind="move" if moves else "update",
                place=place,
                before=before,
                after=after,
                target=to if moves else None,
            )


def _turns(changes: Sequence[Change], texts: Texts) -> Iterator[Turn]:
    """What has to be done to each file in the end. What is written comes first, what goes, last."""
    after: dict[str, str | None] = {}
    like: dict[str, str] = {}
    for change in changes:
        after[change.place.real] = None
        if change.kind != "delete":
            after[change.stands.real] = change.after
        if change.target is not None:
            like[change.target.real] = change.place.real
    for real in sorted(after, key=lambda each: after[each] is None):
        found = texts[real]
        before = found.content if found else None
        if before != after[real]:
            yield Turn(path=real, before=before, after=after[real], like=like.get(real))


async def _ask(changes: Sequence[Change], ctx: ToolContext) -> None:
    # OpenCode holds only the sources against the rules: a file may be moved to where none may be written.
    places = [place for change in changes for place in (change.place, change.stands)]
    patterns = tuple(dict.fromkeys(pattern for place in places for pattern in patterns_of(place, ctx)))
    files = await asyncio.to_thread(lambda: [_told(change, ctx) for change in changes])
    metadata = {
        "filepath": ", ".join(dict.fromkeys(title_of(change.place, ctx) for change in changes)),
        "diff": "".join(f"{file['diff']}\n" for file in files),
        "files": files,
    }
    await ctx.ask("edit", *patterns, always=lasting_edit(patterns), metadata=metadata)


async def _tidied(change: Change, ctx: ToolContext) -> Change:
    """Have a file tidied up that was written, and remember how it then stands."""
    if change.kind == "delete":
        return change
    place = change.stands
    if (stamp := await find_stamp(place.real)) is None:
        return change  # a later section took it away again
    ctx.desk.guard.saw(place.real, stamp)
    await ctx.desk.edited(place.path)
    stands = await find_text(place.real)
    if stands is None:
        return change
    ctx.desk.guard.saw(place.real, stands.stamp)
    await ctx.desk.files.show(place.real, change.before)
    return replace(change, after=stands.content)


def _result(changes: Sequence[Change], found: Diagnostics, ctx: ToolContext) -> ToolResult:
    files = [_told(change, ctx) for change in changes]
    lines = [f"{MARKS[change.kind]} {title_of(change.stands, ctx)}" for change in changes]
    summary = "\n".join(["Success. Updated the following files:", *lines])
    left = list(dict.fromkeys(change.stands for change in changes if change.kind != "delete"))
    output = summary + "".join(told_of(place.path, found, where=title_of(place, ctx)) for place in left)
    metadata = {
        "diff": "".join(f"{file['diff']}\n" for file in files),
        "files": files,
        "diagnostics": to_metadata(found, *(place.path for place in left)),
    }
    return ToolResult(title=summary, output=output, metadata=metadata)


def _told(change: Change, ctx: ToolContext) -> dict[str, Any]:
    """A change as screens show it."""
    shown = diff(change.place.path, change.before, change.after)
    whole = len(change.before) + len(change.after) <= SHOWN_WHOLE
    told = {
        "filePath": change.place.path,
        "relativePath": title_of(change.stands, ctx),
        "type": change.kind,
        "diff": sendable(shown.text),
        "before": sendable(change.before) if whole else "",
        "after": sendable(change.after) if whole else "",
        "additions": shown.additions,
        "deletions": shown.deletions,
    }
    return told | ({"movePath": change.target.path} if change.target is not None else {})


APPLY_PATCH = Tool(
    name="apply_patch",
    about=about("apply_patch"),
    takes=PatchInput,
    run=apply_patch,
    tell=to_patchers,
    announces=True,
)
