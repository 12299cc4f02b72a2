"""The agent: answers the requests of an editor by the Agent Client Protocol."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from acp import RequestError
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    AuthenticateResponse,
    AuthMethodAgent,
    ClientCapabilities,
    CloseSessionResponse,
    Cost,
    DeleteSessionRequest,
    DeleteSessionResponse,
    ElicitationCapabilities,
    FileSystemCapabilities,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionForkCapabilities,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)
from acp.schema import (
    SessionInfo as AcpSessionInfo,
)
from msgspec import Struct
from msgspec.structs import replace

from weft.acp.content import Block, PromptContent, find_command, to_parts
from weft.acp.editor import AcpWorkspace
from weft.acp.errors import convert_errors
from weft.acp.options import (
    COMPACT,
    DEFAULT_MODEL,
    MODE,
    MODEL,
    SessionChoice,
    format_model,
    to_commands,
    to_modes,
    to_options,
)
from weft.acp.questions import EditorClient, EditorQuestions
from weft.acp.session import EditorSession, SendPrompt
from weft.acp.updates import UpdateStream, to_iso, to_plan, to_thought
from weft.acp.workspaces import EditorDirectories, EditorDirectory, EditorMcpServer, connect_servers
from weft.api import Api
from weft.api.editor import EditorWorkspace
from weft.errors import DirectoryError, InvalidInputError, NotFoundError, UnsupportedError, WeftError
from weft.model.catalog import parse_ref
from weft.model.ids import SessionID, check_id
from weft.model.input import CommandInput, FileInput, PromptInput, SessionInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.session import SessionInfo
from weft.model.session_query import SessionQuery, to_cursor


class AcpSessionRequest(Struct, frozen=True, kw_only=True):
    """The directory of a session, additional directories, and the MCP servers that the editor passes along."""

    cwd: str
    more_directories: Sequence[str] = ()
    servers: Sequence[EditorMcpServer] = ()


class SessionOpener:
    """Opens sessions for the editor, and introduces them: sends their commands and connects the editor's MCP servers."""

    def __init__(
        self, directories: EditorDirectories, editor: Callable[[], EditorClient], tasks: asyncio.TaskGroup
    ) -> None:
        self._directories = directories
        self._editor = editor
        self._tasks = tasks
        self._introductions: list[asyncio.Task[None]] = []

    def cancel_introductions(self) -> None:
        """Stop introducing sessions: the editor is gone. Do not wait for MCP servers that are still connecting."""
        for task in self._introductions:
            task.cancel()

    async def open_directory(self, cwd: str) -> EditorDirectory:
        """Return a directory, opened by its real path. Raise `InvalidInputError` or `DirectoryError` if it is not one."""
        if not os.path.isabs(cwd):
            raise InvalidInputError("cwd", f"{cwd[:80]!r} is not an absolute path")
        try:
            directory = await asyncio.to_thread(os.path.realpath, cwd)
        except (OSError, ValueError) as error:
            raise InvalidInputError("cwd", f"{cwd[:80]!r} is not a path") from error
        if not await asyncio.to_thread(os.path.isdir, directory):
            raise DirectoryError(cwd[:200], "there is no such directory")
        return await self._directories.get(directory)

    async def open(
        self, request: AcpSessionRequest, find: Callable[[EditorDirectory], Awaitable[SessionInfo]]
    ) -> EditorSession:
        """Open a session that is new to the editor: nothing of it has been sent yet."""
        if request.more_directories:
            raise UnsupportedError(
                "more than one directory in a session", hint="open a session in each of them"
            )
        directory = await self.open_directory(request.cwd)
        info = await find(directory)
        history = await directory.api.list_messages(info.id)
        session = directory.sessions[info.id] = self._to_session(directory, info, history)
        self._introductions = [task for task in self._introductions if not task.done()]
        self._introductions.append(self._tasks.create_task(self._introduce(session, request)))
        return session

    async def replay(self, session: EditorSession) -> None:
        """Send the whole conversation, and the todo list."""
        await self._directories.send_updates(
            session, *session.updates.replay(await session.api.list_messages(session.id))
        )
        if todos := await session.api.list_todos(session.id):
            await self._directories.send_updates(session, to_plan(todos))

    def _to_session(
        self, directory: EditorDirectory, info: SessionInfo, history: Sequence[MessageWithParts]
    ) -> EditorSession:
        updates = UpdateStream(directory.directory, directory.worktree, directory.choices.sizes)
        existing = directory.sessions.get(info.id)
        if existing is not None:  # opened again, maybe during a prompt, which continues
            existing.updates = updates
            return existing
        names = [agent.name for agent in directory.choices.agents]
        last = next(
            (message.info.agent for message in reversed(history) if isinstance(message.info, UserMessage)), ""
        )
        questions = EditorQuestions(info.id, directory.api, self._editor(), self._tasks)
        return EditorSession(
            info.id,
            directory.api,
            updates,
            questions,
            SessionChoice(agent=last if last in names else names[0]),
        )

    async def _introduce(self, session: EditorSession, request: AcpSessionRequest) -> None:
        """Send the commands, connect the MCP servers of the editor, and report those that fail."""
        try:
            await self._directories.send_updates(session, to_commands(await session.api.list_commands()))
            for problem in await connect_servers(session.api.mcp, request.servers):
                self._editor().note(problem)
                await self._directories.send_updates(session, to_thought(f"{problem}\n"))
        except ConnectionError:
            return  # the editor is gone
        except WeftError as error:
            self._editor().note(f"session {session.id}: {error}")


def parse_session_id(text: str) -> SessionID:
    return SessionID(check_id("session", text))


PROTOCOL_VERSION: Final = 1
LOGIN_METHOD: Final = "weft-auth-login"
LOGIN_HELP: Final = "Run `weft auth login` in a terminal to store a provider's key."
PAGE_SIZE: Final = 100


class AgentSetup(Struct, frozen=True, kw_only=True):
    """How to open a directory for an editor, the default directory, the log, and the version."""

    open: Callable[[str, EditorWorkspace], AbstractAsyncContextManager[Api]]
    default_directory: str
    note: Callable[[str], None]
    version: str


class AcpAgent:
    """The object that the SDK's connection calls. Names and parameters are the protocol's; other parameters are ignored."""

    def __init__(self, setup: AgentSetup, tasks: asyncio.TaskGroup) -> None:
        self._setup = setup
        self._tasks = tasks
        self._editor: EditorClient | None = None

    def on_connect(self, conn: Client) -> None:
        self._editor = EditorClient(client=conn, note=self._setup.note)
        self._directories = EditorDirectories(self._open, self._editor, self._tasks)
        self._opener = SessionOpener(self._directories, self._get_editor, self._tasks)

    def _get_editor(self) -> EditorClient:
        assert self._editor is not None, "the connection is set before it is used"
        return self._editor

    def _open(self, directory: str) -> AbstractAsyncContextManager[Api]:
        return self._setup.open(directory, AcpWorkspace(self._get_editor, self._directories.find_owner))

    async def close(self) -> None:
        """End all runs and return when they have settled: the editor is gone."""
        self._opener.cancel_introductions()
        await self._directories.close()

    # --- initialization ---

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        **_: Any,
    ) -> InitializeResponse:
        del protocol_version  # there is only one; an editor that needs another disconnects
        # In place of something that is not valid, the SDK passes a plain object.
        capabilities = (
            client_capabilities
            if isinstance(client_capabilities, ClientCapabilities)
            else ClientCapabilities()
        )
        files, questions = capabilities.fs, capabilities.elicitation
        self._editor = replace(
            self._get_editor(),
            forms=isinstance(questions, ElicitationCapabilities) and questions.form is not None,
            reads=isinstance(files, FileSystemCapabilities) and files.read_text_file is True,
            writes=isinstance(files, FileSystemCapabilities) and files.write_text_file is True,
            terminals=capabilities.terminal is True,
        )
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    fork=SessionForkCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                    delete=SessionDeleteCapabilities(),
                ),
            ),
            auth_methods=[AuthMethodAgent(id=LOGIN_METHOD, name="weft auth login", description=LOGIN_HELP)],
            agent_info=Implementation(name="weft", title="weft", version=self._setup.version),
        )

    @convert_errors
    async def authenticate(self, method_id: str, **_: Any) -> AuthenticateResponse:
        """Accept the login method. Keys are typed in a terminal, never in the editor; a prompt shows whether they work."""
        if method_id != LOGIN_METHOD:
            raise NotFoundError("login method", method_id[:80], near=[LOGIN_METHOD])
        return AuthenticateResponse()

    # --- sessions ---

    @convert_errors
    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Any] | None = None,
        **_: Any,
    ) -> NewSessionResponse:
        request = to_session_request(cwd, additional_directories, mcp_servers)
        session = await self._opener.open(
            request, lambda directory: directory.api.create_session(SessionInput())
        )
        return NewSessionResponse(session_id=session.id, **self._to_fields(session))

    @convert_errors
    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[Any] | None = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> LoadSessionResponse:
        session = await self._open_existing(
            to_session_request(cwd, additional_directories, mcp_servers), session_id
        )
        await self._opener.replay(session)
        return LoadSessionResponse(**self._to_fields(session))

    @convert_errors
    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Any] | None = None,
        **_: Any,
    ) -> ResumeSessionResponse:
        session = await self._open_existing(
            to_session_request(cwd, additional_directories, mcp_servers), session_id
        )
        session.updates.mark_sent(await session.api.list_messages(session.id))
        return ResumeSessionResponse(**self._to_fields(session))

    @convert_errors
    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Any] | None = None,
        **_: Any,
    ) -> ForkSessionResponse:
        id, request = (
            parse_session_id(session_id),
            to_session_request(cwd, additional_directories, mcp_servers),
        )
        session = await self._opener.open(request, lambda directory: directory.api.fork_session(id))
        session.updates.mark_sent(await session.api.list_messages(session.id))
        return ForkSessionResponse(session_id=session.id, **self._to_fields(session))

    @convert_errors
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> ListSessionsResponse:
        directory = await self._opener.open_directory(cwd or self._setup.default_directory)
        query = SessionQuery(
            roots=True,
            archived=False,
            order="updated",
            directory=directory.directory if cwd else None,
            everywhere=cwd is None,
            after=cursor,
            limit=PAGE_SIZE + 1,
        )
        found = await directory.api.list_sessions(query)
        page = found[:PAGE_SIZE]
        next_cursor = to_cursor(page[-1], query.order) if len(found) > PAGE_SIZE else None
        return ListSessionsResponse(
            sessions=[to_session_info(each) for each in page], next_cursor=next_cursor
        )

    @convert_errors
    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        session = self._directories.get_session(parse_session_id(session_id))
        await session.cancel()
        self._directories.get_directory(session).sessions.pop(session.id, None)
        return CloseSessionResponse()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer methods that the SDK does not route."""
        if method != "session/delete":
            raise RequestError.method_not_found(f"_{method}")
        request = DeleteSessionRequest.model_validate(params)
        return (await self.delete_session(request.session_id)).model_dump(by_alias=True, exclude_none=True)

    @convert_errors
    async def delete_session(self, session_id: str) -> DeleteSessionResponse:
        """Move a session with its child sessions to the trash. Its run is ended first."""
        id = parse_session_id(session_id)
        session = self._directories.find_session(id)
        if session is not None:
            await session.cancel()
            self._directories.get_directory(session).sessions.pop(id, None)
        api = (
            session.api
            if session is not None
            else (await self._opener.open_directory(self._setup.default_directory)).api
        )
        await api.remove_session(id)
        return DeleteSessionResponse()

    async def _open_existing(self, request: AcpSessionRequest, session: str) -> EditorSession:
        id = parse_session_id(session)
        return await self._opener.open(request, lambda directory: directory.api.get_session(id))

    # --- choices ---

    @convert_errors
    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        self._choose_mode(self._directories.get_session(parse_session_id(session_id)), mode_id)
        return SetSessionModeResponse()

    @convert_errors
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        session = self._directories.get_session(parse_session_id(session_id))
        if config_id == MODE:
            self._choose_mode(session, str(value))
        elif config_id == MODEL:
            await self._choose_model(session, str(value))
        else:
            raise NotFoundError("option", config_id[:80], near=[MODE, MODEL])
        return SetSessionConfigOptionResponse(config_options=self._to_fields(session)["config_options"])

    def _choose_mode(self, session: EditorSession, agent: str) -> None:
        names = [each.name for each in self._directories.get_directory(session).choices.agents]
        if agent not in names:
            raise NotFoundError("mode", agent[:80], hint=f"there are {', '.join(names)}")
        session.choice = replace(session.choice, agent=agent)

    async def _choose_model(self, session: EditorSession, name: str) -> None:
        model = None if name == DEFAULT_MODEL else parse_ref(name)
        if model is None and name != DEFAULT_MODEL:
            raise InvalidInputError(
                "value", f"{name[:80]!r} does not name a model", hint="write it as provider/model"
            )
        await session.api.check_prompt(PromptInput(agent=session.choice.agent, model=model, parts=()))
        session.choice = replace(session.choice, model=model)

    def _to_fields(self, session: EditorSession) -> dict[str, Any]:
        choices = self._directories.get_directory(session).choices
        return {
            "modes": to_modes(choices, session.choice),
            "config_options": to_options(choices, session.choice),
        }

    # --- prompts ---

    @convert_errors
    async def prompt(self, session_id: str, prompt: list[Block], **_: Any) -> PromptResponse:
        session = self._directories.get_session(parse_session_id(session_id))
        send, follows_agent = await choose_call(session, to_parts(prompt))
        outcome = await session.run_prompt(send, follows_agent=follows_agent)
        await self._send_cost(session)
        return PromptResponse(stop_reason=outcome.stop, usage=outcome.usage)

    async def cancel(self, session_id: str, **_: Any) -> None:
        try:
            await self._directories.get_session(parse_session_id(session_id)).cancel()
        except WeftError as error:
            self._setup.note(f"session/cancel: {error}")  # a notification has no answer

    async def _send_cost(self, session: EditorSession) -> None:
        """Send the cost of the session with its descendants, if all prices are known. The use of the context window is sent with it."""
        spent = (await session.api.get_spending(session.id)).tree
        if session.updates.usage is not None and spent.priced:
            cost = Cost(amount=float(spent.cost), currency="USD")
            await self._directories.send_updates(
                session, session.updates.usage.model_copy(update={"cost": cost})
            )


def to_session_request(
    cwd: str, more: Sequence[str] | None, servers: Sequence[Any] | None
) -> AcpSessionRequest:
    return AcpSessionRequest(cwd=cwd, more_directories=tuple(more or ()), servers=tuple(servers or ()))


async def choose_call(session: EditorSession, parts: tuple[PromptContent, ...]) -> tuple[SendPrompt, bool]:
    """Return the call that answers a prompt: a command, a compaction or a prompt.

    Also return whether the session switches to the agent that answers.
    """
    command_text, choice = find_command(parts), session.choice
    names = {command.name for command in await session.api.list_commands()} if command_text else set()
    if command_text and command_text[0] in names:
        command = CommandInput(
            command=command_text[0],
            arguments=command_text[1],
            agent=None,
            model=format_model(choice.model) if choice.model else None,
            parts=tuple(part for part in parts if isinstance(part, FileInput)),
        )
        return lambda: session.api.command(session.id, command), False
    if command_text and command_text[0] == COMPACT:
        return lambda: session.api.compact(session.id, model=choice.model), False
    input = PromptInput(agent=choice.agent, model=choice.model, parts=parts)
    return lambda: session.api.prompt(session.id, input), True


def to_session_info(session: SessionInfo) -> AcpSessionInfo:
    return AcpSessionInfo(
        session_id=session.id,
        cwd=session.directory,
        title=session.title,
        updated_at=to_iso(session.time.updated),
    )
