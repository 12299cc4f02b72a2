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
from weft.cli.questions import TerminalQuestions
from weft.cli.screen import RunScreen
from weft.client.abort import end_run
from weft.errors import NotFoundError, StoreError
from weft.host.exit import ExitTimer, handle_signals
from weft.host.tasks import open_tasks
from weft.model.event import Event, PermissionAsked, PublishedEvent, QuestionAsked, SessionRested
from weft.model.ids import PermissionID, SessionID
from weft.model.input import CommandInput, PromptInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.permission import PermissionRequest
from weft.model.transcript import SessionDescendants

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api import Api

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# How long an aborted run may take to settle. A tool that does not stop even then is left behind, and named.
SETTLE_SECONDS = 8.0
# How long closing may take once a run is settled.
END_SECONDS = 1.5
# How long to wait for the events of a run that has ended.
REST_SECONDS = 1.0


class StopSignals:
    """Turns signals into the end of a run: the first one aborts it, the second one ends the process at once.

    `signal` is the first one that arrived. As long as nobody waits for it, a signal cancels the current task.
    """

    def __init__(self, last_resort: ExitTimer, *, settle_seconds: float = SETTLE_SECONDS) -> None:
        self.signal: int | None = None
        self._settle_seconds = settle_seconds
        self._last_resort = last_resort
        self._main: asyncio.Task[object] | None = None
        self._came = asyncio.Event()
        self._heeded = False

    @contextmanager
    def listening(self) -> Generator[None]:
        """Receive signals while this is open."""
        self._main = asyncio.current_task()
        with handle_signals(SIGNALS, self._hear, self._last_resort, seconds=self._settle_seconds):
            yield

    async def wait(self) -> int:
        """Wait for a signal and return it. From now on a signal does not cancel the current task."""
        self._heeded = True
        await self._came.wait()
        assert self.signal is not None, "it came"
        return self.signal

    def done(self, code: int) -> None:
        """Give the process little time to exit with `code`: the run is settled and shown."""
        self._last_resort.end_within(END_SECONDS, code)

    def _hear(self, number: int) -> None:
        self.signal = number
        if self._heeded:
            self._came.set()
        elif self._main is not None:
            self._main.cancel()


class UnansweredRequests:
    """Collects the permission requests of a run that nobody watches, to say at the end how to allow them.

    `waiting` says that they can still be answered when the run is over.
    """

    def __init__(self, *, waiting: bool = True) -> None:
        self._waiting = waiting
        self._asked: dict[PermissionID, PermissionRequest] = {}

    def feed(self, event: Event) -> None:
        match event:
            case PermissionAsked(request=request):
                self._asked[request.id] = request
            case _:
                pass

    def to_lines(self, paint: Paint) -> Iterator[str]:
        for request in self._asked.values():
            wanted = f"{request.permission} {', '.join(request.patterns)}"
            yield f"{paint.yellow('refused:')} nobody was there to allow {sanitize(wanted)}"
            if self._waiting:
                yield f"         weft permission reply {request.id} once   (or always), then go on with weft run -c"


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

    async def _reject(self, rejecting: Awaitable[None]) -> None:
        with suppress(NotFoundError):  # somebody else has answered it
            await rejecting


async def follow(
    api: Api,
    session: SessionID,
    input: PromptInput | CommandInput,
    screen: RunScreen,
    *,
    person: bool = False,
    stop: StopSignals | None = None,
    attached: bool = False,
) -> int:
    """Send a prompt, show the run, and return the exit code once the run is settled and its end has been shown.

    `person` says that somebody at the terminal can answer questions. If the session runs on a server (`attached`), a
    request waits until somebody answers it, so without a person every request is rejected. `stop` ends the run.
    """
    events, tally, unanswered = api.events(), RunTally(), UnansweredRequests(waiting=not attached)

    async def show() -> None:
        async with open_tasks() as tasks:
            asking = TerminalQuestions(api, tasks) if person else None
            rejecting = AutoReject(api, tasks) if attached and not person else None
            async for event in _list_until_idle(events, session, screen, tally):
                if asking is not None:
                    asking.feed(event)
                else:
                    unanswered.feed(event)
                if rejecting is not None:
                    rejecting.feed(event)
            if asking is not None:
                asking.withdraw_all()

    async with open_tasks() as tasks:
        showing = tasks.create_task(show())
        prompting = tasks.create_task(_wait_for_answer(api, session, input, showing))
        stopping = tasks.create_task(_stop_on_signal(api, session, stop, prompting, attached=attached))
        try:
            answer = await prompting
            await showing
        finally:
            showing.cancel()
            stopping.cancel()
    outcome = RunOutcome(answer=answer, tally=tally, signal=stop.signal if stop is not None else None)
    value = answer.info.structured if isinstance(answer.info, AssistantMessage) else UNSET
    if value is not UNSET:
        screen.show_value(value)
    screen.end(outcome)
    for line in unanswered.to_lines(Paint(sys.stderr)) if outcome.code == ExitCode.REFUSED else ():
        print(line, file=sys.stderr)
    return outcome.code


async def _list_until_idle(
    events: AsyncIterator[PublishedEvent], session: SessionID, screen: RunScreen, tally: RunTally
) -> AsyncIterator[Event]:
    """Show and yield the events of a session and its child sessions, until the session is idle."""
    family = SessionDescendants(session)
    async for told in events:
        match family.place(told.event):
            case "own":
                tally.feed(told.event)
                screen.feed(told.event)
            case "below":
                tally.feed_below(told.event)
                screen.feed_below(told.event)
            case None:
                continue
        yield told.event
        if isinstance(told.event, SessionRested) and told.event.session_id == session:
            return


async def _wait_for_answer(
    api: Api, session: SessionID, input: PromptInput | CommandInput, showing: asyncio.Task[None]
) -> MessageWithParts:
    """Send the prompt and return the answer.

    If not even a failure could be stored, return the prompt instead: the events have told how the run ended.
    """
    try:
        match input:
            case PromptInput():
                return await api.prompt(session, input)
            case CommandInput():
                return await api.command(session, input)
    except StoreError:
        rested, _ = await asyncio.wait([showing], timeout=REST_SECONDS)
        if not rested:  # the run never started
            raise
        return (await api.list_messages(session, limit=1))[0]


async def _stop_on_signal(
    api: Api,
    session: SessionID,
    stop: StopSignals | None,
    prompting: asyncio.Task[MessageWithParts],
    *,
    attached: bool,
) -> None:
    """Abort the run when a signal arrives. The run then settles, and is shown to its end."""
    if stop is None:
        return
    await stop.wait()
    if not await api.abort(session):
        if attached:
            await end_run(api, session, prompting)
        prompting.cancel()  # the run has not started
