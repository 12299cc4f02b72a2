"""The directories an editor works in, and the MCP servers it brings along for them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from acp.schema import AcpMcpServer, CurrentModeUpdate, HttpMcpServer, McpServerStdio, SseMcpServer
from msgspec.structs import replace

from weft.acp.options import Choices, to_choices
from weft.acp.questions import Editor
from weft.acp.session import Room
from weft.acp.updates import Update
from weft.api import Api
from weft.errors import CursorLostError, NotFoundError, WeftError
from weft.model.event import (
    Event,
    PermissionAsked,
    QuestionAsked,
    SessionCreated,
    SessionUpdated,
    Told,
    session_of,
)
from weft.model.ids import SessionID
from weft.model.session import Idle
from weft.model.workspace import AnyMcpStatus, McpConnected, Whereabouts
from weft.outlook import Mcp

Open = Callable[[str], AbstractAsyncContextManager[Api]]


class House:
    """A directory that is open, and the rooms in it. Sessions below a room's are its own business."""

    def __init__(self, api: Api, choices: Choices, where: Whereabouts) -> None:
        self.api = api
        self.choices = choices
        self.directory = where.directory
        self.worktree = where.worktree
        self.rooms: dict[SessionID, Room] = {}
        self.leaving = asyncio.Event()
        self._parents: dict[SessionID, SessionID] = {}

    def learn(self, event: Event) -> None:
        match event:
            # Before a child runs it is made, or touched: either way it is told whose child it is.
            case SessionCreated(info=info) | SessionUpdated(info=info) if info.parent_id is not None:
                self._parents[info.id] = info.parent_id
            case _:
                pass

    def room_of(self, session: SessionID | None) -> Room | None:
        """The room a session is in: its own, or that of the one it works for."""
        seen: set[SessionID] = set()
        while session is not None and session not in self.rooms and session not in seen:
            seen.add(session)
            session = self._parents.get(session)
        return self.rooms.get(session) if session is not None else None


class Houses:
    """What goes wrong in one of them is its own trouble: it is told to who asked, or noted."""

    def __init__(self, open: Open, editor: Editor, tasks: asyncio.TaskGroup) -> None:
        self._open = open
        self._editor = editor
        self._tasks = tasks
        self._houses: dict[str, House] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._door = asyncio.Lock()

    async def get(self, directory: str) -> House:
        async with self._door:
            if directory not in self._houses:
                ready: asyncio.Future[House] = asyncio.get_running_loop().create_future()
                # Opened and closed in a task of its own: what is entered in one task cannot be left in another.
                self._keepers.append(self._tasks.create_task(self._keep(directory, ready)))
                self._houses[directory] = await ready
            return self._houses[directory]

    def find_room(self, session: SessionID) -> Room | None:
        rooms = (house.rooms.get(session) for house in self._houses.values())
        return next((room for room in rooms if room is not None), None)

    def find_room_of(self, session: SessionID) -> Room | None:
        """The room of the session that the editor knows, which this one is or works for."""
        rooms = (house.room_of(session) for house in self._houses.values())
        return next((room for room in rooms if room is not None), None)

    def get_room(self, session: SessionID) -> Room:
        if (found := self.find_room(session)) is not None:
            return found
        raise NotFoundError("open session", session[:80], hint="open it first: session/new or session/load")

    def house_of(self, room: Room) -> House:
        return next(house for house in self._houses.values() if house.rooms.get(room.id) is room)

    async def close(self) -> None:
        """End every run and leave every house; all is settled when this returns."""
        for house in self._houses.values():
            house.leaving.set()
        if self._keepers:
            await asyncio.wait(self._keepers)

    async def _keep(self, directory: str, ready: asyncio.Future[House]) -> None:
        try:
            async with self._open(directory) as api:
                heard = api.events()
                where = await api.surroundings.get_whereabouts()
                agents, providers = (
                    await api.surroundings.list_agents(),
                    await api.configuration.list_providers(),
                )
                house = House(api, to_choices(agents, providers), where)
                following = asyncio.ensure_future(self._follow(house, heard))
                ready.set_result(house)
                try:
                    await house.leaving.wait()
                    for room in house.rooms.values():
                        await room.cancel()
                finally:
                    following.cancel()
                    await asyncio.wait([following])
        except Exception as error:  # noqa: BLE001  one directory's trouble is its caller's, and not the others'
            if ready.done():
                self._editor.note(f"{directory}: {type(error).__name__}: {error}")
            else:
                ready.set_exception(error)
        finally:
            self._houses.pop(directory, None)

    # --- what happens ---

    async def _follow(self, house: House, heard: AsyncIterator[Told]) -> None:
        while True:
            try:
                async for told in heard:
                    await self._heard(house, told.event)
            except CursorLostError:
                # More happened at once than is held: what an editor missed is read from the sessions.
                heard = house.api.events()
                await self._catch_up(house)
            except ConnectionError:
                return  # nobody is there to be told

    async def _heard(self, house: House, event: Event) -> None:
        try:
            await self._hear(house, event)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001  what cannot be shown must not keep the rest from being shown
            self._editor.note(f"{event.type} could not be shown: {type(error).__name__}: {error}")

    async def _hear(self, house: House, event: Event) -> None:
        house.learn(event)
        session = session_of(event)
        room = house.room_of(session)
        if room is None:
            return
        own = session == room.id
        if own:
            await self.tell(room, *room.teller.feed(event))
            await self._move(house, room, room.moved_to(event))
        room.asker.feed(event, room.teller)
        room.note(event, own=own)

    async def _move(self, house: House, room: Room, agent: str | None) -> None:
        if agent is not None and any(agent == each.name for each in house.choices.agents):
            room.chosen = replace(room.chosen, agent=agent)
            await self.tell(
                room, CurrentModeUpdate(session_update="current_mode_update", current_mode_id=agent)
            )

    async def _catch_up(self, house: House) -> None:
        for room in list(house.rooms.values()):
            await self.tell(room, *room.teller.catch_up(await house.api.list_messages(room.id)))
            if isinstance(await house.api.get_status(room.id), Idle):
                room.rested.set()
        asked: list[Event] = [PermissionAsked(request=each) for each in await house.api.list_permissions()]
        asked += [QuestionAsked(request=each) for each in await house.api.list_questions()]
        for event in asked:
            if (found := house.room_of(session_of(event))) is not None:
                found.asker.feed(event, found.teller)

    async def tell(self, room: Room, *updates: Update) -> None:
        for update in updates:
            await self._editor.client.session_update(session_id=room.id, update=update)


Brought = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio


def to_config(server: Brought) -> dict[str, Any] | None:
    """As one is configured in `opencode.json`; None for one that is reached through the editor, which weft is not."""
    match server:
        case McpServerStdio(command=command, args=args, env=env):
            environment = {each.name: each.value for each in env}
            return {"type": "local", "command": [command, *args], "environment": environment}
        case HttpMcpServer(url=url, headers=headers) | SseMcpServer(url=url, headers=headers):
            return {"type": "remote", "url": url, "headers": {each.name: each.value for each in headers}}
        case AcpMcpServer():
            return None


async def bring(mcp: Mcp, servers: Sequence[Brought]) -> list[str]:
    """Connect them, and give what there is to say of those that are not. One that is known by its name stays as it is:
    an editor brings the same ones to every session."""
    if not servers:
        return []
    known = await mcp.list_servers()
    said = await asyncio.gather(*(_bring(mcp, each) for each in servers if each.name not in known))
    return [words for words in said if words]


async def _bring(mcp: Mcp, server: Brought) -> str:
    config = to_config(server)
    if config is None:
        return f"MCP server {server.name}: weft cannot reach servers through the editor."
    try:
        return _trouble(server.name, await mcp.add_server(server.name, config))
    except WeftError as error:
        return f"MCP server {server.name}: {error}"


def _trouble(name: str, status: AnyMcpStatus) -> str:
    if isinstance(status, McpConnected):
        return ""
    why = getattr(status, "error", "") or str(status.__struct_config__.tag).replace("_", " ")
    return f"MCP server {name} is not connected: {why}"
