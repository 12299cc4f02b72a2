"""Ask the person at the terminal for permissions and for answers to the questions of an agent."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from weft.cli.output import Paint, sanitize
from weft.errors import ConflictError, NotFoundError, WeftError
from weft.model.event import (
    Event,
    MessageUpdated,
    PermissionAsked,
    PermissionReplied,
    QuestionAsked,
    QuestionRejected,
    QuestionReplied,
)
from weft.model.ids import MessageID
from weft.model.message import AssistantMessage
from weft.model.permission import PermissionRequest, Question, QuestionRequest, can_be_asked

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api import Api

MAX_LINE_BYTES = 65_536


class TerminalQuestions:
    """Asks the person at the terminal, one question at a time, in `tasks`.

    A question that is answered elsewhere is withdrawn. `is_local` says that the rules are those of this machine.
    """

    def __init__(self, api: Api, tasks: asyncio.TaskGroup, *, is_local: bool = True) -> None:
        self._api = api
        self._is_local = is_local
        self._tasks = tasks
        self._lock = asyncio.Lock()
        self._question_tasks: dict[str, asyncio.Task[None]] = {}
        self._agents: dict[MessageID, str] = {}  # by answer

    def feed(self, event: Event) -> None:
        match event:
            case MessageUpdated(info=AssistantMessage(id=id, agent=agent)):
                self._agents[id] = agent
            case PermissionAsked(request=request):
                self._question_tasks[request.id] = self._tasks.create_task(self._ask_permission(request))
            case QuestionAsked(request=questions):
                self._question_tasks[questions.id] = self._tasks.create_task(self._ask_questions(questions))
            case PermissionReplied() | QuestionReplied() | QuestionRejected():
                self._withdraw(event.request_id)
            case _:
                pass

    def withdraw_all(self) -> None:
        """Withdraw all questions: the run is over."""
        for id in list(self._question_tasks):
            self._withdraw(id)

    def _withdraw(self, id: str) -> None:
        task = self._question_tasks.pop(id, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _ask_permission(self, request: PermissionRequest) -> None:
        async with self._lock:
            from weft.tui.dialog import to_reply  # noqa: PLC0415  few runs ask, and it loads what draws

            reply, message, terms = to_reply(await ask(format_permission(request, self._find_agent(request))))
        self._question_tasks.pop(request.id, None)
        with suppress(ConflictError, NotFoundError):  # somebody else has answered it, or the run withdrew it
            await self._api.reply_permission(request.id, reply, message=message, grant=terms)

    def _find_agent(self, request: PermissionRequest) -> str | None:
        """Return the agent whose rules ask, empty if it is not known; None if the rules are a server's."""
        if not self._is_local:
            return None
        return self._agents.get(request.tool.message_id, "") if request.tool is not None else ""

    async def _ask_questions(self, request: QuestionRequest) -> None:
        async with self._lock:
            from weft.tui.dialog import to_answers  # noqa: PLC0415  few runs ask, and it loads what draws

            answers = [to_answers(each, await ask(format_question(each))) for each in request.questions]
        self._question_tasks.pop(request.id, None)
        with suppress(ConflictError, NotFoundError):
            if any(answers):
                await self._api.reply_question(request.id, tuple(answers))
            else:
                await self._api.reject_question(request.id)


async def ask(lines: Iterable[str]) -> str:
    """Print a question and return the line that is typed; empty at the end of the input."""
    sys.stderr.write("\n".join(lines))
    sys.stderr.flush()
    return (await read_line()).strip()


async def read_line() -> str:
    """Read a line from the terminal; empty at the end of the input. It can be cancelled."""
    # Not in a thread: a thread that waits for a key cannot be ended, and would keep the process alive.
    loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
    line: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        if not line.done():  # a terminal gives at most one line at a time
            line.set_result(os.read(fd, MAX_LINE_BYTES))

    loop.add_reader(fd, read)
    try:
        return (await line).decode(errors="replace")
    finally:
        loop.remove_reader(fd)


def format_permission(request: PermissionRequest, agent: str | None) -> list[str]:
    """Return a permission request of an agent as text, as the terminal's dialog shows it, and the possible answers."""
    from weft.tui.dialog import MAX_DIFF_LINES, render_details  # noqa: PLC0415  few runs ask, and it loads what draws
    from weft.tui.text import to_plain_text  # noqa: PLC0415  the same

    width = shutil.get_terminal_size().columns
    details = render_details(request, width, agent=agent, limit=MAX_DIFF_LINES)
    first, *rest = to_plain_text(details).split("\n")
    lasting = ", [a]lways, for this [t]urn or [p]roject," if request.always else ","
    answers = f"  allow [o]nce{lasting} or [r]eject (and say what instead)? "
    return [Paint(sys.stderr).bold(first), *rest, answers]


def format_question(question: Question) -> list[str]:
    options = [
        f"  {number}. {sanitize(option.label)}: {sanitize(option.description)}"
        for number, option in enumerate(question.options, start=1)
    ]
    line = f"{Paint(sys.stderr).bold('?')} {sanitize(question.question)}"
    if not options:
        return [line, "  your own words: "]
    numbers = "numbers, with commas" if question.multiple else "a number"
    words = ", or your own words" if question.custom else ""
    return [line, *options, f"  {numbers}{words}: "]


class PendingQuestions:
    """The questions of agents on a server that are still open. The next line that is typed answers the first one."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._requests: dict[str, PermissionRequest | QuestionRequest] = {}
        self._answers: list[tuple[str, ...]] = []

    @property
    def first_id(self) -> str | None:
        """The id of the request that waits for an answer; None if no agent asks anything."""
        return next(iter(self._requests), None)

    def feed(self, event: Event) -> None:
        match event:
            case PermissionAsked(request=permission):
                self.add(permission)
            case QuestionAsked(request=question):
                self.add(question)
            case PermissionReplied() | QuestionReplied() | QuestionRejected():
                self._withdraw(event.request_id)
            case _:
                pass

    def add(self, request: PermissionRequest | QuestionRequest) -> None:
        if request.id not in self._requests and can_be_asked(request):
            self._requests[request.id] = request
            if len(self._requests) == 1:
                self._ask_first()

    def _withdraw(self, id: str) -> None:
        first = next(iter(self._requests), None)
        if self._requests.pop(id, None) is not None and id == first:
            self._answers = []
            self._ask_first()

    def _ask_first(self) -> None:
        request = next(iter(self._requests.values()), None)
        if request is None:
            return
        lines = (
            format_permission(request, agent=None)
            if isinstance(request, PermissionRequest)
            else format_question(request.questions[len(self._answers)])
        )
        sys.stderr.write("\n".join(lines))
        sys.stderr.flush()

    async def answer(self, typed: str) -> bool:
        """Answer the first open question. Return False if there is none."""
        first = next(iter(self._requests.values()), None)
        try:
            match first:
                case PermissionRequest():
                    from weft.tui.dialog import to_reply  # noqa: PLC0415  few runs ask, and it loads what draws

                    reply, message, terms = to_reply(typed)
                    self._withdraw(first.id)
                    await self._api.reply_permission(first.id, reply, message=message, grant=terms)
                case QuestionRequest():
                    await self._answer_question(first, typed)
                case None:
                    return False
        except (ConflictError, NotFoundError):
            pass  # somebody else has answered it, or the run withdrew it
        except WeftError:
            if first is not None:
                self.add(first)  # the agent still waits
            raise
        return True

    async def _answer_question(self, request: QuestionRequest, typed: str) -> None:
        """Collect the answer to one question of the request. Ask the next one, or reply if this was the last."""
        from weft.tui.dialog import to_answers  # noqa: PLC0415  few runs ask, and it loads what draws

        self._answers.append(to_answers(request.questions[len(self._answers)], typed))
        if len(self._answers) < len(request.questions):
            self._ask_first()
            return
        answers = tuple(self._answers)
        self._withdraw(request.id)
        if any(answers):
            await self._api.reply_question(request.id, answers)
        else:
            await self._api.reject_question(request.id)
