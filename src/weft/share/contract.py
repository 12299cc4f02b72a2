"""Share servers as weft sees them, the settings for sharing, and the list of shares."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from weft.config.flags import read_flags
from weft.config.schema import Config
from weft.errors import InvalidInputError, NotFoundError, SharingDisabledError, SharingError
from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.catalog import Model
from weft.model.ids import SessionID
from weft.model.part import ModelRef
from weft.model.share import Share, ShareItem, ShareTicket
from weft.share.records import Book, Record, to_share
from weft.store.contract import Store

LONGEST_ADDRESS: Final = 2048
NOWHERE: Final = (
    "weft share ID --to page.html writes a page; weft serve --share shows pages; "
    '"enterprise": {"url": …} in opencode.json names a share server'
)


class ShareSettings(Struct, frozen=True, kw_only=True):
    """`server` is the share server of the configuration, `host` the address of our own pages while they are served.

    OpenCode shares to a public server when none is configured. Here nothing leaves for a place that nobody named.
    """

    mode: Literal["manual", "auto", "disabled"] = "manual"
    disabled_by: str = ""
    server: str = ""
    host: str = ""

    def check(self) -> None:
        if self.mode == "disabled":
            raise SharingDisabledError(self.disabled_by)


def to_share_settings(config: Config, env: Mapping[str, str], host: str) -> ShareSettings:
    """What a project that is not trusted says of it is not in the configuration, unless it switches sharing off."""
    flags = read_flags(env)
    server = (config.enterprise.url if config.enterprise else None) or ""
    if flags.disable_share or config.share == "disabled":
        by = "OPENCODE_DISABLE_SHARE" if flags.disable_share else '"share": "disabled"'
        return ShareSettings(mode="disabled", disabled_by=by, host=host)
    mode: Literal["manual", "auto"] = "auto" if flags.auto_share or config.share == "auto" else "manual"
    return ShareSettings(mode=mode, server=server.rstrip("/"), host=host)


def to_address(given: str, field: str) -> str:
    """The address of a share server, without a slash at its end. Before an `@` it may say who we are there."""
    try:
        parts = urlsplit(given)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or len(given) > LONGEST_ADDRESS or any(char <= " " for char in given):
        raise InvalidInputError(
            field, "it is no address of a server", hint="such as https://share.example.org"
        )
    return given.rstrip("/")


class GoneError(SharingError):
    """The share server does not know the share any more."""


class Remote(Protocol):
    """Speaks with share servers.

    * every answer is looked at: what is none is a `SharingError`, a share that is not there a `GoneError`;
    * what may go better a moment later is tried again, a few times; then it is an error;
    * removing what is not there is removing it.
    """

    async def create(self, server: str, session: SessionID, *, expires: int | None) -> ShareTicket: ...

    async def sync(self, record: Record, items: Iterable[ShareItem]) -> None: ...

    async def remove(self, record: Record) -> None: ...


class Ground(Struct, frozen=True, kw_only=True):
    """What sharing stands on. `find_model` gives what is known of a model, None if nothing is."""

    store: Store
    journal: Journal
    clock: Clock
    remote: Remote
    settings: ShareSettings = ShareSettings()
    find_model: Callable[[ModelRef], Model | None] = lambda _: None


class Afar:
    """A `Remote` that is put together when it is first needed: most who start never share, and HTTP takes long to load."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._made: Any = None

    def _remote(self) -> Remote:
        if self._made is None:
            self._made = import_module("weft.share.remote").ShareServers(self._clock)
        made: Remote = self._made
        return made

    async def create(self, server: str, session: SessionID, *, expires: int | None) -> ShareTicket:
        return await self._remote().create(server, session, expires=expires)

    async def sync(self, record: Record, items: Iterable[ShareItem]) -> None:
        await self._remote().sync(record, items)

    async def remove(self, record: Record) -> None:
        await self._remote().remove(record)


async def list_shares(store: Store) -> list[Share]:
    """In the order they were made; what OpenCode shared comes last, for nobody knows when that was."""
    ours = await Book(store).list_all()
    theirs = await _list_theirs(store)
    known = {record.session_id for record in ours if record.target != "received"}
    return [
        *(to_share(record) for record in ours),
        *(to_share(record, known=False) for record in theirs if record.session_id not in known),
    ]


async def get_record(store: Store, id: str) -> Record:
    """By the share's own id."""
    found = await Book(store).find(id)
    theirs = [] if found else [record for record in await _list_theirs(store) if record.id == id]
    if found is None and not theirs:
        raise NotFoundError("share", id[:80], hint="see which there are: weft share list")
    return found or theirs[0]


async def _list_theirs(store: Store) -> list[Record]:
    """Its sessions say that they are shared, and it keeps the record."""
    book, found = Book(store), []
    for session in await store.list_sessions():
        if session.share is not None:
            record = await book.find_of(session.id)
            if record is not None and record.listed and not record.server:
                found.append(record)
    return found
