"""Redaction: credentials covered wherever they stand in a session, each always by the same words.

Looking comes first and covering second: what is found to be a secret in one place is covered in all places, also where
nothing gives it away. Covering never lengthens the list: what was not looked at is not covered.
"""

import base64
import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.model.parcel import Parcel
from weft.model.wire import from_plain, to_plain
from weft.transfer.secrets import Span, entropy, find_named, find_shapes, is_secret_field, looks_random

_TEXT_URL = re.compile(
    r"(data:(?:text/|application/(?:json|xml|x-sh|yaml|toml))[^,]*;base64,)([A-Za-z0-9+/]*={0,2})"
)
SHOWN = 4
LONG = 12
WORTH_SPREADING = 3.0


class Finding(Struct, frozen=True, kw_only=True):
    """A secret that is covered: where it stands first, what covers it, and a glimpse that gives nothing away."""

    where: str
    kind: str
    placeholder: str
    glimpse: str
    times: int


class Redactor:
    """`look` at every parcel first; then `cover` each of them."""

    def __init__(self) -> None:
        self._placeholders: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self._places: dict[str, str] = {}
        self._times: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._everywhere: list[str] = []

    def look(self, parcel: Parcel) -> None:
        for where, name, text in _texts(parcel):
            for span in find_secrets(name, text):
                self._note(text[span.start : span.end], span.kind, where)
        self._everywhere = sorted(filter(_may_spread, self._placeholders), key=len, reverse=True)

    def cover(self, parcel: Parcel) -> Parcel:
        plain = _turned(to_plain(parcel), "", self._covered)
        return from_plain(plain, Parcel, where=parcel.info.id)

    def findings(self) -> list[Finding]:
        """In the order they were found. How often each was covered is known after covering."""
        return [
            Finding(
                where=self._places[secret],
                kind=self._kinds[secret],
                placeholder=placeholder,
                glimpse=glimpse(secret),
                times=self._times.get(secret, 0),
            )
            for secret, placeholder in self._placeholders.items()
        ]

    def _note(self, secret: str, kind: str, where: str) -> None:
        if secret not in self._placeholders:
            self._numbers[kind] = number = self._numbers.get(kind, 0) + 1
            self._placeholders[secret] = f"[redacted:{kind}:{number}]"
            self._kinds[secret] = kind
            self._places[secret] = where

    def _covered(self, name: str, text: str) -> str:
        pieces, end = [], 0
        for span in find_secrets(name, text):
            secret = text[span.start : span.end]
            if secret in self._placeholders:
                pieces += [text[end : span.start], self._cover_one(secret)]
                end = span.end
        covered = "".join((*pieces, text[end:]))
        for secret in self._everywhere:
            if secret in covered:
                self._times[secret] = self._times.get(secret, 0) + covered.count(secret)
                covered = covered.replace(secret, self._placeholders[secret])
        return covered

    def _cover_one(self, secret: str) -> str:
        self._times[secret] = self._times.get(secret, 0) + 1
        return self._placeholders[secret]


def glimpse(secret: str) -> str:
    """Enough to know which one it is, too little to use it."""
    shown = SHOWN if len(secret) >= SHOWN * SHOWN else 1
    head = "".join(char if char.isprintable() else " " for char in secret[:shown])
    return f"{head}… ({len(secret)} characters)"


def _may_spread(secret: str) -> bool:
    """Whether it is unlike enough to everything else to be covered wherever it is found."""
    return looks_random(secret) or (len(secret) >= LONG and entropy(secret) >= WORTH_SPREADING)


def find_secrets(name: str, text: str) -> list[Span]:
    """What to cover in a text, left to right; of two that overlap the one that begins first, and then the longer."""
    found = sorted((*find_shapes(text), *find_named(text)), key=lambda span: (span.start, -span.end))
    if name and is_secret_field(name, text):
        found = [Span(0, len(text), "secret"), *found]
    kept: list[Span] = []
    for span in found:
        if not kept or span.start >= kept[-1].end:
            kept.append(span)
    return kept


# --- the texts of a parcel ---


def _texts(parcel: Parcel) -> Iterator[tuple[str, str, str]]:
    """Every text with the place it stands in and the name of its field."""
    found: list[tuple[str, str]] = []
    places: list[tuple[str, Any]] = [("session", to_plain(replace(parcel, messages=(), todos=(), diff=())))]
    for message in parcel.messages:
        places.append((message.info.id, to_plain(message.info)))
        places += [(f"{message.info.id} {part.id}", to_plain(part)) for part in message.parts]
    places.append(("todos", to_plain(parcel.todos)))
    places.append(("diff", to_plain(parcel.diff)))
    for where, plain in places:
        found.clear()

        def note(name: str, text: str) -> str:
            found.append((name, text))
            return text

        _turned(plain, "", note)
        yield from ((where, name, text) for name, text in found)


def _turned(value: Any, name: str, turn: Callable[[str, str], str]) -> Any:
    match value:
        case str():
            attached = _TEXT_URL.fullmatch(value)
            return turn(name, value) if attached is None else _turned_url(attached, turn)
        case dict():
            return {key: _turned(item, str(key), turn) for key, item in value.items()}
        case list() | tuple():
            return [_turned(item, name, turn) for item in value]
        case _:
            return value


def _turned_url(attached: re.Match[str], turn: Callable[[str, str], str]) -> str:
    """A text file that came along as a URL is looked at as the text it is."""
    try:
        text = base64.b64decode(attached[2], validate=True).decode()
    except ValueError:
        return attached[0]
    turned = turn("", text)
    return attached[0] if turned == text else attached[1] + base64.b64encode(turned.encode()).decode()
