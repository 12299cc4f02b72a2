"""The `Api` over HTTP: complete with a weft server, as far as possible with an OpenCode server."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from weft.api import Api, Sharing
from weft.client.address import to_address
from weft.client.events import Cursors, Events, Heard, Listening, Now
from weft.client.http import Line, Terms, get, need_weft, own, post, session_at, to_query
from weft.client.permissions import RemoteAsking
from weft.client.terminals import RemoteTerminals
from weft.client.workspace import (
    RemoteConfiguration,
    RemoteFiles,
    RemoteMcp,
    RemoteSharing,
    RemoteSurroundings,
    RemoteWorktrees,
)
from weft.errors import InvalidInputError, NotFoundError
from weft.model.event import Durable, Event, Told
from weft.model.event_wire import event_to_plain
from weft.model.ids import ProjectID, SessionID, check_new
from weft.model.message import MessageWithParts
from weft.model.parcel import Parcel, Received
from weft.model.project import Project
from weft.model.search import Figures, Hit
from weft.model.spending import Spending
from weft.outlook import Configuration, Files, Mcp, Surroundings, Terminals, Worktrees

LONGEST_WORDS = 10_000
MOST_HITS = 1000
USUAL = Terms()


class Remote(RemoteAsking):
    """An `Api` over HTTP, for one directory of one server."""

    surroundings: Surroundings
    configuration: Configuration
    files: Files
    terminals: Terminals
    sharing: Sharing
    worktrees: Worktrees
    mcp: Mcp

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self.surroundings = RemoteSurroundings(line)
        self.configuration = RemoteConfiguration(line)
        self.files = RemoteFiles(line)
        self.terminals = RemoteTerminals(line)
        self.sharing = RemoteSharing(line)
        self.worktrees = RemoteWorktrees(line)
        self.mcp = RemoteMcp(line)
        self._cursors = Cursors()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return self._line.url

    @property
    def is_weft(self) -> bool:
        """Whether it is weft that answers, and not OpenCode."""
        return self._line.ours

    async def close(self) -> None:
        """Stop listening, and leave. What runs at the server runs on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._line.close()

    async def current_project(self) -> Project:
        return await self._line.ask(get("/project/current"), Project)

    # --- finding, moving ---

    async def search(self, words: str, *, limit: int = 20, everywhere: bool = False) -> list[Hit]:
        need_weft(self._line, "searching")
        if limit < 1:
            return []
        asked = get(
            own("/search"), words=words[:LONGEST_WORDS], limit=min(limit, MOST_HITS), everywhere=everywhere
        )
        return await self._line.ask(asked, list[Hit])

    async def get_spending(self, session: SessionID) -> Spending:
        path = session_at(session, "spending")
        need_weft(self._line, "counting what a session spent")
        return await self._line.ask(get(own(path)), Spending)

    async def get_figures(self, *, days: int | None = None, project: ProjectID | None = None) -> Figures:
        need_weft(self._line, "figures")
        return await self._line.ask(get(own("/figures"), days=days, project=project), Figures)

    async def export_session(self, id: SessionID) -> Parcel:
        if self._line.ours:
            return await self._line.ask(get(own(session_at(id, "export"))), Parcel)
        info = await self.get_session(id)
        messages = await self.list_messages(id)
        todos, diff = await self.list_todos(id), await self.list_diff(id)
        return Parcel(info=info, messages=tuple(messages), todos=tuple(todos), diff=tuple(diff))

    async def import_session(self, parcel: Parcel, *, dry_run: bool = False) -> Received:
        check_new("session", parcel.info.id)
        need_weft(self._line, "taking a session in", hint="opencode import does it from a file")
        asked = post(own("/import"), parcel, long=True, query=to_query({"dryRun": dry_run}))
        return await self._line.ask(asked, Received)

    # --- events ---

    def events(self, *, after: int | None = None) -> AsyncIterator[Told]:
        listening = Listening(self._line, self._cursors, self._gather, after)
        self._listening[listening] = None
        self._line.joining.add(listening.joined)
        listening.joined.add_done_callback(self._line.joining.discard)
        task = asyncio.ensure_future(listening.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._listening.pop(listening, None))
        return Events(listening, task)

    async def tell(self, event: Event) -> None:
        if isinstance(event, Durable):
            raise InvalidInputError("event", f"{event.type} is stored, and not for others to tell")
        await self._line.ask(post("/tui/publish", event_to_plain(event)), bool)

    async def _gather(self, heard: Heard) -> Now:
        """How things stand with what was heard of."""
        sessions = {session.id: session for session in await self.list_sessions()}
        messages: dict[SessionID, list[MessageWithParts]] = {}
        for id in heard.sessions():
            with suppress(NotFoundError):  # it is gone, and that is told
                messages[id] = await self.list_messages(id)
        return Now(
            sessions=sessions,
            messages=messages,
            status=await self.list_status(),
            permissions=await self.list_permissions(),
            questions=await self.list_questions(),
            awaited=self.awaited(),
        )


def _is_api(remote: Remote) -> Api:
    return remote


@asynccontextmanager
async def open_remote(
    url: str, terms: Terms = USUAL, *, password: str | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[Remote]:
    """A server at an address, once it has answered and let us in. It says which directory it is about."""
    line = Line(to_address(url, os.environ if env is None else env, password=password), terms)
    remote = Remote(line)
    try:
        await line.meet()
        line.directory = (await remote.surroundings.get_whereabouts()).directory
        yield remote
    finally:
        await remote.close()


@asynccontextmanager
async def connect(
    url: str, *, directory: str | None = None, password: str | None = None, patience: float | None = 60.0
) -> AsyncIterator[Api]:
    """An `Api` over a server of weft or OpenCode, for Python programs.

    `directory` is a path on the server's machine, its own if none is named. The `password` is found in the address, in
    `OPENCODE_SERVER_PASSWORD`, or where `weft serve` keeps it on this machine. A server that is gone is waited for so
    many seconds, with None for ever; then `UnreachableError` is raised.
    """
    async with open_remote(url, Terms(directory=directory, patience=patience), password=password) as remote:
        yield _is_api(remote)
