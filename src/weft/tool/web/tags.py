"""HTML as tags and words, in time that grows with its length alone, however broken it is (pure).

The standard library's reader looks for the end of an unfinished tag again and again: a page of a megabyte can hold it
for hours.
"""

import re
from collections.abc import Iterator
from html import unescape
from typing import Final, NamedTuple

_START: Final = re.compile(r"<(?=[A-Za-z!?]|/[A-Za-z])")
_NAME: Final = re.compile(r"/?[A-Za-z][^\s/>]*")
_STOP: Final = re.compile(r"[\"'>]")
_ATTRIBUTE: Final = re.compile(r"([^\s=/>\"']+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+)))?")
# What is in these is not HTML, up to their end.
_RAW: Final = {name: re.compile(rf"</{name}", re.IGNORECASE) for name in ("script", "style")}


class Tag(NamedTuple):
    """A tag by its name; `rest` is what stands behind the name."""

    name: str
    closes: bool
    rest: str = ""

    def attribute(self, wanted: str) -> str:
        for name, *values in _ATTRIBUTE.findall(self.rest):
            if name.lower() == wanted:
                return unescape("".join(values))
        return ""


def read_tags(html: str) -> Iterator[Tag | str]:
    """Tags, and the words between them. Comments, declarations and scripts are left out."""
    reader = _Reader(html)
    while (piece := reader.next()) is not None:
        if piece:
            yield piece


class _Reader:
    def __init__(self, html: str) -> None:
        self._html = html
        self._at = 0
        self._unclosed: set[str] = set()  # quotes that no longer come

    def next(self) -> Tag | str | None:
        """The next piece, "" where there is nothing to tell, None at the end."""
        html, at = self._html, self._at
        if at >= len(html):
            return None
        start = _START.search(html, at)
        if start is None or start.start() > at:
            return self._words(start.start() if start else len(html))
        if html.startswith("<!--", at):
            return self._skip("-->", at + len("<!--"))
        if html.startswith(("<!", "<?"), at):
            return self._skip(">", at + 2)
        name = _NAME.match(html, at + 1)
        assert name is not None, "a tag starts with its name"
        return self._tag(name)

    def _words(self, end: int) -> str:
        start, self._at = self._at, end
        return unescape(self._html[start : self._at])

    def _skip(self, end: str, since: int) -> str:
        found = self._html.find(end, since)
        self._at = found + len(end) if found >= 0 else len(self._html)
        return ""

    def _tag(self, name: re.Match[str]) -> Tag:
        end = self._end_of_tag(name.end())
        self._at = end + 1
        closes, word = name[0].startswith("/"), name[0].removeprefix("/").lower()
        if word in _RAW and not closes:
            found = _RAW[word].search(self._html, self._at)
            self._at = found.start() if found else len(self._html)
        return Tag(word, closes, self._html[name.end() : end])

    def _end_of_tag(self, at: int) -> int:
        """Where the tag ends: at a > that is not quoted."""
        while found := _STOP.search(self._html, at):
            mark, at = found[0], found.end()
            if mark == ">":
                return found.start()
            closing = -1 if mark in self._unclosed else self._html.find(mark, at)
            if closing < 0:
                self._unclosed.add(mark)
            else:
                at = closing + 1
        return len(self._html)
