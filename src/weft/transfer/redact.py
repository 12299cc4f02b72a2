"""Redact credentials in a session. The same secret always gets the same placeholder.

First all parcels are scanned, then each one is redacted: a secret that is recognised in one place is replaced in all
places, even where nothing gives it away. Redacting finds no new secrets, so only scanned parcels are safe.
"""

import base64
import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.model.transfer import SessionExport
from weft.model.wire import from_plain, to_plain
from weft.transfer.secrets import (
    SecretSpan,
    find_named,
    find_shapes,
    is_secret_field,
    looks_random,
    measure_entropy,
)

_TEXT_URL = re.compile(
    r"(data:(?:text/|application/(?:json|xml|x-sh|yaml|toml))[^,]*;base64,)([A-Za-z0-9+/]*={0,2})"
)
SHOWN_CHARS = 4
LONG_SECRET = 12
MIN_SPREAD_ENTROPY = 3.0


class RedactedSecret(Struct, frozen=True, kw_only=True):
    """A secret that was redacted: where it occurs first, its placeholder, and a preview that is safe to show."""

    where: str
    kind: str
    placeholder: str
    glimpse: str
    times: int


class Redactor:
    """Call `scan` for every parcel first, then `redact` for each."""

    def __init__(self) -> None:
        self._placeholders: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self._places: dict[str, str] = {}
        self._times: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._everywhere: list[str] = []

    def scan(self, export: SessionExport) -> None:
        for where, name, text in _list_texts(export):
            for span in find_secrets(name, text):
                self._add_secret(text[span.start : span.end], span.kind, where)
        self._everywhere = sorted(filter(_may_spread, self._placeholders), key=len, reverse=True)

    def redact(self, export: SessionExport) -> SessionExport:
        plain = _map_texts(to_plain(export), "", self._redact_text)
        return from_plain(plain, SessionExport, where=export.info.id)

    def findings(self) -> list[RedactedSecret]:
        """Return the secrets in the order they were found. `times` is known only after redacting."""
        return [
            RedactedSecret(
                where=self._places[secret],
                kind=self._kinds[secret],
                placeholder=placeholder,
                glimpse=preview_secret(secret),
                times=self._times.get(secret, 0),
            )
            for secret, placeholder in self._placeholders.items()
        ]

    def _add_secret(self, secret: str, kind: str, where: str) -> None:
        if secret not in self._placeholders:
            self._numbers[kind] = number = self._numbers.get(kind, 0) + 1
            self._placeholders[secret] = f"[redacted:{kind}:{number}]"
            self._kinds[secret] = kind
            self._places[secret] = where

    def _redact_text(self, name: str, text: str) -> str:
        pieces, end = [], 0
        for span in find_secrets(name, text):
            secret = text[span.start : span.end]
            if secret in self._placeholders:
                pieces += [text[end : span.start], self._redact_one(secret)]
                end = span.end
        redacted = "".join((*pieces, text[end:]))
        for secret in self._everywhere:
            if secret in redacted:
                self._times[secret] = self._times.get(secret, 0) + redacted.count(secret)
                redacted = redacted.replace(secret, self._placeholders[secret])
        return redacted

    def _redact_one(self, secret: str) -> str:
        self._times[secret] = self._times.get(secret, 0) + 1
        return self._placeholders[secret]


def preview_secret(secret: str) -> str:
    """Return enough of a secret to recognise it, but too little to use it."""
    shown = SHOWN_CHARS if len(secret) >= SHOWN_CHARS * SHOWN_CHARS else 1
    head = "".join(char if char.isprintable() else " " for char in secret[:shown])
    return f"{head}… ({len(secret)} characters)"


def _may_spread(secret: str) -> bool:
    """Return True if the secret is distinctive enough to be replaced wherever it occurs."""
    return looks_random(secret) or (
        len(secret) >= LONG_SECRET and measure_entropy(secret) >= MIN_SPREAD_ENTROPY
    )


def find_secrets(name: str, text: str) -> list[SecretSpan]:
    """Return the secrets in a text, from left to right. If two overlap, the one that starts first wins, then the longer."""
    found = sorted((*find_shapes(text), *find_named(text)), key=lambda span: (span.start, -span.end))
    if name and is_secret_field(name, text):
        found = [SecretSpan(0, len(text), "secret"), *found]
    kept: list[SecretSpan] = []
    for span in found:
        if not kept or span.start >= kept[-1].end:
            kept.append(span)
    return kept


# --- the texts of a parcel ---


def _list_texts(export: SessionExport) -> Iterator[tuple[str, str, str]]:
    """Yield every text with its location and the name of its field."""
    found: list[tuple[str, str]] = []
    places: list[tuple[str, Any]] = [("session", to_plain(replace(export, messages=(), todos=(), diff=())))]
    for message in export.messages:
        places.append((message.info.id, to_plain(message.info)))
        places += [(f"{message.info.id} {part.id}", to_plain(part)) for part in message.parts]
    places.append(("todos", to_plain(export.todos)))
    places.append(("diff", to_plain(export.diff)))
    for where, plain in places:
        found.clear()

        def note(name: str, text: str) -> str:
            found.append((name, text))
            return text

        _map_texts(plain, "", note)
        yield from ((where, name, text) for name, text in found)


def _map_texts(value: Any, name: str, turn: Callable[[str, str], str]) -> Any:
    match value:
        case str():
            attached = _TEXT_URL.fullmatch(value)
            return turn(name, value) if attached is None else _map_url(attached, turn)
        case dict():
            return {key: _map_texts(item, str(key), turn) for key, item in value.items()}
        case list() | tuple():
            return [_map_texts(item, name, turn) for item in value]
        case _:
            return value


def _map_url(attached: re.Match[str], turn: Callable[[str, str], str]) -> str:
    """Apply `turn` to the text of a file that is embedded as a URL."""
    try:
        text = base64.b64decode(attached[2], validate=True).decode()
    except ValueError:
        return attached[0]
    mapped = turn("", text)
    return attached[0] if mapped == text else attached[1] + base64.b64encode(mapped.encode()).decode()
