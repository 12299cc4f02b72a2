"""The `edit` and `multiedit` tools: find text in a file, by the strictest matcher first, and replace it."""

import asyncio
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, Protocol

from weft.errors import ToolError
from weft.tool.changes import make_diff
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.diagnostic import format_errors, to_metadata
from weft.tool.files import find_text
from weft.tool.inputs import EditInput, MultiEditInput, SingleEdit
from weft.tool.paths import ToolPath, format_title, resolve_path
from weft.tool.write import ask_to_edit, write_file

Matcher = Callable[[str, str], Iterator[str]]

MIN_ANCHORED_LINES: Final = 3
MIN_SIMILARITY: Final = 0.5
MIN_EQUAL_LINES: Final = 0.5
# Comparing letter by letter takes time quadratic in the length. The first letters of a long line tell enough.
MAX_COMPARED_CHARACTERS: Final = 400

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\n": "\n"}


def replace_match(content: str, old: str, new: str, *, every: bool = False) -> str:
    """Replace `old` by `new` once, or with `every` everywhere.

    Try the matchers from strict to loose. Raise `ToolError` if nothing matches, or if several places match and `every`
    is not set.
    """
    found = False
    for matcher in MATCHERS:
        for part in matcher(content, old):
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


def match_exact(content: str, old: str) -> Iterator[str]:
    del content
    yield old


def match_trimmed_lines(content: str, old: str) -> Iterator[str]:
    """Match lines that are equal except for leading and trailing whitespace."""
    lines, wanted = content.split("\n"), [line.strip() for line in _quoted_lines(old)]
    trimmed = [line.strip() for line in lines]
    for start in _find_starts(trimmed, wanted):
        yield "\n".join(lines[start : start + len(wanted)])


def match_anchored_block(content: str, old: str) -> Iterator[str]:
    """Match a block with the same first and last line and a similar middle."""
    wanted = _quoted_lines(old)
    if len(wanted) < MIN_ANCHORED_LINES:
        return
    lines = content.split("\n")
    blocks = [lines[start : end + 1] for start, end in _find_anchored(lines, wanted)]
    # OpenCode accepts a single candidate whatever is between the anchors. Among several, it accepts one whose common
    # lines are 30% similar. So it may replace a whole function by another one that starts and ends alike. Here, more
    # than half of the letters in between must agree in every case.
    best = max(blocks, key=lambda block: _measure_similarity(block, wanted), default=None)
    if best is not None and _measure_similarity(best, wanted) > MIN_SIMILARITY:
        yield "\n".join(best)


def match_whitespace(content: str, old: str) -> Iterator[str]:
    """Match the same words with different whitespace between them."""
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
    if len(count := _quoted_lines(old)) > 1:
        yield from (block for block in _windows(lines, len(count)) if " ".join(block.split()) == wanted)


def match_indentation(content: str, old: str) -> Iterator[str]:
    """Match the same block at another indentation."""
    wanted = _dedent(_quoted_lines(old))
    lines = content.split("\n")
    stripped, first = [line.strip() for line in lines], [line.strip() for line in wanted]
    for start in _find_starts(stripped, first):
        block = lines[start : start + len(wanted)]
        if _dedent(block) == wanted:
            yield "\n".join(block)


def match_escaped(content: str, old: str) -> Iterator[str]:
    r"""Match a text that was written with escapes like `\n` and `\"` in place of the characters themselves."""
    unescaped = _unescape(old)
    if unescaped in content:
        yield unescaped
    if "\\" not in content:
        return
    for block in _windows(content.split("\n"), unescaped.count("\n") + 1):
        if _unescape(block) == unescaped:
            yield block


def match_trimmed(content: str, old: str) -> Iterator[str]:
    """Match a text that was quoted with whitespace or empty lines around it."""
    core = old.strip()
    if core == old:
        return
    if core in content:
        yield core
    yield from (
        block for block in _windows(content.split("\n"), old.count("\n") + 1) if block.strip() == core
    )


def match_context(content: str, old: str) -> Iterator[str]:
    """Match a block with the same first and last line, as many lines between, and half of those equal."""
    wanted = _quoted_lines(old)
    if len(wanted) < MIN_ANCHORED_LINES:
        return
    lines = content.split("\n")
    for start, end in _find_anchored(lines, wanted):
        block = lines[start : end + 1]
        if len(block) == len(wanted) and _is_half_equal(block[1:-1], wanted[1:-1]):
            yield "\n".join(block)


def match_every_exact(content: str, old: str) -> Iterator[str]:
    """Yield every exact occurrence, so that `every` can replace them and several are told from none."""
    if old:
        yield from (old for _ in range(content.count(old)))


MATCHERS: Final[tuple[Matcher, ...]] = (
    match_exact,
    match_trimmed_lines,
    match_anchored_block,
    match_whitespace,
    match_indentation,
    match_escaped,
    match_trimmed,
    match_context,
    match_every_exact,
)


def _quoted_lines(old: str) -> list[str]:
    lines = old.split("\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


def _find_starts(lines: list[str], wanted: list[str]) -> Iterator[int]:
    for start in range(len(lines) - len(wanted) + 1):
        if lines[start] == wanted[0] and lines[start : start + len(wanted)] == wanted:
            yield start


def _windows(lines: list[str], count: int) -> Iterator[str]:
    for start in range(len(lines) - count + 1):
        yield "\n".join(lines[start : start + count])


def _find_anchored(lines: list[str], wanted: list[str]) -> Iterator[tuple[int, int]]:
    """Yield each place of the first line together with the nearest place of the last line, at least one line apart."""
    first, last = wanted[0].strip(), wanted[-1].strip()
    trimmed = [line.strip() for line in lines]
    ends = [index for index, line in enumerate(trimmed) if line == last]
    for start, line in enumerate(trimmed):
        after = bisect_left(ends, start + 2)
        if line == first and after < len(ends):
            yield start, ends[after]


def _measure_similarity(block: list[str], wanted: list[str]) -> float:
    """Return how similar the middle lines are, from 0 to 1. A surplus line counts as 0; no middle lines count as 1."""
    middle = zip_longest(block[1:-1], wanted[1:-1], fillvalue="")
    pairs = [(one.strip(), other.strip()) for one, other in middle if one.strip() or other.strip()]
    if not pairs:
        return 1.0
    return sum(
        1
        - _levenshtein_distance(a, b)
        / max(len(a[:MAX_COMPARED_CHARACTERS]), len(b[:MAX_COMPARED_CHARACTERS]))
        for a, b in pairs
    ) / len(pairs)


def _levenshtein_distance(a: str, b: str) -> int:
    """Return the Levenshtein distance: how many letters to add, remove or change."""
    a, b = a[:MAX_COMPARED_CHARACTERS], b[:MAX_COMPARED_CHARACTERS]
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
    return row[-1]


def _is_half_equal(block: list[str], wanted: list[str]) -> bool:
    pairs = [(a.strip(), b.strip()) for a, b in zip(block, wanted, strict=True) if a.strip() or b.strip()]
    return not pairs or sum(a == b for a, b in pairs) / len(pairs) >= MIN_EQUAL_LINES


def _dedent(lines: list[str]) -> list[str]:
    texts = [line for line in lines if line.strip()]
    shared = min((len(line) - len(line.lstrip()) for line in texts), default=0)
    return [line[shared:] if line.strip() else line for line in lines]


def _unescape(text: str) -> str:
    return re.sub(r"\\([ntr'\"`\\\n$])", lambda match: _ESCAPES.get(match[1], match[1]), text)


# Above this size, clients get the diff without the two whole texts.
MAX_SHOWN_CHARACTERS: Final = 512 * 1024

_BOM: Final = "\ufeff"


class Replacement(Protocol):
    """The replacement of one text by another, once or everywhere."""

    @property
    def old_string(self) -> str: ...

    @property
    def new_string(self) -> str: ...

    @property
    def replace_all(self) -> bool: ...


async def edit(wanted: EditInput, ctx: ToolContext) -> ToolResult:
    check_differs(wanted)
    return await edit_file(
        wanted.file_path, lambda text: apply_replacement(text, wanted), ctx, makes=not wanted.old_string
    )


def check_differs(wanted: Replacement) -> None:
    if wanted.old_string == wanted.new_string:
        raise ToolError("oldString and newString are the same: there is nothing to change.")


async def edit_file(path: str, change: Callable[[str], str], ctx: ToolContext, *, makes: bool) -> ToolResult:
    """Change a file that the session has read, after asking for permission. With `makes`, the file may not exist yet."""
    place = await resolve_path(path, ctx)
    before = await _read_current(place, ctx, makes=makes)
    after = await asyncio.to_thread(change, before)
    await ask_to_edit(place, before, after, ctx)
    # OpenCode locks the file while a person is asked. We read it again afterwards: changes by this session are kept,
    # and the guard refuses changes by anybody else.
    async with ctx.resources.guard.lock(place.real):
        before = await _read_current(place, ctx, makes=makes)
        await write_file(place, await asyncio.to_thread(change, before), ctx)
    current = await find_text(place.real)
    found = await ctx.resources.language_servers.diagnose(place.path)
    metadata = await asyncio.to_thread(_metadata, place, before, current.content if current else "")
    return ToolResult(
        title=format_title(place, ctx),
        output="Edit applied successfully." + format_errors(place.path, found),
        metadata={"diagnostics": to_metadata(found, place.path), **metadata},
    )


async def _read_current(place: ToolPath, ctx: ToolContext, *, makes: bool) -> str:
    """Return the text of a file. Raise `ToolError` unless the session has read its current state."""
    found = await ctx.resources.files.find_text(place.real)
    if found is None:
        if not makes:
            raise ToolError(f"File {place.path} not found")
        return ""
    # OpenCode does not check when oldString is empty, and so overwrites files that nobody has read.
    ctx.resources.guard.check(place.real, found.stamp)
    return found.content


def apply_replacement(content: str, wanted: Replacement) -> str:
    """Return the content with the replacement made."""
    if not wanted.old_string:
        return wanted.new_string
    old, new = (text.replace("\r\n", "\n") for text in (wanted.old_string, wanted.new_string))
    if not _has_windows_endings(content):
        old, new = wanted.old_string, wanted.new_string
    return preserve_format(content, lambda body: replace_match(body, old, new, every=wanted.replace_all))


def preserve_format(content: str, change: Callable[[str], str]) -> str:
    """Apply a change to the content, and keep its line endings and its byte order mark."""
    mark = _BOM if content.startswith(_BOM) else ""
    body = content.removeprefix(_BOM)
    if not _has_windows_endings(content):
        return mark + change(body)
    return mark + change(body.replace("\r\n", "\n")).replace("\n", "\r\n")


def _has_windows_endings(content: str) -> bool:
    return content.count("\r\n") == content.count("\n") > 0


def _metadata(place: ToolPath, before: str, after: str) -> dict[str, Any]:
    shown = make_diff(place.path, before, after)
    whole = len(before) + len(after) <= MAX_SHOWN_CHARACTERS
    filediff = {
        "file": place.path,
        "before": replace_surrogates(before) if whole else "",
        "after": replace_surrogates(after) if whole else "",
        "additions": shown.additions,
        "deletions": shown.deletions,
    }
    return {"diff": replace_surrogates(shown.text), "filediff": filediff}


def replace_surrogates(text: str) -> str:
    """Replace the surrogates that stand for invalid UTF-8, which JSON cannot hold."""
    return text.encode(errors="replace").decode()


async def multiedit(wanted: MultiEditInput, ctx: ToolContext) -> ToolResult:
    # OpenCode calls `edit` once for each edit, so a failing edit leaves the earlier ones applied.
    return await edit_file(
        wanted.file_path,
        lambda text: apply_edits(text, wanted.edits),
        ctx,
        makes=not wanted.edits[0].old_string,
    )


def apply_edits(text: str, edits: Sequence[SingleEdit]) -> str:
    """Apply all edits in order. Raise a `ToolError` that names the edit which failed."""
    for number, each in enumerate(edits, 1):
        try:
            check_differs(each)
            text = apply_replacement(text, each)
        except ToolError as error:
            raise ToolError(f"Edit {number} of {len(edits)}: {error} Nothing was changed.") from error
    return text
