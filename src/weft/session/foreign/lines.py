"""JSON lines as other programs keep their transcripts: read one by one, a broken one named and passed over."""

import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from weft.errors import DocumentError
from weft.host.files import read_file
from weft.model.ids import HEX_LENGTH, PER_MS, WRAP, MessageID, PartID, SessionID
from weft.model.wire import parse
from weft.session.foreign.found import Trouble
from weft.session.transfer.rename import letters

LIMIT = 1 << 30
Line = dict[str, Any]


def read_lines(path: str, troubles: list[Trouble]) -> list[Line]:
    """Every line that is an object. The last one may be cut short: whoever writes it may not be done."""
    try:
        raw = read_file(path, limit=LIMIT)[0]
    except OSError as error:
        raise DocumentError(path, error.strerror or str(error)) from error
    lines: list[Line] = []
    for number, text in enumerate(raw.split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            value = parse(text, where=f"{path}:{number}")
            if not isinstance(value, dict):
                raise DocumentError(f"{path}:{number}", "not an object")
            lines.append(value)
        except DocumentError as error:
            troubles.append(Trouble(where=error.where, reason=error.reason))
    if not lines:
        raise DocumentError(path, "no line of it can be read")
    return lines


def list_files(path: str, *, ending: str = ".jsonl") -> list[str]:
    """The transcript at a path, or all below it, by name."""
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path):
        raise DocumentError(path, "there is nothing here")
    return sorted(
        os.path.join(place, name)
        for place, _, names in os.walk(path)
        for name in names
        if name.endswith(ending)
    )


def milliseconds(stamp: Any) -> int | None:
    """A time as these programs write it: ISO 8601 with a zone."""
    if not isinstance(stamp, str):
        return None
    try:
        at = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return None if at.tzinfo is None else int(at.timestamp() * 1000)


class Names:
    """Ids for what has others: always the same for the same transcript, later ones later, however often it is read.

    Reading a transcript that has grown gives the old ids again and new ones after them.
    """

    def __init__(self, source: str, session: str, at: int) -> None:
        self._words = (source, session)
        self._last = at * PER_MS
        number = (~self._last) % WRAP
        self.session = SessionID(f"ses_{number:0{HEX_LENGTH}x}{letters(*self._words)}")

    def message(self, key: str, at: int) -> MessageID:
        return MessageID(self._next("msg", key, at))

    def part(self, key: str, at: int) -> PartID:
        return PartID(self._next("prt", key, at))

    def _next(self, prefix: str, key: str, at: int) -> str:
        self._last = number = max(at * PER_MS + 1, self._last + 1)
        return f"{prefix}_{number % WRAP:0{HEX_LENGTH}x}{letters(*self._words, prefix, key, str(number))}"


def texts(blocks: Any) -> Iterator[str]:
    """The words in what may be a text, or a list of blocks that have one."""
    if isinstance(blocks, str):
        yield blocks
    elif isinstance(blocks, list):
        for block in blocks:
            if isinstance(block, str):
                yield block
            elif isinstance(block, dict) and isinstance(block.get("text"), str):
                yield block["text"]
