"""Requests sent twice: an `Idempotency-Key` is turned into a message's id, and the same id is the same prompt.

The key is in the id's tail, so that the message itself remembers it, over a restart too; the head is the time, as with
every id, so that clients that sort by ids see it where it belongs.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from weft.api import Api
from weft.errors import ConflictError, InvalidInputError
from weft.model.ids import ALPHABET, HEX_LENGTH, PER_MS, WRAP, MessageID, SessionID

LONGEST: Final = 255
HALF: Final = 7
REMEMBERED: Final = 10_000
WINDOW_MS: Final = 24 * 60 * 60 * 1000


class Repeats:
    """Finds the id that a key stood for. `now` is the time in milliseconds."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._known: OrderedDict[tuple[str, str], MessageID] = OrderedDict()
        self._doors: dict[tuple[str, str], asyncio.Lock] = {}

    async def id_for(self, api: Api, session: SessionID, key: str, body: bytes) -> MessageID:
        """The id for a prompt with this key: the one it had, if it was sent before. Raises `ConflictError` if that was
        another prompt."""
        if not 0 < len(key) <= LONGEST or not key.isprintable():
            raise InvalidInputError(
                "idempotency-key", f"it has 1 to {LONGEST} characters that can be printed"
            )
        head, tail = to_letters(f"{session}\n{key}".encode()), to_letters(body)
        place = session, head
        # One at a time: two that come at once must not both be the first.
        async with self._doors.setdefault(place, asyncio.Lock()):
            found = self._known.get(place) or await self._find(api, session, head)
            self._doors.pop(place, None)
            id = found or self._mint(head + tail)
            self._remember(place, id)
        if not id.endswith(tail):
            raise ConflictError("idempotency key", key, "was used for another request")
        return id

    def _mint(self, tail: str) -> MessageID:
        number = (self._now() * PER_MS + 1) % WRAP
        return MessageID(f"msg_{number:0{HEX_LENGTH}x}{tail}")

    def _remember(self, place: tuple[str, str], id: MessageID) -> None:
        self._known[place] = id
        self._known.move_to_end(place)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    async def _find(self, api: Api, session: SessionID, head: str) -> MessageID | None:
        """Look through what was said lately; after a restart that is all there is to go by."""
        oldest = self._now() - WINDOW_MS
        async for message in api.stream_messages(session):
            if message.info.time.created < oldest:
                return None
            if message.info.id.partition("_")[2][HEX_LENGTH:].startswith(head):
                return message.info.id
        return None


def to_letters(raw: bytes) -> str:
    """Half the tail of an id, always the same for the same bytes."""
    digest = hashlib.sha256(raw).digest()
    number = int.from_bytes(digest)
    letters: list[str] = []
    for _ in range(HALF):
        number, rest = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[rest])
    return "".join(letters)
