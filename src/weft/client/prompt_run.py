"""Follow a prompt over any `Api`: its events, its answer, and its end."""

import asyncio
from collections.abc import AsyncIterator

from weft.api import Api
from weft.client.abort import end_run
from weft.errors import CursorLostError
from weft.model.event import (
    Event,
    PublishedEvent,
    SessionRested,
)
from weft.model.event_wire import RESYNC, UnknownEvent
from weft.model.ids import SessionID
from weft.model.input import PromptInput
from weft.model.message import MessageWithParts
from weft.model.transcript import SessionDescendants


async def stop_listening(events: AsyncIterator[PublishedEvent]) -> None:
    """Close an iterator over events, if it can be closed."""
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()


class PromptRun:
    """A prompt that was sent: its events and its answer. `missed` says that some events were lost."""

    def __init__(self, api: Api, session: SessionID, input: PromptInput) -> None:
        self.missed = False
        self._api = api
        self._session = session
        self._events = api.events()
        self._prompting = asyncio.ensure_future(api.prompt(session, input))
        self._silent = input.no_reply
        self._over = False

    async def answer(self) -> MessageWithParts:
        return await self._prompting

    async def events(self) -> AsyncIterator[Event]:
        family = SessionDescendants(self._session)
        while (published := await self._next()) is not None:
            event = published.event
            resync = isinstance(event, UnknownEvent) and event.named == RESYNC
            self.missed |= resync
            rested = isinstance(event, SessionRested) and event.session_id == self._session
            if family.place(event) or resync:
                self._over = rested
                yield event
            if rested:
                return
        self._over = True

    async def _next(self) -> PublishedEvent | None:
        """Return the next event, or None if the prompt has ended and no more events are expected."""
        while True:
            hearing = asyncio.ensure_future(anext(self._events, None))
            try:
                await asyncio.wait((hearing, self._prompting), return_when=asyncio.FIRST_COMPLETED)
                if self._prompting.done():
                    self._over |= self._prompting.exception() is not None
                    if self._over or self._silent or self.missed:
                        await self._prompting
                        return None
                return await hearing
            except CursorLostError:  # events were lost: continue with new ones
                self._events, self.missed = self._api.events(), True
            finally:
                hearing.cancel()

    async def close(self) -> None:
        """End the run if it has not ended, and stop listening."""
        try:
            if not self._over:
                await end_run(self._api, self._session, self._prompting)
        finally:
            self._prompting.cancel()
            await asyncio.gather(self._prompting, return_exceptions=True)
            await stop_listening(self._events)
