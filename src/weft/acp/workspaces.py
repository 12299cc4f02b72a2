"""The directories that an editor works in, their events, and the MCP servers that the editor passes along."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from acp.schema import AcpMcpServer, CurrentModeUpdate, HttpMcpServer, McpServerStdio, SseMcpServer
from msgspec.structs import replace

from weft.acp.options import Choices, to_choices
from weft.acp.questions import EditorClient
from weft.acp.session import EditorSession
from weft.acp.updates import Update
from weft.api import Api
from weft.api.configuration import Mcp
from weft.errors import CursorLostError, NotFoundError, WeftError
from weft.model.event import (
    Event,
    PermissionAsked,
    PublishedEvent,
    QuestionAsked,
    SessionCreated,
    SessionUpdated,
    session_of,
)
from weft.model.ids import SessionID
from weft.model.session import Idle
from weft.model.workspace import AnyMcpStatus, McpConnected, WorkspacePaths

DirectoryOpener = Callable[[str], AbstractAsyncContextManager[Api]]


class EditorDirectory:
    """An open directory and the sessions that the editor has open in it. Each includes its child sessions."""

    def __init__(self, api: Api, choices: Choices, paths: WorkspacePaths) -> None:
        self.api = api
        self.choices = choices
        self.directory = paths.directory
        self.worktree = paths.worktree
        self.sessions: dict[SessionID, EditorSession] = {}
        self._parents: dict[SessionID, SessionID] = {}

    def record_parent(self, event: Event) -> None:
        """Remember the parent of a child session."""
        match event:
            # A child session is created or updated before it runs, and both events name its parent.
            case SessionCreated(info=info) | SessionUpdated(info=info) if info.parent_id is not None:
                self._parents[info.id] = info.parent_id
            case _:
                pass

    def find_owner(self, session: SessionID | None) -> EditorSession | None:
        """Return the open session that a session belongs to: itself, or its ancestor that the editor has open."""
        seen: set[SessionID] = set()
        while session is not None and session not in self.sessions and session not in seen:
            seen.add(session)
            session = self._parents.get(session)
        return self.sessions.get(session) if session is not None else None


class EditorDirectories:
    """All directories of an editor. An error in one of them is raised to the caller or logged; the others continue."""

    def __init__(self, open: DirectoryOpener, editor: EditorClient, tasks: asyncio.TaskGroup) -> None:
        self._open = open
        self._editor = editor
        self._tasks = tasks
        self._directories: dict[str, EditorDirectory] = {}
        self._directory_tasks: list[asyncio.Task[None]] = []
        self._closing = asyncio.Event()
        self._lock = asyncio.Lock()

    async def get(self, directory: str) -> EditorDirectory:
        """Return an open directory, opening it if needed."""
        async with self._lock:
            if directory not in self._directories:
                ready: asyncio.Future[EditorDirectory] = asyncio.get_running_loop().create_future()
                # A context manager that was entered in one task cannot be left in another, so each gets a task.
                self._directory_tasks.append(self._tasks.create_task(self._serve(directory, ready)))
                self._directories[directory] = await ready
            return self._directories[directory]

    def find_session(self, session: SessionID) -> EditorSession | None:
        sessions = (directory.sessions.get(session) for directory in self._directories.values())
        return next((found for found in sessions if found is not None), None)

    def find_owner(self, session: SessionID) -> EditorSession | None:
        """Return the open session that a session belongs to, in any directory."""
        sessions = (directory.find_owner(session) for directory in self._directories.values())
        return next((found for found in sessions if found is not None), None)

    def get_session(self, session: SessionID) -> EditorSession:
        if (found := self.find_session(session)) is not None:
            return found
        raise NotFoundError("open session", session[:80], hint="open it first: session/new or session/load")

    def get_directory(self, session: EditorSession) -> EditorDirectory:
        return next(
            directory
            for directory in self._directories.values()
            if directory.sessions.get(session.id) is session
        )

    async def close(self) -> None:
        """End every run and close every directory, also one that is still opening; all has settled when this returns."""
        self._closing.set()
        if self._directory_tasks:
            await asyncio.wait(self._directory_tasks)

    async def _serve(self, directory: str, ready: asyncio.Future[EditorDirectory]) -> None:
        try:
            async with self._open(directory) as api:
                events = api.events()
                paths = await api.workspace.get_paths()
                agents, providers = (
                    await api.workspace.list_agents(),
                    await api.configuration.list_providers(),
                )
                opened = EditorDirectory(api, to_choices(agents, providers), paths)
                follow_task = asyncio.ensure_future(self._follow(opened, events))
                ready.set_result(opened)
                try:
                    await self._closing.wait()
                    for session in opened.sessions.values():
                        await session.cancel()
                finally:
                    follow_task.cancel()
                    await asyncio.wait([follow_task])
        except Exception as error:  # noqa: BLE001  an error in one directory must not affect the others
            if ready.done():
                self._editor.note(f"{directory}: {type(error).__name__}: {error}")
            else:
                ready.set_exception(error)
        finally:
            self._directories.pop(directory, None)

    # --- events ---

    async def _follow(self, directory: EditorDirectory, events: AsyncIterator[PublishedEvent]) -> None:
        while True:
            try:
                async for published in events:
                    await self._try_handle(directory, published.event)
            except CursorLostError:
                # More events than the bus holds: read what the editor missed from the sessions.
                events = directory.api.events()
                await self._catch_up(directory)
            except ConnectionError:
                return  # the editor is gone

    async def _try_handle(self, directory: EditorDirectory, event: Event) -> None:
        try:
            await self._handle(directory, event)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001  one update that fails must not stop the others
            self._editor.note(f"{event.type} could not be shown: {type(error).__name__}: {error}")

    async def _handle(self, directory: EditorDirectory, event: Event) -> None:
        directory.record_parent(event)
        id = session_of(event)
        session = directory.find_owner(id)
        if session is None:
            return
        own = id == session.id
        if own:
            await self.send_updates(session, *session.updates.feed(event))
            await self._switch_agent(directory, session, session.find_new_agent(event))
        session.questions.feed(event, session.updates)
        session.record(event, own=own)

    async def _switch_agent(
        self, directory: EditorDirectory, session: EditorSession, agent: str | None
    ) -> None:
        if agent is not None and any(agent == each.name for each in directory.choices.agents):
            session.choice = replace(session.choice, agent=agent)
            await self.send_updates(
                session, CurrentModeUpdate(session_update="current_mode_update", current_mode_id=agent)
            )

    async def _catch_up(self, directory: EditorDirectory) -> None:
        for session in list(directory.sessions.values()):
            try:
                await self._catch_up_session(session)
            except WeftError as error:  # somebody else removed it, or it cannot be read
                self._editor.note(f"session {session.id}: {error}")
                session.idle.set()
        events: list[Event] = [
            PermissionAsked(request=request) for request in await directory.api.list_permissions()
        ]
        events += [QuestionAsked(request=request) for request in await directory.api.list_questions()]
        for event in events:
            if (owner := directory.find_owner(session_of(event))) is not None:
                owner.questions.feed(event, owner.updates)

    async def _catch_up_session(self, session: EditorSession) -> None:
        history = await session.api.list_messages(session.id)
        await self.send_updates(session, *session.updates.catch_up(history))
        if isinstance(await session.api.get_status(session.id), Idle):
            session.idle.set()

    async def send_updates(self, session: EditorSession, *updates: Update) -> None:
        """Send updates of a session to the editor."""
        for update in updates:
            await self._editor.client.session_update(session_id=session.id, update=update)


EditorMcpServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio


def to_mcp_config(server: EditorMcpServer) -> dict[str, Any] | None:
    """Return the server as `opencode.json` configures it. Return None if it can be reached only through the editor:
    weft does not support that."""
    match server:
        case McpServerStdio(command=command, args=args, env=env):
            environment = {each.name: each.value for each in env}
            return {"type": "local", "command": [command, *args], "environment": environment}
        case HttpMcpServer(url=url, headers=headers) | SseMcpServer(url=url, headers=headers):
            return {"type": "remote", "url": url, "headers": {each.name: each.value for each in headers}}
        case AcpMcpServer():
            return None


async def connect_servers(mcp: Mcp, servers: Sequence[EditorMcpServer]) -> list[str]:
    """Connect MCP servers and return a message for each failure.

    A server whose name exists already is skipped: an editor sends the same servers with every session.
    """
    if not servers:
        return []
    existing = await mcp.list_servers()
    messages = await asyncio.gather(
        *(_connect_server(mcp, server) for server in servers if server.name not in existing)
    )
    return [message for message in messages if message]


async def _connect_server(mcp: Mcp, server: EditorMcpServer) -> str:
    config = to_mcp_config(server)
    if config is None:
        return f"MCP server {server.name}: weft cannot reach servers through the editor."
    try:
        return _describe_status(server.name, await mcp.add_server(server.name, config))
    except WeftError as error:
        return f"MCP server {server.name}: {error}"


def _describe_status(name: str, status: AnyMcpStatus) -> str:
    if isinstance(status, McpConnected):
        return ""
    reason = getattr(status, "error", "") or str(status.__struct_config__.tag).replace("_", " ")
    return f"MCP server {name} is not connected: {reason}"
