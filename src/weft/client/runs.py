"""Prompts, tools of clients, commands, undo, permissions and questions, over HTTP.

An OpenCode server leaves some of it to its clients. They make the ids of prompts, choose the model of a summary, and refuse what
the server would ignore.
"""

import secrets
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.client.events import EventListener
from weft.client.http import (
    Backoff,
    ServerConnection,
    ServerRequest,
    delete,
    get,
    post,
    put,
    quote_name,
    require_weft,
    session_path,
    weft_path,
)
from weft.client.sessions import RemoteMessages
from weft.errors import ModelNotFoundError, NoModelError, NotFoundError, find_similar
from weft.model.agent import AgentInfo, Command
from weft.model.catalog import parse_ref
from weft.model.client_tool import (
    ClientTool,
    ClientToolAsk,
    ClientToolReport,
    ClientToolRequest,
    ClientToolResult,
)
from weft.model.ids import (
    ALPHABET,
    HEX_LENGTH,
    PER_MS,
    RANDOM_LENGTH,
    WRAP,
    GrantID,
    MessageID,
    PartID,
    PermissionID,
    QuestionID,
    SessionID,
    ToolRequestID,
    check_id,
    check_new_id,
)
from weft.model.input import CommandInput, PromptInput, ShellInput
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import ModelRef
from weft.model.permission import (
    DEFAULT_GRANT_TERMS,
    Grant,
    GrantTerms,
    PermissionDecision,
    PermissionRequest,
    QuestionRequest,
    Reply,
)
from weft.model.provider import ProviderList
from weft.model.session import AnyStatus, Idle, RevertResult, SessionInfo

# How long a prompt may take to appear on an OpenCode server that has accepted it.
STORED_SECONDS = 5.0
CLIENT_TOOL_HINT = "offer the tool to the server through MCP, or use weft serve"


class PreparedPrompt(Struct, frozen=True):
    """A prompt that can be sent repeatedly: it has a message id, or the request gets the idempotency key `key`.

    `since` is the time before which no message of its run was created, or None if that is not known.
    """

    input: PromptInput
    key: str | None
    since: int | None


class RemoteRuns(RemoteMessages):
    """The `Runs`, `ClientTools`, `Undo` and `Commands` of a server."""

    def __init__(self, connection: ServerConnection) -> None:
        super().__init__(connection)
        self._listeners: dict[EventListener, None] = {}
        self._running: dict[SessionID, int] = {}

    # --- prompts ---

    async def check_prompt(self, input: PromptInput) -> None:
        if self._connection.is_weft:
            await self._connection.send(post(weft_path("/prompt/check"), input, repeatable=True), None)
            return
        if missing := _find_unsupported(input):
            require_weft(self._connection, missing)
        if input.agent is not None:
            agents = await self._connection.send(get("/agent"), list[AgentInfo])
            if input.agent not in {agent.name for agent in agents}:
                raise NotFoundError(
                    "agent", input.agent, hint=f"there are {', '.join(agent.name for agent in agents)}"
                )
        if input.model is not None:
            found: ProviderList = await self._connection.send(get("/provider"), ProviderList)
            models = {provider.id: provider.models for provider in found.all}
            if input.model.model_id not in models.get(input.model.provider_id, {}):
                raise ModelNotFoundError(
                    input.model.provider_id,
                    input.model.model_id,
                    near=[
                        f"{input.model.provider_id}/{name}"
                        for name in find_similar(
                            input.model.model_id, models.get(input.model.provider_id, {})
                        )
                    ],
                    hint="the server knows the models of its own configuration",
                )

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        path = session_path(session, "message")
        prepared = await self._prepare(session, input)
        request = post(path, prepared.input, repeatable=True, long=True, key=prepared.key)
        async with self._expect_run(session, prepared.since):
            return await self._connection.send(request, MessageWithParts)

    async def submit(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        path = weft_path(session_path(session, "submit"))
        prepared = await self._prepare(session, input)
        for listener in self._listeners:
            listener.tracker.expect(session, prepared.since)
        if self._connection.is_weft:
            request = post(path, prepared.input, repeatable=True, key=prepared.key)
            return await self._connection.send(request, MessageWithParts)
        # OpenCode answers before the prompt is stored, so poll until it is there.
        await self._connection.send(
            post(session_path(session, "prompt_async"), prepared.input, repeatable=True), None
        )
        assert prepared.input.message_id is not None, "_prepare sets it"
        backoff = Backoff(STORED_SECONDS)
        while True:
            try:
                return await self.get_message(session, prepared.input.message_id)
            except NotFoundError:
                if not await backoff.wait():
                    raise

    async def _prepare(self, session: SessionID, input: PromptInput) -> PreparedPrompt:
        """Give a prompt an id or a key, so that sending it again does not repeat it."""
        if input.message_id is not None:
            check_new_id("message", input.message_id)
        if self._connection.is_weft:
            return PreparedPrompt(input, None if input.message_id else f"weft-{_make_letters(20)}", None)
        await self.check_prompt(input)
        found = await self.get_session(session)
        newest = await self._list_messages(session, 1)
        last = newest[-1].info if newest else None
        id = input.message_id or _make_next_id(last.id if last else None, found.time.created)
        return PreparedPrompt(_add_ids(input, id), None, last.time.created + 1 if last else 0)

    @asynccontextmanager
    async def _expect_run(self, session: SessionID, since: int | None = None) -> AsyncIterator[None]:
        """Mark a session as running. Listeners that missed events meanwhile catch up afterwards, so that they see the end."""
        before = {listener: listener.gaps for listener in self._listeners}
        for listener in before:
            listener.tracker.expect(session, since)
        self._running[session] = self._running.get(session, 0) + 1
        try:
            yield
        finally:
            self._running[session] -= 1
            if not self._running[session]:
                del self._running[session]
        for listener, gaps in before.items():
            if listener.gaps != gaps and listener in self._listeners:
                await listener.fill_gap()

    def list_running(self) -> Collection[SessionID]:
        """Return the sessions whose runs this client is waiting for."""
        return list(self._running)

    # --- compaction, status and abort ---

    async def compact(self, session: SessionID, *, model: ModelRef | None = None) -> MessageWithParts:
        if self._connection.is_weft:
            options = {} if model is None else {"model": model}
            return await self._send_long(
                session, post(weft_path(session_path(session, "compact")), options, long=True)
            )
        await self._check_exists(session)
        body = await self._choose_model_body(session, model)
        return await self._send_and_get_last(
            session, post(session_path(session, "summarize"), body, long=True)
        )

    async def uncompact(self, session: SessionID) -> bool:
        require_weft(self._connection, "undoing a compaction")
        return await self._connection.send(post(weft_path(session_path(session, "uncompact"))), bool)

    async def initialize(
        self, session: SessionID, *, model: ModelRef | None = None, message_id: MessageID | None = None
    ) -> MessageWithParts:
        if self._connection.is_weft:
            fields = {"model": model, "messageID": message_id}
            options = {field: value for field, value in fields.items() if value is not None}
            return await self._send_long(
                session, post(weft_path(session_path(session, "initialize")), options, long=True)
            )
        found = await self.get_session(session)
        id = message_id or _make_next_id(None, found.time.updated)
        body = await self._choose_model_body(session, model) | {"messageID": id}
        return await self._send_and_get_last(session, post(session_path(session, "init"), body, long=True))

    async def _send_long(self, session: SessionID, request: ServerRequest) -> MessageWithParts:
        async with self._expect_run(session):
            return await self._connection.send(request, MessageWithParts)

    async def _send_and_get_last(self, session: SessionID, request: ServerRequest) -> MessageWithParts:
        async with self._expect_run(session):
            await self._connection.send(request, bool)
        return (await self._list_messages(session, 1))[-1]

    async def _choose_model_body(self, session: SessionID, model: ModelRef | None) -> dict[str, str]:
        """Return the model for a request to OpenCode, which requires one: `model`, else the model that was used last."""
        found = model or _find_last_model(await self._list_messages(session))
        if found is None:
            raise NoModelError
        return {"providerID": found.provider_id, "modelID": found.model_id}

    async def abort(self, session: SessionID) -> bool:
        if self._connection.is_weft:
            return await self._connection.send(
                post(weft_path(session_path(session, "abort")), repeatable=True), bool
            )
        path = session_path(session, "abort")
        running = session in await self.list_status()
        await self._connection.send(post(path, repeatable=True), bool)
        return running

    async def get_status(self, session: SessionID) -> AnyStatus:
        check_id("session", session)
        return (await self.list_status()).get(session, Idle())

    async def list_status(self) -> dict[SessionID, AnyStatus]:
        found: dict[SessionID, AnyStatus] = await self._connection.send(
            get("/session/status"), dict[SessionID, AnyStatus]
        )
        return {id: status for id, status in found.items() if not isinstance(status, Idle)}

    # --- tools of clients ---

    async def offer_tools(self, session: SessionID, client: str, tools: Sequence[ClientTool]) -> None:
        path = session_path(session, "client-tool")
        require_weft(self._connection, "a tool of the client", hint=CLIENT_TOOL_HINT)
        await self._connection.send(put(weft_path(path), {"client": client, "tools": tools}), bool)

    async def list_tool_requests(self) -> list[ClientToolRequest]:
        require_weft(self._connection, "a tool of the client", hint=CLIENT_TOOL_HINT)
        return await self._connection.send(get(weft_path("/client-tool")), list[ClientToolRequest])

    async def accept_tool(self, id: ToolRequestID) -> None:
        path = f"/client-tool/{check_id('tool', id)}/accept"
        require_weft(self._connection, "a tool of the client", hint=CLIENT_TOOL_HINT)
        await self._connection.send(post(weft_path(path), repeatable=True), bool)

    async def ask_for_tool(self, id: ToolRequestID, ask: ClientToolAsk) -> None:
        path = f"/client-tool/{check_id('tool', id)}/ask"
        require_weft(self._connection, "a tool of the client", hint=CLIENT_TOOL_HINT)
        # A person may take hours to answer.
        await self._connection.send(post(weft_path(path), ask, repeatable=True, long=True), bool)

    async def report_tool(self, id: ToolRequestID, report: ClientToolReport) -> None:
        path = f"/client-tool/{check_id('tool', id)}/report"
        require_weft(self._connection, "a tool of the client", hint=CLIENT_TOOL_HINT)
        await self._connection.send(post(weft_path(path), report, repeatable=True), bool)

    async def finish_tool(self, id: ToolRequestID, result: ClientToolResult) -> None:
        path = f"/client-tool/{check_id('tool', id)}/finish"
        require_weft(self._connection, "a tool of the client", hint=CLIENT_TOOL_HINT)
        await self._connection.send(post(weft_path(path), result, repeatable=True), bool)

    # --- undo ---

    async def revert(
        self,
        session: SessionID,
        message: MessageID,
        part: PartID | None = None,
        *,
        files: tuple[str, ...] | None = None,
        dry_run: bool = False,
    ) -> RevertResult:
        fields = {"messageID": check_id("message", message), "partID": part and check_id("part", part)}
        body = {field: value for field, value in fields.items() if value is not None}
        if self._connection.is_weft:
            request = post(
                weft_path(session_path(session, "revert")),
                body | _to_file_options(files, dry_run=dry_run),
                long=True,
            )
            return await self._connection.send(request, RevertResult)
        self._refuse_file_options(files, dry_run=dry_run)
        found = await self.get_message(session, message)
        if part is not None and part not in {each.id for each in found.parts}:
            raise NotFoundError("part", part)
        reverted = await self._connection.send(
            post(session_path(session, "revert"), body, long=True), SessionInfo
        )
        return RevertResult(session=reverted)

    async def unrevert(
        self, session: SessionID, *, files: tuple[str, ...] | None = None, dry_run: bool = False
    ) -> RevertResult:
        if self._connection.is_weft:
            body = _to_file_options(files, dry_run=dry_run)
            return await self._connection.send(
                post(weft_path(session_path(session, "unrevert")), body, long=True), RevertResult
            )
        self._refuse_file_options(files, dry_run=dry_run)
        await self._check_exists(session)
        reverted = await self._connection.send(
            post(session_path(session, "unrevert"), long=True), SessionInfo
        )
        return RevertResult(session=reverted)

    def _refuse_file_options(self, files: tuple[str, ...] | None, *, dry_run: bool) -> None:
        if files is not None or dry_run:
            require_weft(self._connection, "choosing files to restore")

    # --- commands ---

    async def list_commands(self) -> list[Command]:
        return await self._connection.send(get("/command"), list[Command])

    async def get_command(self, name: str) -> Command:
        if self._connection.is_weft and name:
            return await self._connection.send(get(weft_path(f"/command/{quote_name(name)}")), Command)
        for command in await self.list_commands():
            if command.name == name:
                return command
        raise NotFoundError("command", name[:80])

    async def command(self, session: SessionID, input: CommandInput) -> MessageWithParts:
        path = session_path(session, "command")
        if input.message_id is not None:
            check_new_id("message", input.message_id)
        if self._connection.is_weft:
            key = None if input.message_id else f"weft-{_make_letters(20)}"
            return await self._send_long(session, post(path, input, repeatable=True, long=True, key=key))
        if missing := _find_unsupported(input):
            require_weft(self._connection, missing)
        await self._check_exists(session)
        await self.get_command(input.command)
        model = None if input.model is None else parse_ref(input.model)
        await self.check_prompt(PromptInput(agent=input.agent, model=model, parts=()))
        return await self._send_long(session, post(path, input, long=True))

    async def shell(self, session: SessionID, input: ShellInput) -> MessageWithParts:
        path = session_path(session, "shell")
        if self._connection.is_weft:
            return await self._send_long(session, post(path, input, long=True))
        await self._check_exists(session)
        await self.check_prompt(PromptInput(agent=input.agent, model=input.model, parts=()))
        if input.agent is None:  # OpenCode requires an agent
            agents = await self._connection.send(get("/agent"), list[AgentInfo])
            input = replace(input, agent=next(each.name for each in agents if each.mode != "subagent"))
        # OpenCode returns the message without its parts.
        await self._connection.send(post(path, input, long=True), None)
        return (await self._list_messages(session, 1))[-1]


def _to_file_options(files: tuple[str, ...] | None, *, dry_run: bool) -> dict[str, object]:
    return ({} if files is None else {"files": files}) | ({"dryRun": True} if dry_run else {})


# --- what an OpenCode server leaves to its clients ---


def _make_next_id(newest: str | None, created: int) -> MessageID:
    """Make the id of the next message: after the newest one, and before any id that the server will make.

    OpenCode orders messages by id, so it would treat a prompt with a smaller id as answered. The id is derived from the
    newest id and not from this machine's clock, which may differ from the server's.
    """
    head = (newest or "").partition("_")[2][:HEX_LENGTH]
    try:
        number = int(head, 16) + 1
    except ValueError:
        number = created * PER_MS + 1
    return MessageID(f"msg_{number % WRAP:0{HEX_LENGTH}x}{_make_letters(RANDOM_LENGTH)}")


def _add_ids(input: PromptInput, id: MessageID) -> PromptInput:
    """Return the prompt with an id, and with ids for its parts, so that sending it twice stores it once."""
    head = id.partition("_")[2][:HEX_LENGTH]
    parts = tuple(
        replace(part, id=PartID(f"prt_{head}{number:03d}{_make_letters(RANDOM_LENGTH - 3)}"))
        if part.id is None
        else part
        for number, part in enumerate(input.parts)
    )
    return replace(input, message_id=id, parts=parts)


def _find_unsupported(input: PromptInput | CommandInput) -> str | None:
    """Return the first feature of a prompt that OpenCode would silently ignore, or None."""
    if input.budget is not None:
        return "a budget"
    if input.format is not None:
        return "structured output"
    return None


def _find_last_model(messages: Sequence[MessageWithParts]) -> ModelRef | None:
    """Return the model that was used last, or None."""
    for message in reversed(messages):
        match message.info:
            case UserMessage(model=model) if model is not None:
                return model
            case AssistantMessage(provider_id=provider, model_id=model_id) if model_id:
                return ModelRef(provider_id=provider, model_id=model_id)
            case _:
                continue
    return None


def _make_letters(count: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(count))


# --- permissions and questions ---


class RemotePermissions(RemoteRuns):
    """The `Permissions` and `Questions` of a server."""

    async def list_permissions(self) -> list[PermissionRequest]:
        return await self._connection.send(get("/permission"), list[PermissionRequest])

    async def reply_permission(
        self, id: PermissionID, reply: Reply, *, message: str = "", grant: GrantTerms = DEFAULT_GRANT_TERMS
    ) -> None:
        path = f"/permission/{check_id('permission', id)}/reply"
        body: dict[str, Any] = {"reply": reply} | ({"message": message} if message else {})
        if self._connection.is_weft:
            body |= {} if grant == DEFAULT_GRANT_TERMS else {"grant": grant}
            await self._connection.send(post(weft_path(path), body), bool)
            return
        if grant != DEFAULT_GRANT_TERMS:
            require_weft(self._connection, "a grant with a scope or an expiry")
        # OpenCode accepts a reply to any id.
        if id not in {each.id for each in await self.list_permissions()}:
            raise NotFoundError("permission request", id)
        await self._connection.send(post(path, body), bool)

    async def list_grants(self) -> list[Grant]:
        require_weft(self._connection, "listing grants")
        return await self._connection.send(get(weft_path("/grant")), list[Grant])

    async def revoke_grant(self, id: GrantID) -> None:
        path = f"/grant/{check_id('grant', id)}"
        require_weft(self._connection, "revoking a grant")
        await self._connection.send(delete(weft_path(path)), bool)

    async def list_decisions(self, *, limit: int = 100) -> list[PermissionDecision]:
        require_weft(self._connection, "listing decisions")
        path = weft_path(f"/decision?limit={limit}")
        return await self._connection.send(get(path), list[PermissionDecision])

    async def list_questions(self) -> list[QuestionRequest]:
        return await self._connection.send(get("/question"), list[QuestionRequest])

    async def reply_question(self, id: QuestionID, answers: tuple[tuple[str, ...], ...]) -> None:
        path = f"/question/{check_id('question', id)}/reply"
        await self._check_open(id)
        await self._connection.send(post(path, {"answers": answers}), bool)

    async def reject_question(self, id: QuestionID) -> None:
        path = f"/question/{check_id('question', id)}/reject"
        await self._check_open(id)
        await self._connection.send(post(path), bool)

    async def _check_open(self, id: QuestionID) -> None:
        if not self._connection.is_weft and id not in {each.id for each in await self.list_questions()}:
            raise NotFoundError("question", id)
