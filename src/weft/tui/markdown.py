"""Markdown for a terminal: split streamed text into blocks that are settled, and render a block once (pure).

Text that is streamed is only ever looked at once: a block ends where the next one begins, and is rendered when it has ended.
So the cost of an answer grows with its length, not with its square.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from weft.model.display import sanitize
from weft.tui.text import Fragment, Line, cut, measure, to_plain_text, wrap

if TYPE_CHECKING:  # for types alone: imported when something is rendered
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from pygments.lexer import Lexer

# A fence is settled in pieces of this many lines, so that a long one is not rendered again and again.
MAX_CODE_LINES: Final = 40
# How much of an open block is rendered: more would not fit into the live region.
MAX_TAIL_LENGTH: Final = 4000
_FENCE: Final = re.compile(r"( {0,3})(`{3,}|~{3,})\s*+([^`\s]*+)[^`]*+$")
_NESTED_FENCE: Final = re.compile(r"\s*(`{3,}|~{3,})")
_HEADING: Final = re.compile(r"#{1,6}(\s|$)")
_ITEM: Final = re.compile(r"(?:[-*+]|(\d{1,9})[.)])(\s|$)")
_ANY_ITEM: Final = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])(\s|$)")
_RULES: Final = ("table", "strikethrough")
_TOKEN_STYLES: Final = (
    ("Token.Comment", "italic ansibrightblack"),
    ("Token.Keyword", "ansimagenta"),
    ("Token.Literal.String", "ansigreen"),
    ("Token.Literal.Number", "ansicyan"),
    ("Token.Name.Function", "ansiblue"),
    ("Token.Name.Class", "bold ansiblue"),
    ("Token.Name.Decorator", "ansiyellow"),
    ("Token.Name.Builtin", "ansicyan"),
    ("Token.Name.Tag", "ansiblue"),
    ("Token.Name.Attribute", "ansicyan"),
    ("Token.Operator.Word", "ansimagenta"),
    ("Token.Generic.Deleted", "ansired"),
    ("Token.Generic.Inserted", "ansigreen"),
    ("Token.Generic.Heading", "bold"),
)
# The cells that a text or a column of a table keeps, however narrow the terminal is.
MIN_COLUMN: Final = 3


class MarkdownBlock(Struct, frozen=True, kw_only=True):
    """A piece of Markdown that is rendered by itself: a paragraph, an item of a list, a table, or lines of a fence.

    `spaced` says that an empty line comes before it. `number` is that of an item in an ordered list. Of a fence, `opens` and
    `closes` say whether the block is its first and its last piece.
    """

    kind: Literal["text", "code"]
    text: str
    spaced: bool = True
    number: int | None = None
    language: str = ""
    opens: bool = True
    closes: bool = True


class MarkdownSplitter:
    """Splits text that arrives in pieces into blocks. `feed` returns the blocks that have ended, `finish` the last ones."""

    def __init__(self) -> None:
        self._partial = ""
        self._lines: list[str] = []
        self._blank_before = self._blank_after = False
        self._fence: tuple[str, str] | None = None  # how it closes, and its language
        self._fence_opens = False
        self._nested_fence = ""
        self._number: int | None = None

    def feed(self, text: str) -> list[MarkdownBlock]:
        self._partial += text
        if "\n" not in text:
            return []
        *lines, self._partial = self._partial.split("\n")
        return [block for line in lines for block in self._add(line.rstrip("\r"))]

    def finish(self) -> list[MarkdownBlock]:
        last, self._partial = self._partial, ""
        blocks = [*self._add(last)] if last else []
        if self._fence is not None:
            blocks += self._end_code(closes=True)
            self._fence = None
        return [*blocks, *self._end_text()]

    def tail(self) -> MarkdownBlock | None:
        """Return the open block as far as it is known, or None. Of a long one, only the end."""
        gap = ("",) if self._lines and self._blank_after and self._fence is None else ()
        text = "\n".join((*self._lines, *gap, self._partial))[-MAX_TAIL_LENGTH:]
        if self._fence is not None:
            return MarkdownBlock(
                kind="code",
                text=text,
                spaced=self._fence_opens,
                language=self._fence[1],
                opens=self._fence_opens,
                closes=False,
            )
        return MarkdownBlock(kind="text", text=text, spaced=self._blank_before) if text.strip() else None

    def _add(self, line: str) -> Iterator[MarkdownBlock]:
        if self._fence is not None:
            yield from self._add_code(line)
            return
        opening = None if self._nested_fence or self._is_nested(line) else _FENCE.match(line)
        if opening is not None:
            yield from self._end_text()
            self._fence, self._fence_opens = (opening[2], opening[3]), True
            self._number = None
            return
        if not line.strip() and not self._nested_fence:
            self._blank_after = True
            return
        if self._lines and self._is_boundary(line):
            yield from self._end_text()
        elif self._lines and self._blank_after:
            self._lines.append("")
        if not self._lines:
            self._blank_before = self._blank_after
        self._blank_after = False
        self._lines.append(line)
        self._follow_nested_fence(line)

    def _is_list(self) -> bool:
        return bool(self._lines) and _ANY_ITEM.match(self._lines[0]) is not None

    def _is_nested(self, line: str) -> bool:
        """Return True for a fence that belongs to an item of a list."""
        return self._is_list() and line.startswith("  ")

    def _is_boundary(self, line: str) -> bool:
        if self._nested_fence:
            return False
        if self._blank_after and not line.startswith((" ", "\t")):
            return True
        if _HEADING.match(line) or _HEADING.match(self._lines[0]):
            return True
        return self._is_list() and _ITEM.match(line) is not None

    def _follow_nested_fence(self, line: str) -> None:
        found = _NESTED_FENCE.match(line)
        if found is None:
            return
        if not self._nested_fence:
            self._nested_fence = found[1]
        elif found[1].startswith(self._nested_fence):
            self._nested_fence = ""

    def _end_text(self) -> Iterator[MarkdownBlock]:
        if not self._lines:
            return
        item = _ITEM.match(self._lines[0])
        ordered = item is not None and item[1] is not None
        self._number = (
            (self._number + 1 if self._number is not None else int(item[1])) if item and ordered else None
        )
        yield MarkdownBlock(
            kind="text", text="\n".join(self._lines), spaced=self._blank_before, number=self._number
        )
        self._lines, self._nested_fence = [], ""

    def _add_code(self, line: str) -> Iterator[MarkdownBlock]:
        assert self._fence is not None, "the caller has checked it"
        closing = line.strip()
        if closing.startswith(self._fence[0]) and not closing.strip(self._fence[0][0]):
            yield from self._end_code(closes=True)
            self._fence, self._blank_after = None, False
            return
        self._lines.append(line)
        if len(self._lines) >= MAX_CODE_LINES:
            yield from self._end_code(closes=False)

    def _end_code(self, *, closes: bool) -> Iterator[MarkdownBlock]:
        assert self._fence is not None, "the caller has checked it"
        yield MarkdownBlock(
            kind="code",
            text="\n".join(self._lines),
            spaced=self._fence_opens,
            language=self._fence[1],
            opens=self._fence_opens,
            closes=closes,
        )
        self._lines, self._fence_opens = [], False


# --- rendering ---


def render_block(block: MarkdownBlock, width: int) -> list[Line]:
    """Render one block to lines of at most `width` cells. Lines of code are not wrapped, so that they can be copied."""
    lines = _render_code(block) if block.kind == "code" else _render_text(block, width)
    return [[], *lines] if block.spaced else lines


def _render_code(block: MarkdownBlock) -> list[Line]:
    lines = highlight(block.text, block.language) if block.text else []
    fence = f"```{sanitize(block.language)}"
    opening: list[Line] = [[("dim", fence)]] if block.opens else []
    closing: list[Line] = [[("dim", "```")]] if block.closes else []
    return [*opening, *lines, *closing]


def highlight(code: str, language: str) -> list[Line]:
    """Return the lines of a text, coloured if the language is known."""
    lexer = _find_lexer(language) if language else None
    code = sanitize(code).replace("\t", "    ")
    if lexer is None:
        return [[("", line)] for line in code.split("\n")]
    lines: list[Line] = [[]]
    for kind, text in lexer.get_tokens(code):
        style = _find_style(str(kind))
        for number, piece in enumerate(text.split("\n")):
            if number:
                lines.append([])
            if piece:
                lines[-1].append((style, piece))
    return lines[:-1]


@cache
def _find_lexer(language: str) -> "Lexer | None":
    from pygments.lexers import get_lexer_by_name  # noqa: PLC0415  loaded when the first code is shown
    from pygments.util import ClassNotFound  # noqa: PLC0415  loaded when the first code is shown

    try:
        return get_lexer_by_name(language.lower(), stripnl=False)
    except ClassNotFound:
        return None


@cache
def _find_style(kind: str) -> str:
    return next((style for name, style in _TOKEN_STYLES if kind.startswith(name)), "")


@cache
def _make_parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # noqa: PLC0415  loaded when the first text is shown

    return MarkdownIt("commonmark").enable(list(_RULES))


def _render_text(block: MarkdownBlock, width: int) -> list[Line]:
    tokens = _make_parser().parse(block.text)
    writer = _BlockWriter(max(width, MIN_COLUMN), block.number)
    for token in tokens:
        writer.feed(token)
    return writer.lines


class _BlockWriter:
    """Turns the tokens of one block into lines."""

    def __init__(self, width: int, number: int | None) -> None:
        self.lines: list[Line] = []
        self._width = width
        self._number = number
        self._prefixes: list[list[str]] = []  # for each open item or quote: of its next line, of later lines
        self._numbers: list[int | None] = []
        self._style = ""
        self._rows: list[list[Line]] | None = None
        self._end = 0  # the line of the text at which the last token of the top level ended

    def feed(self, token: "Token") -> None:
        if token.level == 0 and token.map is not None:
            # Only a text that is being streamed has an empty line inside.
            if self.lines and token.map[0] > self._end:
                self.lines.append([])
            self._end = token.map[1]
        match token.type:
            case "heading_open":
                self._style = "bold ansiblue" if token.tag in ("h1", "h2") else "bold"
            case "heading_close":
                self._style = ""
            case "bullet_list_open":
                self._numbers.append(None)
            case "ordered_list_open":
                start = (
                    self._number
                    if self._number is not None and not self._numbers
                    else token.attrs.get("start", 1)
                )
                self._numbers.append(int(start))
            case "bullet_list_close" | "ordered_list_close":
                self._numbers.pop()
            case "list_item_open":
                self._open_item()
            case "list_item_close" | "blockquote_close":
                self._prefixes.pop()
            case "blockquote_open":
                self._prefixes.append(["│ ", "│ "])
            case "fence" | "code_block":
                for line in highlight(token.content.rstrip("\n"), token.info.partition(" ")[0]):
                    self.lines.append([*self._take_prefix(), *line])
            case "html_block":
                self._write([("dim", sanitize(token.content.rstrip("\n")))])
            case "hr":
                self.lines.append([*self._take_prefix(), ("dim", "─" * min(self._width, 40))])
            case _:
                self._feed_content(token)

    def _feed_content(self, token: "Token") -> None:
        match token.type:
            case "inline" if self._rows is not None:
                self._rows[-1].append(list(_to_fragments(token.children or (), self._style)))
            case "inline":
                self._write(list(_to_fragments(token.children or (), self._style)))
            case "table_open":
                self._rows = []
            case "tr_open" if self._rows is not None:
                self._rows.append([])
            case "table_close" if self._rows is not None:
                self.lines += render_table(self._rows, self._width)
                self._rows = None
            case _:
                pass

    def _open_item(self) -> None:
        number = self._numbers[-1]
        mark = "• " if number is None else f"{number}. "
        if number is not None:
            self._numbers[-1] = number + 1
        self._prefixes.append([mark, " " * len(mark)])

    def _take_prefix(self) -> Line:
        """Return the prefix of the next line. The mark of an item is used once."""
        line: Line = [("dim", prefix[0]) for prefix in self._prefixes]
        for prefix in self._prefixes:
            prefix[0] = prefix[1]
        return line

    def _write(self, fragments: list[Fragment]) -> None:
        first = self._take_prefix()
        rest: Line = [("dim", prefix[1]) for prefix in self._prefixes]
        self.lines += wrap(fragments, self._width, first=first, rest=rest)


def _to_fragments(tokens: "Sequence[Token]", style: str) -> Iterator[Fragment]:
    styles, target = [style], ""
    for token in tokens:
        match token.type:
            case "text":
                yield styles[-1], sanitize(token.content)
            case "code_inline":
                yield f"{styles[-1]} ansicyan".strip(), sanitize(token.content)
            case "softbreak":
                yield styles[-1], " "
            case "hardbreak":
                yield styles[-1], "\n"
            case "strong_open":
                styles.append(f"{styles[-1]} bold".strip())
            case "em_open":
                styles.append(f"{styles[-1]} italic".strip())
            case "s_open":
                styles.append(f"{styles[-1]} strike".strip())
            case "link_open":
                target = str(token.attrs.get("href", ""))
                styles.append(f"{styles[-1]} underline".strip())
            case "link_close":
                styles.pop()
                # The target is always shown: text of a model must not hide where a link leads.
                yield "dim", f" ({sanitize(target)})" if target else ""
            case "strong_close" | "em_close" | "s_close":
                styles.pop()
            case "image":
                yield "dim", sanitize(f"[image: {token.content or token.attrs.get('src', '')}]")
            case "html_inline":
                yield "dim", sanitize(token.content)
            case _:
                yield styles[-1], sanitize(token.content)


def render_table(rows: list[list[Line]], width: int) -> list[Line]:
    """Return the lines of a table whose first row is the header. Wide columns are made narrower, and wrapped."""
    columns = max((len(row) for row in rows), default=0)
    if not columns:
        return []
    natural = [
        max((measure(to_plain_text([row[at]])) for row in rows if at < len(row)), default=0)
        for at in range(columns)
    ]
    widths = _fit(natural, width - 3 * (columns - 1))
    lines: list[Line] = []
    for number, row in enumerate(rows):
        cells: list[list[Line]] = [
            wrap(row[at], widths[at]) if at < len(row) else [[]] for at in range(columns)
        ]
        for level in range(max(len(cell) for cell in cells)):
            line: Line = []
            for at, cell in enumerate(cells):
                content = cell[level] if level < len(cell) else []
                space = widths[at] - measure(to_plain_text([content]))
                styled = (
                    [(f"{style} bold".strip(), text) for style, text in content] if number == 0 else content
                )
                line += [*styled, ("", " " * max(space, 0)), *([("dim", " │ ")] if at < columns - 1 else [])]
            lines.append(cut(line, width))
        if number == 0:
            rule = "─┼─".join("─" * size for size in widths)
            lines.append(cut([("dim", rule)], width))
    return lines


def _fit(widths: list[int], room: int) -> list[int]:
    """Make the widest columns narrower until all fit."""
    fitted = [max(width, 1) for width in widths]
    while sum(fitted) > room and max(fitted) > MIN_COLUMN:
        fitted[fitted.index(max(fitted))] -= 1
    return fitted
