"""Sessions at rest, to be changed: a store and its journal, without configuration, models or runs.

Whoever renames a session or throws one away must not be held up by a configuration that cannot be understood.
"""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from msgspec import Struct

from weft.app.address import store_url
from weft.app.place import find_place
from weft.app.sharing.contract import Afar
from weft.app.sharing.taking_back import TakingBack
from weft.bus import Bus
from weft.host.clock import Clock, SystemClock
from weft.host.paths import paths_from
from weft.journal import Journal, open_journal
from weft.model.ids import Mint, SessionID
from weft.session.lifecycle import Maker
from weft.session.remove import Remover
from weft.store.contract import Store
from weft.store.url import open_store


class Resting(Struct, frozen=True, kw_only=True):
    """What the verbs on sessions at rest need. `url` is the store's address if one was given."""

    store: Store
    journal: Journal
    clock: Clock
    directory: str
    env: Mapping[str, str]
    url: str | None = None

    async def maker(self) -> Maker:
        """To make sessions in the place that the directory is."""
        found = await find_place(self.store, self.directory, self.env, self.clock.now())
        mint = Mint(self.clock.now, os.urandom)
        return Maker(journal=self.journal, clock=self.clock, mint=mint, random=os.urandom, place=found.place)

    def remover(self) -> Remover:
        back = TakingBack(store=self.store, journal=self.journal, remote=Afar(self.clock))
        return Remover(
            store=self.store,
            journal=self.journal,
            clock=self.clock,
            owner=who_we_are(),
            stop=_nothing_runs,
            revoke=back.revoke,
        )


@asynccontextmanager
async def open_resting(
    directory: str, env: Mapping[str, str], *, store: str | None = None
) -> AsyncIterator[Resting]:
    clock = SystemClock()
    async with (
        open_store(store_url(env, paths_from(env), store)) as opened,
        open_journal(opened, Bus(), clock, directory=directory) as journal,
    ):
        yield Resting(store=opened, journal=journal, clock=clock, directory=directory, env=env, url=store)


def who_we_are() -> str:
    return f"process {os.getpid()} on {os.uname().nodename}"


async def _nothing_runs(_: SessionID) -> None:
    """Nothing does, in this process. What runs in another holds the session's lease, and removing is refused."""
