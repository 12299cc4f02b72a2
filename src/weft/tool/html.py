"""Convert HTML to Markdown or plain text, in time linear in its length (pure)."""

import re
from collections.abc import Iterator
from html import unescape as unescape_short
from typing import Final, NamedTuple
from urllib.parse import urljoin

_TAG_START: Final = re.compile(r"<(?=[A-Za-z!?]|/[A-Za-z])")
_NAME: Final = re.compile(r"/?[A-Za-z][^\s/>]*")
_QUOTE_OR_END: Final = re.compile(r"[\"'>]")
_ATTRIBUTE: Final = re.compile(r"([^\s=/>\"']+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+)))?")
# Python reads no decimal number of thousands of digits.
_LONG_REFERENCE: Final = re.compile(r"(?<=&#)0*([0-9]{1,8})[0-9]*")
# The content of these elements is not HTML.
_RAW_ELEMENT_ENDS: Final = {name: re.compile(rf"</{name}", re.IGNORECASE) for name in ("script", "style")}


def unescape(text: str) -> str:
    """Replace character references, however long, by the characters."""
    return unescape_short(_LONG_REFERENCE.sub(r"0\1", text))


class Tag(NamedTuple):
    """A tag. `attributes` is the text after its name, not yet parsed."""

    name: str
    is_closing: bool
    attributes: str = ""

    @property
    def is_empty(self) -> bool:
        """True if the tag says that its element has no content, as in `<path/>`."""
        return self.attributes.endswith("/")

    def get_attribute(self, searched: str) -> str:
        """Return the value of an attribute, or "" if there is none."""
        for name, *values in _ATTRIBUTE.findall(self.attributes):
            if name.lower() == searched:
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
        self._position = 0
        # Quotes that do not occur in the rest of the text, so that it is not searched for them again.
        self._unclosed_quotes: set[str] = set()

    def next(self) -> Tag | str | None:
        """Return the next piece, "" for a piece without content, or None at the end."""
        html, position = self._html, self._position
        if position >= len(html):
            return None
        start = _TAG_START.search(html, position)
        if start is None or start.start() > position:
            return self._read_text(start.start() if start else len(html))
        if html.startswith("<!--", position):
            return self._skip_past("-->", position + len("<!--"))
        if html.startswith(("<!", "<?"), position):
            return self._skip_past(">", position + 2)
        name = _NAME.match(html, position + 1)
        assert name is not None, "a tag starts with its name"
        return self._read_tag(name)

    def _read_text(self, end: int) -> str:
        start, self._position = self._position, end
        return unescape(self._html[start : self._position])

    def _skip_past(self, end: str, since: int) -> str:
        """Continue after the next `end`, and return "" because nothing in between is content."""
        found = self._html.find(end, since)
        self._position = found + len(end) if found >= 0 else len(self._html)
        return ""

    def _read_tag(self, name: re.Match[str]) -> Tag:
        end = self._find_tag_end(name.end())
        self._position = end + 1
        is_closing, word = name[0].startswith("/"), name[0].removeprefix("/").lower()
        if word in _RAW_ELEMENT_ENDS and not is_closing:
            found = _RAW_ELEMENT_ENDS[word].search(self._html, self._position)
            self._position = found.start() if found else len(self._html)
        return Tag(word, is_closing, self._html[name.end() : end])

    def _find_tag_end(self, position: int) -> int:
        """Return the position of the > that ends the tag, ignoring quoted ones."""
        while found := _QUOTE_OR_END.search(self._html, position):
            char, position = found[0], found.end()
            if char == ">":
                return found.start()
            closing = -1 if char in self._unclosed_quotes else self._html.find(char, position)
            if closing < 0:
                self._unclosed_quotes.add(char)
            else:
                position = closing + 1
        return len(self._html)


# The rest of a longer page is left out.
MAX_CHARACTERS: Final = 2 << 20
MAX_NESTING: Final = 20

_SKIPPED_NAMES = "script style noscript template iframe object head svg math canvas"
_SKIPPED_ELEMENTS: Final = frozenset(_SKIPPED_NAMES.split())
_BLOCK_NAMES = """
address article aside body details dialog dd div dl dt fieldset figcaption figure footer form header html legend main
nav p section summary
"""
_BLOCKS: Final = frozenset(_BLOCK_NAMES.split())
_HEADINGS: Final = {f"h{level}": "#" * level for level in range(1, 7)}
_LINE_BREAKING: Final = (
    _BLOCKS | _HEADINGS.keys() | {"br", "hr", "li", "tr", "ul", "ol", "blockquote", "table"}
)
_INLINE_MARKS: Final = {"b": "**", "strong": "**", "i": "*", "em": "*", "del": "~~", "s": "~~"}
_BLANKS: Final = re.compile(r"[ \t\r\n\f\xa0]+")
_BLANK_LINES: Final = re.compile(r"\n{3,}")


def to_markdown(html: str, url: str = "") -> str:
    """Convert a page to Markdown. Relative links are resolved against `url`."""
    return _MarkdownReader(url).read(html)


def to_text(html: str) -> str:
    """Return the text of a page, with a line for each block."""
    return _TextReader().read(html)


class _PageReader:
    """Collects lines. The text between two blocks becomes one line, with whitespace collapsed."""

    def __init__(self) -> None:
        self._skipped_element = ""
        self._skipped_depth = 0
        self._pieces: list[str] = []
        self._lines: list[str] = []
        self._is_verbatim = False

    def read(self, html: str) -> str:
        for piece in read_tags(html[:MAX_CHARACTERS]):
            if isinstance(piece, Tag):
                self._handle_tag(piece)
            elif not self._skipped_element:
                self._pieces.append(piece if self._is_verbatim else _BLANKS.sub(" ", piece))
        self._end_page()
        return _BLANK_LINES.sub("\n\n", "\n".join(self._lines)).strip()

    def _handle_tag(self, tag: Tag) -> None:
        if self._skipped_element:
            # Skip to the end of the element, which may contain elements of the same name.
            if tag.name == self._skipped_element and not tag.is_empty:
                self._skipped_depth += -1 if tag.is_closing else 1
            elif tag.name == "body" and self._skipped_element == "head":
                self._skipped_depth = 0  # HTML lets authors leave out the end of the head
            self._skipped_element = self._skipped_element if self._skipped_depth else ""
        elif tag.name in _SKIPPED_ELEMENTS and not tag.is_closing:
            if not tag.is_empty:
                self._skipped_element, self._skipped_depth = tag.name, 1
        elif tag.is_closing:
            self._close(tag.name)
        else:
            self._open(tag)

    def _open(self, tag: Tag) -> None:
        raise NotImplementedError

    def _close(self, name: str) -> None:
        raise NotImplementedError

    def _end_page(self) -> None:
        """Add what the page leaves open."""
        self._end_block()

    def _take_line(self) -> str:
        """Return the text collected so far as one line, and start a new one."""
        line = "".join(self._pieces)
        self._pieces = []
        return line.strip("\r\n") if self._is_verbatim else _BLANKS.sub(" ", line).strip()

    def _end_block(self) -> None:
        """Add the text collected so far as a line, unless it is empty."""
        if line := self._take_line():
            self._lines.append(line)


class _TextReader(_PageReader):
    """Reads text and line breaks only."""

    def _open(self, tag: Tag) -> None:
        if tag.name in _LINE_BREAKING or tag.name == "pre":
            self._end_block()
        elif tag.name in ("td", "th"):
            self._pieces.append(" ")
        self._is_verbatim |= tag.name == "pre"

    def _close(self, name: str) -> None:
        if name in _LINE_BREAKING or name == "pre":
            self._end_block()
        self._is_verbatim &= name != "pre"


class _MarkdownReader(_PageReader):
    """Reads text with Markdown markup."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._lists: list[int | None] = []  # the number of the last item; None for bullets
        self._quotes = 0
        self._heading = ""
        self._item_prefix = ""
        self._link: tuple[int, str] | None = None
        self._row: list[str] | None = None
        self._row_count = 0

    def _open(self, tag: Tag) -> None:
        name = tag.name
        if name in _INLINE_MARKS or name == "code":
            self._toggle_mark(_INLINE_MARKS.get(name, "`"))
        elif name == "a":
            self._end_link()
            self._link = (len(self._pieces), tag.get_attribute("href"))
        elif name == "img":
            self._add_image(tag)
        elif name in ("td", "th"):
            self._end_block() if self._row is None else self._end_cell()
            self._row = self._row or []
            self._pieces = [""]  # not empty, so that an empty cell counts as a cell
        elif name == "tr":
            self._end_row()
        elif self._row is None:
            self._open_block(tag)
        elif name == "br" or name in _BLOCKS:
            self._pieces.append(" ")

    def _open_block(self, tag: Tag) -> None:
        name = tag.name
        if name in _HEADINGS:
            self._break_paragraph()
            self._heading = f"{_HEADINGS[name]} "
        elif name in _BLOCKS:
            self._break_block()
        elif name in ("ul", "ol"):
            self._open_list(tag)
        elif name == "li":
            self._end_block()
            self._item_prefix = self._next_item_prefix()
        elif name == "blockquote":
            self._break_paragraph()
            self._quotes += 1
        elif name == "pre":
            self._break_paragraph()
            self._add_line("```")
            self._is_verbatim = True
        elif name == "hr":
            self._break_paragraph()
            self._add_line("---")
            self._break_paragraph()
        elif name == "br":
            self._pieces.append("\n") if self._is_verbatim else self._end_block()
        elif name == "table":
            self._break_paragraph()
            self._row_count = 0

    def _close(self, name: str) -> None:
        if name in _INLINE_MARKS or name == "code":
            self._toggle_mark(_INLINE_MARKS.get(name, "`"))
        elif name == "a":
            self._end_link()
        elif name in ("td", "th"):
            self._end_cell()
        elif name in ("tr", "table"):
            self._end_row()
            if name == "table":
                self._break_paragraph()
        elif self._row is None:
            self._close_block(name)

    def _close_block(self, name: str) -> None:
        if name in _HEADINGS or name in _BLOCKS:
            self._break_block()
        elif name in ("ul", "ol"):
            self._end_block()
            self._lists = self._lists[:-1]
            self._item_prefix = ""
            if not self._lists:
                self._break_paragraph()
        elif name == "li":
            self._end_block()
            self._item_prefix = ""
        elif name == "blockquote":
            self._end_quote()
        elif name == "pre" and self._is_verbatim:
            self._close_code_block()

    def _end_page(self) -> None:
        self._end_row()

    # --- inline elements ---

    def _toggle_mark(self, mark: str) -> None:
        """Open or close an inline mark. A mark around nothing is removed."""
        if self._is_verbatim:
            return
        if self._pieces and self._pieces[-1] == mark:
            self._pieces.pop()
        else:
            self._pieces.append(mark)

    def _end_link(self) -> None:
        if self._link is None:
            return
        start, href = self._link
        self._link = None
        text = _BLANKS.sub(" ", "".join(self._pieces[start:])).strip()
        if self._is_verbatim or not text or not href or href.startswith(("#", "javascript:")):
            return
        self._pieces[start:] = [f"[{text}]({self._resolve_link(href)})"]

    def _add_image(self, tag: Tag) -> None:
        source = tag.get_attribute("src")
        if source and not source.startswith("data:") and not self._is_verbatim:
            self._pieces.append(f"![{tag.get_attribute('alt').strip()}]({self._resolve_link(source)})")

    def _resolve_link(self, link: str) -> str:
        try:
            return urljoin(self._url, link.strip()).replace(" ", "%20").replace(")", "%29")
        except ValueError:
            return link

    # --- lines ---

    def _close_code_block(self) -> None:
        text = self._take_line()
        self._is_verbatim = False
        for line in text.split("\n"):
            self._add_line(line.rstrip("\r"))
        self._add_line("```")
        self._break_paragraph()

    def _end_quote(self) -> None:
        self._end_block()
        if self._lines and self._lines[-1] == self._get_quote_prefix().rstrip():
            self._lines.pop()
        self._quotes = max(0, self._quotes - 1)
        self._break_paragraph()

    def _get_quote_prefix(self) -> str:
        return "> " * min(self._quotes, MAX_NESTING)

    def _open_list(self, tag: Tag) -> None:
        self._end_block()
        if not self._lists:
            self._break_paragraph()
        start = tag.get_attribute("start")
        first = int(start) if re.fullmatch("[0-9]{1,6}", start) else 1
        self._lists = [*self._lists[:MAX_NESTING], first - 1 if tag.name == "ol" else None]

    def _next_item_prefix(self) -> str:
        number = self._lists[-1] if self._lists else None
        if number is None:
            return "- "
        self._lists[-1] = number + 1
        return f"{number + 1}. "

    def _end_cell(self) -> None:
        if self._row is not None and self._pieces:
            self._end_link()
            self._row.append(self._take_line().replace("|", "\\|"))

    def _end_row(self) -> None:
        self._end_cell()
        row, self._row = self._row, None
        if row is None:
            self._end_block()
            return
        self._add_line(f"| {' | '.join(row)} |")
        self._row_count += 1
        if self._row_count == 1:
            self._add_line(f"|{' --- |' * len(row)}")

    def _end_block(self) -> None:
        self._end_link()
        if line := self._take_line():
            self._add_line(f"{self._heading}{line}")
            self._heading = ""
            # Further text of the same item is indented below it.
            self._item_prefix = " " * len(self._item_prefix)

    def _break_block(self) -> None:
        """End the block. Outside of list items, leave a blank line after it."""
        self._end_block() if self._item_prefix else self._break_paragraph()

    def _break_paragraph(self) -> None:
        """End the block and leave a blank line after it."""
        self._end_block()
        self._heading = ""
        quote_prefix = self._get_quote_prefix().rstrip()
        if self._lines and self._lines[-1] not in ("", quote_prefix):
            self._lines.append(quote_prefix)

    def _add_line(self, line: str) -> None:
        self._lines.append(
            f"{self._get_quote_prefix()}{'  ' * (len(self._lists) - 1)}{self._item_prefix}{line}"
        )
