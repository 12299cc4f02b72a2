"""Questions of an agent to the person, stored and answered like permission requests."""

from contextlib import suppress

from weft.errors import DismissedError, InvalidInputError, NobodyError, StoreError
from weft.model.event import Event, QuestionAsked, QuestionRejected, QuestionReplied
from weft.model.ids import QuestionID, SessionID
from weft.model.permission import QuestionRequest
from weft.permission.policy import AskPolicy, GateContext
from weft.permission.requests import OpenRequest, RequestAnswer, RequestKind, RequestQueue
from weft.permission.storage import ItemStore

Answers = tuple[tuple[str, ...], ...]


class QuestionGate:
    """The questions of one directory. One that is unanswered when the process ends is asked again under the same id."""

    def __init__(self, store: ItemStore[OpenRequest], context: GateContext, policy: AskPolicy) -> None:
        self._context = context
        self._policy = policy
        kind = RequestKind(
            name="question",
            to_asked=_to_asked,
            to_answered=_to_answered,
            is_ours=self._is_ours,
            publish=context.publish,
        )
        self._requests = RequestQueue(store, context.clock, policy, kind)

    async def ask(self, request: QuestionRequest, *, agent: str = "") -> Answers:
        """Return one list of answers for each question. Raise `DismissedError`, or `NobodyError` if nobody answers."""
        if not self._policy.can_ask:
            raise NobodyError(request=request.id)
        open_request = OpenRequest(
            question=request,
            project_id=self._context.project,
            root_id=request.session_id,
            agent=agent,
            owner=self._policy.owner,
            time=self._context.clock.now(),
        )
        try:
            answer = (await self._requests.ask(open_request)).answer
        except NobodyError:
            # The agent continues without an answer, so a later one is of no use.
            await self._requests.forget(request.id)
            raise
        if answer.reply == "reject":
            raise DismissedError
        return answer.answers

    def is_waiting(self, session: SessionID) -> bool:
        """Return True if a run of that session waits here for an answer."""
        return self._requests.is_waiting(session)

    async def pending(self) -> list[QuestionRequest]:
        """Return the open questions, oldest first, also those of runs that have ended."""
        return [
            open_request.question
            for open_request in await self._requests.pending()
            if open_request.question is not None
        ]

    async def reply(self, id: QuestionID, answers: Answers) -> None:
        """Answer a question. Raise `ConflictError` if it was answered or dismissed before."""
        open_request = await self._requests.get(id)
        expected = len(open_request.question.questions) if open_request.question else 0
        if len(answers) != expected:
            raise InvalidInputError(
                "answers", f"there are {expected} questions, and answers to {len(answers)}"
            )
        answer = RequestAnswer(
            reply="once", answers=answers, by=self._policy.person, time=self._context.clock.now()
        )
        await self._answer(open_request, answer)

    async def reject(self, id: QuestionID) -> None:
        """Dismiss a question, which ends the run. Raise `ConflictError` like `reply`."""
        open_request = await self._requests.get(id)
        answer = RequestAnswer(reply="reject", by=self._policy.person, time=self._context.clock.now())
        await self._answer(open_request, answer)

    async def _answer(self, open_request: OpenRequest, answer: RequestAnswer) -> None:
        async with self._requests.claim(open_request, answer):
            pass

    async def end_run(self, session: SessionID) -> None:
        """Handle the end of a run: withdraw questions of an earlier run that this one did not ask again."""
        with suppress(StoreError):
            await self._requests.end_run(session)

    def abandon(self, session: SessionID) -> None:
        """Leave the requests of a session to the process that has taken it over."""
        self._requests.abandon(session)

    def close(self) -> None:
        """Prepare for the end of the process. Open questions stay open for the next one."""
        self._requests.close()

    def _is_ours(self, open_request: OpenRequest) -> bool:
        return open_request.question is not None and open_request.project_id == self._context.project


def _to_asked(open_request: OpenRequest) -> Event:
    assert open_request.question is not None, "this queue holds questions only"
    return QuestionAsked(request=open_request.question)


def _to_answered(open_request: OpenRequest, answer: RequestAnswer) -> Event:
    assert open_request.question is not None, "this queue holds questions only"
    request = open_request.question
    if answer.reply == "reject":
        return QuestionRejected(session_id=request.session_id, request_id=request.id)
    return QuestionReplied(session_id=request.session_id, request_id=request.id, answers=answer.answers)
