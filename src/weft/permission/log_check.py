"""Reading the log of decisions back, and finding the first place where its chain does not hold."""

from collections.abc import Iterator

from msgspec import Struct

from weft.permission.entry import START, Entry, Link, hash_of, read_line
from weft.permission.log import LogFiles


class Break(Struct, frozen=True, kw_only=True):
    """The first record that does not follow from the one before: where it stands, and what is wrong."""

    seq: int
    file: str
    line: int
    reason: str


def read_entries(files: LogFiles) -> Iterator[tuple[int, Entry]]:
    """Every entry that can be read, oldest first, with its number."""
    for path, _, line in _lines(files):
        record = read_line(line)
        if path and record is not None:
            yield record.seq, record.entry


def find_break(files: LogFiles) -> tuple[int, Break | None]:
    """How many records hold, and the first that does not."""
    end: Link | None = None
    held, dropped, first = 0, 0, 0
    path, number = files.path, 0
    for path, number, line in _lines(files):
        record = read_line(line)
        if record is None:
            return held, Break(seq=held + first, file=path, line=number, reason="is not a record")
        if end is None:
            first = record.seq
            end = START if record.seq == 1 else Link(seq=record.seq - 1, hash=record.prev)
        if record.prev != end.hash or record.seq != end.seq + 1:
            reason = "does not follow the one before it, which was changed, added or taken out"
            return held, Break(seq=record.seq, file=path, line=number, reason=reason)
        if record.entry.what == "dropped":
            dropped = record.entry.count
        end, held = Link(seq=record.seq, hash=hash_of(line)), held + 1
    if first > 1 and dropped != first - 1:
        reason = f"is the first there is, and only {dropped} before it are known to have been dropped"
        return held, Break(seq=first, file=files.list_files()[0], line=1, reason=reason)
    return held, _cut_short(files, end or START, path, number)


def _cut_short(files: LogFiles, end: Link, path: str, number: int) -> Break | None:
    """A log that ends before its last known end. One that goes on after it was only cut off from telling so."""
    known = files.find_end()
    if known is None and end == START:
        return None
    if known is None:
        return Break(
            seq=end.seq, file=path, line=number, reason="is the last, but the note of the end is gone"
        )
    if known.seq > end.seq:
        reason = f"is missing, with all up to {known.seq}"
        return Break(seq=end.seq + 1, file=path, line=number + 1, reason=reason)
    if known.seq == end.seq and known.hash != end.hash:
        return Break(seq=end.seq, file=path, line=number, reason="is not the one that was written")
    return None


def _lines(files: LogFiles) -> Iterator[tuple[str, int, bytes]]:
    for path in files.list_files():
        with open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n"):  # else it is still being written
                    yield path, number, line[:-1]
