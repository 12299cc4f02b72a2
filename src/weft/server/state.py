"""State that a server keeps between requests: tickets, password attempts, idempotency keys and requests to terminal clients."""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from ipaddress import IPv6Address, IPv6Network
from typing import Any, Final
from weakref import WeakValueDictionary

from msgspec import Struct

from weft.api import Api
from weft.errors import ConflictError, InvalidInputError
from weft.model.ids import ALPHABET, HEX_LENGTH, PER_MS, WRAP, MessageID, SessionID

# --- tickets ---

TICKET_SECONDS: Final = 60
MAX_TICKETS: Final = 1000


class IssuedTicket(Struct, frozen=True, kw_only=True):
    """The path that a ticket opens, and the `Authorization` header of the request that asked for it. It grants no more than that."""

    path: str
    expires: float
    authorization: str = ""


class Tickets:
    """One-time passwords for browsers, which cannot send a header when they open a socket or follow a link.

    A ticket is valid once, for one path, for a minute unless it was issued for longer.
    """

    def __init__(self) -> None:
        self._valid: dict[str, IssuedTicket] = {}

    def issue(self, path: str, seconds: float = TICKET_SECONDS, *, authorization: str = "") -> str:
        """Return a new ticket for a path, valid for some `seconds`."""
        now = asyncio.get_running_loop().time()
        self._valid = {ticket: issued for ticket, issued in self._valid.items() if issued.expires > now}
        while len(self._valid) >= MAX_TICKETS:
            del self._valid[next(iter(self._valid))]
        ticket = secrets.token_urlsafe(32)
        self._valid[ticket] = IssuedTicket(path=path, expires=now + seconds, authorization=authorization)
        return ticket

    def take(self, ticket: str, path: str) -> IssuedTicket | None:
        """Use up a ticket. Return what it permits, None if it is not valid for this path."""
        issued = self._valid.pop(ticket, None)
        if issued is None or issued.path != path or issued.expires <= asyncio.get_running_loop().time():
            return None
        return issued


# --- password attempts ---

FREE_ATTEMPTS: Final = 5
MAX_DELAY_SECONDS: Final = 5.0
MAX_DELAYED: Final = 4
MAX_ADDRESSES: Final = 10_000
# Whoever has one IPv6 address usually has all of its network.
IPV6_NETWORK_BITS: Final = 64


class AddressAttempts:
    """The wrong passwords of one address: how many in a row, and how many of their answers are being delayed."""

    def __init__(self) -> None:
        self.failures = 0
        self.delayed = 0


class PasswordAttempts:
    """Slows down guesses at the password, for each address separately.

    * The answer to a wrong password takes longer with each one, until a valid one comes from the same address.
    * While `MAX_DELAYED` answers of an address are delayed, no password from it is tried. Otherwise it could guess many at once,
      because the answer to the right one is not delayed.
    """

    def __init__(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._sleep = sleep
        self._by_address: OrderedDict[str, AddressAttempts] = OrderedDict()

    def may_try(self, address: str) -> bool:
        """Return True if a password from an address may be tried now."""
        found = self._by_address.get(address)
        return found is None or found.delayed < MAX_DELAYED

    async def fail(self, address: str) -> None:
        """Count a wrong password, and return when its answer may be sent."""
        attempts = self._by_address.setdefault(address, AddressAttempts())
        self._by_address.move_to_end(address)
        while len(self._by_address) > MAX_ADDRESSES:
            self._by_address.popitem(last=False)
        attempts.failures += 1
        attempts.delayed += 1
        try:
            await self._sleep(min(MAX_DELAY_SECONDS, 0.1 * max(0, attempts.failures - FREE_ATTEMPTS)))
        finally:
            attempts.delayed -= 1

    def succeed(self, address: str) -> None:
        """Forget the wrong passwords of an address. Only a valid password may do that."""
        if (attempts := self._by_address.get(address)) is not None:
            attempts.failures = 0


def to_attempt_address(client: tuple[str, int] | None) -> str:
    """Return the address by which password attempts are counted: that of the connection, for IPv6 its network."""
    host = "" if client is None else client[0]
    if ":" not in host or IPv6Address(host).ipv4_mapped is not None:
        return host
    return str(IPv6Network((host.partition("%")[0], IPV6_NETWORK_BITS), strict=False))


# --- idempotency keys ---

MAX_KEY_LENGTH: Final = 255
HASH_LETTERS: Final = 7
MAX_KEYS: Final = 10_000
KEY_WINDOW_MS: Final = 24 * 60 * 60 * 1000


ClaimKey = Callable[[SessionID, str, MessageID], Awaitable[MessageID]]


class IdempotencyKeys:
    """Maps the `Idempotency-Key` of a prompt to the id of its message, so that a request sent twice is one prompt.

    The id is derived from key and body, so it can be found in the session again after a restart. `now` returns the
    time in milliseconds. `claim` agrees with other nodes on one id: it returns theirs if they were first.
    """

    def __init__(self, now: Callable[[], int], claim: ClaimKey | None = None) -> None:
        self._now = now
        self._claim = claim
        self._ids: OrderedDict[tuple[str, str], MessageID] = OrderedDict()
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def id_for(self, api: Api, session: SessionID, key: str, body: bytes) -> MessageID:
        """Return the message id for a prompt with this key: the earlier one if the prompt was sent before.

        Raise `ConflictError` if the key was used for another prompt, `InvalidInputError` if it is not a valid key.
        """
        if not 0 < len(key) <= MAX_KEY_LENGTH or not key.isprintable():
            raise InvalidInputError(
                "idempotency-key", f"it must have 1 to {MAX_KEY_LENGTH} printable characters"
            )
        head, tail = hash_to_letters(f"{session}\n{key}".encode()), hash_to_letters(body)
        key_id = session, head
        # Two requests that arrive together must not both be the first.
        async with self._locks.setdefault(key_id, asyncio.Lock()):
            found = self._ids.get(key_id) or await self._find(api, session, head)
            id = found or self._make_id(head + tail)
            if self._claim is not None:
                id = await self._claim(session, head, id)
            self._remember(key_id, id)
        if not id.endswith(tail):
            raise ConflictError("idempotency key", key, "was used for another request")
        return id

    def _make_id(self, tail: str) -> MessageID:
        number = (self._now() * PER_MS + 1) % WRAP
        return MessageID(f"msg_{number:0{HEX_LENGTH}x}{tail}")

    def _remember(self, key_id: tuple[str, str], id: MessageID) -> None:
        self._ids[key_id] = id
        self._ids.move_to_end(key_id)
        while len(self._ids) > MAX_KEYS:
            self._ids.popitem(last=False)

    def forget(self, session: SessionID) -> None:
        """Forget the keys of a removed session."""
        for key_id in [key_id for key_id in self._ids if key_id[0] == session]:
            del self._ids[key_id]

    async def _find(self, api: Api, session: SessionID, head: str) -> MessageID | None:
        """Search the recent messages of the session; after a restart they are the only record."""
        oldest = self._now() - KEY_WINDOW_MS
        async for message in api.stream_messages(session):
            if message.info.time.created < oldest:
                return None
            if message.info.id.partition("_")[2][HEX_LENGTH:].startswith(head):
                return message.info.id
        return None


def hash_to_letters(raw: bytes) -> str:
    """Return half of the random part of an id, always the same for the same bytes."""
    digest = hashlib.sha256(raw).digest()
    number = int.from_bytes(digest)
    letters: list[str] = []
    for _ in range(HASH_LETTERS):
        number, rest = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[rest])
    return "".join(letters)


# --- requests to terminal clients ---

MAX_TUI_REQUESTS: Final = 64
TUI_POLL_SECONDS: Final = 25.0


class TuiRequest(Struct, frozen=True, kw_only=True):
    """A request to a terminal client: the path that was called, and the body."""

    path: str
    body: Any = None


class TuiControl:
    """Queues requests for terminal clients that poll instead of listening to events: one short queue per directory.

    If nobody polls, the oldest requests are dropped.
    """

    def __init__(self, poll_seconds: float = TUI_POLL_SECONDS) -> None:
        self._poll_seconds = poll_seconds
        self._queues: dict[str, asyncio.Queue[TuiRequest]] = {}

    def put(self, directory: str, request: TuiRequest) -> None:
        """Queue a request for the client of a directory, if one has polled before. Others receive it as an event."""
        queue = self._queues.get(directory)
        if queue is None:
            return
        if queue.full():
            queue.get_nowait()
        queue.put_nowait(request)

    async def next(self, directory: str) -> TuiRequest | None:
        """Return the next request, or None if none arrives in time, so that no connection waits for ever."""
        queue = self._queues.setdefault(directory, asyncio.Queue(MAX_TUI_REQUESTS))
        try:
            async with asyncio.timeout(self._poll_seconds):
                return await queue.get()
        except TimeoutError:
            return None

    def forget(self, directory: str) -> None:
        self._queues.pop(directory, None)
