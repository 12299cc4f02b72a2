"""What becomes of files, told file by file."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from weft.cli.paint import Paint, plain
from weft.model.diff import Fate, FileFate
from weft.model.session import Reverted

WORDS: dict[Fate, str] = {
    "restored": "restored",
    "removed": "removed",
    "unchanged": "as it was",
    "kept": "kept",
    "uncovered": "not covered",
    "missing": "missing",
}
WIDTH = max(len(word) for word in WORDS.values())


def to_lines(reverted: Reverted, paint: Paint, *, here: str) -> Iterator[str]:
    colours = {
        "restored": paint.green,
        "removed": paint.green,
        "unchanged": paint.dim,
        "kept": paint.yellow,
        "uncovered": paint.red,
        "missing": paint.red,
    }
    for each in reverted.files:
        word = colours[each.fate](WORDS[each.fate].ljust(WIDTH))
        reason = paint.dim(f"  {plain(each.reason)}") if each.reason else ""
        yield f"{word}  {shown(each.file, here)}{reason}"
    if reverted.caution:
        yield paint.dim(f"note: {reverted.caution}")


def shown(file: str, here: str) -> str:
    """As one would type it, on one line."""
    near = os.path.relpath(file, here)
    return plain(file if near.startswith("..") else near).replace("\n", "\\n").replace("\t", "\\t")


def count_by_fate(files: Sequence[FileFate]) -> str:
    if not files:
        return "no file is touched"
    counted = Counter(each.fate for each in files)
    return ", ".join(_counted(WORDS[fate], counted[fate]) for fate in WORDS if counted[fate])


def _counted(word: str, count: int) -> str:
    return f"{count} {'file' if count == 1 else 'files'} {word}"


def is_refused(files: Iterable[FileFate]) -> bool:
    return any(each.fate == "missing" for each in files)
