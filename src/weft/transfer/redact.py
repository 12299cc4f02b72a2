"""Redact credentials in a session. The same secret always gets the same placeholder.

All sessions are scanned before the first is redacted: a secret that is recognised in one place is replaced everywhere,
even where nothing gives it away. Redacting replaces only secrets that scanning found, so a session that was not scanned
may keep some.
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

_TEXT_DATA_URL = re.compile(
    r"(data:(?:text/|application/(?:json|xml|x-sh|yaml|toml))[^,]*;base64,)([A-Za-z0-9+/]*={0,2})"
)
PREVIEW_CHARACTERS = 4
MIN_DISTINCTIVE_LENGTH = 12
MIN_DISTINCTIVE_ENTROPY = 3.0


class RedactedSecret(Struct, frozen=True, kw_only=True):
    """A secret that was redacted: where it occurs first, its placeholder, and a preview that is safe to show."""

    where: str
    kind: str
    placeholder: str
    glimpse: str
    times: int


class Redactor:
    """Redacts sessions. Call `scan` for every session first, then `redact` for each."""

    def __init__(self) -> None:
        self._placeholders: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self._locations: dict[str, str] = {}
        self._times: dict[str, int] = {}
        self._kind_counts: dict[str, int] = {}
        self._distinctive: list[str] = []

    def scan(self, export: SessionExport) -> None:
        """Collect the secrets in a session."""
        for where, name, text in _list_texts(export):
            for span in find_secrets(name, text):
                self._add_secret(text[span.start : span.end], span.kind, where)
        self._distinctive = sorted(filter(_is_distinctive, self._placeholders), key=len, reverse=True)

    def redact(self, export: SessionExport) -> SessionExport:
        """Return the session with all collected secrets replaced by placeholders."""
        plain = _map_texts(to_plain(export), "", self._redact_text)
        return from_plain(plain, SessionExport, where=export.info.id)

    def findings(self) -> list[RedactedSecret]:
        """Return the secrets in the order they were found. `times` is known only after redacting."""
        return [
            RedactedSecret(
                where=self._locations[secret],
                kind=self._kinds[secret],
                placeholder=placeholder,
                glimpse=preview_secret(secret),
                times=self._times.get(secret, 0),
            )
            for secret, placeholder in self._placeholders.items()
        ]

    def _add_secret(self, secret: str, kind: str, where: str) -> None:
        if secret not in self._placeholders:
            self._kind_counts[kind] = number = self._kind_counts.get(kind, 0) + 1
            self._placeholders[secret] = f"[redacted:{kind}:{number}]"
            self._kinds[secret] = kind
            self._locations[secret] = where

    def _redact_text(self, name: str, text: str) -> str:
        pieces, end = [], 0
        for span in find_secrets(name, text):
            secret = text[span.start : span.end]
            if secret in self._placeholders:
                pieces += [text[end : span.start], self._use_placeholder(secret)]
                end = span.end
        redacted = "".join((*pieces, text[end:]))
        for secret in self._distinctive:
            if secret in redacted:
                self._times[secret] = self._times.get(secret, 0) + redacted.count(secret)
                redacted = redacted.replace(secret, self._placeholders[secret])
        return redacted

    def _use_placeholder(self, secret: str) -> str:
        self._times[secret] = self._times.get(secret, 0) + 1
        return self._placeholders[secret]


def preview_secret(secret: str) -> str:
    """Return enough of a secret to recognise it, but too little to use it."""
    count = PREVIEW_CHARACTERS if len(secret) >= PREVIEW_CHARACTERS * PREVIEW_CHARACTERS else 1
    head = "".join(char if char.isprintable() else " " for char in secret[:count])
    return f"{head}… ({len(secret)} characters)"


def _is_distinctive(secret: str) -> bool:
    """Return True if the secret is distinctive enough to be replaced wherever it occurs."""
    return looks_random(secret) or (
        len(secret) >= MIN_DISTINCTIVE_LENGTH and measure_entropy(secret) >= MIN_DISTINCTIVE_ENTROPY
    )


def find_secrets(name: str, text: str) -> list[SecretSpan]:
    """Return the secrets in the text of the field `name`, from left to right.

    If two overlap, the one that starts first wins, then the longer.
    """
    spans = sorted((*find_shapes(text), *find_named(text)), key=lambda span: (span.start, -span.end))
    if name and is_secret_field(name, text):
        spans = [SecretSpan(0, len(text), "secret"), *spans]
    selected: list[SecretSpan] = []
    for span in spans:
        if not selected or span.start >= selected[-1].end:
            selected.append(span)
    return selected


# --- the texts of a session ---


def _list_texts(export: SessionExport) -> Iterator[tuple[str, str, str]]:
    """Yield every text with its location and the name of its field."""
    texts: list[tuple[str, str]] = []
    locations: list[tuple[str, Any]] = [
        ("session", to_plain(replace(export, messages=(), todos=(), diff=())))
    ]
    for message in export.messages:
        locations.append((message.info.id, to_plain(message.info)))
        locations += [(f"{message.info.id} {part.id}", to_plain(part)) for part in message.parts]
    locations.append(("todos", to_plain(export.todos)))
    locations.append(("diff", to_plain(export.diff)))
    for where, plain in locations:
        texts.clear()

        def note(name: str, text: str) -> str:
            texts.append((name, text))
            return text

        _map_texts(plain, "", note)
        yield from ((where, name, text) for name, text in texts)


def _map_texts(value: Any, name: str, convert: Callable[[str, str], str]) -> Any:
    match value:
        case str():
            match = _TEXT_DATA_URL.fullmatch(value)
            return convert(name, value) if match is None else _map_url(match, convert)
        case dict():
            return {key: _map_texts(item, str(key), convert) for key, item in value.items()}
        case list() | tuple():
            return [_map_texts(item, name, convert) for item in value]
        case _:
            return value


def _map_url(match: re.Match[str], convert: Callable[[str, str], str]) -> str:
    """Apply `convert` to the text of a file that is embedded as a URL."""
    try:
        text = base64.b64decode(match[2], validate=True).decode()
    except ValueError:
        return match[0]
    mapped = convert("", text)
    return match[0] if mapped == text else match[1] + base64.b64encode(mapped.encode()).decode()
