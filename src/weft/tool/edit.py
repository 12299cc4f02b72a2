"""The `edit` and `multiedit` tools: find text in a file, strictest way first, and replace it."""

import asyncio
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Annotated, Any, Final, Protocol

from msgspec import Meta, Struct

from weft.errors import ToolError
from weft.tool.changes import diff, edit_to_others
from weft.tool.contract import Tool, ToolContext, ToolResult
from weft.tool.description import about
from weft.tool.diagnostic import to_metadata, told_of
from weft.tool.files import find_text
from weft.tool.paths import Place, enter, title_of
from weft.tool.write import ask_to_edit, put

Way = Callable[[str, str], Iterator[str]]

ANCHORED: Final = 3
ALIKE: Final = 0.5
HALF: Final = 0.5
# Comparing letter by letter takes time in the square of the length; a line this long tells enough by its start.
COMPARED: Final = 400

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\n": "\n"}


def replace(content: str, old: str, new: str, *, every: bool = False) -> str:
    """The content with `old` replaced once, or everywhere. Raises `ToolError` when it is not clear where."""
    found = False
    for way in WAYS:
        for part in way(content, old):
            if not part or part not in content:
                continue
            found = True
            if every:
                return content.replace(part, new)
            if content.count(part) == 1 and content.find(part) == content.rfind(part):
                return content.replace(part, new, 1)
    if not found:
        raise ToolError(
            "oldString not found in content. Read the file again and quote the text as it stands there."
        )
    raise ToolError(
        "Found multiple matches for oldString. Quote more of the lines around it so that it is the only one, "
        "or set replaceAll to change every one."
    )


def exact(content: str, old: str) -> Iterator[str]:
    del content
    yield old


def line_trimmed(content: str, old: str) -> Iterator[str]:
    """Line by line the same, but for what stands before and after the words."""
    lines, wanted = content.split("\n"), [line.strip() for line in _quoted(old)]
    trimmed = [line.strip() for line in lines]
    for start in _starts(trimmed, wanted):
        yield "\n".join(lines[start : start + len(wanted)])


def block_anchor(content: str, old: str) -> Iterator[str]:
    """The first and the last line are there; what is between them is much alike."""
    wanted = _quoted(old)
    if len(wanted) < ANCHORED:
        return
    lines = content.split("\n")
    blocks = [lines[start : end + 1] for start, end in _anchored(lines, wanted)]
    # OpenCode takes a single candidate whatever stands between, and of several one that is three tenths alike over
    # the lines both have: it may replace a whole function for another that begins and ends the same. Here, one or
    # many, more than half of all the letters between have to be there.
    best = max(blocks, key=lambda block: _likeness(block, wanted), default=None)
    if best is not None and _likeness(best, wanted) > ALIKE:
        yield "\n".join(best)


def whitespace(content: str, old: str) -> Iterator[str]:
    """The same words, with other blanks between them."""
    words = old.split()
    if not words:
        return
    lines, wanted = content.split("\n"), " ".join(words)
    inside = re.compile(r"\s+".join(re.escape(word) for word in words))
    for line in lines:
        if " ".join(line.split()) == wanted:
            yield line
        elif match := inside.search(line):
            yield match.group()
    if len(count := _quoted(old)) > 1:
        yield from (block for block in _windows(lines, len(count)) if " ".join(block.split()) == wanted)


def indentation(content: str, old: str) -> Iterator[str]:
    """The same block, further in or further out."""
    wanted = _dedented(_quoted(old))
    lines = content.split("\n")
    stripped, first = [line.strip() for line in lines], [line.strip() for line in wanted]
    for start in _starts(stripped, first):
        block = lines[start : start + len(wanted)]
        if _dedented(block) == wanted:
            yield "\n".join(block)


def escapes(content: str, old: str) -> Iterator[str]:
    r"""The text was written with `\n` and `\"` where the characters themselves were meant."""
    meant = _unescaped(old)
    if meant in content:
        yield meant
    if "\\" not in content:
        return
    for block in _windows(content.split("\n"), meant.count("\n") + 1):
        if _unescaped(block) == meant:
            yield block


def trimmed_boundary(content: str, old: str) -> Iterator[str]:
    """The text was quoted with blanks or empty lines around it."""
    core = old.strip()
    if core == old:
        return
    if core in content:
        yield core
    yield from (
        block for block in _windows(content.split("\n"), old.count("\n") + 1) if block.strip() == core
    )


def context_aware(content: str, old: str) -> Iterator[str]:
    """First and last line are there, as many lines between, and half of those are the same."""
    wanted = _quoted(old)
    if len(wanted) < ANCHORED:
        return
    lines = content.split("\n")
    for start, end in _anchored(lines, wanted):
        block = lines[start : end + 1]
        if len(block) == len(wanted) and _half_same(block[1:-1], wanted[1:-1]):
            yield "\n".join(block)


def every_exact(content: str, old: str) -> Iterator[str]:
    """Each place where it stands: lets `every` through, and tells many from none."""
    if old:
        yield from (old for _ in range(content.count(old)))


WAYS: Final[tuple[Way, ...]] = (
    exact,
    line_trimmed,
    block_anchor,
    whitespace,
    indentation,
    escapes,
    trimmed_boundary,
    context_aware,
    every_exact,
)


def _quoted(old: str) -> list[str]:
    lines = old.split("\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


def _starts(lines: list[str], wanted: list[str]) -> Iterator[int]:
    for start in range(len(lines) - len(wanted) + 1):
        if lines[start] == wanted[0] and lines[start : start + len(wanted)] == wanted:
            yield start


def _windows(lines: list[str], count: int) -> Iterator[str]:
    for start in range(len(lines) - count + 1):
        yield "\n".join(lines[start : start + count])


def _anchored(lines: list[str], wanted: list[str]) -> Iterator[tuple[int, int]]:
    """Where the first line stands, and the nearest place after it, at least one line between, where the last one does."""
    first, last = wanted[0].strip(), wanted[-1].strip()
    trimmed = [line.strip() for line in lines]
    ends = [index for index, line in enumerate(trimmed) if line == last]
    for start, line in enumerate(trimmed):
        after = bisect_left(ends, start + 2)
        if line == first and after < len(ends):
            yield start, ends[after]


def _likeness(block: list[str], wanted: list[str]) -> float:
    """How alike the middle lines are, from 0 to 1; of no middle lines, wholly. A line too many is like nothing."""
    middle = zip_longest(block[1:-1], wanted[1:-1], fillvalue="")
    pairs = [(one.strip(), other.strip()) for one, other in middle if one.strip() or other.strip()]
    if not pairs:
        return 1.0
    return sum(1 - _distance(a, b) / max(len(a[:COMPARED]), len(b[:COMPARED])) for a, b in pairs) / len(pairs)


def _distance(a: str, b: str) -> int:
    """Levenshtein's: how many letters to add, drop or change."""
    a, b = a[:COMPARED], b[:COMPARED]
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
    return row[-1]


def _half_same(block: list[str], wanted: list[str]) -> bool:
    pairs = [(a.strip(), b.strip()) for a, b in zip(block, wanted, strict=True) if a.strip() or b.strip()]
    return not pairs or sum(a == b for a, b in pairs) / len(pairs) >= HALF


def _dedented(lines: list[str]) -> list[str]:
    said = [line for line in lines if line.strip()]
    shared = min((len(line) - len(line.lstrip()) for line in said), default=0)
    return [line[shared:] if line.strip() else line for line in lines]


def _unescaped(text: str) -> str:
    return re.sub(r"\\([ntr'\"`\\\n$])", lambda match: _ESCAPES.get(match[1], match[1]), text)


# Past this a screen has no use for both whole texts; the diff says it all.
SHOWN_WHOLE: Final = 512 * 1024

_BOM: Final = "\ufeff"


Old = Annotated[str, Meta(description="The text to replace, quoted as it stands in the file.")]
New = Annotated[str, Meta(description="The text to put in its place; it must differ.")]
All = Annotated[bool, Meta(description="Replace every occurrence, not just one.")]


class EditInput(Struct, frozen=True, kw_only=True, rename="camel"):
    file_path: Annotated[
        str, Meta(description="The file: an absolute path, or one from the working directory.")
    ]
    old_string: Old
    new_string: New
    replace_all: All = False


class Replacing(Protocol):
    """One text in the place of another, once or everywhere."""

    @property
    def old_string(self) -> str: ...

    @property
    def new_string(self) -> str: ...

    @property
    def replace_all(self) -> bool: ...


async def edit(wanted: EditInput, ctx: ToolContext) -> ToolResult:
    check_differs(wanted)
    return await rewrite(
        wanted.file_path, lambda text: edited(text, wanted), ctx, makes=not wanted.old_string
    )


def check_differs(wanted: Replacing) -> None:
    if wanted.old_string == wanted.new_string:
        raise ToolError("oldString and newString are the same: there is nothing to change.")


async def rewrite(path: str, change: Callable[[str], str], ctx: ToolContext, *, makes: bool) -> ToolResult:
    """Make a change to a file, if the session has seen it and it is permitted. `makes`: it need not be there yet."""
    place = await enter(path, ctx)
    before = await _seen(place, ctx, makes=makes)
    after = await asyncio.to_thread(change, before)
    await ask_to_edit(place, before, after, ctx)
    # OpenCode holds the file while a person thinks. We look again afterwards: what this session did meanwhile is
    # built upon, what anybody else did is refused by the guard.
    async with ctx.desk.guard.lock(place.real):
        before = await _seen(place, ctx, makes=makes)
        await put(place, await asyncio.to_thread(change, before), ctx)
    stands = await find_text(place.real)
    found = await ctx.desk.lookout.look(place.path)
    metadata = await asyncio.to_thread(_metadata, place, before, stands.content if stands else "")
    return ToolResult(
        title=title_of(place, ctx),
        output="Edit applied successfully." + told_of(place.path, found),
        metadata={"diagnostics": to_metadata(found, place.path), **metadata},
    )


async def _seen(place: Place, ctx: ToolContext, *, makes: bool) -> str:
    """The file's text, if the session has seen it so."""
    found = await ctx.desk.files.find_text(place.real)
    if found is None:
        if not makes:
            raise ToolError(f"File {place.path} not found")
        return ""
    # OpenCode does not guard when oldString is empty, and overwrites a file nobody has looked at.
    ctx.desk.guard.check(place.real, found.stamp)
    return found.content


def edited(content: str, wanted: Replacing) -> str:
    """The content with the edit made."""
    if not wanted.old_string:
        return wanted.new_string
    old, new = (text.replace("\r\n", "\n") for text in (wanted.old_string, wanted.new_string))
    if not _is_windows(content):
        old, new = wanted.old_string, wanted.new_string
    return keeping_form(content, lambda body: replace(body, old, new, every=wanted.replace_all))


def keeping_form(content: str, change: Callable[[str], str]) -> str:
    """The content with a change made; its line endings and its byte order mark stay as they are."""
    mark = _BOM if content.startswith(_BOM) else ""
    body = content.removeprefix(_BOM)
    if not _is_windows(content):
        return mark + change(body)
    return mark + change(body.replace("\r\n", "\n")).replace("\n", "\r\n")


def _is_windows(content: str) -> bool:
    return content.count("\r\n") == content.count("\n") > 0


def _metadata(place: Place, before: str, after: str) -> dict[str, Any]:
    shown = diff(place.path, before, after)
    whole = len(before) + len(after) <= SHOWN_WHOLE
    filediff = {
        "file": place.path,
        "before": sendable(before) if whole else "",
        "after": sendable(after) if whole else "",
        "additions": shown.additions,
        "deletions": shown.deletions,
    }
    return {"diff": sendable(shown.text), "filediff": filediff}


def sendable(text: str) -> str:
    """The text without the stand-ins for bytes that are not UTF-8; JSON has no place for them."""
    return text.encode(errors="replace").decode()


EDIT = Tool(name="edit", about=about("edit"), takes=EditInput, run=edit, tell=edit_to_others, announces=True)


class OneEdit(Struct, frozen=True, kw_only=True, rename="camel"):
    old_string: Old
    new_string: New
    replace_all: All = False


class MultiEditInput(Struct, frozen=True, kw_only=True, rename="camel"):
    file_path: Annotated[
        str, Meta(description="The file: an absolute path, or one from the working directory.")
    ]
    edits: Annotated[
        tuple[OneEdit, ...],
        Meta(
            min_length=1,
            description="The replacements, made one after the other, each on what the last left.",
        ),
    ]


async def multiedit(wanted: MultiEditInput, ctx: ToolContext) -> ToolResult:
    # OpenCode calls `edit` again and again: one that fails leaves those before it standing.
    return await rewrite(
        wanted.file_path, lambda text: made(text, wanted.edits), ctx, makes=not wanted.edits[0].old_string
    )


def made(text: str, edits: Sequence[OneEdit]) -> str:
    """The text with all the replacements made. Raises `ToolError` naming the one that cannot be."""
    for number, each in enumerate(edits, 1):
        try:
            check_differs(each)
            text = edited(text, each)
        except ToolError as error:
            raise ToolError(f"Edit {number} of {len(edits)}: {error} Nothing was changed.") from error
    return text


MULTIEDIT = Tool(
    name="multiedit", about=about("multiedit"), takes=MultiEditInput, run=multiedit, announces=True
)
