"""What was refused because nobody was there to ask, and how to allow it."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import suppress

from weft.api import Api
from weft.cli.paint import Paint, plain
from weft.errors import NotFoundError
from weft.model.event import Event, PermissionAsked, QuestionAsked
from weft.model.ids import PermissionID
from weft.model.permission import PermissionRequest


class Absent:
    """Takes note of what is asked in a run that nobody watches. What is `waiting` can be answered later."""

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
            yield f"{paint.yellow('refused:')} nobody was there to allow {plain(wanted)}"
            if self._waiting:
                yield f"         weft permission reply {request.id} once   (or always), then go on with weft run -c"


class Nobody:
    """Says no to all that is asked: on a server it would wait for ever."""

    def __init__(self, api: Api, tasks: asyncio.TaskGroup) -> None:
        self._api = api
        self._tasks = tasks

    def feed(self, event: Event) -> None:
        match event:
            case PermissionAsked(request=request):
                self._tasks.create_task(self._refuse(self._api.reply_permission(request.id, "reject")))
            case QuestionAsked(request=questions):
                self._tasks.create_task(self._refuse(self._api.reject_question(questions.id)))
            case _:
                pass

    async def _refuse(self, refusing: Awaitable[None]) -> None:
        with suppress(NotFoundError):  # somebody was there after all
            await refusing
