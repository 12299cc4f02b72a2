"""What the editing tools share: ask, note and write a change; atomic changes to several files; diffs."""

import asyncio
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import ToolError
from weft.host.tasks import run_to_completion
from weft.model.verdict import CallEvidence, CallResult, FileIntent
from weft.tool.contract import ToolContext
from weft.tool.files import Stamp, digest_text, find_stamp, find_text, replace_text
from weft.tool.paths import ToolPath, list_always_patterns, list_edit_patterns

Undo = Callable[[], object]


class TextChange(Struct, frozen=True, kw_only=True):
    """The text of a file before and after a change, by real path. None means that there is no file.

    A new file takes its mode from the file at `mode_source`, if given.
    """

    path: str
    before: str | None
    after: str | None
    mode_source: str | None = None


async def apply_changes(changes: Sequence[TextChange]) -> None:
    """Apply every change, or none.

    Raise `ToolError` if one fails. The message says which files could not be restored, if any.
    """
    # Do not allow a cancellation half way: the changes would be neither applied nor undone.
    await run_to_completion(asyncio.to_thread(_apply_changes, changes))


def _apply_changes(changes: Sequence[TextChange]) -> None:
    modes = {change.path: _mode_of(change.mode_source) for change in changes if change.mode_source}
    applied: list[tuple[TextChange, Undo]] = []
    hidden_paths: list[str] = []
    try:
        for change in changes:
            applied.append((change, _apply_change(change, modes.get(change.path), hidden_paths)))  # noqa: PERF401  the list is needed when a change fails
    except (OSError, ToolError) as error:
        unrestored = [change.path for change, undo in reversed(applied) if not _try_undo(undo)]
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise ToolError(f"{reason} {_describe_unrestored(unrestored)}") from error
    for path in hidden_paths:
        os.unlink(path)


def _describe_unrestored(unrestored: list[str]) -> str:
    if not unrestored:
        return "Nothing was changed: the files that had been written were restored."
    return f"These files could not be restored and remain changed: {', '.join(unrestored)}."


def _mode_of(path: str | None) -> int | None:
    with suppress(OSError):
        return stat.S_IMODE(os.stat(path).st_mode) if path else None
    return None


def _apply_change(change: TextChange, mode: int | None, hidden_paths: list[str]) -> Undo:
    """Apply one change and return a function that undoes it.

    A deleted file is only renamed, and its new path is added to `hidden_paths`, so that it can be restored.
    """
    path, before, after = change.path, change.before, change.after
    if after is None:
        hidden_path = os.path.join(os.path.dirname(path), f".{secrets.token_hex(6)}.tmp")
        os.rename(path, hidden_path)
        hidden_paths.append(hidden_path)
        return lambda: os.rename(hidden_path, path)
    if before is None:
        missing = _list_missing_directories(os.path.dirname(path))
        try:
            replace_text(path, after, mode=mode)
        except BaseException:
            _remove_directories(missing)
            raise
        return lambda: _remove_file(path, missing)
    replace_text(path, after)
    return lambda: replace_text(path, before)


def _list_missing_directories(directory: str) -> list[str]:
    """Return the directories that have to be created, deepest first."""
    missing = []
    while not os.path.lexists(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    return missing


def _remove_file(path: str, directories: list[str]) -> None:
    os.unlink(path)
    _remove_directories(directories)


def _remove_directories(directories: list[str]) -> None:
    for directory in directories:
        with suppress(OSError):  # it was not created, or somebody put a file into it
            os.rmdir(directory)


def _try_undo(undo: Undo) -> bool:
    try:
        undo()
    except (OSError, ToolError):
        return False
    return True


CONTEXT_LINES: Final = 4
# Finding the smallest difference takes time quadratic in the number of lines. Above this limit, the diff replaces all
# old lines by all new ones.
MAX_COMPARISONS: Final = 4_000_000


class _LineChange(NamedTuple):
    """Old lines and the new lines that replace them. Either range may be empty."""

    old: range
    new: range


class Diff(Struct, frozen=True, kw_only=True):
    """A unified diff, and how many lines it adds and deletes."""

    text: str
    additions: int
    deletions: int


def make_diff(path: str, before: str, after: str) -> Diff:
    """Return a unified diff that ignores line endings."""
    old, new = _split_lines(before), _split_lines(after)
    body = [line for hunk in _group_hunks(old, new) for line in _format_hunk(hunk, old, new)]
    head = [f"Index: {path}", "=" * 67, f"--- {path}", f"+++ {path}"]
    return Diff(
        text="\n".join([*head, *_dedent(body)]) + "\n",
        additions=sum(line.startswith("+") for line in body),
        deletions=sum(line.startswith("-") for line in body),
    )


def _split_lines(text: str) -> list[str]:
    """Split into lines that keep their newline, so that a missing final newline is a difference."""
    lines = text.replace("\r\n", "\n").split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _group_hunks(old: list[str], new: list[str]) -> list[list[_LineChange]]:
    """Group the changes that are too close to each other for separate context lines."""
    head = _count_common(old, new)
    tail = _count_common(old[head:][::-1], new[head:][::-1])
    hunks: list[list[_LineChange]] = []
    for change in _compare_lines(old[head : len(old) - tail], new[head : len(new) - tail], head):
        if hunks and change.old.start - hunks[-1][-1].old.stop <= 2 * CONTEXT_LINES:
            hunks[-1].append(change)
        else:
            hunks.append([change])
    return hunks


def _count_common(left: Sequence[str], right: Sequence[str]) -> int:
    """Return how many lines at the start are equal."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))


def _compare_lines(old: list[str], new: list[str], offset: int) -> Iterator[_LineChange]:
    """Yield the differences. `offset` is added to all line numbers."""
    if len(old) * len(new) > MAX_COMPARISONS:
        yield _LineChange(range(offset, offset + len(old)), range(offset, offset + len(new)))
        return
    for tag, old_start, old_end, new_start, new_end in SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if tag != "equal":
            yield _LineChange(
                range(old_start + offset, old_end + offset), range(new_start + offset, new_end + offset)
            )


def _format_hunk(hunk: list[_LineChange], old: list[str], new: list[str]) -> Iterator[str]:
    before = min(CONTEXT_LINES, hunk[0].old.start)
    after = min(CONTEXT_LINES, len(old) - hunk[-1].old.stop)
    old_start, old_end = hunk[0].old.start - before, hunk[-1].old.stop + after
    new_start, new_end = hunk[0].new.start - before, hunk[-1].new.stop + after
    yield f"@@ -{old_start + (old_end > old_start)},{old_end - old_start} +{new_start + (new_end > new_start)},{new_end - new_start} @@"
    position = old_start
    for change in hunk:
        yield from _mark_lines(" ", old[position : change.old.start])
        yield from _mark_lines("-", old[change.old.start : change.old.stop])
        yield from _mark_lines("+", new[change.new.start : change.new.stop])
        position = change.old.stop
    yield from _mark_lines(" ", old[position:old_end])


def _mark_lines(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _dedent(body: list[str]) -> list[str]:
    """Remove the indentation that all lines share, because diffs are read on narrow screens."""
    texts = [line[1:] for line in body if line[0] in " +-" and line[1:].strip()]
    shared = min((len(line) - len(line.lstrip()) for line in texts), default=0)
    return [line[0] + line[1 + shared :] if line[0] in " +-" else line for line in body]


# --- one file: ask, note and write ---


async def ask_to_edit(place: ToolPath, before: str, after: str, ctx: ToolContext) -> None:
    """Ask for permission to edit a file, showing the diff."""
    diff = await asyncio.to_thread(make_diff, place.path, before, after)
    metadata = {"filepath": place.path, "diff": diff.text.encode(errors="replace").decode()}
    patterns = list_edit_patterns(place, ctx)
    await ctx.ask("edit", *patterns, always=list_always_patterns(patterns), metadata=metadata)


async def check_unchanged(place: ToolPath, ctx: ToolContext, *, new: bool) -> None:
    """Raise `ToolError` if somebody changed or created the file while the question was open, which may take an hour."""
    stamp = await ctx.resources.files.find_stamp(place.real)
    if stamp is not None or not new:
        ctx.resources.guard.check(place.real, stamp or Stamp(modified=0, size=-1))


async def write_file(place: ToolPath, content: str, ctx: ToolContext, result: CallResult) -> None:
    """Write a file, have it formatted, and remember its resulting state. First note the intent, with the `result` of the call."""
    await save_unsaved(place, ctx)
    async with ctx.watch(place.real):
        current = await find_text(place.real)
        change = TextChange(path=place.real, before=current.content if current else None, after=content)
        await note_changes([change], result, ctx)
        written = await ctx.resources.files.write_text(place.real, content)
        ctx.resources.guard.remember(place.real, written)
        await ctx.resources.after_edit(place.path)
        if await find_stamp(place.real) != written and (formatted := await find_text(place.real)) is not None:
            await note_changes([replace(change, after=formatted.content)], result, ctx)
    await ctx.resources.files.refresh_editor(place.real, content)
    if (stamp := await find_stamp(place.real)) is not None:
        ctx.resources.guard.remember(place.real, stamp)


async def note_changes(changes: Sequence[TextChange], result: CallResult, ctx: ToolContext) -> None:
    """Note which files are about to change, and the result of the call once they have."""
    files = tuple(
        FileIntent(path=change.path, before=digest_text(change.before), after=digest_text(change.after))
        for change in changes
    )
    await ctx.note(CallEvidence(files=files, result=result))


async def save_unsaved(place: ToolPath, ctx: ToolContext) -> None:
    """Save the person's unsaved text. Do this before `ctx.watch`: it is their work, and undo must keep it."""
    unsaved = await ctx.resources.files.find_unsaved(place.real)
    if unsaved is not None:
        ctx.resources.guard.check(place.real, unsaved.stamp)
        await ctx.resources.files.save(place.real, unsaved.content)
