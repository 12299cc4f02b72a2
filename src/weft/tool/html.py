"""Convert HTML to Markdown or plain text, in time linear in its length (pure)."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Final, NamedTuple
from urllib.parse import urljoin

_START: Final = re.compile(r"<(?=[A-Za-z!?]|/[A-Za-z])")
_NAME: Final = re.compile(r"/?[A-Za-z][^\s/>]*")
_STOP: Final = re.compile(r"[\"'>]")
_ATTRIBUTE: Final = re.compile(r"([^\s=/>\"']+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+)))?")
# The content of these elements is not HTML.
_RAW: Final = {name: re.compile(rf"</{name}", re.IGNORECASE) for name in ("script", "style")}


class Tag(NamedTuple):
    """A tag. `rest` is the text after its name."""

    name: str
    closes: bool
    rest: str = ""

    def attribute(self, wanted: str) -> str:
        """Return the value of an attribute, or "" if there is none."""
        for name, *values in _ATTRIBUTE.findall(self.rest):
            if name.lower() == wanted:
                return unescape("".join(values))
        return ""


def read_tags(html: str) -> Iterator[Tag | str]:
    """Yield the tags and the text between them, without comments, declarations and scripts."""
    reader = _TagReader(html)
    while (piece := reader.next()) is not None:
        if piece:
            yield piece


class _TagReader:
    """Reads HTML piece by piece."""

    def __init__(self, html: str) -> None:
        self._html = html
        self._at = 0
        self._unclosed: set[str] = set()  # quotes that do not occur any more

    def next(self) -> Tag | str | None:
        """Return the next piece, "" for a piece without content, or None at the end."""
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
        """Return the position of the > that ends the tag, ignoring quoted ones."""
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


# Longer pages are cut.
MAX_CHARACTERS: Final = 2 << 20
MAX_NESTING: Final = 20

_SKIPPED_NAMES = "script style noscript template iframe object head svg math canvas"
_SKIPPED: Final = frozenset(_SKIPPED_NAMES.split())
_BLOCK_NAMES = """
address article aside body details dialog dd div dl dt fieldset figcaption figure footer form header html legend main
nav p section summary
"""
_BLOCKS: Final = frozenset(_BLOCK_NAMES.split())
_HEADINGS: Final = {f"h{level}": "#" * level for level in range(1, 7)}
_BREAKS: Final = _BLOCKS | _HEADINGS.keys() | {"br", "hr", "li", "tr", "ul", "ol", "blockquote", "table"}
_MARKS: Final = {"b": "**", "strong": "**", "i": "*", "em": "*", "del": "~~", "s": "~~"}
_BLANKS: Final = re.compile(r"[ \t\r\n\f\xa0]+")
_MANY_BLANK_LINES: Final = re.compile(r"\n{3,}")


def to_markdown(html: str, url: str = "") -> str:
    """Convert a page to Markdown. Relative links are resolved against `url`."""
    return _MarkdownReader(url).read(html)


def to_text(html: str) -> str:
    """Return the text of a page, with a line for each block."""
    return _TextReader().read(html)


class _PageReader:
    """Collects lines. The text between two blocks becomes one line, with whitespace collapsed."""

    def __init__(self) -> None:
        self._unread = ""
        self._depth = 0
        self._words: list[str] = []
        self._lines: list[str] = []
        self._verbatim = False

    def read(self, html: str) -> str:
        for piece in read_tags(html[:MAX_CHARACTERS]):
            if isinstance(piece, Tag):
                self._see(piece)
            elif not self._unread:
                self._words.append(piece if self._verbatim else _BLANKS.sub(" ", piece))
        self._end_block()
        return _MANY_BLANK_LINES.sub("\n\n", "\n".join(self._lines)).strip()

    def _see(self, tag: Tag) -> None:
        if self._unread:
            # Skip to the end of the element, which may contain elements of the same name.
            if tag.name == self._unread and not tag.rest.endswith("/"):
                self._depth += -1 if tag.closes else 1
                self._unread = self._unread if self._depth else ""
        elif tag.name in _SKIPPED and not tag.closes:
            self._unread, self._depth = tag.name, 1
        elif tag.closes:
            self._close(tag.name)
        else:
            self._open(tag)

    def _open(self, tag: Tag) -> None:
        raise NotImplementedError

    def _close(self, name: str) -> None:
        raise NotImplementedError

    def _take(self) -> str:
        """Return the text collected so far as a line, and start anew."""
        line = "".join(self._words)
        self._words = []
        return line.strip("\r\n") if self._verbatim else _BLANKS.sub(" ", line).strip()

    def _end_block(self) -> None:
        if line := self._take():
            self._lines.append(line)


class _TextReader(_PageReader):
    """Reads text and line breaks only."""

    def _open(self, tag: Tag) -> None:
        if tag.name in _BREAKS or tag.name == "pre":
            self._end_block()
        elif tag.name in ("td", "th"):
            self._words.append(" ")
        self._verbatim |= tag.name == "pre"

    def _close(self, name: str) -> None:
        if name in _BREAKS or name == "pre":
            self._end_block()
        self._verbatim &= name != "pre"


class _MarkdownReader(_PageReader):
    """Reads text with Markdown markup."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._lists: list[int | None] = []  # the number of the last item; None for bullets
        self._quotes = 0
        self._heading = ""
        self._item = ""
        self._link: tuple[int, str] | None = None
        self._row: list[str] | None = None
        self._rows = 0

    def _open(self, tag: Tag) -> None:
        name = tag.name
        if name in _MARKS or name == "code":
            self._mark(_MARKS.get(name, "`"))
        elif name == "a":
            self._end_link()
            self._link = (len(self._words), tag.attribute("href"))
        elif name == "img":
            self._picture(tag)
        elif name in ("td", "th"):
            self._end_cell()
            self._row = self._row or []
            self._words = [""]  # not empty, so that an empty cell counts as a cell
        elif name == "tr":
            self._end_row()
        elif self._row is None:
            self._open_block(tag)
        elif name == "br" or name in _BLOCKS:
            self._words.append(" ")

    def _open_block(self, tag: Tag) -> None:
        name = tag.name
        if name in _HEADINGS:
            self._gap()
            self._heading = f"{_HEADINGS[name]} "
        elif name in _BLOCKS:
            self._part()
        elif name in ("ul", "ol"):
            self._open_list(tag)
        elif name == "li":
            self._end_block()
            self._item = self._next_item()
        elif name == "blockquote":
            self._gap()
            self._quotes += 1
        elif name == "pre":
            self._gap()
            self._put("```")
            self._verbatim = True
        elif name == "hr":
            self._gap()
            self._put("---")
            self._gap()
        elif name == "br":
            self._words.append("\n") if self._verbatim else self._end_block()
        elif name == "table":
            self._gap()
            self._rows = 0

    def _close(self, name: str) -> None:
        if name in _MARKS or name == "code":
            self._mark(_MARKS.get(name, "`"))
        elif name == "a":
            self._end_link()
        elif name in ("td", "th"):
            self._end_cell()
        elif name in ("tr", "table"):
            self._end_row()
            if name == "table":
                self._gap()
        elif self._row is None:
            self._close_block(name)

    def _close_block(self, name: str) -> None:
        if name in _HEADINGS or name in _BLOCKS:
            self._part()
        elif name in ("ul", "ol"):
            self._end_block()
            self._lists = self._lists[:-1]
            self._item = ""
            if not self._lists:
                self._gap()
        elif name == "li":
            self._end_block()
            self._item = ""
        elif name == "blockquote":
            self._end_quote()
        elif name == "pre" and self._verbatim:
            self._fence()

    # --- inline elements ---

    def _mark(self, mark: str) -> None:
        """Open or close an inline mark. A mark around nothing is removed."""
        if self._verbatim:
            return
        if self._words and self._words[-1] == mark:
            self._words.pop()
        else:
            self._words.append(mark)

    def _end_link(self) -> None:
        if self._link is None:
            return
        since, href = self._link
        self._link = None
        words = _BLANKS.sub(" ", "".join(self._words[since:])).strip()
        if self._verbatim or not words or not href or href.startswith(("#", "javascript:")):
            return
        self._words[since:] = [f"[{words}]({self._whole(href)})"]

    def _picture(self, tag: Tag) -> None:
        source = tag.attribute("src")
        if source and not source.startswith("data:") and not self._verbatim:
            self._words.append(f"![{tag.attribute('alt').strip()}]({self._whole(source)})")

    def _whole(self, link: str) -> str:
        try:
            return urljoin(self._url, link.strip()).replace(" ", "%20").replace(")", "%29")
        except ValueError:
            return link

    # --- lines ---

    def _fence(self) -> None:
        text = self._take()
        self._verbatim = False
        for line in text.split("\n"):
            self._put(line.rstrip("\r"))
        self._put("```")
        self._gap()

    def _end_quote(self) -> None:
        self._end_block()
        if self._lines and self._lines[-1] == self._quoted().rstrip():
            self._lines.pop()
        self._quotes = max(0, self._quotes - 1)
        self._gap()

    def _quoted(self) -> str:
        return "> " * min(self._quotes, MAX_NESTING)

    def _open_list(self, tag: Tag) -> None:
        self._end_block()
        if not self._lists:
            self._gap()
        start = tag.attribute("start")
        first = int(start) if re.fullmatch("[0-9]{1,6}", start) else 1
        self._lists = [*self._lists[:MAX_NESTING], first - 1 if tag.name == "ol" else None]

    def _next_item(self) -> str:
        number = self._lists[-1] if self._lists else None
        if number is None:
            return "- "
        self._lists[-1] = number + 1
        return f"{number + 1}. "

    def _end_cell(self) -> None:
        if self._row is not None and self._words:
            self._end_link()
            self._row.append(self._take().replace("|", "\\|"))

    def _end_row(self) -> None:
        self._end_cell()
        row, self._row = self._row, None
        if row is None:
            self._end_block()
            return
        self._put(f"| {' | '.join(row)} |")
        self._rows += 1
        if self._rows == 1:
            self._put(f"|{' --- |' * len(row)}")

    def _end_block(self) -> None:
        self._end_link()
        if line := self._take():
            self._put(f"{self._heading}{line}")
            self._heading = ""
            # Further text of the same item is indented below it.
            self._item = " " * len(self._item)

    def _part(self) -> None:
        self._end_block() if self._item else self._gap()

    def _gap(self) -> None:
        self._end_block()
        self._heading = ""
        quoted = self._quoted().rstrip()
        if self._lines and self._lines[-1] not in ("", quoted):
            self._lines.append(quoted)

    def _put(self, line: str) -> None:
        self._lines.append(f"{self._quoted()}{'  ' * (len(self._lists) - 1)}{self._item}{line}")
