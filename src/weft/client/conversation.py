"""A conversation over any `Api`: words in, events and an answer out."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, Literal

from msgspec import UNSET

from weft.api import Api
from weft.client.events import RESYNC
from weft.errors import CursorLostError, NotFoundError, RunFailedError
from weft.model.event import (
    Event,
    PartGrew,
    PartUpdated,
    PermissionAsked,
    SessionCreated,
    SessionRested,
    SessionUpdated,
    Told,
    session_of,
)
from weft.model.event_wire import UnknownEvent
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
BETWEEN: Final = 0.1


async def end_run(api: Api, session: SessionID, prompting: asyncio.Future[Any]) -> None:
    """End the run that a prompt began; it is settled when this returns. A prompt that has yet to arrive is waited for a
    while: else it would begin behind our back."""
    for _ in range(TRIES):
        if prompting.done() or await api.abort(session):
            return
        await asyncio.wait((prompting,), timeout=BETWEEN)


class Family:
    """A session and those below it, as far as has been told of them."""

    def __init__(self, session: SessionID) -> None:
        self._session = session
        self._below: set[SessionID] = set()

    def place(self, event: Event) -> Literal["own", "below"] | None:
        """Whether an event is about the session itself, or about one below it."""
        match event:
            # Before a child runs it is made, or touched: either way it is told whose child it is.
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
    """Go on with a session, or begin one. `permit` answers what an agent asks to be allowed, and may take its time if it
    is `async`; without it that is up to whoever reads the events."""
    if session is None:
        session = (await api.create_session(SessionInput(title=title))).id
    conversation = Conversation(api, session, permit)
    await conversation.refresh()
    return conversation


class Conversation:
    """One session, talked with. `transcript` is kept up with while a prompt is answered; `answer` is the last one."""

    def __init__(self, api: Api, id: SessionID, permit: Permit | None = None) -> None:
        self.api = api
        self.id = id
        self.transcript = Transcript()
        self.answer: MessageWithParts | None = None
        self._permit = permit

    async def refresh(self) -> None:
        """Read it anew: others may have gone on with it."""
        self.transcript = Transcript(await self.api.list_messages(self.id))

    def messages(self) -> list[MessageWithParts]:
        return self.transcript.messages()

    async def ask(self, words: str | PromptInput, *, schema: dict[str, Any] | None = None) -> Any:
        """The answer in words; with a JSON schema, the value. Raises `RunFailedError` when there is none."""
        asked = to_prompt(words, schema=schema) if isinstance(words, str) else words
        async for _ in self.prompt(asked):
            pass
        info = self.answer.info if self.answer else None
        if not isinstance(info, AssistantMessage) or self.answer is None:
            raise RunFailedError("nobody answered")
        if info.error is not None:
            raise RunFailedError(describe(info.error))
        return text_of(self.answer) if info.structured is UNSET else info.structured

    async def prompt(self, words: str | PromptInput) -> AsyncGenerator[Event]:
        """What happens, in this session and those below it, until it rests. Whoever stops reading, or is cancelled, ends
        the run, and it is settled when that is through."""
        asked = to_prompt(words) if isinstance(words, str) else words
        run = _Run(self.api, self.id, asked)
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
        """What is said in answer, piece by piece; no thoughts, and nothing of sessions below. Each part begins a line."""
        said: dict[PartID, int] = {}
        async with aclosing(self.prompt(words)) as events:
            async for event in events:
                part = self._said_in(event)
                begun = said.get(part.id, 0) if part else 0
                if part is not None and len(part.text) > begun:
                    yield ("\n" if said and not begun else "") + part.text[begun:]
                    said[part.id] = len(part.text)

    def _said_in(self, event: Event) -> TextPart | None:
        """The part of the answer that an event is about, as far as it is said."""
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
        return next((each for each in _spoken(message) if each.id == at[1]), None)

    async def _reply(self, request: PermissionRequest, said: Reply | Awaitable[Reply]) -> None:
        reply: Reply = await said if inspect.isawaitable(said) else said
        try:
            await self.api.reply_permission(request.id, reply)
        except NotFoundError:
            return  # somebody else was faster


class _Run:
    """A prompt on its way, and what is heard of it."""

    def __init__(self, api: Api, session: SessionID, input: PromptInput) -> None:
        self.missed = False
        self._api = api
        self._session = session
        self._listening = api.events()
        self._prompting = asyncio.ensure_future(api.prompt(session, input))
        self._silent = input.no_reply
        self._over = False

    async def answer(self) -> MessageWithParts:
        return await self._prompting

    async def events(self) -> AsyncIterator[Event]:
        family = Family(self._session)
        while (told := await self._next()) is not None:
            event = told.event
            resync = isinstance(event, UnknownEvent) and event.named == RESYNC
            self.missed |= resync
            rested = isinstance(event, SessionRested) and event.session_id == self._session
            if family.place(event) or resync:
                self._over = rested
                yield event
            if rested:
                return
        self._over = True

    async def _next(self) -> Told | None:
        """What is told next; None when the prompt is through and nothing more is to be expected."""
        while True:
            hearing = asyncio.ensure_future(anext(self._listening, None))
            try:
                await asyncio.wait((hearing, self._prompting), return_when=asyncio.FIRST_COMPLETED)
                if self._prompting.done():
                    self._over |= self._prompting.exception() is not None
                    if self._over or self._silent or self.missed:
                        await self._prompting
                        return None
                return await hearing
            except CursorLostError:  # more happened than is held: what is there counts
                self._listening, self.missed = self._api.events(), True
            finally:
                hearing.cancel()

    async def close(self) -> None:
        """Leave nothing running."""
        try:
            if not self._over:
                await end_run(self._api, self._session, self._prompting)
        finally:
            self._prompting.cancel()
            await asyncio.gather(self._prompting, return_exceptions=True)
            leave = getattr(self._listening, "aclose", None)
            if leave is not None:
                await leave()


def text_of(answer: MessageWithParts) -> str:
    """What was said, without what was put in its mouth."""
    return "".join(part.text for part in _spoken(answer))


def _spoken(answer: MessageWithParts) -> list[TextPart]:
    texts = (part for part in answer.parts if isinstance(part, TextPart))
    return [part for part in texts if not part.synthetic and not part.ignored]


def describe(failure: AnyFailure) -> str:
    plain = to_plain(failure)
    data = plain.get("data")
    said = data.get("message") if isinstance(data, dict) else None
    return str(said or plain.get("name", "something went wrong"))
