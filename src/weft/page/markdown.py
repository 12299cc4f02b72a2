"""Markdown as HTML, block by block: a block that has ended is rendered once, however much text follows (pure).

The parser names the lines of each block. A block has ended when another one follows it on a whole line of its own: nothing
that comes later can change it. So streamed text is rendered as it would be rendered at once, but without a limit to its length.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec import Struct

from weft.page.code import render_code
from weft.page.html import EMPTY, Html, clean, escape, is_web_address, join, tag, to_link, void

if TYPE_CHECKING:  # for types alone: imported when something is rendered
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

HEADING_OFFSET: Final = 2  # `#` becomes `h3`: the title of the page is `h1`, that of a message `h2`
# Longer texts are cut off: nobody reads them on a page, and an export has them whole.
MAX_LENGTH: Final = 400_000
_BARE_LINK: Final = re.compile(r"https?://[^\s<>\"'`)\]]{1,2000}(?<![.,;:!?*_])", re.IGNORECASE)
_TASK: Final = re.compile(r"\[([ xX])\]\s+")
_ALIGN: Final = {"text-align:left": "left", "text-align:center": "center", "text-align:right": "right"}
_SIMPLE: Final = {
    "paragraph": "p",
    "bullet_list": "ul",
    "list_item": "li",
    "blockquote": "blockquote",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "strong": "strong",
    "em": "em",
    "s": "s",
}


def render_markdown(text: str) -> Html:
    """Render a whole text."""
    return join(render_blocks(text))


def render_blocks(text: str) -> tuple[Html, ...]:
    """Render a whole text, one piece of HTML for each block."""
    source = clean(text[:MAX_LENGTH])
    lines = source.split("\n")
    blocks = [
        render_block("\n".join(lines[start:end]))
        for start, end, _ in _find_blocks(source if source.endswith("\n") else f"{source}\n")
    ]
    if len(text) > MAX_LENGTH:
        blocks.append(tag("p", escape(f"… {len(text) - MAX_LENGTH:,} characters more"), class_="about"))
    return tuple(blocks)


def render_block(source: str) -> Html:
    """Render the lines of one block."""
    tokens = _make_parser().parse(source)
    return join(_render_tokens(tokens))


class MarkdownTail(Struct, frozen=True, kw_only=True):
    """The block that is still open: its HTML, or the text that was added to the code that was sent before."""

    html: str | None = None
    append: str | None = None


class MarkdownStream:
    """Renders text that arrives in pieces. Each block is rendered when it has ended; only the open one is rendered again."""

    def __init__(self, text: str = "") -> None:
        self.settled = 0
        self._open = ""
        self._raw_end = ""  # half of a line end, perhaps
        self._has_new_line = False
        self._code_sent: int | None = None
        self.feed(text)

    def feed(self, text: str) -> None:
        """Add text."""
        text = self._raw_end + text
        self._raw_end = "\r" if text.endswith("\r") else ""
        text = clean(text.removesuffix("\r"))
        self._open += text
        self._has_new_line = self._has_new_line or "\n" in text

    def settle(self) -> list[Html]:
        """Return the blocks that have ended since the last call."""
        if not self._has_new_line:
            return []
        self._has_new_line = False
        end = self._open.rindex("\n") + 1
        *ended, last = _find_blocks(self._open[:end]) or [(0, 0, "")]
        if not ended:
            return []
        lines = self._open.split("\n")
        blocks = [render_block("\n".join(lines[start:stop])) for start, stop, _ in ended]
        self._open = "\n".join(lines[last[0] :])
        self._code_sent = None
        self.settled += len(blocks)
        return blocks

    def tail(self) -> MarkdownTail:
        """Return the open block. Of code that is still being written, return only what was added since the last call."""
        source = self._open
        if not source.strip():
            return MarkdownTail(html="")
        code_start = self._find_open_code()
        if code_start is None:
            self._code_sent = None
            return MarkdownTail(html=render_block(source))
        if self._code_sent is None:
            code = source[code_start:].removesuffix(
                "\n"
            )  # `render_code` leaves that out, so it follows later
            self._code_sent = code_start + len(code)
            return MarkdownTail(html=render_code(code, ""))
        sent, self._code_sent = self._code_sent, len(source)
        return MarkdownTail(append=source[sent:])

    def finish(self) -> list[Html]:
        """Return the last blocks. Nothing is open after that."""
        source, self._open, self._has_new_line = self._open, "", False
        blocks = list(render_blocks(source)) if source.strip() else []
        self.settled += len(blocks)
        return blocks

    def _find_open_code(self) -> int | None:
        """Return where the code begins if the open block is a fence that nothing has closed yet."""
        first, newline, rest = self._open.lstrip("\n").partition("\n")
        mark = _FENCE.match(first)
        if mark is None or not newline:
            return None
        closing = re.compile(rf"^ {{0,3}}{re.escape(mark[1][0])}{{{len(mark[1])},}}[ \t]*$", re.MULTILINE)
        return None if closing.search(rest) else len(self._open) - len(rest)


_FENCE: Final = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")


def _find_blocks(source: str) -> list[tuple[int, int, str]]:
    """Return the first line, the end and the type of each block."""
    parser = _make_parser()
    tokens: list[Token] = []
    parser.block.parse(source, parser, {}, tokens)
    return [
        (token.map[0], token.map[1], token.type)
        for token in tokens
        if not token.level and token.nesting >= 0 and token.map is not None
    ]


@cache
def _make_parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # noqa: PLC0415  loaded when the first text is shown

    # A link by reference would let the end of a text change its beginning.
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 20})
    return parser.enable(["table", "strikethrough"]).disable("reference")


# --- tokens to HTML ---


def _render_tokens(tokens: "Sequence[Token]") -> Iterator[Html]:
    """Yield the HTML of tokens. Elements are closed where the parser closed them, by a stack of what is open."""
    stack: list[tuple[Token, list[Html]]] = []
    top: list[Html] = []
    for token in tokens:
        into = stack[-1][1] if stack else top
        if token.nesting > 0:
            stack.append((token, []))
        elif token.nesting < 0 and stack:
            opened, inner = stack.pop()
            (stack[-1][1] if stack else top).append(_render_element(opened, inner))
        else:
            into.append(_render_leaf(token, [each for each, _ in stack]))
    yield from top


def _render_element(token: "Token", inner: list[Html]) -> Html:
    name = token.type.removesuffix("_open")
    match name:
        case "paragraph" if token.hidden:
            return join(inner)
        case "heading":
            level = min(6, int(token.tag[1:]) + HEADING_OFFSET)
            return tag(f"h{level}", *inner)
        case "ordered_list":
            start = token.attrs.get("start")
            return tag("ol", *inner) if start is None else tag("ol", *inner, start=str(start))
        case "th" | "td":
            align = _ALIGN.get(str(token.attrs.get("style", "")))
            return tag(name, *inner, class_=align) if align else tag(name, *inner)
        case "link":
            return _render_link(str(token.attrs.get("href", "")), join(inner))
        case "table":
            return tag("div", tag("table", *inner), class_="table", tabindex="0", role="group")
        case _:
            return tag(_SIMPLE[name], *inner) if name in _SIMPLE else join(inner)


def _render_leaf(token: "Token", around: "Sequence[Token]") -> Html:
    match token.type:
        case "inline":
            children = token.children or []
            return join((_take_task_mark(token, around), *_render_tokens(children)))
        case "text":
            return escape(token.content) if _is_in_link(around) else _link_addresses(token.content)
        case "code_inline":
            return tag("code", escape(token.content))
        case "fence":
            return render_code(token.content, token.info.strip().partition(" ")[0])
        case "code_block":
            return render_code(token.content, "")
        case "hr" | "hardbreak":
            return void("hr" if token.type == "hr" else "br")
        case "softbreak":
            return Html("\n")
        case "image":
            # A page loads nothing, so a picture from elsewhere is a link.
            source = str(token.attrs.get("src", ""))
            shown = escape(f"[image: {token.content or source}]")
            return shown if _is_in_link(around) else _render_link(source, shown)
        case _:
            return escape(token.content)


def _is_in_link(around: "Sequence[Token]") -> bool:
    """Return True for what is inside of a link, where HTML allows no other link."""
    return any(each.type == "link_open" for each in around)


def _take_task_mark(token: "Token", around: "Sequence[Token]") -> Html:
    """Return a box for an item that begins with `[ ]` or `[x]`, and remove that mark from the item."""
    in_item = len(around) > 1 and around[-2].type == "list_item_open"
    first = token.children[0] if token.children else None
    mark = _TASK.match(first.content) if in_item and first is not None and first.type == "text" else None
    if mark is None or first is None:
        return EMPTY
    first.content = first.content[mark.end() :]
    return tag("span", escape("☑ " if mark[1] != " " else "☐ "), class_="task")


def _render_link(address: str, inner: Html) -> Html:
    """Return a link that says where it leads: text of a model must not hide that."""
    if not is_web_address(address):
        shown = escape(f" ({address})") if address and escape(address) not in inner else EMPTY
        return join((inner, shown))
    host = urlsplit(address).netloc
    # Only text that begins with the host shows it: `https://bank.test/evil.test` names it, too, but seems to lead to another.
    begins_with_host = rf"(?:https?://)?{re.escape(escape(host))}(?=[/?#<\s]|[.,;!)]*(?:\s|$))"
    is_shown = re.match(begins_with_host, inner, re.IGNORECASE) is not None
    target = EMPTY if is_shown else tag("span", escape(f" ({host})"), class_="about")
    return join((to_link(address, inner), target))


def _link_addresses(text: str) -> Html:
    """Return text in which bare web addresses are links."""
    pieces: list[Html] = []
    end = 0
    for match in _BARE_LINK.finditer(text):
        pieces += [escape(text[end : match.start()]), to_link(match[0], escape(match[0]))]
        end = match.end()
    return join((*pieces, escape(text[end:])))
