"""What a model wrote as markdown, as much of it as reads better laid out: headings, lists, code, emphasis, links.

Small on purpose. Whatever it does not know stays text, every line is looked at once, and no pattern can be made to
look for long.
"""

import re
from collections.abc import Iterator
from typing import Final

from weft.page.markup import Html, join, link, tag, text

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})[^\n`]*")
_HEADING: Final = re.compile(r"(#{1,6})\s+(\S.*)")
_ITEM: Final = re.compile(r"\s{0,12}(?:[-*+]|(?P<number>\d{1,4})[.)])\s+(?P<said>\S.*)")
_INLINE: Final = re.compile(
    r"`(?P<code>[^`\n]{1,500})`"
    r"|\*\*(?P<bold>[^*\n]{1,500})\*\*"
    r"|\[(?P<words>[^\]\[\n]{1,300})\]\((?P<to>[^()\s]{1,2000})\)"
    r"|(?P<bare>https?://[^\s<>\"'`)\]]{1,2000}(?<![.,;:!?]))"
)
_TOP_LEVEL: Final = 2


def prose(said: str) -> Html:
    """Words, laid out."""
    return join(_blocks(said.replace("\r\n", "\n").split("\n")))


def _blocks(lines: list[str]) -> Iterator[Html]:
    waiting: list[str] = []
    items: list[re.Match[str]] = []
    at = 0
    while at < len(lines):
        line, fence = lines[at], _FENCE.fullmatch(lines[at])
        item, heading = _ITEM.fullmatch(line), _HEADING.fullmatch(line)
        if items and (item is None or _is_numbered(item) != _is_numbered(items[0])):
            yield _list(items)
            items = []
        if waiting and (fence or item or heading or not line.strip()):
            yield _paragraph(waiting)
            waiting = []
        if fence is not None:
            end = _end_of(lines, at + 1, fence[1])
            yield tag("pre", tag("code", text("\n".join(lines[at + 1 : end]))))
            at = end
        elif heading is not None:
            yield tag(f"h{min(6, len(heading[1]) + _TOP_LEVEL)}", inline(heading[2]))
        elif item is not None:
            items.append(item)
        elif line.strip():
            waiting.append(line)
        at += 1
    if items:
        yield _list(items)
    if waiting:
        yield _paragraph(waiting)


def _end_of(lines: list[str], at: int, fence: str) -> int:
    """The line that closes a block of code; the end of the text if none does."""
    for index in range(at, len(lines)):
        line = lines[index].strip()
        if len(line) >= len(fence) and not line.strip(fence[0]):
            return index
    return len(lines)


def _is_numbered(item: re.Match[str]) -> bool:
    return item["number"] is not None


def _list(items: list[re.Match[str]]) -> Html:
    inner = (tag("li", inline(item["said"])) for item in items)
    first: str | None = items[0]["number"]
    return tag("ul", *inner) if first is None else tag("ol", *inner, start=str(int(first)))


def _paragraph(lines: list[str]) -> Html:
    return tag("p", inline("\n".join(lines)))


def inline(said: str) -> Html:
    """One run of words: code, emphasis and links in it."""
    pieces: list[Html] = []
    end = 0
    for found in _INLINE.finditer(said):
        pieces.append(text(said[end : found.start()]))
        pieces.append(_piece(found))
        end = found.end()
    return join((*pieces, text(said[end:])))


def _piece(found: re.Match[str]) -> Html:
    match found.lastgroup:
        case "code":
            return tag("code", text(found["code"]))
        case "bold":
            return tag("strong", text(found["bold"]))
        case "bare":
            return link(found["bare"], text(found["bare"]))
        case _:
            return link(found["to"], text(found["words"]))
