"""Follow a prompt over any `Api`: its events, its answer, and its end."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from weft.api import Api
from weft.client.abort import end_run
from weft.errors import CursorLostError
from weft.model.event import (
    Event,
    PublishedEvent,
    SessionIdled,
)
from weft.model.event_wire import RESYNC, UnknownEvent
from weft.model.ids import SessionID
from weft.model.input import PromptInput
from weft.model.message import MessageWithParts
from weft.model.transcript import SessionDescendants

MAX_HEARD: Final = 256


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
        # One task listens for all events: a task for each would cost more than the event. None wakes up the reader.
        self._heard: asyncio.Queue[PublishedEvent | None] = asyncio.Queue(MAX_HEARD)
        self._prompting = asyncio.ensure_future(api.prompt(session, input))
        self._listening = asyncio.ensure_future(self._listen())
        for task in (self._prompting, self._listening):
            task.add_done_callback(self._wake)
        self._no_reply = input.no_reply
        self._over = False

    async def answer(self) -> MessageWithParts:
        return await self._prompting

    async def events(self) -> AsyncIterator[Event]:
        family = SessionDescendants(self._session)
        while (published := await self._next()) is not None:
            event = published.event
            resync = isinstance(event, UnknownEvent) and event.named == RESYNC
            self.missed |= resync
            idle = isinstance(event, SessionIdled) and event.session_id == self._session
            if family.classify(event) or resync:
                self._over = idle
                yield event
            if idle:
                return
        self._over = True

    async def _next(self) -> PublishedEvent | None:
        """Return the next event, or None if the prompt has ended and no more events are expected."""
        while True:
            if self._prompting.done():
                self._over |= self._prompting.exception() is not None
                if self._over or self._no_reply or self.missed:
                    await self._prompting
                    return None
            if self._listening.done() and self._heard.empty():
                await self._listening  # it raises the error that ended it
                return None
            heard = await self._heard.get()
            if heard is not None:
                return heard

    async def _listen(self) -> None:
        """Queue the events for the reader. If it does not read them, wait."""
        while True:
            try:
                async for published in self._events:
                    await self._heard.put(published)
            except CursorLostError:  # events were lost: continue with new ones
                self._events, self.missed = self._api.events(), True
            else:
                return

    def _wake(self, _: asyncio.Future[Any]) -> None:
        if self._heard.empty():
            self._heard.put_nowait(None)

    async def close(self) -> None:
        """End the run if it has not ended, and stop listening."""
        try:
            if not self._over:
                await end_run(self._api, self._session, self._prompting)
        finally:
            for task in (self._prompting, self._listening):
                task.cancel()
            await asyncio.gather(self._prompting, self._listening, return_exceptions=True)
            await stop_listening(self._events)
