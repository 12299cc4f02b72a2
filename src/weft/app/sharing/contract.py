"""A share server as we see it, whoever wrote it; and what it takes to share."""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Protocol

from msgspec import Struct

from weft.app.sharing.settings import ShareSettings
from weft.errors import SharingError
from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.around.share import ShareItem, ShareTicket
from weft.model.catalog import Model
from weft.model.ids import SessionID
from weft.model.part import ModelRef
from weft.session.sharing.book import Record
from weft.store.contract import Store


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
            self._made = import_module("weft.app.sharing.remote").ShareServers(self._clock)
        made: Remote = self._made
        return made

    async def create(self, server: str, session: SessionID, *, expires: int | None) -> ShareTicket:
        return await self._remote().create(server, session, expires=expires)

    async def sync(self, record: Record, items: Iterable[ShareItem]) -> None:
        await self._remote().sync(record, items)

    async def remove(self, record: Record) -> None:
        await self._remote().remove(record)
