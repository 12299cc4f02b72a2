"""Questions: what an agent wants to know of the person, asked and answered the way permissions are."""

from contextlib import suppress

from weft.errors import DismissedError, InvalidInputError, NobodyError, StoreError
from weft.model.event import Event, QuestionAsked, QuestionRejected, QuestionReplied
from weft.model.ids import QuestionID, SessionID
from weft.model.permission import QuestionRequest
from weft.permission.requests import Answer, Asked, Asking, Ways
from weft.permission.storage import Shelf
from weft.permission.terms import Around, Terms

Answers = tuple[tuple[str, ...], ...]


class Questions:
    """One for a directory. What is not answered before the process ends is asked again under the same id."""

    def __init__(self, shelf: Shelf[Asked], around: Around, terms: Terms) -> None:
        self._around = around
        self._terms = terms
        ways = Ways(kind="question", asked=_asked, settled=_settled, mine=self._is_mine, tell=around.tell)
        self._asking = Asking(shelf, around.clock, terms, ways)

    async def ask(self, request: QuestionRequest, *, agent: str = "") -> Answers:
        """One list of answers for each question. Raises `DismissedError`, and `NobodyError` if none will come."""
        if not self._terms.answered:
            raise NobodyError(request=request.id)
        asked = Asked(
            question=request,
            project_id=self._around.project,
            root_id=request.session_id,
            agent=agent,
            owner=self._terms.owner,
            time=self._around.clock.now(),
        )
        try:
            answer = (await self._asking.ask(asked)).answer
        except NobodyError:
            # The agent goes on without: an answer that comes later is of no use.
            await self._asking.forget(request.id)
            raise
        if answer.reply == "reject":
            raise DismissedError
        return answer.answers

    def is_waiting(self, session: SessionID) -> bool:
        """Whether a run of that session waits here for an answer."""
        return self._asking.is_waiting(session)

    async def pending(self) -> list[QuestionRequest]:
        """Oldest first; also those of runs that are no more."""
        return [asked.question for asked in await self._asking.pending() if asked.question is not None]

    async def reply(self, id: QuestionID, answers: Answers) -> None:
        """Answer the question. Raise `ConflictError` if it was answered or dismissed before."""
        asked = await self._asking.get(id)
        wanted = len(asked.question.questions) if asked.question else 0
        if len(answers) != wanted:
            raise InvalidInputError("answers", f"there are {wanted} questions, and answers to {len(answers)}")
        answer = Answer(reply="once", answers=answers, by=self._terms.person, time=self._around.clock.now())
        await self._answer(asked, answer)

    async def reject(self, id: QuestionID) -> None:
        """Dismiss the question: the agent does without, and the run ends. Raise `ConflictError` like `reply`."""
        asked = await self._asking.get(id)
        answer = Answer(reply="reject", by=self._terms.person, time=self._around.clock.now())
        await self._answer(asked, answer)

    async def _answer(self, asked: Asked, answer: Answer) -> None:
        async with self._asking.claim(asked, answer):
            pass

    async def leave(self, session: SessionID) -> None:
        """A run has ended: what an earlier one left open, and this one did not ask again, is asked no more."""
        with suppress(StoreError):
            await self._asking.leave(session)

    def close(self) -> None:
        """The process ends. What is asked stays open for the next one."""
        self._asking.close()

    def _is_mine(self, asked: Asked) -> bool:
        return asked.question is not None and asked.project_id == self._around.project


def _asked(asked: Asked) -> Event:
    assert asked.question is not None, "only questions are asked here"
    return QuestionAsked(request=asked.question)


def _settled(asked: Asked, answer: Answer) -> Event:
    assert asked.question is not None, "only questions are asked here"
    request = asked.question
    if answer.reply == "reject":
        return QuestionRejected(session_id=request.session_id, request_id=request.id)
    return QuestionReplied(session_id=request.session_id, request_id=request.id, answers=answer.answers)
