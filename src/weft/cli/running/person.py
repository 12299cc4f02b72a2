"""Whoever sits at the terminal: asked one thing at a time, and never waited for when the answer came from elsewhere."""

import asyncio
import os
import sys
from collections.abc import Iterable
from contextlib import suppress

from weft.api import Api
from weft.cli.paint import Paint, plain
from weft.errors import NotFoundError
from weft.model.event import (
    Event,
    PermissionAsked,
    PermissionReplied,
    QuestionAsked,
    QuestionRejected,
    QuestionReplied,
)
from weft.model.permission import (
    USUAL_TERMS,
    GrantTerms,
    PermissionRequest,
    Question,
    QuestionRequest,
    Reply,
    Scope,
)

LINE_LIMIT = 65_536
REPLIES: dict[str, Reply] = {"o": "once", "once": "once", "y": "once", "a": "always", "always": "always"}
SCOPES: dict[str, Scope] = {"t": "turn", "turn": "turn", "p": "project", "project": "project"}
NO = ("r", "reject", "n", "no")


class Person:
    """Asks what is fed to it, in `tasks`; what was answered meanwhile is asked no more."""

    def __init__(self, api: Api, tasks: asyncio.TaskGroup) -> None:
        self._api = api
        self._tasks = tasks
        self._turn = asyncio.Lock()
        self._asking: dict[str, asyncio.Task[None]] = {}

    def feed(self, event: Event) -> None:
        match event:
            case PermissionAsked(request=request):
                self._asking[request.id] = self._tasks.create_task(self._permission(request))
            case QuestionAsked(request=questions):
                self._asking[questions.id] = self._tasks.create_task(self._questions(questions))
            case PermissionReplied() | QuestionReplied() | QuestionRejected():
                self._forget(event.request_id)
            case _:
                pass

    def leave(self) -> None:
        """The run is over, and with it all that was to be asked."""
        for id in list(self._asking):
            self._forget(id)

    def _forget(self, id: str) -> None:
        asking = self._asking.pop(id, None)
        if asking is not None and asking is not asyncio.current_task():
            asking.cancel()

    async def _permission(self, request: PermissionRequest) -> None:
        async with self._turn:
            reply, message, terms = to_reply(await ask(permission_lines(request)))
        self._asking.pop(request.id, None)
        with suppress(NotFoundError):  # somebody else was faster
            await self._api.reply_permission(request.id, reply, message=message, grant=terms)

    async def _questions(self, request: QuestionRequest) -> None:
        async with self._turn:
            answers = [to_answers(each, await ask(question_lines(each))) for each in request.questions]
        self._asking.pop(request.id, None)
        with suppress(NotFoundError):
            if any(answers):
                await self._api.reply_question(request.id, tuple(answers))
            else:
                await self._api.reject_question(request.id)


async def ask(lines: Iterable[str]) -> str:
    """What is typed at it, in a line. Nothing at the end of input. Cancelling it takes the question back."""
    sys.stderr.write("\n".join(lines))
    sys.stderr.flush()
    return (await read_line()).strip()


async def read_line() -> str:
    # Not in a thread: one that waits for a key cannot be ended, and would keep the process from ending.
    loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
    line: asyncio.Future[bytes] = loop.create_future()

    def take() -> None:
        if not line.done():
            line.set_result(os.read(fd, LINE_LIMIT))

    loop.add_reader(fd, take)
    try:
        return (await line).decode(errors="replace")
    finally:
        loop.remove_reader(fd)


def permission_lines(request: PermissionRequest) -> list[str]:
    paint, wanted = Paint(sys.stderr), ", ".join(request.patterns)
    asked = f"{paint.bold('?')} {plain(request.permission)}: {plain(wanted)}"
    if not request.always:
        return [asked, "  allow [o]nce, or [r]eject (and say what instead)? "]
    return [
        asked,
        "  allow [o]nce, [a]lways, for this [t]urn or [p]roject, or [r]eject (and say what instead)? ",
    ]


def to_reply(typed: str) -> tuple[Reply, str, GrantTerms]:
    """What was typed, as an answer. Whatever is not a yes is a no; words behind a no, or in its place, are for the agent."""
    word = typed.lower()
    if word in SCOPES:
        return "always", "", GrantTerms(scope=SCOPES[word])
    if word in REPLIES:
        return REPLIES[word], "", USUAL_TERMS
    first, _, rest = typed.partition(" ")
    return "reject", rest.strip() if first.lower() in NO else typed, USUAL_TERMS


def question_lines(question: Question) -> list[str]:
    options = [
        f"  {number}. {plain(option.label)}: {plain(option.description)}"
        for number, option in enumerate(question.options, start=1)
    ]
    asked = f"{Paint(sys.stderr).bold('?')} {plain(question.question)}"
    if not options:
        return [asked, "  your own words: "]
    how = "numbers, with commas" if question.multiple else "a number"
    typed = ", or your own words" if question.custom else ""
    return [asked, *options, f"  {how}{typed}: "]


def to_answers(question: Question, typed: str) -> tuple[str, ...]:
    """The options that were named by number or by label, or what was typed if that is an answer too."""
    labels = {str(number): option.label for number, option in enumerate(question.options, start=1)}
    labels |= {option.label: option.label for option in question.options}
    words = [word.strip() for word in typed.split(",")] if question.multiple else [typed]
    if all(word in labels for word in words):
        return tuple(labels[word] for word in words)
    return (typed,) if typed and question.custom else ()
