"""Prompts, commands and undo, over HTTP."""

import secrets
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace

from weft.client.events import Listening
from weft.client.http import Asked, Line, Waits, get, need_weft, own, post, quoted, session_at
from weft.client.opencode import model_in, named, next_id, only_known
from weft.client.sessions import RemoteMessages
from weft.errors import ModelNotFoundError, NoModelError, NotFoundError
from weft.model.agent import Agent, Command
from weft.model.catalog import parse_ref
from weft.model.ids import ALPHABET, MessageID, PartID, SessionID, check_new, checked
from weft.model.input import CommandInput, PromptInput, ShellInput
from weft.model.message import MessageWithParts
from weft.model.part import ModelRef
from weft.model.provider import ProviderList
from weft.model.session import AnyStatus, Idle, Reverted, Session

STORED = 5.0


def letters(count: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(count))


class Sending(Struct, frozen=True):
    """A prompt ready to be sent, as often as it takes; `since` is from when on messages are its own, if that is known."""

    input: PromptInput
    key: str | None
    since: int | None


class RemoteRuns(RemoteMessages):
    """`Runs`, `Undoing` and `Commands`, kept by a server."""

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self._listening: dict[Listening, None] = {}
        self._running: dict[SessionID, int] = {}

    # --- prompts ---

    async def check_prompt(self, input: PromptInput) -> None:
        if self._line.ours:
            await self._line.ask(post(own("/prompt/check"), input, twice=True), None)
            return
        if missing := only_known(input):
            need_weft(self._line, missing)
        if input.agent is not None:
            agents = await self._line.ask(get("/agent"), list[Agent])
            if input.agent not in {agent.name for agent in agents}:
                raise NotFoundError("agent", input.agent)
        if input.model is not None:
            found: ProviderList = await self._line.ask(get("/provider"), ProviderList)
            models = {provider.id: provider.models for provider in found.all}
            if input.model.model_id not in models.get(input.model.provider_id, {}):
                raise ModelNotFoundError(input.model.provider_id, input.model.model_id)

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        path = session_at(session, "message")
        sending = await self._ready(session, input)
        asked = post(path, sending.input, twice=True, long=True, key=sending.key)
        async with self._run(session, sending.since):
            return await self._line.ask(asked, MessageWithParts)

    async def submit(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        session_at(session)
        sending = await self._ready(session, input)
        for listening in self._listening:
            listening.heard.expect(session, sending.since)
        if self._line.ours:
            asked = post(own(session_at(session, "submit")), sending.input, twice=True, key=sending.key)
            return await self._line.ask(asked, MessageWithParts)
        # OpenCode says yes before it has stored it, so it is asked for until it is there.
        await self._line.ask(post(session_at(session, "prompt_async"), sending.input, twice=True), None)
        assert sending.input.message_id is not None, "it was given one"
        waits = Waits(STORED)
        while True:
            try:
                return await self.get_message(session, sending.input.message_id)
            except NotFoundError:
                if not await waits.wait():
                    raise

    async def _ready(self, session: SessionID, input: PromptInput) -> Sending:
        """A prompt that is the same one however often it is sent: by its own id, else by a key."""
        if input.message_id is not None:
            check_new("message", input.message_id)
        if self._line.ours:
            return Sending(input, None if input.message_id else f"weft-{letters(20)}", None)
        await self.check_prompt(input)
        found = await self.get_session(session)
        newest = await self._messages(session, 1)
        last = newest[-1].info if newest else None
        id = input.message_id or next_id(last.id if last else None, found.time.created, letters)
        return Sending(named(input, id, letters), None, last.time.created + 1 if last else 0)

    @asynccontextmanager
    async def _run(self, session: SessionID, since: int | None = None) -> AsyncIterator[None]:
        """While a run goes on. If a listener had a gap meanwhile, it is told of the end when the end is known."""
        before = {listening: listening.gaps for listening in self._listening}
        for listening in before:
            listening.heard.expect(session, since)
        self._running[session] = self._running.get(session, 0) + 1
        try:
            yield
        finally:
            self._running[session] -= 1
            if not self._running[session]:
                del self._running[session]
        for listening, gaps in before.items():
            if listening.gaps != gaps and listening in self._listening:
                await listening.make_up()

    def awaited(self) -> Collection[SessionID]:
        return list(self._running)

    # --- runs of other kinds ---

    async def compact(self, session: SessionID, *, model: ModelRef | None = None) -> MessageWithParts:
        if self._line.ours:
            given = {} if model is None else {"model": model}
            return await self._long(session, post(own(session_at(session, "compact")), given, long=True))
        await self._must_be_there(session)
        body = await self._flat_model(session, model)
        return await self._then_last(session, post(session_at(session, "summarize"), body, long=True))

    async def uncompact(self, session: SessionID) -> bool:
        need_weft(self._line, "showing again what a summary cut off")
        return await self._line.ask(post(own(session_at(session, "uncompact"))), bool)

    async def initialize(
        self, session: SessionID, *, model: ModelRef | None = None, message_id: MessageID | None = None
    ) -> MessageWithParts:
        if self._line.ours:
            said = {"model": model, "messageID": message_id}
            given = {field: value for field, value in said.items() if value is not None}
            return await self._long(session, post(own(session_at(session, "initialize")), given, long=True))
        found = await self.get_session(session)
        id = message_id or next_id(None, found.time.updated, letters)
        body = await self._flat_model(session, model) | {"messageID": id}
        return await self._then_last(session, post(session_at(session, "init"), body, long=True))

    async def _long(self, session: SessionID, asked: Asked) -> MessageWithParts:
        async with self._run(session):
            return await self._line.ask(asked, MessageWithParts)

    async def _then_last(self, session: SessionID, asked: Asked) -> MessageWithParts:
        async with self._run(session):
            await self._line.ask(asked, bool)
        return (await self._messages(session, 1))[-1]

    async def _flat_model(self, session: SessionID, model: ModelRef | None) -> dict[str, str]:
        """OpenCode wants to be told the model: the one that is named, else the last one that was used."""
        found = model or model_in(await self._messages(session))
        if found is None:
            raise NoModelError
        return {"providerID": found.provider_id, "modelID": found.model_id}

    async def abort(self, session: SessionID) -> bool:
        if self._line.ours:
            return await self._line.ask(post(own(session_at(session, "abort")), twice=True), bool)
        path = session_at(session, "abort")
        running = session in await self.list_status()
        await self._line.ask(post(path, twice=True), bool)
        return running

    async def get_status(self, session: SessionID) -> AnyStatus:
        checked("session", session)
        return (await self.list_status()).get(session, Idle())

    async def list_status(self) -> dict[SessionID, AnyStatus]:
        found: dict[SessionID, AnyStatus] = await self._line.ask(
            get("/session/status"), dict[SessionID, AnyStatus]
        )
        return {id: status for id, status in found.items() if not isinstance(status, Idle)}

    # --- taking back ---

    async def revert(
        self,
        session: SessionID,
        message: MessageID,
        part: PartID | None = None,
        *,
        files: tuple[str, ...] | None = None,
        dry_run: bool = False,
    ) -> Reverted:
        given = {"messageID": checked("message", message), "partID": part and checked("part", part)}
        body = {field: value for field, value in given.items() if value is not None}
        if self._line.ours:
            asked = post(own(session_at(session, "revert")), body | _wish(files, dry_run=dry_run), long=True)
            return await self._line.ask(asked, Reverted)
        self._refuse_wish(files, dry_run=dry_run)
        found = await self.get_message(session, message)
        if part is not None and part not in {each.id for each in found.parts}:
            raise NotFoundError("part", part)
        there = await self._line.ask(post(session_at(session, "revert"), body, long=True), Session)
        return Reverted(session=there)

    async def unrevert(
        self, session: SessionID, *, files: tuple[str, ...] | None = None, dry_run: bool = False
    ) -> Reverted:
        if self._line.ours:
            body = _wish(files, dry_run=dry_run)
            return await self._line.ask(post(own(session_at(session, "unrevert")), body, long=True), Reverted)
        self._refuse_wish(files, dry_run=dry_run)
        await self._must_be_there(session)
        there = await self._line.ask(post(session_at(session, "unrevert"), long=True), Session)
        return Reverted(session=there)

    def _refuse_wish(self, files: tuple[str, ...] | None, *, dry_run: bool) -> None:
        if files is not None or dry_run:
            need_weft(self._line, "saying what becomes of each file")

    # --- commands ---

    async def list_commands(self) -> list[Command]:
        return await self._line.ask(get("/command"), list[Command])

    async def get_command(self, name: str) -> Command:
        if self._line.ours and name:
            return await self._line.ask(get(own(f"/command/{quoted(name)}")), Command)
        for command in await self.list_commands():
            if command.name == name:
                return command
        raise NotFoundError("command", name[:80])

    async def command(self, session: SessionID, input: CommandInput) -> MessageWithParts:
        path = session_at(session, "command")
        if input.message_id is not None:
            check_new("message", input.message_id)
        if self._line.ours:
            key = None if input.message_id else f"weft-{letters(20)}"
            return await self._long(session, post(path, input, twice=True, long=True, key=key))
        if missing := only_known(input):
            need_weft(self._line, missing)
        await self._must_be_there(session)
        await self.get_command(input.command)
        model = None if input.model is None else parse_ref(input.model)
        await self.check_prompt(PromptInput(agent=input.agent, model=model, parts=()))
        return await self._long(session, post(path, input, long=True))

    async def shell(self, session: SessionID, input: ShellInput) -> MessageWithParts:
        path = session_at(session, "shell")
        if self._line.ours:
            return await self._long(session, post(path, input, long=True))
        await self._must_be_there(session)
        await self.check_prompt(PromptInput(agent=input.agent, model=input.model, parts=()))
        if input.agent is None:  # OpenCode wants to be told
            agents = await self._line.ask(get("/agent"), list[Agent])
            input = replace(input, agent=next(each.name for each in agents if each.mode != "subagent"))
        # It gives the message without what stands in it.
        await self._line.ask(post(path, input, long=True), None)
        return (await self._messages(session, 1))[-1]


def _wish(files: tuple[str, ...] | None, *, dry_run: bool) -> dict[str, object]:
    return ({} if files is None else {"files": files}) | ({"dryRun": True} if dry_run else {})
