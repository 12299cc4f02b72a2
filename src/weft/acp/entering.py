"""Into a room: a session that is made, loaded, resumed or forked, with what an editor has to know of it."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from weft.acp.asking import Asker, Editor
from weft.acp.houses import House, Houses
from weft.acp.options import Chosen, to_commands
from weft.acp.room import Room
from weft.acp.servers import Brought, bring
from weft.acp.telling import Teller, thought, to_plan
from weft.errors import DirectoryError, InvalidInputError, UnsupportedError, WeftError
from weft.model.ids import SessionID, checked
from weft.model.message import MessageWithParts, UserMessage
from weft.model.session import Session


class Wanted(Struct, frozen=True, kw_only=True):
    """Where an editor wants a session, and with what: directories beside it, MCP servers."""

    cwd: str
    beside: Sequence[str] = ()
    servers: Sequence[Brought] = ()


class Doorway:
    def __init__(self, houses: Houses, editor: Callable[[], Editor], tasks: asyncio.TaskGroup) -> None:
        self._houses = houses
        self._editor = editor
        self._tasks = tasks
        self._greeting: list[asyncio.Task[None]] = []

    def leave(self) -> None:
        """Nobody is there to be greeted any more; a server that is still being connected is not waited for."""
        for task in self._greeting:
            task.cancel()

    async def find_house(self, cwd: str) -> House:
        """The house of a directory, by its one real name: asked for by two names, it is opened once."""
        if not os.path.isabs(cwd):
            raise InvalidInputError("cwd", f"{cwd[:80]!r} is not an absolute path")
        try:
            directory = await asyncio.to_thread(os.path.realpath, cwd)
        except (OSError, ValueError) as error:
            raise InvalidInputError("cwd", f"{cwd[:80]!r} is not a path") from error
        if not await asyncio.to_thread(os.path.isdir, directory):
            raise DirectoryError(cwd[:200], "there is no such directory")
        return await self._houses.get(directory)

    async def enter(self, wanted: Wanted, find: Callable[[House], Awaitable[Session]]) -> Room:
        """The room of a session, new to the editor: nothing has been told of it yet."""
        if wanted.beside:
            raise UnsupportedError(
                "more than one directory in a session", hint="open a session in each of them"
            )
        house = await self.find_house(wanted.cwd)
        session = await find(house)
        history = await house.api.list_messages(session.id)
        room = house.rooms[session.id] = self._room(house, session, history)
        self._greeting = [task for task in self._greeting if not task.done()]
        self._greeting.append(self._tasks.create_task(self._greet(room, wanted)))
        return room

    async def replay(self, room: Room) -> None:
        """Tell all that was said, and what is left to do."""
        await self._houses.tell(room, *room.teller.replay(await room.api.list_messages(room.id)))
        if todos := await room.api.list_todos(room.id):
            await self._houses.tell(room, to_plan(todos))

    def _room(self, house: House, session: Session, history: Sequence[MessageWithParts]) -> Room:
        teller = Teller(house.directory, house.worktree, house.choices.sizes)
        known = house.rooms.get(session.id)
        if known is not None:  # opened anew, maybe in the middle of a prompt, which goes on
            known.teller = teller
            return known
        names = [agent.name for agent in house.choices.agents]
        last = next((each.info.agent for each in reversed(history) if isinstance(each.info, UserMessage)), "")
        asker = Asker(session.id, house.api, self._editor(), self._tasks)
        return Room(session.id, house.api, teller, asker, Chosen(agent=last if last in names else names[0]))

    async def _greet(self, room: Room, wanted: Wanted) -> None:
        """What an editor is told once it knows the session by its name."""
        try:
            await self._houses.tell(room, to_commands(await room.api.list_commands()))
            for trouble in await bring(room.api.mcp, wanted.servers):
                self._editor().note(trouble)
                await self._houses.tell(room, thought(f"{trouble}\n"))
        except ConnectionError:
            return  # gone before it was greeted
        except WeftError as error:
            self._editor().note(f"session {room.id}: {error}")


def to_id(given: str) -> SessionID:
    return SessionID(checked("session", given))
