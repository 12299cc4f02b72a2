"""Cache the messages of sessions in a database, so that the next reading decodes only what was written since.

A prompt in a session of thousands of messages would otherwise decode all of them, and everything that is derived from a message and
cached with it (what a model is shown of it, how an API encodes it) would be derived again. The hash chain of a session names what any
process wrote after an entry.
"""

from collections.abc import Iterable
from threading import Lock
from typing import NamedTuple

from weft.errors import DocumentError
from weft.host.machine import release_free_memory
from weft.model.ids import SessionID
from weft.model.message import MessageWithParts
from weft.model.wire import decode
from weft.store.chain import ChainEntry

CACHE_BYTES = 32 << 20  # of documents, as many as the file store keeps
LARGE_BYTES = 1 << 20  # of documents: below this the allocator soon uses the memory again


class ChainHead(NamedTuple):
    """The newest entry of a chain. What the chain records up to it cannot change."""

    number: int
    hash: bytes


class CachedTranscript(NamedTuple):
    """The messages of a session, oldest first, as they were at an entry of its chain.

    `growing` are the messages whose text was streaming: a chain does not record that. `size` is the number of bytes that were
    read for it. What was read again counts again, so it is at least the size of what is held.
    """

    head: ChainHead
    messages: tuple[MessageWithParts, ...]
    growing: frozenset[str]
    size: int


class TranscriptCache:
    """Holds the transcripts of the sessions that were read last. It is used by many threads."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit = limit
        self._transcripts: dict[SessionID, CachedTranscript] = {}
        self._lock = Lock()

    def find(self, session: SessionID) -> CachedTranscript | None:
        with self._lock:
            return self._transcripts.get(session)

    def put(self, session: SessionID, transcript: CachedTranscript | None) -> None:
        """Replace what is known of a session; forget it if there is nothing to keep."""
        with self._lock:
            self._transcripts.pop(session, None)
            if transcript is None:
                return
            self._transcripts[session] = (
                transcript  # at the end: what was read longest ago is forgotten first
            )
            held = sum(each.size for each in self._transcripts.values())
            while held > self._limit:
                held -= self._transcripts.pop(next(iter(self._transcripts))).size

    def forget(self, sessions: Iterable[SessionID]) -> None:
        """Forget sessions that were removed, and give the memory of what was held of them back to the system."""
        with self._lock:
            held = [self._transcripts.pop(session, None) for session in sessions]
        if any(each is not None and each.size >= LARGE_BYTES for each in held):
            del held
            release_free_memory()


def list_changed_messages(bodies: Iterable[bytes]) -> set[str] | None:
    """Return the messages that entries of a chain name, None if an entry cannot be read."""
    changed: set[str] = set()
    for body in bodies:
        try:
            entry = decode(body, ChainEntry)
        except DocumentError:
            return None
        for change in entry.changes:
            kind, _, rest = change.key.partition("/")
            if kind in {"message", "part"}:
                changed.add(rest.partition("/")[0])
    return changed
