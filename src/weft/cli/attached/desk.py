"""The desk of whoever sits at a terminal and talks with a server: what is typed goes there, what happens is shown."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from weft.cli.attached.asked import Waiting
from weft.cli.ending import Course, Ending
from weft.cli.paint import Paint, plain
from weft.cli.running.person import read_line
from weft.cli.screen import Terminal
from weft.client.api import Remote
from weft.client.conversation import Family
from weft.client.events import RESYNC
from weft.errors import WeftError
from weft.host.tasks import open_tasks
from weft.model.event import Event, PartUpdated, SessionRested, StatusChanged, Told
from weft.model.event_wire import UnknownEvent
from weft.model.ids import SessionID
from weft.model.input import CommandInput, PromptInput, SessionInput, ShellInput, TextInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import ModelRef, TextPart
from weft.model.session import Idle, Session
from weft.model.transcript import Transcript

SHOWN = 6
HELP = """/new            begin another session
/exit, Ctrl-D   leave; what runs at the server runs on
/NAME words     a command of the server's
!command        run a shell command, for the session to know of
anything else   a prompt; while a run goes on it joins it"""


class Desk:
    """One session at a time, at one server."""

    def __init__(self, api: Remote, *, model: ModelRef | None = None, agent: str | None = None) -> None:
        self._api = api
        self._model = model
        self._agent = agent
        self._paint = Paint(sys.stderr)
        self._session: SessionID | None = None
        self._family = Family(SessionID(""))
        self._transcript = Transcript()
        self._screen = Terminal()
        self._course = Course()
        self._waiting = Waiting(api)
        self._own: list[str] = []
        self._rested = asyncio.Event()
        self._rested.set()
        self._tasks: asyncio.TaskGroup | None = None

    async def work(self, session: Session | None) -> None:
        """Until whoever sits here leaves."""
        events = self._api.events()
        if session is not None:
            await self._sit_down(session)
        loop = asyncio.get_running_loop()
        async with open_tasks() as tasks:
            self._tasks = tasks
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
            showing = tasks.create_task(self._show(events))
            try:
                await self._listen_to_person()
            finally:
                loop.remove_signal_handler(signal.SIGINT)
                showing.cancel()

    # --- what is typed ---

    async def _listen_to_person(self) -> None:
        while True:
            self._mark()
            typed = await _line()
            if not typed:
                break
            try:
                if not await self._take(typed.strip()):
                    return
            except WeftError as error:
                self._complain(error)
        await self._rested.wait()  # what was piped in is answered before we leave

    async def _take(self, typed: str) -> bool:
        """Whether to go on."""
        match typed.split(maxsplit=1):
            case ["/exit" | "/quit"]:
                return False
            case _ if await self._waiting.answer(typed):
                pass
            case []:
                pass
            case ["/help"]:
                self._say(HELP)
            case ["/new"]:
                self._session = None
                self._say("the next prompt begins another session")
            case _:
                await self._send(typed)
        return True

    async def _send(self, typed: str) -> None:
        session = self._session or await self._begin()
        self._rested.clear()
        try:
            if typed.startswith("/"):
                name, _, words = typed[1:].partition(" ")
                await self._api.get_command(name)
                self._beside(self._api.command(session, CommandInput(command=name, arguments=words)))
            elif typed.startswith("!"):
                self._beside(self._api.shell(session, ShellInput(command=typed[1:].strip())))
            else:
                self._own.append(typed)
                parts = (TextInput(text=typed),)
                await self._api.submit(
                    session, PromptInput(parts=parts, model=self._model, agent=self._agent)
                )
        except BaseException:
            self._rested.set()
            raise

    async def _begin(self) -> SessionID:
        made = await self._api.create_session(SessionInput())
        await self._sit_down(made)
        return made.id

    def _beside(self, work: Coroutine[Any, Any, MessageWithParts]) -> None:
        """What is answered at its end, and shown as it goes: typing goes on meanwhile."""

        async def doing() -> None:
            try:
                await work
            except WeftError as error:
                self._rested.set()
                self._complain(error)

        assert self._tasks is not None, "it is made before anything is typed"
        self._tasks.create_task(doing())

    def _interrupt(self) -> None:
        if self._session is None or self._rested.is_set() or self._tasks is None:
            self._say("nothing is running; Ctrl-D leaves")
            return
        self._tasks.create_task(self._abort(self._session))

    async def _abort(self, session: SessionID) -> None:
        try:
            await self._api.abort(session)
        except WeftError as error:
            self._complain(error)

    # --- what happens ---

    async def _sit_down(self, session: Session) -> None:
        """Look at a session: what was said last, and whether it is being run."""
        self._session, self._family = session.id, Family(session.id)
        messages = await self._api.list_messages(session.id)
        self._transcript = Transcript(messages)
        self._say(self._paint.dim(f"{plain(session.title)} · {session.id} · {session.directory}"))
        for message in messages[-SHOWN:]:
            self._recall(message)
        if not isinstance(await self._api.get_status(session.id), Idle):
            self._rested.clear()
        for permission in await self._api.list_permissions():
            if permission.session_id == session.id:
                self._waiting.take(permission)
        for question in await self._api.list_questions():
            if question.session_id == session.id:
                self._waiting.take(question)

    def _recall(self, message: MessageWithParts) -> None:
        words = "\n".join(
            part.text for part in message.parts if isinstance(part, TextPart) and not part.synthetic
        )
        if not words:
            return
        if isinstance(message.info, UserMessage):
            self._say(self._paint.dim(f"> {plain(words)}"))
        else:
            print(plain(words) if sys.stdout.isatty() else words, flush=True)

    async def _show(self, events: AsyncIterator[Told]) -> None:
        async for told in events:
            event = told.event
            if isinstance(event, UnknownEvent) and event.named == RESYNC:
                self._say(self._paint.dim("some of what happened was missed; what is other is shown now"))
                self._mark()
            place = self._family.place(event)
            if place == "own":
                self._feed(event)
            elif place == "below":
                self._course.feed_below(event)
                self._screen.feed_below(event)
            if place is not None:
                self._waiting.feed(event)

    def _feed(self, event: Event) -> None:
        self._transcript.feed(event)
        self._course.feed(event)
        self._screen.feed(event)
        match event:
            case PartUpdated(part=TextPart(synthetic=False) as part):
                self._tell_of_others(part)
            case StatusChanged(status=status) if not isinstance(status, Idle):
                self._rested.clear()
            case SessionRested():
                self._rest()
            case _:
                pass

    def _tell_of_others(self, part: TextPart) -> None:
        """What somebody else says in this session is shown; what was typed here stands here already."""
        message = self._transcript.find(part.message_id)
        if message is None or not isinstance(message.info, UserMessage):
            return
        if part.text in self._own:
            self._own.remove(part.text)
        else:
            self._say(self._paint.dim(f"> {plain(part.text)}"))

    def _rest(self) -> None:
        answer = self._transcript.newest_answer()
        whole = self._transcript.find(answer.id) if answer else None
        if whole is not None:
            self._screen.end(Ending(answer=whole, course=self._course))
        self._screen, self._course = Terminal(), Course()
        self._rested.set()
        self._mark()

    # --- on the screen ---

    def _mark(self) -> None:
        if self._rested.is_set() and sys.stdin.isatty():
            sys.stderr.write("> ")
            sys.stderr.flush()

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _complain(self, error: WeftError) -> None:
        hint = f" ({error.hint})" if error.hint else ""
        self._say(f"{self._paint.red('error:')} {plain(str(error))}{plain(hint)}")


async def _line() -> str:
    """A line; nothing at the end of input."""
    # A key is not waited for in a thread: that could not be ended. What is piped in comes to an end by itself.
    return await (read_line() if sys.stdin.isatty() else asyncio.to_thread(sys.stdin.readline))
