"""Send a prompt, show what happens until the session is idle, and return the exit code."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import UNSET

from weft.cli.exit import ExitCode
from weft.cli.outcome import RunOutcome, RunTally
from weft.cli.output import Paint, sanitize
from weft.cli.run_screen import RunScreen
from weft.client.abort import end_run
from weft.errors import ConflictError, NotFoundError, StoreError
from weft.host.exit import ExitTimer, handle_signals
from weft.host.tasks import open_tasks
from weft.model.event import Event, PermissionAsked, PublishedEvent, QuestionAsked, SessionIdled
from weft.model.ids import PermissionID, SessionID
from weft.model.input import CommandInput, PromptInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.permission import PermissionRequest, list_request_facts
from weft.model.session import SessionInfo
from weft.model.transcript import SessionDescendants

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api import Api
    from weft.cli.questions import TerminalQuestions

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# How long an aborted run may take to settle. After that weft exits and prints what was still running; the watcher of each
# child process (`host/processes.py`) then ends it.
SETTLE_SECONDS = 8.0
# How long the process may take to exit once a run is settled.
EXIT_SECONDS = 1.5
# How long to wait for the last events of a run that has ended.
LAST_EVENTS_SECONDS = 1.0


class StopSignals:
    """Receives the signals that stop a run: the first one aborts it, the second one ends the process at once.

    `signal` is the number of the first one. Until `wait` is called, a signal cancels the task that called `listening`.
    """

    def __init__(self, exit_timer: ExitTimer, *, settle_seconds: float = SETTLE_SECONDS) -> None:
        self.signal: int | None = None
        self._settle_seconds = settle_seconds
        self._exit_timer = exit_timer
        self._task: asyncio.Task[object] | None = None
        self._arrived = asyncio.Event()
        self._awaited = False

    @contextmanager
    def listening(self) -> Generator[None]:
        """Receive signals while this is open."""
        self._task = asyncio.current_task()
        with handle_signals(SIGNALS, self._handle_signal, self._exit_timer, seconds=self._settle_seconds):
            yield

    async def wait(self) -> int:
        """Wait for a signal and return it. From now on a signal does not cancel the task."""
        self._awaited = True
        await self._arrived.wait()
        assert self.signal is not None, "it is set before the event"
        return self.signal

    def exit_soon(self, code: int) -> None:
        """Kill the process with `code` unless it exits within `EXIT_SECONDS`: the run is settled and shown."""
        self._exit_timer.end_within(EXIT_SECONDS, code)

    def _handle_signal(self, number: int) -> None:
        self.signal = number
        if self._awaited:
            self._arrived.set()
        elif self._task is not None:
            self._task.cancel()


class UnansweredRequests:
    """Collects the permission requests of a run that nobody watches, to say at the end how to allow them.

    `answerable` says that they can still be answered when the run is over.
    """

    def __init__(self, *, answerable: bool = True) -> None:
        self._answerable = answerable
        self._requests: dict[PermissionID, PermissionRequest] = {}

    def feed(self, event: Event) -> None:
        match event:
            case PermissionAsked(request=request):
                self._requests[request.id] = request
            case _:
                pass

    def to_lines(self, paint: Paint) -> Iterator[str]:
        for request in self._requests.values():
            what = f"{request.permission} {', '.join(request.patterns)}"
            yield f"{paint.yellow('refused:')} nobody was there to allow {sanitize(what)}"
            for fact in list_request_facts(request.metadata):
                yield f"         {sanitize(fact)}"
            if self._answerable:
                yield f"         weft permission reply {request.id} once   (or always), then continue with weft run -c"


class AutoReject:
    """Rejects every request and question of a run on a server, which would wait for an answer for ever."""

    def __init__(self, api: Api, tasks: asyncio.TaskGroup) -> None:
        self._api = api
        self._tasks = tasks

    def feed(self, event: Event) -> None:
        match event:
            case PermissionAsked(request=request):
                self._tasks.create_task(self._reject(self._api.reply_permission(request.id, "reject")))
            case QuestionAsked(request=questions):
                self._tasks.create_task(self._reject(self._api.reject_question(questions.id)))
            case _:
                pass

    async def _reject(self, rejection: Awaitable[None]) -> None:
        with suppress(ConflictError, NotFoundError):  # somebody else has answered it, or the run withdrew it
            await rejection


async def follow(
    api: Api,
    session: SessionInfo,
    input: PromptInput | CommandInput,
    screen: RunScreen,
    *,
    interactive: bool = False,
    stop: StopSignals | None = None,
    attached: bool = False,
) -> int:
    """Send a prompt, show the run, and return the exit code once the run is settled and its end has been shown.

    `session` is as it is before the run. `interactive` says that a person at the terminal can answer questions. If the session
    runs on a server (`attached`), a request waits until somebody answers it, so every request is rejected unless `interactive`.
    A signal to `stop` ends the run.
    """
    events, tally, unanswered = api.events(), RunTally(session), UnansweredRequests(answerable=not attached)

    async def show() -> None:
        async with open_tasks() as tasks:
            questions = _make_questions(api, tasks, is_local=not attached) if interactive else None
            auto_reject = AutoReject(api, tasks) if attached and not interactive else None
            async for event in _show_until_idle(events, session.id, screen, tally):
                if questions is not None:
                    questions.feed(event)
                else:
                    unanswered.feed(event)
                if auto_reject is not None:
                    auto_reject.feed(event)
            if questions is not None:
                questions.withdraw_all()

    async with open_tasks() as tasks:
        show_task = tasks.create_task(show())
        prompt_task = tasks.create_task(_wait_for_answer(api, session.id, input, show_task))
        stop_task = tasks.create_task(_stop_on_signal(api, session.id, stop, prompt_task, attached=attached))
        try:
            answer = await prompt_task
            await show_task
        finally:
            show_task.cancel()
            stop_task.cancel()
    outcome = RunOutcome(answer=answer, tally=tally, signal=stop.signal if stop is not None else None)
    value = answer.info.structured if isinstance(answer.info, AssistantMessage) else UNSET
    if value is not UNSET:
        screen.show_value(value)
    screen.end(outcome)
    for line in unanswered.to_lines(Paint(sys.stderr)) if outcome.code == ExitCode.REFUSED else ():
        print(line, file=sys.stderr)
    return outcome.code


def _make_questions(api: Api, tasks: asyncio.TaskGroup, *, is_local: bool) -> TerminalQuestions:
    from weft.cli.questions import TerminalQuestions  # noqa: PLC0415  only a person is asked

    return TerminalQuestions(api, tasks, is_local=is_local)


async def _show_until_idle(
    events: AsyncIterator[PublishedEvent], session: SessionID, screen: RunScreen, tally: RunTally
) -> AsyncIterator[Event]:
    """Show and yield the events of a session and its child sessions, until the session is idle."""
    descendants = SessionDescendants(session)
    async for published in events:
        match descendants.classify(published.event):
            case "own":
                tally.feed(published.event)
                screen.feed(published.event)
            case "below":
                tally.feed_child(published.event)
                screen.feed_child(published.event)
            case None:
                continue
        yield published.event
        if isinstance(published.event, SessionIdled) and published.event.session_id == session:
            return


async def _wait_for_answer(
    api: Api, session: SessionID, input: PromptInput | CommandInput, show_task: asyncio.Task[None]
) -> MessageWithParts:
    """Send the prompt and return the answer.

    If not even its failure could be stored, return the newest message. Raise the error if the run never started.
    """
    try:
        match input:
            case PromptInput():
                return await api.prompt(session, input)
            case CommandInput():
                return await api.command(session, input)
    except StoreError:
        finished, _ = await asyncio.wait([show_task], timeout=LAST_EVENTS_SECONDS)
        if not finished:  # the run never started
            raise
        return (await api.list_messages(session, limit=1))[0]


async def _stop_on_signal(
    api: Api,
    session: SessionID,
    stop: StopSignals | None,
    prompt_task: asyncio.Task[MessageWithParts],
    *,
    attached: bool,
) -> None:
    """Abort the run when a signal arrives. The run then settles, and is shown to its end."""
    if stop is None:
        return
    await stop.wait()
    if not await api.abort(session):
        if attached:
            await end_run(api, session, prompt_task)
        prompt_task.cancel()  # the run has not started
