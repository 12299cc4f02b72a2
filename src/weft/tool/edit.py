"""The `edit` and `multiedit` tools: find text in a file, by the strictest matcher first, and replace it."""

import asyncio
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, Protocol

from weft.errors import ToolError
from weft.model.verdict import CallResult
from weft.tool.changes import ask_to_edit, make_diff, write_file
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.files import find_text
from weft.tool.inputs import EditInput, MultiEditInput, SingleEdit
from weft.tool.language_servers import format_errors, to_metadata
from weft.tool.paths import ToolPath, format_title, resolve_path

Matcher = Callable[[str, str], Iterator[str]]

# --- matchers ---

MIN_ANCHORED_LINES: Final = 3
MIN_SIMILARITY: Final = 0.5
MIN_EQUAL_LINE_SHARE: Final = 0.5
# Computing the distance takes time quadratic in the length. The start of a long line tells enough.
MAX_COMPARED_CHARACTERS: Final = 400

APPLIED: Final = "Edit applied successfully."
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\n": "\n"}


def replace_match(content: str, old: str, new: str, *, replace_all: bool = False) -> str:
    """Replace `old` by `new` once, or with `replace_all` everywhere.

    Try the matchers from strict to loose. Raise `ToolError` if nothing matches, or if several places match and
    `replace_all` is not set.
    """
    matched = False
    for matcher in MATCHERS:
        for match in matcher(content, old):
            if not match or match not in content:
                continue
            matched = True
            if replace_all:
                return content.replace(match, new)
            if content.count(match) == 1 and content.find(match) == content.rfind(match):
                return content.replace(match, new, 1)
    if not matched:
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
    lines, old_lines = content.split("\n"), [line.strip() for line in _split_lines(old)]
    trimmed = [line.strip() for line in lines]
    for start in _find_starts(trimmed, old_lines):
        yield "\n".join(lines[start : start + len(old_lines)])


def match_anchored_block(content: str, old: str) -> Iterator[str]:
    """Match a block with the same first and last line and a similar middle."""
    old_lines = _split_lines(old)
    if len(old_lines) < MIN_ANCHORED_LINES:
        return
    lines = content.split("\n")
    blocks = [lines[start : end + 1] for start, end in _find_anchored(lines, old_lines)]
    # OpenCode accepts a single candidate whatever is between the anchors. Among several, it accepts one whose common
    # lines are 30% similar. So it may replace a whole function by another one that starts and ends alike. Here, more
    # than half of the characters in between must agree in every case.
    best = max(blocks, key=lambda block: _measure_similarity(block, old_lines), default=None)
    if best is not None and _measure_similarity(best, old_lines) > MIN_SIMILARITY:
        yield "\n".join(best)


def match_whitespace(content: str, old: str) -> Iterator[str]:
    """Match the same words with different whitespace between them."""
    words = old.split()
    if not words:
        return
    lines, normalized = content.split("\n"), " ".join(words)
    regex = re.compile(r"\s+".join(re.escape(word) for word in words))
    for line in lines:
        if " ".join(line.split()) == normalized:
            yield line
        elif match := regex.search(line):
            yield match.group()
    if len(old_lines := _split_lines(old)) > 1:
        windows = _list_windows(
            lines, len(old_lines), lambda line: normalized.startswith(" ".join(line.split()))
        )
        yield from (block for block in windows if " ".join(block.split()) == normalized)


def match_indentation(content: str, old: str) -> Iterator[str]:
    """Match the same block at another indentation."""
    old_lines = _dedent(_split_lines(old))
    lines = content.split("\n")
    stripped_lines, stripped_old_lines = (
        [line.strip() for line in lines],
        [line.strip() for line in old_lines],
    )
    for start in _find_starts(stripped_lines, stripped_old_lines):
        block = lines[start : start + len(old_lines)]
        if _dedent(block) == old_lines:
            yield "\n".join(block)


def match_escaped(content: str, old: str) -> Iterator[str]:
    r"""Match a text that was written with escapes like `\n` and `\"` in place of the characters themselves."""
    unescaped = _unescape(old)
    if unescaped in content:
        yield unescaped
    if "\\" not in content:
        return
    # A backslash at the end of a line may belong to an escape with the newline.
    windows = _list_windows(
        content.split("\n"),
        unescaped.count("\n") + 1,
        lambda line: unescaped.startswith(_unescape(line).rstrip("\\")),
    )
    for block in windows:
        if _unescape(block) == unescaped:
            yield block


def match_trimmed(content: str, old: str) -> Iterator[str]:
    """Match a text that was quoted with whitespace or empty lines around it."""
    core = old.strip()
    if core == old:
        return
    if core in content:
        yield core
    windows = _list_windows(
        content.split("\n"), old.count("\n") + 1, lambda line: core.startswith(line.strip())
    )
    yield from (block for block in windows if block.strip() == core)


def match_context(content: str, old: str) -> Iterator[str]:
    """Match a block of the same length with the same first and last line, and half of the lines in between."""
    old_lines = _split_lines(old)
    if len(old_lines) < MIN_ANCHORED_LINES:
        return
    lines = content.split("\n")
    for start, end in _find_anchored(lines, old_lines):
        block = lines[start : end + 1]
        if len(block) == len(old_lines) and _has_enough_equal_lines(block[1:-1], old_lines[1:-1]):
            yield "\n".join(block)


def match_every_exact(content: str, old: str) -> Iterator[str]:
    """Yield every exact occurrence, so that `replace_match` can tell several matches from none."""
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


def _split_lines(old: str) -> list[str]:
    """Split into lines. A final newline does not start another line."""
    lines = old.split("\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


def _find_starts(lines: list[str], old_lines: list[str]) -> Iterator[int]:
    for start in range(len(lines) - len(old_lines) + 1):
        if lines[start] == old_lines[0] and lines[start : start + len(old_lines)] == old_lines:
            yield start


def _list_windows(lines: list[str], count: int, may_start: Callable[[str], bool]) -> Iterator[str]:
    """Yield every block of `count` consecutive lines whose first line may be the start of what is searched."""
    for start in range(len(lines) - count + 1):
        if may_start(lines[start]):
            yield "\n".join(lines[start : start + count])


def _find_anchored(lines: list[str], old_lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yield each place of the first line together with the nearest place of the last line, at least one line apart."""
    first, last = old_lines[0].strip(), old_lines[-1].strip()
    trimmed = [line.strip() for line in lines]
    ends = [index for index, line in enumerate(trimmed) if line == last]
    for start, line in enumerate(trimmed):
        index_of_end = bisect_left(ends, start + 2)
        if line == first and index_of_end < len(ends):
            yield start, ends[index_of_end]


def _measure_similarity(block: list[str], old_lines: list[str]) -> float:
    """Return how similar the middle lines are, from 0 to 1. A surplus line counts as 0; no middle lines count as 1."""
    middle = zip_longest(block[1:-1], old_lines[1:-1], fillvalue="")
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
    """Return the Levenshtein distance: how many characters to add, remove or change."""
    a, b = a[:MAX_COMPARED_CHARACTERS], b[:MAX_COMPARED_CHARACTERS]
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
    return row[-1]


def _has_enough_equal_lines(block: list[str], old_lines: list[str]) -> bool:
    pairs = [(a.strip(), b.strip()) for a, b in zip(block, old_lines, strict=True) if a.strip() or b.strip()]
    return not pairs or sum(a == b for a, b in pairs) / len(pairs) >= MIN_EQUAL_LINE_SHARE


def _dedent(lines: list[str]) -> list[str]:
    texts = [line for line in lines if line.strip()]
    shared = min((len(line) - len(line.lstrip()) for line in texts), default=0)
    return [line[shared:] if line.strip() else line for line in lines]


def _unescape(text: str) -> str:
    return re.sub(r"\\([ntr'\"`\\\n$])", lambda match: _ESCAPES.get(match[1], match[1]), text)


# --- the tools ---

# Above this size, clients get the diff without the two whole texts.
MAX_WHOLE_CHARACTERS: Final = 512 * 1024

_BOM: Final = "\ufeff"


class Replacement(Protocol):
    """The replacement of one text by another, once or everywhere."""

    @property
    def old_string(self) -> str: ...

    @property
    def new_string(self) -> str: ...

    @property
    def replace_all(self) -> bool: ...


async def edit(arguments: EditInput, ctx: ToolContext) -> ToolResult:
    check_differs(arguments)
    return await edit_file(
        arguments.file_path,
        lambda text: apply_replacement(text, arguments),
        ctx,
        may_create=not arguments.old_string,
    )


def check_differs(replacement: Replacement) -> None:
    if replacement.old_string == replacement.new_string:
        raise ToolError("oldString and newString are the same: there is nothing to change.")


async def edit_file(
    path: str, change: Callable[[str], str], ctx: ToolContext, *, may_create: bool
) -> ToolResult:
    """Ask for permission and change a file that the session has read. With `may_create`, the file need not exist."""
    place = await resolve_path(path, ctx)
    async with ctx.resources.guard.lock(
        place.real
    ):  # what another call is just writing is not remembered yet
        before = await _read_current(place, ctx, may_create=may_create)
    after = await asyncio.to_thread(change, before)
    await ask_to_edit(place, before, after, ctx)
    # OpenCode locks the file while the question is open. We read it again afterwards: changes by this session are kept,
    # and the guard refuses changes by anybody else.
    async with ctx.resources.guard.lock(place.real):
        before = await _read_current(place, ctx, may_create=may_create)
        after = await asyncio.to_thread(change, before)
        metadata = await asyncio.to_thread(_build_metadata, place, before, after)
        await write_file(place, after, ctx, _to_noted(place, metadata, ctx))
    current = await find_text(place.real)
    diagnostics = await ctx.resources.language_servers.diagnose(place.path)
    if current is None or current.content != after:  # a formatter changed it
        metadata = await asyncio.to_thread(_build_metadata, place, before, current.content if current else "")
    return ToolResult(
        title=format_title(place, ctx),
        output=APPLIED + format_errors(place.path, diagnostics),
        metadata={"diagnostics": to_metadata(diagnostics, place.path), **metadata},
    )


def _to_noted(place: ToolPath, metadata: dict[str, Any], ctx: ToolContext) -> CallResult:
    """Return the result of an edit before it is made, without the two contents: the diff says enough."""
    filediff = {**metadata["filediff"], "before": "", "after": ""}
    return CallResult(
        title=format_title(place, ctx),
        output=APPLIED,
        metadata={"diagnostics": {}, **metadata, "filediff": filediff},
    )


async def _read_current(place: ToolPath, ctx: ToolContext, *, may_create: bool) -> str:
    """Return the text of a file. Raise `ToolError` unless the session has read its current state."""
    file = await ctx.resources.files.find_text(place.real)
    if file is None:
        if not may_create:
            raise ToolError(f"File {place.path} not found")
        return ""
    # OpenCode does not check when oldString is empty, and so overwrites files that nobody has read.
    ctx.resources.guard.check(place.real, file.stamp)
    return file.content


def apply_replacement(content: str, replacement: Replacement) -> str:
    """Return the content with the replacement made."""
    if not replacement.old_string:
        return replacement.new_string
    old, new = (text.replace("\r\n", "\n") for text in (replacement.old_string, replacement.new_string))
    if not _has_windows_endings(content):
        old, new = replacement.old_string, replacement.new_string
    return preserve_format(
        content, lambda body: replace_match(body, old, new, replace_all=replacement.replace_all)
    )


def preserve_format(content: str, change: Callable[[str], str]) -> str:
    """Apply a change to the content, and keep its line endings and its byte order mark."""
    mark = _BOM if content.startswith(_BOM) else ""
    body = content.removeprefix(_BOM)
    if not _has_windows_endings(content):
        return mark + change(body)
    return mark + change(body.replace("\r\n", "\n")).replace("\n", "\r\n")


def _has_windows_endings(content: str) -> bool:
    return content.count("\r\n") == content.count("\n") > 0


def _build_metadata(place: ToolPath, before: str, after: str) -> dict[str, Any]:
    diff = make_diff(place.path, before, after)
    whole = len(before) + len(after) <= MAX_WHOLE_CHARACTERS
    filediff = {
        "file": place.path,
        "before": replace_surrogates(before) if whole else "",
        "after": replace_surrogates(after) if whole else "",
        "additions": diff.additions,
        "deletions": diff.deletions,
    }
    return {"diff": replace_surrogates(diff.text), "filediff": filediff}


def replace_surrogates(text: str) -> str:
    """Replace the surrogates that stand for invalid UTF-8, which JSON cannot hold."""
    return text.encode(errors="replace").decode()


async def multiedit(arguments: MultiEditInput, ctx: ToolContext) -> ToolResult:
    # OpenCode calls `edit` once for each edit, so a failing edit leaves the earlier ones applied.
    return await edit_file(
        arguments.file_path,
        lambda text: apply_edits(text, arguments.edits),
        ctx,
        may_create=not arguments.edits[0].old_string,
    )


def apply_edits(text: str, edits: Sequence[SingleEdit]) -> str:
    """Apply all edits in order. Raise a `ToolError` that names the edit which failed."""
    for number, single_edit in enumerate(edits, 1):
        try:
            check_differs(single_edit)
            text = apply_replacement(text, single_edit)
        except ToolError as error:
            raise ToolError(f"Edit {number} of {len(edits)}: {error} Nothing was changed.") from error
    return text
