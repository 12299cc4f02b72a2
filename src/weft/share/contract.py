"""The interface to share servers, the settings for sharing, and the list of shares."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from weft.config.flags import read_flags
from weft.config.schema import Config
from weft.errors import InvalidInputError, NotFoundError, SharingDisabledError, SharingError, UnreadableError
from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.catalog import Model
from weft.model.ids import SessionID
from weft.model.part import ModelRef
from weft.model.share import Share, ShareItem, ShareTicket
from weft.share.records import OPENCODE_KEY, ShareRecord, ShareRecords, to_share
from weft.store.contract import Store

MAX_ADDRESS_LENGTH: Final = 2048
NO_TARGET_HINT: Final = (
    "weft share ID --to page.html writes a page; weft serve --share shows pages; "
    '"enterprise": {"url": …} in opencode.json names a share server'
)


class ShareSettings(Struct, frozen=True, kw_only=True):
    """`server` is the configured share server, `host` the address of our own pages while they are served.

    OpenCode shares to a public server if none is configured. Here nothing is sent to a server that nobody named.
    """

    mode: Literal["manual", "auto", "disabled"] = "manual"
    disabled_by: str = ""
    server: str = ""
    host: str = ""

    def check(self) -> None:
        """Raise `SharingDisabledError` if sharing is disabled."""
        if self.mode == "disabled":
            raise SharingDisabledError(self.disabled_by)


def to_share_settings(config: Config, env: Mapping[str, str], host: str) -> ShareSettings:
    """Return the settings for sharing. The configuration of an untrusted project can only disable it."""
    flags = read_flags(env)
    server = (config.enterprise.url if config.enterprise else None) or ""
    if flags.disable_share or config.share == "disabled":
        by = "OPENCODE_DISABLE_SHARE" if flags.disable_share else '"share": "disabled"'
        return ShareSettings(mode="disabled", disabled_by=by, host=host)
    mode: Literal["manual", "auto"] = "auto" if flags.auto_share or config.share == "auto" else "manual"
    return ShareSettings(mode=mode, server=server.rstrip("/"), host=host)


def check_address(address: str, field: str) -> str:
    """Return the address of a share server without a trailing slash. It may contain credentials before an `@`.

    Raise `InvalidInputError` if it is not an address.
    """
    try:
        parts = urlsplit(address)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or len(address) > MAX_ADDRESS_LENGTH or any(char <= " " for char in address):
        raise InvalidInputError(
            field, "it is not the address of a server", hint="such as https://share.example.org"
        )
    return address.rstrip("/")


class GoneError(SharingError):
    """The share server does not know the share."""


class ShareClient(Protocol):
    """Talks to share servers.

    * every answer is checked: an invalid one raises `SharingError`, a missing share `GoneError`;
    * temporary errors are retried a few times and raised then;
    * removing a share that does not exist succeeds.
    """

    async def create(self, server: str, session: SessionID, *, expires: int | None) -> ShareTicket: ...

    async def sync(self, record: ShareRecord, items: Iterable[ShareItem]) -> None: ...

    async def remove(self, record: ShareRecord) -> None: ...


class ShareContext(Struct, frozen=True, kw_only=True):
    """What sharing needs from outside. `find_model` returns what is known of a model, None if nothing is."""

    store: Store
    journal: Journal
    clock: Clock
    remote: ShareClient
    settings: ShareSettings = ShareSettings()
    find_model: Callable[[ModelRef], Model | None] = lambda _: None


class LazyShareClient:
    """A `ShareClient` that loads HTTP when it is first needed: most processes never share, and HTTP loads slowly."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._client: Any = None

    def _get_client(self) -> ShareClient:
        if self._client is None:
            self._client = import_module("weft.share.remote").HttpShareClient(self._clock)
        client: ShareClient = self._client
        return client

    async def create(self, server: str, session: SessionID, *, expires: int | None) -> ShareTicket:
        return await self._get_client().create(server, session, expires=expires)

    async def sync(self, record: ShareRecord, items: Iterable[ShareItem]) -> None:
        await self._get_client().sync(record, items)

    async def remove(self, record: ShareRecord) -> None:
        await self._get_client().remove(record)


async def list_shares(store: Store) -> list[Share]:
    """Return all shares in the order in which they were made. Those of OpenCode come last, because their time is unknown."""
    ours = await ShareRecords(store).list_all()
    theirs = await _list_opencode_shares(store)
    shared_sessions = {record.session_id for record in ours if record.target != "received"}
    return [
        *(to_share(record) for record in ours),
        *(to_share(record, known=False) for record in theirs if record.session_id not in shared_sessions),
    ]


async def get_record(store: Store, id: str) -> ShareRecord:
    """Return a share by its id. Raise `NotFoundError` if it does not exist."""
    found = await ShareRecords(store).find(id)
    theirs = [] if found else [record for record in await _list_opencode_shares(store) if record.id == id]
    if found is None and not theirs:
        raise NotFoundError("share", id[:80], hint="see which there are: weft share list")
    return found or theirs[0]


async def _list_opencode_shares(store: Store) -> list[ShareRecord]:
    """Return the shares that OpenCode made: it marks the session and stores its own record."""
    records, shares = ShareRecords(store), []
    for key in await store.list_keys((OPENCODE_KEY,)):
        try:
            session = await store.get_session(SessionID(key[-1]))
        except (NotFoundError, UnreadableError):
            continue
        if session.share is not None:
            record = await records.find_for_session(session.id)
            if record is not None and record.listed and not record.server:
                shares.append(record)
    return shares
