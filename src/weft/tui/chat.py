"""A conversation in a terminal, over any `Api`: follow events, send what is typed, answer requests, carry out commands.

How it looks and how keys are read is up to a `ChatScreen`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import takewhile
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from weft.errors import ConflictError, InvalidInputError, NotFoundError, WeftError
from weft.model.catalog import parse_ref
from weft.model.display import format_cost, format_count, sanitize
from weft.model.event import PublishedEvent, SessionIdled, SessionUpdated
from weft.model.event_wire import RESYNC, UnknownEvent
from weft.model.ids import MessageID, SessionID
from weft.model.input import AnyPartInput, CommandInput, PromptInput, SessionInput, ShellInput
from weft.model.permission import PermissionRequest, QuestionRequest
from weft.model.session import Busy, Idle, SessionInfo
from weft.model.spending import Spent
from weft.tui.dialog import (
    is_answer,
    is_reply,
    list_choices,
    render_permission,
    render_question,
    to_answers,
    to_reply,
)
from weft.tui.overview import WatchedChild
from weft.tui.paste import Pastes, read_image
from weft.tui.render import LiveContext, RenderOptions, render_live, render_status
from weft.tui.text import Line
from weft.tui.view import AnswerItem, Item, LinesItem, NoticeItem, PromptItem, SessionView, TableItem

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api import Api

# How many messages of a session are printed when it is resumed.
RECENT_MESSAGES: Final = 8
# How many older messages are read when a person scrolls up to them.
OLDER_MESSAGES: Final = 20
# How long to wait between two drawings: every word of a fast model would cost more than it shows.
DRAW_SECONDS: Final = 0.05
TICK_SECONDS: Final = 0.2
# How many items are shown, and for how long events are taken in, before keys have their turn.
SLICE_ITEMS: Final = 20
SLICE_SECONDS: Final = 0.02
MAX_FILES: Final = 20
NOTHING_RUNS: Final = "nothing is running; Ctrl-D leaves"


class ChatScreen(Protocol):
    """Shows a conversation and reads what is typed.

    * `run` reads input and hands it to the chat until the person leaves. It begins with `Chat.early` and `Chat.draft`.
    * `show` prints settled items, each once. `refresh` draws the live region again.
    * `set_draft` puts text into an empty prompt. `leave` makes `run` return.
    * A screen that `is_full` shows `Chat.items` itself, so that `show` only says that there are new ones. A screen that is not
      prints each item once.
    """

    @property
    def is_full(self) -> bool: ...

    async def run(self, chat: Chat) -> None: ...

    async def show(self, items: list[Item], chat: Chat) -> None: ...

    def refresh(self) -> None: ...

    def set_draft(self, text: str) -> None: ...

    def leave(self) -> None: ...


class ChatSetup(Struct, frozen=True, kw_only=True):
    """What a conversation needs besides the `Api`.

    `run_command` carries out a slash command, and returns False for other text. `to_parts` turns text into parts of a prompt, with the
    files and agents that it mentions. `to_resume` returns the command that continues a session. `trust` and `describe_context` need a
    project on this machine. `is_remote` says that a server runs the sessions: they continue when the person leaves. `scopes` says that
    grants can be limited to a turn or the project. `make_screen` returns the other screen, full or inline.
    """

    now: Callable[[], int]
    run_command: Callable[[Chat, str], Awaitable[bool]]
    to_parts: Callable[[str, str | None], Awaitable[tuple[AnyPartInput, ...]]]
    to_resume: Callable[[SessionID], str]
    is_remote: bool = False
    scopes: bool = True
    trust: Callable[[bool], list[str]] | None = None
    describe_context: Callable[[SessionID], list[str]] | None = None
    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    make_screen: Callable[[bool], Awaitable[ChatScreen]] | None = None


class Chat:
    """A conversation with one session at a time. The session is created with the first prompt."""

    def __init__(self, api: Api, screen: ChatScreen, setup: ChatSetup) -> None:
        self.api = api
        self.setup = setup
        self.session: SessionInfo | None = None
        self.view: SessionView | None = None
        self.agent, self.model, self.variant = setup.agent, setup.model, setup.variant
        self._default_agent = self._default_model = ""
        self.reasoning = False
        self.interrupt_key = "Esc"
        self.queue: list[str] = []
        self.listed: list[SessionID] = []  # the sessions that /sessions has numbered
        self.sizes: dict[str, int] = {}
        self._knows_sizes = False
        self.budget = ""
        self.draft = ""  # the line that was being typed when the screen appeared
        self.early: list[str] = []  # the lines that were sent with Enter before that
        self.pastes = Pastes()
        self.items: list[Item] = []  # everything that was shown of this session
        self.watched: WatchedChild | None = None
        # The first message that is shown; None if there are no older ones.
        self._oldest: MessageID | None = None
        self._screen = screen
        self._next_screen: ChatScreen | None = None
        self._items: list[Item] = []
        self._answers: dict[str, list[tuple[str, ...]]] = {}  # to the first questions of a request
        self._dirty = asyncio.Event()
        self._sending = asyncio.Lock()
        self._is_open = asyncio.Event()  # set when prompts go to the session that is shown
        self._showing = asyncio.Lock()
        self._tasks: asyncio.TaskGroup | None = None
        self._pending: set[asyncio.Task[None]] = set()

    async def run(self, session: SessionInfo | None = None) -> None:
        """Talk until the person leaves. Errors are shown, and do not end the conversation."""
        events = self.api.events()
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            background = [tasks.create_task(self._follow(events)), tasks.create_task(self._draw())]
            background.append(tasks.create_task(self._guard(self._read_settings())))
            background.append(tasks.create_task(self._guard(self._begin(session))))
            try:
                await self._run_screens()
            finally:
                for task in (*background, *self._pending):
                    task.cancel()
        await self._show_settled()

    async def _begin(self, session: SessionInfo | None) -> None:
        try:
            if session is not None:
                await self.open(session)
        finally:
            self._is_open.set()

    async def _run_screens(self) -> None:
        """Run the screen, and then the other one as often as the person changes between them."""
        while True:
            log, printed = self.items, len(self.items)
            await self._screen.run(self)
            following, self._next_screen = self._next_screen, None
            if following is None:
                return
            was_full, self._screen = self._screen.is_full, following
            if was_full:
                await following.show(self.items[printed:] if self.items is log else self.items, self)

    def change_screen(self) -> None:
        """Change between inline mode and the full screen, in the same session."""
        self.start(self._change_screen())

    async def _change_screen(self) -> None:
        if self.setup.make_screen is None:
            raise InvalidInputError("screen", "this terminal shows plain lines only")
        self._next_screen = await self.setup.make_screen(not self._screen.is_full)
        self._screen.leave()

    @property
    def is_full(self) -> bool:
        """True if the conversation is shown on the full screen."""
        return self._screen.is_full

    # --- what the screen shows ---

    @property
    def is_busy(self) -> bool:
        return self.view is not None and self.view.is_busy

    @property
    def request(self) -> PermissionRequest | QuestionRequest | None:
        """The request that waits for an answer, if any."""
        return next(iter(self.view.requests), None) if self.view is not None else None

    def get_agent(self) -> str:
        """Return the agent that the next prompt is for; empty if it is not known."""
        return self.agent or (self.view.status.agent if self.view is not None else "") or self._default_agent

    def get_model(self) -> str:
        """Return the model that the next prompt is for; empty if it is not known."""
        return self.model or (self.view.status.model if self.view is not None else "") or self._default_model

    def get_options(self, width: int) -> RenderOptions:
        return RenderOptions(width=width, reasoning=self.reasoning, undo="/undo")

    def get_context(self, width: int, height: int) -> LiveContext:
        return LiveContext(
            width=width,
            height=height,
            now=self.setup.now(),
            sizes=self.sizes,
            budget=self.budget,
            queue=tuple(self.queue),
            agent=self.get_agent(),
            model=self.get_model(),
            variant=self.variant or "",
            interrupt_key=self.interrupt_key,
        )

    def render_live(self, width: int, height: int) -> list[Line]:
        """Return the live region: the open request, or what is going on."""
        match self.request:
            case PermissionRequest() as permission:
                agent = None if self.setup.is_remote or not self.view else self.view.find_agent(permission)
                lines = render_permission(permission, width, agent=agent, scopes=self.setup.scopes)
                # The choices are at the end, and must be seen.
                return lines[:1] + lines[1:][-(height - 1) :] if len(lines) > height else lines
            case QuestionRequest() as question:
                return render_question(question, len(self._answers.get(question.id, ())), width)[-height:]
            case None:
                return render_live(self.view, self.get_context(width, height))

    def render_status(self, width: int) -> Line:
        return render_status(self.view, self.get_context(width, 1))

    def add(self, *items: Item) -> None:
        """Print items of the front end itself."""
        for item in items:
            self.view.add(item) if self.view is not None else self._items.append(item)
        self._dirty.set()

    def note(self, text: str) -> None:
        self.add(NoticeItem(kind="note", text=text))

    def print_lines(self, *lines: str) -> None:
        self.add(LinesItem(lines=[[("", sanitize(line))] for line in lines]))

    def print_table(self, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
        """Print a table, if it has rows."""
        if rows:
            self.add(TableItem(rows=[header, *rows]))

    def fail(self, error: WeftError) -> None:
        hint = f" ({error.hint})" if error.hint else ""
        self.add(NoticeItem(kind="error", text=f"{error}{hint}"))

    # --- input ---

    def submit(self, text: str) -> None:
        """Send what was typed: an answer to the open request, a command, a shell command or a prompt.

        An empty line answers no request for permission: it may come from somebody who was about to send a prompt. Nor does a
        number that is not in the list.
        """
        if self.request is None:
            if text.strip():
                self.start(self._send(text))
        elif self._is_answer(text):
            self.start(self._answer(text.strip()))
        else:
            self.note("type a number or a word of the list, and press Enter")

    def _is_answer(self, text: str) -> bool:
        match self.request:
            case PermissionRequest() as permission:
                return is_reply(text, list_choices(permission, scopes=self.setup.scopes))
            case QuestionRequest(id=id, questions=questions):
                return is_answer(questions[len(self._answers.get(id, ()))], text)
            case None:
                return False

    def enqueue(self, text: str) -> None:
        """Send a prompt when the run has ended, or at once if there is none."""
        if self.is_busy:
            self.queue.append(text)
            self._dirty.set()
        elif text.strip():
            self.submit(text)

    def interrupt(self) -> bool:
        """Interrupt the run. Return False if there is none."""
        if self.session is None or not self.is_busy:
            return False
        if self.queue:
            self._screen.set_draft("\n".join(self.queue))
            self.queue.clear()
        self.start(self._abort(self.session.id))
        return True

    def leave(self) -> None:
        self._screen.leave()

    def set_draft(self, text: str) -> None:
        self._screen.set_draft(text)

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Run something in the background, while the person continues typing. An error is shown."""
        assert self._tasks is not None, "it is set before anything is typed"
        task = self._tasks.create_task(self._guard(work))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _guard(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except WeftError as error:
            self.fail(error)

    async def _abort(self, session: SessionID) -> None:
        await self.api.abort(session)

    async def _send(self, text: str) -> None:
        await self._is_open.wait()
        if text.startswith("/") and await self.setup.run_command(self, text):
            return
        try:
            await self._send_prompt(text)
        except WeftError:
            self._screen.set_draft(text)  # nothing that was typed is lost
            raise

    async def _send_prompt(self, text: str) -> None:
        async with self._sending:  # in the order in which they were typed
            session = await self.get_session()
            if text.startswith("!"):
                model = parse_ref(self.model) if self.model else None
                shell = ShellInput(command=text[1:].strip(), agent=self.agent, model=model)
                self.start(self.api.shell(session, shell))
                return
            images = [await asyncio.to_thread(read_image, path) for path in self.pastes.list_images(text)]
            parts = (*await self.setup.to_parts(text, self.agent), *images)
            await self.api.submit(
                session,
                PromptInput(
                    parts=parts,
                    agent=self.agent,
                    model=parse_ref(self.model) if self.model else None,
                    variant=self.variant,
                ),
            )

    async def send_command(self, name: str, words: str) -> None:
        """Run a slash command of the project."""
        session = await self.get_session()
        await self.api.command(
            session,
            CommandInput(
                command=name, arguments=words, agent=self.agent, model=self.model, variant=self.variant
            ),
        )

    async def _answer(self, typed: str) -> None:
        request, view = self.request, self.view
        if request is None or view is None:
            return
        try:
            match request:
                case PermissionRequest():
                    reply, message, terms = to_reply(typed, list_choices(request, scopes=self.setup.scopes))
                    view.drop_request(request.id)
                    done = "refused" if reply == "reject" else f"allowed {terms.scope or reply}"
                    self.note(f"{done}: {request.permission} {', '.join(request.patterns)}")
                    await self.api.reply_permission(request.id, reply, message=message, grant=terms)
                case QuestionRequest():
                    await self._answer_question(request, typed, view)
        except WeftError as error:
            if not isinstance(error, ConflictError | NotFoundError):  # else it was answered elsewhere
                view.add_request(request)  # the agent still waits
                raise

    async def _answer_question(self, request: QuestionRequest, typed: str, view: SessionView) -> None:
        """Collect the answer to one question of a request, and reply when it was the last."""
        answers = self._answers.setdefault(request.id, [])
        answers.append(to_answers(request.questions[len(answers)], typed))
        self._dirty.set()
        if len(answers) < len(request.questions):
            return
        del self._answers[request.id]
        view.drop_request(request.id)
        for question, chosen in zip(request.questions, answers, strict=True):
            self.note(f"{question.question} {', '.join(chosen) or 'no answer'}")
        if any(answers):
            await self.api.reply_question(request.id, tuple(answers))
        else:
            await self.api.reject_question(request.id)

    # --- sessions ---

    async def get_session(self) -> SessionID:
        """Return the id of the session; create it if there is none."""
        if self.session is None:
            self._show_session(await self.api.create_session(SessionInput()), Spent())
        assert self.session is not None, "it was just set"
        return self.session.id

    def forget_session(self) -> None:
        """Begin another session with the next prompt."""
        self._items += self.view.take_settled() if self.view is not None else []  # they are not printed yet
        self.session = self.view = self.watched = self._oldest = None
        self.items = []
        self.queue.clear()
        self._dirty.set()

    async def open(self, session: SessionInfo) -> None:
        """Show a stored session: its last messages, whether it is running, and what it asks."""
        await self._show_settled()
        base: Spent | None = None
        with suppress(WeftError):  # an OpenCode server cannot tell, so the cost is added up from the history
            base = (await self.api.get_spending(session.id)).tree
        # With the totals and the diff of the session, nothing but the end of its history is needed.
        limit = RECENT_MESSAGES + 1 if base is not None and session.revert is None else None
        history = await self.api.list_messages(session.id, limit=limit)
        children = await self.api.list_children(session.id)
        end = session.revert.message_id if session.revert is not None else None
        messages = list(takewhile(lambda each: each.info.id != end, history))  # the rest is undone
        view = self._show_session(session, base)
        left_out = view.load(messages, shown=RECENT_MESSAGES)
        if left_out:
            self._oldest = messages[left_out].info.id
            view.add_first(NoticeItem(kind="note", text="… earlier messages"))
        if len(messages) < len(history):
            undone = format_count(len(history) - len(messages), "message")
            view.add(NoticeItem(kind="note", text=f"{undone} undone; /redo brings them back"))
        for child in children:
            view.feed(SessionUpdated(info=child))
        view.files = dict.fromkeys(each.file for each in await self.api.list_diff(session.id))
        if isinstance(await self.api.get_status(session.id), Idle):
            view.settle()
        else:
            view.set_status(Busy())
        family = {session.id, *(child.id for child in children)}
        requests: list[PermissionRequest | QuestionRequest] = [*await self.api.list_permissions()]
        for request in (*requests, *await self.api.list_questions()):
            if request.session_id in family:
                view.add_request(request)
        self._want_sizes(view)
        self._dirty.set()

    async def load_older(self) -> list[Item]:
        """Return the items of the messages before those that are shown, oldest first; none if there are no older ones."""
        oldest, self._oldest = self._oldest, None
        if oldest is None or self.session is None:
            return []
        messages = await self.api.list_messages(self.session.id, limit=OLDER_MESSAGES, before=oldest)
        if len(messages) == OLDER_MESSAGES:
            self._oldest = messages[0].info.id
        view = SessionView(self.session.id)
        view.load(messages, shown=len(messages))
        view.settle()
        return view.take_settled()

    async def watch(self, child: SessionID | None) -> None:
        """Show a child session beside its parent, or none."""
        if child is None:
            self.watched = None
        else:
            watched = WatchedChild(await self.api.get_session(child))
            messages = await self.api.list_messages(child)
            watched.view.load(messages, shown=len(messages))
            if isinstance(await self.api.get_status(child), Idle):
                watched.view.settle()
            watched.settle()
            self.watched = watched
        self._dirty.set()

    def _show_session(self, session: SessionInfo, base: Spent | None) -> SessionView:
        self.items = [] if self.session else self.items  # what commands answered before it stays
        self.session, self.view = session, SessionView(session.id, base=base)
        self.view.set_session(session)
        self.watched, self._oldest, self._answers = None, None, {}
        self._dirty.set()
        return self.view

    def format_farewell(self) -> list[str]:
        """Return what to print when the person leaves: files that changed, the cost, and how to continue."""
        if self.session is None or self.view is None:
            return []
        files = list(self.view.files)
        lines = (
            [f"{format_count(len(files), 'file')} changed: {', '.join(files[:MAX_FILES])}"] if files else []
        )
        if self.view.status.spent.steps or self.view.status.spent.cost:
            lines.append(f"cost: {format_cost(self.view.status.spent)}")
        if self.is_busy:
            state = "goes on at the server" if self.setup.is_remote else "was interrupted"
            lines.append(f"the run {state}")
        return [*lines, f"continue: {self.setup.to_resume(self.session.id)}"]

    # --- background ---

    async def _read_settings(self) -> None:
        """Read the budget of a session, how reasoning is shown, whose keys are used, and who answers if nobody is chosen."""
        config = await self.api.configuration.get()
        weft = _find(config, "experimental", "weft")
        cost = _find(weft, "budget", "tree", "cost") or _find(weft, "budget", "session", "cost")
        self.budget = f"${cost}" if cost else ""
        self.reasoning = bool(_find(weft, "terminal", "reasoning"))
        if _find(weft, "terminal", "keys") == "vi":
            self.interrupt_key = "Ctrl-C"  # Esc belongs to vi
        agents = await self.api.workspace.list_agents()  # the default one first
        default = next((each for each in agents if each.mode != "subagent" and not each.hidden), None)
        self._default_agent = default.name if default is not None else ""
        chosen = next((each for each in agents if each.name == self.agent), default)
        model = chosen.model if chosen is not None else None
        name = f"{model.provider_id}/{model.model_id}" if model else _find(config, "model")
        self._default_model = name or ""
        self._dirty.set()

    def _want_sizes(self, view: SessionView) -> None:
        """Read the sizes of contexts as soon as one is in use, once."""
        if view.status.context and not self._knows_sizes:
            self._knows_sizes = True
            self.start(self._read_sizes())

    async def _read_sizes(self) -> None:
        """Read how large the contexts of models are. There are thousands of models, so it waits for the first answer."""
        providers = await self.api.configuration.list_providers()
        self.sizes = {
            f"{provider.id}/{model.id}": model.limit.context
            for provider in providers.all
            for model in provider.models.values()
        }
        self._dirty.set()

    async def _follow(self, events: AsyncIterator[PublishedEvent]) -> None:
        began = monotonic()
        async for published in events:
            if monotonic() - began > SLICE_SECONDS:  # many events may come without a pause
                await asyncio.sleep(0)
                began = monotonic()
            event = published.event
            if isinstance(event, UnknownEvent) and event.named == RESYNC:
                self.note("some events were missed; what has changed since is shown now")
            if self.watched is not None and self.watched.view.feed(event):
                self.watched.settle()
                self._dirty.set()
            if isinstance(event, SessionUpdated) and self.session and event.info.id == self.session.id:
                self.session = event.info
            if self.view is not None and self.view.feed(event):
                self._dirty.set()
                self._want_sizes(self.view)
                if isinstance(event, SessionIdled) and event.session_id == self.view.session:
                    self._send_queued()

    def _send_queued(self) -> None:
        if self.queue:
            self.submit(self.queue.pop(0))

    async def _draw(self) -> None:
        """Draw what is new, but not more often than a person can see. While a run goes on, times are counted up."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS if self.is_busy else None):
                    await self._dirty.wait()
            self._dirty.clear()
            await self._show_settled()
            self._screen.refresh()
            await asyncio.sleep(DRAW_SECONDS)

    async def _show_settled(self) -> None:
        """Show what has settled, in slices, so that keys are handled in between."""
        async with self._showing:  # two at once would mix up the order
            items, self._items = self._items, []
            if self.view is not None:
                items += self.view.take_settled()
            log = self.items
            for start in range(0, len(items), SLICE_ITEMS):
                piece = items[start : start + SLICE_ITEMS]
                log += piece
                await self._screen.show(piece, self)
                await asyncio.sleep(0)

    def list_last_answer(self) -> list[Item]:
        """Return the last answer: what the model wrote after the last prompt."""
        last = max((at for at, item in enumerate(self.items) if isinstance(item, PromptItem)), default=-1)
        return [item for item in self.items[last + 1 :] if isinstance(item, AnswerItem)]


def _find(config: object, *keys: str) -> Any:
    """Return a setting of a configuration, or None."""
    found = config
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found
