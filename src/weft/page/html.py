"""Build HTML from text that nobody trusts: everything is escaped, and links lead to the web alone (pure)."""

import re
from collections.abc import Iterable
from typing import Final, NewType

Html = NewType("Html", str)

EMPTY: Final = Html("")
_ESCAPES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "`": "&#96;"}
)
# Characters that must not appear: control characters, lone surrogates, marks that change the direction of text so that it
# reads differently, and characters that hide text from a reader. The joiners of emoji and of some scripts stay.
_FORBIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
_LINK: Final = re.compile(r"https?://[^\s\x00-\x20\"'<>`\\]{1,2000}", re.IGNORECASE)


def clean(text: str) -> str:
    """Return text with line ends of one kind, and a mark in place of each character that must not appear."""
    return _FORBIDDEN.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def escape(text: str) -> Html:
    """Return any text as HTML."""
    return Html(clean(text).translate(_ESCAPES))


def tag(name: str, /, *inner: Html, **attributes: str) -> Html:
    """Return an element. Names are our own literals; values are escaped."""
    head = _opening_tag(name, attributes)
    return Html(f"<{head}>{''.join(inner)}</{name}>")


def void(name: str, /, **attributes: str) -> Html:
    """Return an element without content."""
    return Html(f"<{_opening_tag(name, attributes)}>")


def join(pieces: Iterable[Html]) -> Html:
    return Html("".join(pieces))


def is_web_address(address: str) -> bool:
    return _LINK.fullmatch(address) is not None


def to_link(address: str, *inner: Html) -> Html:
    """Return a link to a web address; for any other address, only its text."""
    if not is_web_address(address):
        return join(inner)
    return tag("a", *inner, href=address, rel="noopener noreferrer nofollow")


def _opening_tag(name: str, attributes: dict[str, str]) -> str:
    return name + "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items()
    )
