"""Files by pattern: `*`, `?`, `[…]` and `{a,b}` within a name, `**` across directories.

A pattern may come from a project that nobody has vouched for: links are not followed where a pattern leaves the way open,
and the search ends after so many files, whatever it is asked for.
"""

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice

MOST_SEEN = 20_000
MOST_FOUND = 100
MOST_CHOICES = 64
_MAGIC = re.compile(r"[*?\[]")
_CHOICE = re.compile(r"\{([^{}]*)\}")
# Nobody's instructions lie there, and there is much of it.
_PASSED_OVER = frozenset({".git", "node_modules"})


def find_files(base: str, pattern: str) -> list[str]:
    """The files below a directory that match, in the order of their paths."""
    search = _Search()
    found: set[str] = set()
    for choice in islice(_choices(pattern), MOST_CHOICES):
        words = [word for word in choice.split("/") if word not in ("", ".")]
        found.update(islice(search.walk(base, words), MOST_FOUND))
    return sorted(found)[:MOST_FOUND]


def _choices(pattern: str) -> Iterator[str]:
    """Every way to read the braces."""
    found = _CHOICE.search(pattern)
    if found is None:
        yield pattern
        return
    for word in found[1].split(","):
        yield from _choices(pattern[: found.start()] + word + pattern[found.end() :])


class _Search:
    def __init__(self) -> None:
        self._left = MOST_SEEN

    def walk(self, directory: str, words: list[str]) -> Iterator[str]:
        if not words:
            return
        word, rest = words[0], words[1:]
        if word == "**":
            yield from self.walk(directory, rest or ["*"])
            for entry in self._entries(directory):
                if entry.name not in _PASSED_OVER and entry.is_dir(follow_symlinks=False):
                    yield from self.walk(entry.path, words)
        elif not _MAGIC.search(word):
            yield from self._step(os.path.normpath(os.path.join(directory, word)), rest)
        else:
            for entry in self._entries(directory):
                if fnmatchcase(entry.name, word) and not (rest and entry.is_symlink()):
                    yield from self._step(entry.path, rest)

    def _step(self, path: str, rest: list[str]) -> Iterator[str]:
        if rest:
            yield from self.walk(path, rest)
        elif os.path.isfile(path):
            yield path

    def _entries(self, directory: str) -> list[os.DirEntry[str]]:
        if self._left <= 0:
            return []
        try:
            with os.scandir(directory) as entries:
                found = list(islice(entries, self._left))
        except OSError:
            return []
        self._left -= len(found) + 1
        return sorted(found, key=lambda entry: entry.name)
