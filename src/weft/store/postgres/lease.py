"""Leases of sessions as rows: taken and renewed by the clock of the database, and fenced by their generation.

The lease of a holder that no longer renews it runs out. The process that takes it over gets a later generation. Every write of
the old holder names the earlier generation, and the database refuses it in the statement that writes.
"""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NoReturn

from weft.errors import LeaseLostError, SessionBusyError, StoreError
from weft.host.clock import Clock
from weft.host.tasks import run_to_completion
from weft.model.ids import SessionID, check_file_name
from weft.store.lease import LeaseToken
from weft.store.postgres.connection import Database
from weft.store.rows import to_bytes, to_text

ATTEMPTS = 3
# How many times a lease is renewed within its duration.
HEARTBEATS = 3
RANDOM_BITS = 62

TAKE = "SELECT {schema}.take_lease($1, $2, $3, $4)"
RENEW = """UPDATE {schema}.lease SET till = clock_timestamp() + $3 * interval '1 second'
FROM unnest($1::text[], $2::bigint[]) AS token (session, generation)
WHERE lease.session = token.session AND lease.generation = token.generation AND lease.till IS NOT NULL
RETURNING lease.session, lease.generation"""
GIVE_BACK = "UPDATE {schema}.lease SET till = NULL, changed = clock_timestamp() WHERE session = $1 AND generation = $2"
SELECT_OWNER = "SELECT owner FROM {schema}.lease WHERE session = $1 AND till >= clock_timestamp()"


class LeaseKeeper:
    """Takes leases, and renews those that are held until they are given back."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._seconds = database.address.lease_seconds
        self._held: set[LeaseToken] = set()
        # Called for each lease that somebody else has taken over.
        self.watchers: list[Callable[[LeaseLostError], None]] = []

    async def renew_forever(self) -> None:
        """Renew all held leases, `HEARTBEATS` times within their duration, until cancelled."""
        while True:
            await self._clock.sleep(self._seconds / HEARTBEATS)
            # If the database cannot be reached, leases run out there. The next attempt renews those that nobody took over.
            with suppress(StoreError):
                await self.renew()

    async def renew(self) -> None:
        tokens = sorted(self._held)
        if tokens:
            renewed = await self._database.fetch(
                RENEW,
                [token.session for token in tokens],
                [token.generation for token in tokens],
                self._seconds,
                urgent=True,
            )
            # One that was given back meanwhile is not lost.
            for token in sorted((set(tokens) & self._held) - {LeaseToken(*row) for row in renewed}):
                self._held.discard(token)
                for lost in self.watchers:
                    lost(LeaseLostError(token.session))

    @asynccontextmanager
    async def hold(self, session: SessionID, owner: str) -> AsyncIterator[LeaseToken]:
        """Hold the lease of a session. Raise `SessionBusyError` if somebody else holds it."""
        taken: list[LeaseToken] = []
        try:
            # If we are cancelled meanwhile, we still know which lease to give back.
            await run_to_completion(self._take(session, owner, taken))
            yield taken[0]
        finally:
            for token in taken:
                await run_to_completion(self._give_back(token))

    async def _take(self, session: SessionID, owner: str, taken: list[LeaseToken]) -> None:
        key, attempt, holder = check_file_name("session", session), secrets.randbits(RANDOM_BITS), ""
        for _ in range(ATTEMPTS):
            generation = await self._database.fetch_value(TAKE, key, to_bytes(owner), attempt, self._seconds)
            if generation is not None:
                taken.append(LeaseToken(session, generation))
                self._held.add(taken[0])
                return
            found = await self._database.fetch_value(SELECT_OWNER, key)
            if found is not None:
                holder = to_text(found)
                break  # else it was given back, or ran out, in between
        raise SessionBusyError(session, holder)

    async def _give_back(self, token: LeaseToken) -> None:
        self._held.discard(token)
        with suppress(StoreError):  # then it runs out by itself
            await self._database.fetch(GIVE_BACK, token.session, token.generation)


def raise_lost(lost: str) -> NoReturn:
    """Raise `LeaseLostError` for the answer of the function `find_lost_lease`: a session, and its owner in hex."""
    session, _, owner = lost.partition(" ")
    raise LeaseLostError(session, to_text(bytes.fromhex(owner)))
