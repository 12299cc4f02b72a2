"""What agents have asked and nobody has answered yet: the next line that is typed is the answer to the first of it."""

import sys

from weft.api import Api
from weft.cli.running.person import permission_lines, question_lines, to_answers, to_reply
from weft.errors import NotFoundError
from weft.model.event import (
    Event,
    PermissionAsked,
    PermissionReplied,
    QuestionAsked,
    QuestionRejected,
    QuestionReplied,
)
from weft.model.permission import PermissionRequest, QuestionRequest


class Waiting:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._asked: dict[str, PermissionRequest | QuestionRequest] = {}
        self._answers: list[tuple[str, ...]] = []

    def feed(self, event: Event) -> None:
        match event:
            case PermissionAsked(request=permission):
                self.take(permission)
            case QuestionAsked(request=question):
                self.take(question)
            case PermissionReplied() | QuestionReplied() | QuestionRejected():
                self._forget(event.request_id)
            case _:
                pass

    def take(self, request: PermissionRequest | QuestionRequest) -> None:
        if request.id not in self._asked:
            self._asked[request.id] = request
            if len(self._asked) == 1:
                self._put()

    def _forget(self, id: str) -> None:
        first = next(iter(self._asked), None)
        if self._asked.pop(id, None) is not None and id == first:
            self._answers = []
            self._put()

    def _put(self) -> None:
        """Ask the first of it."""
        lines: list[str] = []
        for first in list(self._asked.values())[:1]:
            match first:
                case PermissionRequest():
                    lines = permission_lines(first)
                case QuestionRequest(questions=questions):
                    lines = question_lines(questions[len(self._answers)])
        sys.stderr.write("\n".join(lines))
        sys.stderr.flush()

    async def answer(self, typed: str) -> bool:
        """Whether that was an answer to something."""
        first = next(iter(self._asked.values()), None)
        try:
            match first:
                case PermissionRequest():
                    reply, message, terms = to_reply(typed)
                    self._forget(first.id)
                    await self._api.reply_permission(first.id, reply, message=message, grant=terms)
                case QuestionRequest():
                    await self._answer_question(first, typed)
                case None:
                    return False
        except NotFoundError:
            pass  # somebody else was faster
        return True

    async def _answer_question(self, request: QuestionRequest, typed: str) -> None:
        """A request may hold several questions, which are asked one after the other."""
        self._answers.append(to_answers(request.questions[len(self._answers)], typed))
        if len(self._answers) < len(request.questions):
            self._put()
            return
        answers = tuple(self._answers)
        self._forget(request.id)
        if any(answers):
            await self._api.reply_question(request.id, answers)
        else:
            await self._api.reject_question(request.id)
