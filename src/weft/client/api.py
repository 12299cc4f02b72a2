"""The `Api` over HTTP: complete with a weft server, as far as possible with an OpenCode server."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from weft.api import Api
from weft.api.configuration import Configuration, Mcp
from weft.api.data import Data
from weft.api.sessions import Moves
from weft.api.sharing import Sharing
from weft.api.workspace import Files, Terminals, Workspace, Worktrees
from weft.client.address import resolve_address
from weft.client.events import CursorMap, EventListener, EventStream, ServerState, SessionTracker
from weft.client.http import (
    ConnectionOptions,
    ServerConnection,
    delete,
    get,
    patch,
    post,
    quote_name,
    require_weft,
    session_path,
    to_query,
    weft_path,
)
from weft.client.runs import RemotePermissions
from weft.client.terminals import RemoteTerminals
from weft.client.workspace import (
    RemoteConfiguration,
    RemoteData,
    RemoteFiles,
    RemoteMcp,
    RemoteMoves,
    RemoteSharing,
    RemoteTrials,
    RemoteWorkspace,
    RemoteWorktrees,
)
from weft.errors import InvalidInputError, NotFoundError
from weft.model.client_tool import ClientToolRequest
from weft.model.event import Durable, Event, PublishedEvent
from weft.model.event_wire import event_to_plain
from weft.model.ids import ProjectID, SessionID, check_new_id
from weft.model.message import MessageWithParts
from weft.model.principal import NewToken, Principal, PrincipalChange, PrincipalTokens, Token, TokenInput
from weft.model.project import Project
from weft.model.search import Figures, Hit
from weft.model.spending import Spending
from weft.model.transfer import ImportResult, SessionExport

MAX_QUERY_LENGTH = 10_000
MAX_HITS = 1000
DEFAULT_OPTIONS = ConnectionOptions()


class RemoteApi(RemotePermissions):
    """An `Api` over HTTP, for one directory of one server."""

    workspace: Workspace
    configuration: Configuration
    files: Files
    terminals: Terminals
    sharing: Sharing
    worktrees: Worktrees
    mcp: Mcp
    data: Data
    moves: Moves

    def __init__(self, connection: ServerConnection) -> None:
        super().__init__(connection)
        self.workspace = RemoteWorkspace(connection)
        self.configuration = RemoteConfiguration(connection)
        self.files = RemoteFiles(connection)
        self.terminals = RemoteTerminals(connection)
        self.sharing = RemoteSharing(connection)
        self.worktrees = RemoteWorktrees(connection)
        self.trials = RemoteTrials(connection)
        self.mcp = RemoteMcp(connection)
        self.data = RemoteData(connection)
        self.moves = RemoteMoves(connection)
        self._cursors = CursorMap()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return self._connection.url

    @property
    def is_weft(self) -> bool:
        """True if the server is weft, and not OpenCode."""
        return self._connection.is_weft

    async def close(self) -> None:
        """Stop listening and close the connection. Runs on the server continue."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.close()

    async def current_project(self) -> Project:
        return await self._connection.send(get("/project/current"), Project)

    # --- search, export and import ---

    async def search(self, words: str, *, limit: int = 20, everywhere: bool = False) -> list[Hit]:
        require_weft(self._connection, "searching")
        if limit < 1:
            return []
        request = get(
            weft_path("/search"),
            words=words[:MAX_QUERY_LENGTH],
            limit=min(limit, MAX_HITS),
            everywhere=everywhere,
        )
        return await self._connection.send(request, list[Hit])

    async def get_spending(self, session: SessionID) -> Spending:
        path = session_path(session, "spending")
        require_weft(self._connection, "the spending of a session")
        return await self._connection.send(get(weft_path(path)), Spending)

    async def get_figures(self, *, days: int | None = None, project: ProjectID | None = None) -> Figures:
        require_weft(self._connection, "statistics")
        return await self._connection.send(get(weft_path("/figures"), days=days, project=project), Figures)

    async def export_session(self, id: SessionID) -> SessionExport:
        if self._connection.is_weft:
            return await self._connection.send(get(weft_path(session_path(id, "export"))), SessionExport)
        info = await self.get_session(id)
        messages = await self.list_messages(id)
        todos, diff = await self.list_todos(id), await self.list_diff(id)
        return SessionExport(info=info, messages=tuple(messages), todos=tuple(todos), diff=tuple(diff))

    async def import_session(self, export: SessionExport, *, dry_run: bool = False) -> ImportResult:
        check_new_id("session", export.info.id)
        require_weft(self._connection, "importing a session", hint="use opencode import with a file")
        request = post(weft_path("/import"), export, long=True, query=to_query({"dryRun": dry_run}))
        return await self._connection.send(request, ImportResult)

    # --- events ---

    def events(self, *, after: int | None = None) -> AsyncIterator[PublishedEvent]:
        listener = EventListener(self._connection, self._cursors, self._gather, after)
        self._listeners[listener] = None
        self._connection.connecting.add(listener.connected)
        listener.connected.add_done_callback(self._connection.connecting.discard)
        task = asyncio.ensure_future(listener.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._listeners.pop(listener, None))
        return EventStream(listener, task)

    async def publish(self, event: Event) -> None:
        if isinstance(event, Durable):
            raise InvalidInputError("event", f"{event.type} is a stored event: only weft itself publishes it")
        await self._connection.send(post("/tui/publish", event_to_plain(event)), bool)

    async def _gather(self, tracker: SessionTracker) -> ServerState:
        """Read the current state of the tracked sessions from the server."""
        sessions = {session.id: session for session in await self.list_sessions()}
        messages: dict[SessionID, list[MessageWithParts]] = {}
        for id in tracker.sessions():
            with suppress(NotFoundError):  # a removed session is reported as removed
                messages[id] = await self.list_messages(id)
        tool_requests: list[ClientToolRequest] = []
        if self._connection.is_weft:
            with suppress(NotFoundError):  # weft 0.1 has no such route
                tool_requests = await self.list_tool_requests()
        return ServerState(
            sessions=sessions,
            messages=messages,
            status=await self.list_status(),
            permissions=await self.list_permissions(),
            questions=await self.list_questions(),
            tool_requests=tool_requests,
            running=self.list_running(),
        )


@asynccontextmanager
async def open_remote(
    url: str,
    options: ConnectionOptions = DEFAULT_OPTIONS,
    *,
    password: str | None = None,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[RemoteApi]:
    """Connect to the server at an address. Raise `UnreachableError` if it does not answer, or its refusal."""
    connection = ServerConnection(
        resolve_address(url, os.environ if env is None else env, password=password), options
    )
    remote = RemoteApi(connection)
    try:
        await connection.check_health()
        connection.directory = (await remote.workspace.get_paths()).directory
        yield remote
    finally:
        await remote.close()


@asynccontextmanager
async def connect(
    url: str, *, directory: str | None = None, password: str | None = None, patience: float | None = 60.0
) -> AsyncIterator[Api]:
    """Open the `Api` of a weft or OpenCode server.

    `directory` is a path on the server's machine; the default is the server's own directory. Without `password`, which
    may be a token, it is taken from the URL, from `WEFT_TOKEN` or `OPENCODE_SERVER_PASSWORD`, or from the file of `weft serve`
    on this machine. A server that is gone is retried for `patience` seconds, or forever if that is None; then `UnreachableError` is raised.
    """
    async with open_remote(
        url, ConnectionOptions(directory=directory, patience=patience), password=password
    ) as remote:
        yield remote


class RemoteTokens:
    """The tokens of the server at the other end. It needs the server's password or an admin token."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def create(self, input: TokenInput) -> NewToken:
        return await self._connection.send(post("/weft/token", input), NewToken)

    async def list_all(self) -> PrincipalTokens:
        return await self._connection.send(get("/weft/token"), PrincipalTokens)

    async def revoke(self, name: str, *, force: bool = False) -> Token:
        return await self._connection.send(
            delete(f"/weft/token/{quote_name(name)}", force=force or None), Token
        )

    async def change_principal(self, name: str, change: PrincipalChange) -> Principal:
        return await self._connection.send(patch(f"/weft/principal/{quote_name(name)}", change), Principal)


@asynccontextmanager
async def open_remote_tokens(url: str, env: Mapping[str, str]) -> AsyncIterator[RemoteTokens]:
    """Connect to the server at an address. Raise `UnreachableError` if it does not answer, or its refusal."""
    connection = ServerConnection(resolve_address(url, env), ConnectionOptions())
    try:
        await connection.check_health()
        yield RemoteTokens(connection)
    finally:
        await connection.close()
