"""Change stored sessions without a model: for commands on sessions that nobody runs."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from msgspec import Struct

from weft.bus import Bus
from weft.config.store_address import resolve_store_url
from weft.host.clock import Clock, SystemClock
from weft.host.paths import paths_from
from weft.host.processes import describe_process
from weft.journal import Journal, open_journal
from weft.local.place import find_place
from weft.model.ids import Mint, SessionID
from weft.session.lifecycle import SessionMaker
from weft.session.remove import Remover
from weft.share.contract import LazyShareClient
from weft.share.revoke import ShareRevoker
from weft.store.contract import Store
from weft.store.url import open_store


class OfflineSessions(Struct, frozen=True, kw_only=True):
    """A store and a journal to change sessions without running them. `url` is the address of the store if one was given."""

    store: Store
    journal: Journal
    clock: Clock
    directory: str
    env: Mapping[str, str]
    url: str | None = None

    async def maker(self) -> SessionMaker:
        """Return a maker of sessions for the directory."""
        found = await find_place(self.store, self.directory, self.env, self.clock.now())
        mint = Mint(self.clock.now, os.urandom)
        return SessionMaker(
            journal=self.journal, clock=self.clock, mint=mint, random=os.urandom, place=found.place
        )

    def remover(self) -> Remover:
        revoker = ShareRevoker(store=self.store, journal=self.journal, remote=LazyShareClient(self.clock))
        return Remover(
            store=self.store,
            journal=self.journal,
            clock=self.clock,
            owner=describe_process(),
            stop=_nothing_runs,
            revoke=revoker.revoke_session,
        )


@asynccontextmanager
async def open_offline_sessions(
    directory: str, env: Mapping[str, str], *, store: str | None = None
) -> AsyncIterator[OfflineSessions]:
    clock = SystemClock()
    async with (
        open_store(resolve_store_url(env, paths_from(env), store)) as opened,
        open_journal(opened, Bus(), clock, directory=directory) as journal,
    ):
        yield OfflineSessions(
            store=opened, journal=journal, clock=clock, directory=directory, env=env, url=store
        )


async def _nothing_runs(_: SessionID) -> None:
    """Do nothing: this process runs no session. A session that another process runs is leased and cannot be removed."""
