"""Markup that cannot be broken out of: every piece of text is escaped in one place, and tags are ours alone.

A `Html` is made of texts by `text` and of other `Html`s by `tag`, and of nothing else; so whatever a model or a file
said is text on the page, also where it looks like a tag.
"""

import re
from collections.abc import Iterable
from typing import Final, NewType

Html = NewType("Html", str)

NOTHING: Final = Html("")
_ESCAPES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "`": "&#96;"}
)
# What no page shows as itself: control characters, halves of surrogate pairs, and marks that turn text around so that
# it reads other than it is.
_ODD: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
_LINK: Final = re.compile(r"https?://[^\s\x00-\x20\"'<>`\\]{1,2000}", re.IGNORECASE)


def text(said: str) -> Html:
    """Anything anybody said, as text."""
    return Html(_ODD.sub("\ufffd", said.replace("\r\n", "\n").replace("\r", "\n")).translate(_ESCAPES))


def tag(name: str, /, *inner: Html, **attributes: str) -> Html:
    """An element. Names are literals of ours; values are escaped."""
    head = _head(name, attributes)
    return Html(f"<{head}>{''.join(inner)}</{name}>")


def void(name: str, /, **attributes: str) -> Html:
    """An element that holds nothing."""
    return Html(f"<{_head(name, attributes)}>")


def join(pieces: Iterable[Html]) -> Html:
    return Html("".join(pieces))


def link(address: str, *inner: Html) -> Html:
    """A link, if it leads to the web; the words alone if it leads anywhere else."""
    if _LINK.fullmatch(address) is None:
        return join(inner)
    return tag("a", *inner, href=address, rel="noopener noreferrer nofollow")


def _head(name: str, attributes: dict[str, str]) -> str:
    return name + "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items()
    )
