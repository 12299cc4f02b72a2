"""A conversation with a session, over any `Api`: send text, receive events and an answer."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, Literal

from msgspec import UNSET

from weft.api import Api
from weft.errors import CursorLostError, NotFoundError, RunFailedError
from weft.model.event import (
    Event,
    PartGrew,
    PartUpdated,
    PermissionAsked,
    PublishedEvent,
    SessionCreated,
    SessionRested,
    SessionUpdated,
    session_of,
)
from weft.model.event_wire import RESYNC, UnknownEvent
from weft.model.failure import AnyFailure
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.input import PromptInput, SessionInput
from weft.model.input import prompt as to_prompt
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import TextPart
from weft.model.permission import PermissionRequest, Reply
from weft.model.transcript import Transcript
from weft.model.wire import to_plain

TRIES: Final = 20
RETRY_SECONDS: Final = 0.1


async def end_run(api: Api, session: SessionID, prompting: asyncio.Future[Any]) -> None:
    """End the run that a prompt began. It has ended when this returns.

    Wait a while for a prompt that has not arrived yet; otherwise its run would begin afterwards.
    """
    for _ in range(TRIES):
        if prompting.done() or await api.abort(session):
            return
        await asyncio.wait((prompting,), timeout=RETRY_SECONDS)


class SessionDescendants:
    """A session and its descendants, learned from events."""

    def __init__(self, session: SessionID) -> None:
        self._session = session
        self._below: set[SessionID] = set()

    def place(self, event: Event) -> Literal["own", "below"] | None:
        """Return whether an event is about the session itself (`own`), a descendant (`below`), or neither (None)."""
        match event:
            # A child session is created or updated before it runs, and both events name its parent.
            case SessionCreated(info=info) | SessionUpdated(info=info):
                if info.parent_id == self._session or info.parent_id in self._below:
                    self._below.add(info.id)
            case _:
                pass
        about = session_of(event)
        if about == self._session:
            return "own"
        return "below" if about in self._below else None


Permit = Callable[[PermissionRequest], Reply | Awaitable[Reply]]


async def converse(
    api: Api, session: SessionID | None = None, *, title: str | None = None, permit: Permit | None = None
) -> "Conversation":
    """Continue a session, or create one.

    `permit` answers permission requests; it may be async. Without it, reply to the `PermissionAsked` events yourself.
    """
    if session is None:
        session = (await api.create_session(SessionInput(title=title))).id
    conversation = Conversation(api, session, permit)
    await conversation.refresh()
    return conversation


class Conversation:
    """A conversation with one session. `transcript` is updated while a prompt runs; `answer` is the last answer."""

    def __init__(self, api: Api, id: SessionID, permit: Permit | None = None) -> None:
        self.api = api
        self.id = id
        self.transcript = Transcript()
        self.answer: MessageWithParts | None = None
        self._permit = permit

    async def refresh(self) -> None:
        """Read the messages again, in case others continued the session."""
        self.transcript = Transcript(await self.api.list_messages(self.id))

    def messages(self) -> list[MessageWithParts]:
        return self.transcript.messages()

    async def ask(self, words: str | PromptInput, *, schema: dict[str, Any] | None = None) -> Any:
        """Send a prompt and return the answer as text, or as a value if a JSON `schema` is given.

        Raise `RunFailedError` if there is no answer.
        """
        asked = to_prompt(words, schema=schema) if isinstance(words, str) else words
        async for _ in self.prompt(asked):
            pass
        info = self.answer.info if self.answer else None
        if not isinstance(info, AssistantMessage) or self.answer is None:
            raise RunFailedError("there is no answer")
        if info.error is not None:
            raise RunFailedError(describe_failure(info.error))
        return text_of(self.answer) if info.structured is UNSET else info.structured

    async def prompt(self, words: str | PromptInput) -> AsyncGenerator[Event]:
        """Send a prompt and yield the events of the session and its descendants until the session is idle.

        Closing the generator or cancelling it ends the run.
        """
        asked = to_prompt(words) if isinstance(words, str) else words
        run = _PromptRun(self.api, self.id, asked)
        try:
            await self.refresh()
            async for event in run.events():
                self.transcript.feed(event)
                if isinstance(event, UnknownEvent) and event.named == RESYNC:
                    await self.refresh()
                if self._permit is not None and isinstance(event, PermissionAsked):
                    await self._reply(event.request, self._permit(event.request))
                yield event
            self.answer = await run.answer()
            if run.missed:
                await self.refresh()
        finally:
            await run.close()

    async def stream(self, words: str | PromptInput) -> AsyncGenerator[str]:
        """Send a prompt and yield the text of the answer as it is written, without reasoning and without child sessions.

        Each part begins on a new line.
        """
        lengths: dict[PartID, int] = {}
        async with aclosing(self.prompt(words)) as events:
            async for event in events:
                part = self._find_text(event)
                start = lengths.get(part.id, 0) if part else 0
                if part is not None and len(part.text) > start:
                    yield ("\n" if lengths and not start else "") + part.text[start:]
                    lengths[part.id] = len(part.text)

    def _find_text(self, event: Event) -> TextPart | None:
        """Return the text part of the answer that an event changes, or None."""
        at: tuple[MessageID, PartID]
        match event:
            case PartGrew(session_id=self.id):
                at = event.message_id, event.part_id
            case PartUpdated(part=TextPart(session_id=self.id) as part):
                at = part.message_id, part.id
            case _:
                return None
        message = self.transcript.find(at[0])
        if message is None or not isinstance(message.info, AssistantMessage):
            return None
        return next((each for each in _list_spoken(message) if each.id == at[1]), None)

    async def _reply(self, request: PermissionRequest, given: Reply | Awaitable[Reply]) -> None:
        reply: Reply = await given if inspect.isawaitable(given) else given
        try:
            await self.api.reply_permission(request.id, reply)
        except NotFoundError:
            return  # another client replied first


class _PromptRun:
    """A prompt that was sent, and its events."""

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
            leave = getattr(self._events, "aclose", None)
            if leave is not None:
                await leave()


def text_of(answer: MessageWithParts) -> str:
    """Return the text of an answer, without synthetic and ignored parts."""
    return "".join(part.text for part in _list_spoken(answer))


def _list_spoken(answer: MessageWithParts) -> list[TextPart]:
    texts = (part for part in answer.parts if isinstance(part, TextPart))
    return [part for part in texts if not part.synthetic and not part.ignored]


def describe_failure(failure: AnyFailure) -> str:
    plain = to_plain(failure)
    data = plain.get("data")
    message = data.get("message") if isinstance(data, dict) else None
    return str(message or plain.get("name", "something went wrong"))
