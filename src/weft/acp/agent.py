"""Answer an editor's requests by the Agent Client Protocol."""

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
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)
from msgspec import Struct
from msgspec.structs import replace

from weft.acp.content import Block, Given, find_command, to_parts
from weft.acp.editor import Workspace
from weft.acp.errors import refusing
from weft.acp.options import COMPACT, MODE, MODEL, USUAL, Chosen, to_commands, to_modes, to_name, to_options
from weft.acp.questions import Asker, Editor
from weft.acp.session import Room, Send
from weft.acp.updates import Teller, thought, to_iso, to_plan
from weft.acp.workspaces import Brought, House, Houses, bring
from weft.api import Api
from weft.errors import DirectoryError, InvalidInputError, NotFoundError, UnsupportedError, WeftError
from weft.model.catalog import parse_ref
from weft.model.ids import SessionID, checked
from weft.model.input import CommandInput, FileInput, PromptInput, SessionInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.session import Session, SessionQuery, is_archived
from weft.outlook import EditorWorkspace


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


PROTOCOL: Final = 1
LOGIN: Final = "weft-auth-login"
HOW_TO_LOG_IN: Final = "Run `weft auth login` in a terminal to store a provider's key."
PAGE: Final = 100
LATEST: Final = 10**15


class Setup(Struct, frozen=True, kw_only=True):
    """How a directory is opened for an editor, which one is meant when none is named, and where lines for the log go."""

    open: Callable[[str, EditorWorkspace], AbstractAsyncContextManager[Api]]
    here: str
    note: Callable[[str], None]
    version: str


class Front:
    """What the SDK's connection calls. Its names and parameters are the protocol's; what we do not know is passed over."""

    def __init__(self, setup: Setup, tasks: asyncio.TaskGroup) -> None:
        self._setup = setup
        self._tasks = tasks
        self._editor: Editor | None = None

    def on_connect(self, conn: Client) -> None:
        self._editor = Editor(client=conn, note=self._setup.note)
        self._houses = Houses(self._open, self._editor, self._tasks)
        self._doorway = Doorway(self._houses, self._get_editor, self._tasks)

    def _get_editor(self) -> Editor:
        assert self._editor is not None, "a connection says who it is before it calls"
        return self._editor

    def _open(self, directory: str) -> AbstractAsyncContextManager[Api]:
        return self._setup.open(directory, Workspace(self._get_editor, self._houses.find_room_of))

    async def close(self) -> None:
        """The editor is gone: what runs is ended, and settled."""
        self._doorway.leave()
        await self._houses.close()

    # --- who is who ---

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        **_: Any,
    ) -> InitializeResponse:
        del protocol_version  # there is one; an editor that wants another hangs up
        able = client_capabilities or ClientCapabilities()
        self._editor = replace(
            self._get_editor(),
            forms=able.elicitation is not None and able.elicitation.form is not None,
            reads=able.fs is not None and able.fs.read_text_file is True,
            writes=able.fs is not None and able.fs.write_text_file is True,
            terminals=able.terminal is True,
        )
        return InitializeResponse(
            protocol_version=PROTOCOL,
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
            auth_methods=[AuthMethodAgent(id=LOGIN, name="weft auth login", description=HOW_TO_LOG_IN)],
            agent_info=Implementation(name="weft", title="weft", version=self._setup.version),
        )

    @refusing
    async def authenticate(self, method_id: str, **_: Any) -> AuthenticateResponse:
        """Keys are typed at a terminal, and pass no editor. That there is one by now is found out by prompting."""
        if method_id != LOGIN:
            raise NotFoundError("way to log in", method_id[:80], near=[LOGIN])
        return AuthenticateResponse()

    # --- sessions ---

    @refusing
    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Any] | None = None,
        **_: Any,
    ) -> NewSessionResponse:
        wanted = to_wanted(cwd, additional_directories, mcp_servers)
        room = await self._doorway.enter(wanted, lambda house: house.api.create_session(SessionInput()))
        return NewSessionResponse(session_id=room.id, **self._shown(room))

    @refusing
    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[Any] | None = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> LoadSessionResponse:
        room = await self._known(to_wanted(cwd, additional_directories, mcp_servers), session_id)
        await self._doorway.replay(room)
        return LoadSessionResponse(**self._shown(room))

    @refusing
    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Any] | None = None,
        **_: Any,
    ) -> ResumeSessionResponse:
        room = await self._known(to_wanted(cwd, additional_directories, mcp_servers), session_id)
        room.teller.pass_over(await room.api.list_messages(room.id))
        return ResumeSessionResponse(**self._shown(room))

    @refusing
    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Any] | None = None,
        **_: Any,
    ) -> ForkSessionResponse:
        id, wanted = to_id(session_id), to_wanted(cwd, additional_directories, mcp_servers)
        room = await self._doorway.enter(wanted, lambda house: house.api.fork_session(id))
        room.teller.pass_over(await room.api.list_messages(room.id))
        return ForkSessionResponse(session_id=room.id, **self._shown(room))

    @refusing
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> ListSessionsResponse:
        house = await self._doorway.find_house(cwd or self._setup.here)
        query = SessionQuery(
            roots=True, order="updated", directory=house.directory if cwd else None, everywhere=cwd is None
        )
        found = [each for each in await house.api.list_sessions(query) if not is_archived(each)]
        page, after = to_page(found, cursor)
        return ListSessionsResponse(sessions=[to_listed(each) for each in page], next_cursor=after)

    @refusing
    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        room = self._houses.get_room(to_id(session_id))
        await room.cancel()
        self._houses.house_of(room).rooms.pop(room.id, None)
        return CloseSessionResponse()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """What the SDK has no route for."""
        if method != "session/delete":
            raise RequestError.method_not_found(f"_{method}")
        asked = DeleteSessionRequest.model_validate(params)
        return (await self.delete_session(asked.session_id)).model_dump(by_alias=True, exclude_none=True)

    @refusing
    async def delete_session(self, session_id: str) -> DeleteSessionResponse:
        """Move a session to the trash, with those below it. Its run is ended first."""
        id = to_id(session_id)
        room = self._houses.find_room(id)
        if room is not None:
            await room.cancel()
            self._houses.house_of(room).rooms.pop(id, None)
        api = room.api if room is not None else (await self._doorway.find_house(self._setup.here)).api
        await api.remove_session(id)
        return DeleteSessionResponse()

    async def _known(self, wanted: Wanted, session: str) -> Room:
        id = to_id(session)
        return await self._doorway.enter(wanted, lambda house: house.api.get_session(id))

    # --- choices ---

    @refusing
    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        self._choose_mode(self._houses.get_room(to_id(session_id)), mode_id)
        return SetSessionModeResponse()

    @refusing
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        room = self._houses.get_room(to_id(session_id))
        if config_id == MODE:
            self._choose_mode(room, str(value))
        elif config_id == MODEL:
            await self._choose_model(room, str(value))
        else:
            raise NotFoundError("option", config_id[:80], near=[MODE, MODEL])
        return SetSessionConfigOptionResponse(config_options=self._shown(room)["config_options"])

    def _choose_mode(self, room: Room, agent: str) -> None:
        names = [each.name for each in self._houses.house_of(room).choices.agents]
        if agent not in names:
            raise NotFoundError("mode", agent[:80], hint=f"there are {', '.join(names)}")
        room.chosen = replace(room.chosen, agent=agent)

    async def _choose_model(self, room: Room, name: str) -> None:
        model = None if name == USUAL else parse_ref(name)
        if model is None and name != USUAL:
            raise InvalidInputError(
                "value", f"{name[:80]!r} does not name a model", hint="write it as provider/model"
            )
        await room.api.check_prompt(PromptInput(agent=room.chosen.agent, model=model, parts=()))
        room.chosen = replace(room.chosen, model=model)

    def _shown(self, room: Room) -> dict[str, Any]:
        choices = self._houses.house_of(room).choices
        return {"modes": to_modes(choices, room.chosen), "config_options": to_options(choices, room.chosen)}

    # --- prompts ---

    @refusing
    async def prompt(self, session_id: str, prompt: list[Block], **_: Any) -> PromptResponse:
        room = self._houses.get_room(to_id(session_id))
        send, follows = await to_sending(room, to_parts(prompt))
        outcome = await room.take(send, follows=follows)
        await self._tell_cost(room)
        return PromptResponse(stop_reason=outcome.stop, usage=outcome.usage)

    async def cancel(self, session_id: str, **_: Any) -> None:
        try:
            await self._houses.get_room(to_id(session_id)).cancel()
        except WeftError as error:
            self._setup.note(f"session/cancel: {error}")  # a notification has no answer

    async def _tell_cost(self, room: Room) -> None:
        """How full the window is, and what the session has cost with all below it, if every price is known."""
        spent = (await room.api.get_spending(room.id)).tree
        if room.teller.usage is not None and spent.priced:
            cost = Cost(amount=float(spent.cost), currency="USD")
            await self._houses.tell(room, room.teller.usage.model_copy(update={"cost": cost}))


def to_wanted(cwd: str, beside: Sequence[str] | None, servers: Sequence[Any] | None) -> Wanted:
    return Wanted(cwd=cwd, beside=tuple(beside or ()), servers=tuple(servers or ()))


async def to_sending(room: Room, parts: tuple[Given, ...]) -> tuple[Send, bool]:
    """What a prompt comes to: a command, a summary, or a prompt; and whether the session is with who answers it."""
    named, chosen = find_command(parts), room.chosen
    known = {command.name for command in await room.api.list_commands()} if named else set()
    if named and named[0] in known:
        command = CommandInput(
            command=named[0],
            arguments=named[1],
            agent=None,
            model=to_name(chosen.model) if chosen.model else None,
            parts=tuple(part for part in parts if isinstance(part, FileInput)),
        )
        return lambda: room.api.command(room.id, command), False
    if named and named[0] == COMPACT:
        return lambda: room.api.compact(room.id, model=chosen.model), False
    input = PromptInput(agent=chosen.agent, model=chosen.model, parts=parts)
    return lambda: room.api.prompt(room.id, input), True


def to_page(found: Sequence[Session], cursor: str | None) -> tuple[list[Session], str | None]:
    """Those after the cursor, a page of them, and where the next one begins. Sessions come newest first."""
    left = [each for each in found if cursor is None or _place(each) > cursor]
    page = left[:PAGE]
    return page, _place(page[-1]) if len(left) > PAGE else None


def _place(session: Session) -> str:
    """Where it stands: later ones are smaller. A session that is worked on meanwhile moves to the front, and is not missed."""
    return f"{LATEST - session.time.updated:016}.{session.id}"


def to_listed(session: Session) -> SessionInfo:
    return SessionInfo(
        session_id=session.id,
        cwd=session.directory,
        title=session.title,
        updated_at=to_iso(session.time.updated),
    )
