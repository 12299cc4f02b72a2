"""Ids: names that were minted in order, never clocks.

The text is OpenCode's: `<prefix>_`, 12 hex digits, 14 random characters. The hex holds the low 48 bits of
`ms * 4096 + counter`, 53 bits of number, so it wraps every 795 days (last on 2026-08-14). Nothing compares two raw
ids; `unwrap` gives the number back to whoever knows roughly when the id was made.
"""

import re
import threading
from collections.abc import Callable
from typing import Final, NewType

from weft.errors import InvalidIdError, NotFoundError

ProjectID = NewType("ProjectID", str)
SessionID = NewType("SessionID", str)
MessageID = NewType("MessageID", str)
PartID = NewType("PartID", str)
PermissionID = NewType("PermissionID", str)
QuestionID = NewType("QuestionID", str)
GrantID = NewType("GrantID", str)
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

_BODY = re.compile(r"[0-9A-Za-z]{20,40}")
_FILE_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,127}")


class Mint:
    """Makes ids, each later than the one before, whatever the clock does and however many are asked for at once."""

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

    def tool_output(self) -> str:
        return self._make("tool")

    def _make(self, kind: str, *, descending: bool = False) -> str:
        # The first id of a millisecond carries 1, as OpenCode's does. A clock that steps back, or more than
        # 4095 ids in one millisecond, only makes us count on from the last one: OpenCode starts over, or overtakes.
        with self._lock:
            self._last = number = max(self._now() * PER_MS + 1, self._last + 1)
        number = (~number if descending else number) % WRAP
        tail = "".join(ALPHABET[byte % len(ALPHABET)] for byte in self._random(RANDOM_LENGTH))
        return f"{PREFIXES[kind]}_{number:0{HEX_LENGTH}x}{tail}"


def unwrap(id: str, near: int) -> int:
    """The full number behind an ascending id, taking it to be made within a year of `near` (ms)."""
    head = id.partition("_")[2][:HEX_LENGTH]
    try:
        low = int(head, 16)
    except ValueError:
        return near * PER_MS  # not one of ours: it stands where its time puts it
    around = near * PER_MS
    return low + round((around - low) / WRAP) * WRAP


def in_order(id: str, near: int) -> tuple[int, str]:
    """A sort key for ids made around `near`: by the unwrapped number, then by text so that ties are stable."""
    return unwrap(id, near), id


def checked(kind: str, given: str) -> str:
    """Return an id from outside to look something up by. Raise `NotFoundError` if nothing of that kind can have it.

    Whoever wrote the thing may have named it otherwise than we do: OpenCode takes any session id that begins with `ses`.
    """
    if not given.startswith(PREFIXES[kind]) or _FILE_NAME.fullmatch(given) is None:
        raise NotFoundError(kind, given[:80])
    return given


def check_new(kind: str, given: str) -> str:
    """Return an id from outside for something new. Raise `InvalidIdError` if it is not of the form that we mint."""
    prefix, _, body = given.partition("_")
    if prefix != PREFIXES[kind] or _BODY.fullmatch(body) is None:
        raise InvalidIdError(kind, given)
    return given


def file_name(kind: str, id: str) -> str:
    """The id, if it can be a file's name and nothing more: no separator, no dot in front."""
    if _FILE_NAME.fullmatch(id) is None:
        raise InvalidIdError(kind, id)
    return id
