"""Ids: how they are made, checked and ordered.

The format is OpenCode's: `<prefix>_`, 12 hex digits, 14 random characters. The digits are the low 48 bits of
`ms * 4096 + counter`, a number of 53 bits, so they wrap every 795 days (last on 2026-08-14). Never compare two raw ids:
`unwrap` returns the full number for an id whose time is roughly known.
"""

import re
import threading
from collections.abc import Callable, Collection
from typing import Final, NewType

from weft.errors import InvalidIdError, NotFoundError

ProjectID = NewType("ProjectID", str)
SessionID = NewType("SessionID", str)
MessageID = NewType("MessageID", str)
PartID = NewType("PartID", str)
PermissionID = NewType("PermissionID", str)
QuestionID = NewType("QuestionID", str)
GrantID = NewType("GrantID", str)
ToolRequestID = NewType("ToolRequestID", str)
PtyID = NewType("PtyID", str)

GLOBAL_PROJECT: Final = ProjectID("global")

PREFIXES: Final = {
    "session": "ses",
    "message": "msg",
    "part": "prt",
    "permission": "per",
    "question": "que",
    "grant": "gra",
    "user": "usr",
    "pty": "pty",
    "tool": "tool",
}

ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
HEX_LENGTH: Final = 12
RANDOM_LENGTH: Final = 14
PER_MS: Final = 4096
WRAP: Final = 1 << 48
HALF_WRAP: Final = WRAP // 2
WHOLE_WRAPS: Final = -WRAP  # a mask: what is left of a number is a multiple of WRAP

_LETTER_OF_BYTE = bytes(ord(ALPHABET[byte % len(ALPHABET)]) for byte in range(256))
_BODY = re.compile(r"[0-9A-Za-z]{20,40}")
_FILE_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,127}")


class Mint:
    """Makes ids in order, even if the clock steps back or many are made at once: those of sessions descending, others ascending."""

    def __init__(self, now: Callable[[], int], random: Callable[[int], bytes]) -> None:
        self._now = now
        self._random = random
        self._lock = threading.Lock()
        self._last = 0

    def session(self) -> SessionID:
        return SessionID(self._make("session", descending=True))

    def message(self) -> MessageID:
        return MessageID(self._make("message"))

    def part(self) -> PartID:
        return PartID(self._make("part"))

    def permission(self) -> PermissionID:
        return PermissionID(self._make("permission"))

    def question(self) -> QuestionID:
        return QuestionID(self._make("question"))

    def grant(self) -> GrantID:
        return GrantID(self._make("grant"))

    def pty(self) -> PtyID:
        return PtyID(self._make("pty"))

    def tool_request(self) -> ToolRequestID:
        return ToolRequestID(self._make("tool"))

    def tool_output(self) -> str:
        return self._make("tool")

    def _make(self, kind: str, *, descending: bool = False) -> str:
        # The first id of a millisecond has counter 1, as in OpenCode. If the clock steps back, or after 4095 ids in one
        # millisecond, count on from the last id. OpenCode's ids would be out of order then.
        with self._lock:
            self._last = number = max(self._now() * PER_MS + 1, self._last + 1)
        number = (~number if descending else number) % WRAP
        tail = self._random(RANDOM_LENGTH).translate(_LETTER_OF_BYTE).decode()
        return f"{PREFIXES[kind]}_{number:0{HEX_LENGTH}x}{tail}"


def unwrap(id: str, near: int) -> int:
    """Return the full number of an ascending id that was made within a year of `near` (ms)."""
    full = near * PER_MS
    try:
        low = int(id.partition("_")[2][:HEX_LENGTH], 16)
    except ValueError:
        return full  # not made by `Mint`: order it by its time
    # The whole number of times that the number has wrapped, rounded. Integers are exact, and faster than a float.
    return low + ((full - low + HALF_WRAP) & WHOLE_WRAPS)


def id_sort_key(id: str, near: int) -> tuple[int, str]:
    """Return a sort key for ids made around `near` (ms): the unwrapped number, then the text."""
    return unwrap(id, near), id


def check_id(kind: str, id: str) -> str:
    """Check an id from outside that is used for a lookup, and return it. Raise `NotFoundError` if no such id can exist.

    Other formats than that of `Mint` are allowed: OpenCode accepts any session id that begins with `ses`.
    """
    if not id.startswith(PREFIXES[kind]) or _FILE_NAME.fullmatch(id) is None:
        raise NotFoundError(kind, id[:80])
    return id


def check_new_id(kind: str, id: str) -> str:
    """Check an id from outside for something new, and return it. Raise `InvalidIdError` if it could not be one of `Mint`.

    As in OpenCode, what follows the prefix may be 20 to 40 letters and digits in any order.
    """
    prefix, _, body = id.partition("_")
    if prefix != PREFIXES[kind] or _BODY.fullmatch(body) is None:
        raise InvalidIdError(kind, id)
    return id


def check_file_name(kind: str, id: str) -> str:
    """Return the id if it is a safe file name: no separator and no leading dot. Raise `InvalidIdError` otherwise."""
    if _FILE_NAME.fullmatch(id) is None:
        raise InvalidIdError(kind, id)
    return id


def check_file_names(kind: str, ids: Collection[str]) -> None:
    """Check many ids as `check_file_name` does, in half the time."""
    if not all(map(_FILE_NAME.fullmatch, ids)):
        for id in ids:
            check_file_name(kind, id)
