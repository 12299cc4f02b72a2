"""Answer who wrote the lines of a file, and which sessions changed it. Every function blocks."""

import os
import stat
from collections.abc import Sequence
from typing import Final

from weft.blame.authorship import PERSON, UNKNOWN, FileVersion, LineAuthor
from weft.blame.history import BlameSource, FileHistories, FileHistory, to_stored_path
from weft.blame.lines import Line, follow_lines
from weft.errors import DirectoryError, GitError, InvalidInputError, NotFoundError, OutsideError
from weft.host.git import Git
from weft.model.data import Author, BlameLine, FileBlame, FileLog
from weft.model.display import format_count
from weft.model.project import is_within

MAX_FILE_BYTES: Final = 50 << 20
NEVER_CHANGED: Final = "no session of this store has changed this file"
OLDER_LINES: Final = "lines that are unknown are older than the first snapshot of this file"

# The largest file that is read has fewer lines than nine digits count.
MAX_LINE_DIGITS: Final = 9

LineRange = tuple[int, int]


def locate_file(root: str, directory: str, path: str) -> str:
    """Return a path relative to the top of the checkout.

    Raise `OutsideError` if it does not lie there, `InvalidInputError` if it is the top itself.
    """
    if "\0" in path:  # no file has such a name
        raise OutsideError(path)
    top = os.path.realpath(root)
    whole = os.path.join(directory, path)
    try:
        # The file itself may be a link. Its directory decides where it lies.
        real = os.path.join(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))
    except ValueError:  # half a surrogate pair
        raise OutsideError(path) from None
    real = os.path.normpath(real)
    if real == top:
        raise InvalidInputError("file", f"{path} is a directory", hint="name a file")
    if not is_within(real, top):
        raise OutsideError(path)
    return os.path.relpath(real, top)


def parse_target(text: str) -> tuple[str, LineRange | None]:
    """Split `FILE[:LINE[-LINE]]`. A colon that no number of a line follows belongs to the name."""
    name, colon, lines = text.rpartition(":")
    first, dash, last = lines.partition("-")
    if not (colon and name and _is_line_number(first) and (_is_line_number(last) or not dash)):
        return text, None
    return name, (int(first), int(last) if dash else int(first))


def _is_line_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= MAX_LINE_DIGITS


def blame_file(source: BlameSource, path: str, lines: LineRange | None = None) -> FileBlame:
    """Return the lines of a file with their authors. `path` is relative to the top of the checkout.

    Raise `NotFoundError` if there is no such file, and `InvalidInputError` if it has no lines or not as many.
    """
    histories = FileHistories(source)
    content = histories.make_content(_read_file(source, path))
    if content.oid in histories.binary:
        hint = f"list the sessions that changed it: weft log {path}"
        raise InvalidInputError("file", f"{path} is binary and has no lines", hint=hint)
    first, last = _check_range(path, lines, len(content.lines))
    stored = to_stored_path(path)
    history = histories.trace(stored)
    if history.changes:
        authors = history.authorship.attribute(os.path.realpath(source.root), content).authors
    else:
        _, origin = histories.find_origin(stored, content)
        authors = list_origin_authors(origin, content.lines)
    shown = authors[first - 1 : last]
    numbers = {author: index for index, author in enumerate(dict.fromkeys(shown))}
    return FileBlame(
        path=path,
        lines=tuple(
            BlameLine(number=first + index, text=line.decode(errors="replace"), author=numbers[shown[index]])
            for index, line in enumerate(content.lines[first - 1 : last])
        ),
        authors=tuple(_to_author(each, histories) for each in numbers),
        note=_make_note(history, shown),
        revision=find_revision(source),
    )


def list_origin_authors(origin: FileVersion, lines: Sequence[Line]) -> Sequence[LineAuthor]:
    """Return the authors of a file that had another name before. If it had none, nothing is known of it."""
    if not origin.lines:
        return [UNKNOWN] * len(lines)
    return [PERSON if each is None else each for each in follow_lines(origin, lines)]


def read_file_log(source: BlameSource, path: str) -> FileLog:
    """Return the changes of a file by sessions, newest first, also under its earlier names.

    Raise `NotFoundError` if there is no such file and no session has changed one.
    """
    histories = FileHistories(source)
    changes = histories.list_with_renames(to_stored_path(path))
    if not changes and not os.path.lexists(os.path.join(source.root, path)):
        raise NotFoundError("file", path, hint="it does not exist, and no session has changed it")
    steps = [histories.make_step(change) for change in reversed(changes)]
    unknown = sum(step.additions is None and not step.author.call_id for step in steps)
    note = "" if changes else NEVER_CHANGED
    return FileLog(path=path, steps=tuple(steps), note=note or _note_missing(unknown))


def find_revision(source: BlameSource) -> str | None:
    """Return the commit that is checked out, None if there is none."""
    try:
        return Git(source.environ).find_commit(source.root, "HEAD")
    except GitError:
        return None


def _read_file(source: BlameSource, path: str) -> bytes:
    whole = os.path.join(source.root, path)
    try:
        found = os.lstat(whole)
        if stat.S_ISDIR(found.st_mode):
            raise InvalidInputError("file", f"{path} is a directory", hint="name a file")
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInputError("file", f"{path} is a link or a device", hint="name the file itself")
        if found.st_size > MAX_FILE_BYTES:
            raise InvalidInputError("file", f"{path} is larger than {MAX_FILE_BYTES >> 20} MB")
        with open(whole, "rb") as file:
            return file.read()
    except FileNotFoundError:
        hint = f"what sessions did to a file that is gone: weft log {path}"
        raise NotFoundError("file", path, hint=hint) from None
    except OSError as error:
        raise DirectoryError(path, error.strerror or str(error)) from error


def _check_range(path: str, lines: LineRange | None, count: int) -> LineRange:
    first, last = lines or (1, count)
    if lines is not None and not 1 <= first <= last <= count:
        raise InvalidInputError(
            "lines",
            f"{path} has {format_count(count, 'line')}",
            hint="write FILE:LINE or FILE:FIRST-LAST, from 1",
        )
    return first, last


def _to_author(author: LineAuthor, histories: FileHistories) -> Author:
    if isinstance(author, int):
        return histories.find_author(histories.changes[author])
    return Author(kind="person" if author == PERSON else "unknown")


def _make_note(history: FileHistory, shown: Sequence[LineAuthor]) -> str:
    if not history.changes and all(each == UNKNOWN for each in shown):
        return NEVER_CHANGED
    if history.missing:
        return _note_missing(history.missing)
    return OLDER_LINES if UNKNOWN in shown else ""


def _note_missing(count: int) -> str:
    if not count:
        return ""
    return f"there are no snapshots of {format_count(count, 'change')} of this file, so some lines may be unknown"
