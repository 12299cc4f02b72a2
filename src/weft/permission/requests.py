"""Open requests: stored until they are answered, even beyond the life of the process that asked."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import ConflictError, NobodyError, NotFoundError, StoreError
from weft.host.clock import Clock
from weft.host.tasks import open_tasks, pause_deadlines, run_to_completion
from weft.model.event import Event, Publish
from weft.model.ids import MessageID, PermissionID, ProjectID, QuestionID, SessionID
from weft.model.permission import PermissionRequest, QuestionRequest, Reply
from weft.model.wire import Wire
from weft.permission.policy import AskPolicy
from weft.permission.storage import ItemStore

# An older request is dropped when the next one is stored. docs/guides/permissions.md and docs/guides/ci.md promise a week.
MAX_AGE_MS = 7 * 24 * 3600 * 1000


class RequestAnswer(Wire, frozen=True, kw_only=True):
    """The answer of a person: the `reply` to a permission, or the `answers` to questions (`reject` dismisses them)."""

    reply: Reply
    message: str = ""
    answers: tuple[tuple[str, ...], ...] = ()
    by: str = ""
    time: int = 0


class OpenRequest(Wire, frozen=True, kw_only=True):
    """A request for a permission or an answer: who asked, in which turn, and in which tree of sessions.

    `owner` is the process that waits, or waited, for the answer.
    """

    permission: PermissionRequest | None = None
    question: QuestionRequest | None = None
    project_id: ProjectID
    root_id: SessionID
    turn_id: MessageID | None = None
    agent: str = ""
    owner: str = ""
    time: int
    answer: RequestAnswer | None = None

    @property
    def id(self) -> PermissionID | QuestionID:
        return self._request.id

    @property
    def session_id(self) -> SessionID:
        return self._request.session_id

    @property
    def _request(self) -> PermissionRequest | QuestionRequest:
        request = self.permission or self.question
        assert request is not None, "a request is for a permission or a question"
        return request


def is_same_request(one: OpenRequest, other: OpenRequest) -> bool:
    """Return True if both ask for the same thing in the same session, even from different calls.

    An answer that was given while nobody waited is used by the next call that asks for exactly the same: patterns are
    compared, not matched.
    """
    if one.session_id != other.session_id or one.agent != other.agent:
        return False
    if one.permission is not None and other.permission is not None:
        ours, theirs = one.permission, other.permission
        return (ours.permission, ours.patterns) == (theirs.permission, theirs.patterns)
    if one.question is not None and other.question is not None:
        return one.question.questions == other.question.questions
    return False


POLL_SECONDS = 1.0
# Ids of answered requests are kept, to tell a late second answer from an answer to an unknown request.
MAX_ANSWERED = 1000

RequestID = PermissionID | QuestionID
OnAsked = Callable[[OpenRequest], None]


class WaitingRequest(Struct, frozen=True):
    """A request that a task of this process waits for."""

    request: OpenRequest
    answer: asyncio.Future[RequestAnswer]


class AnsweredRequest(Struct, frozen=True, kw_only=True):
    """A request and its answer. With `earlier`, the answer was given to an earlier, equal request, whose id this one has."""

    request: OpenRequest
    answer: RequestAnswer
    earlier: bool = False


class RequestKind(Struct, frozen=True, kw_only=True):
    """What differs between permissions and questions: the events to publish, and which stored requests are of this kind."""

    name: str
    to_asked: Callable[[OpenRequest], Event]
    to_answered: Callable[[OpenRequest, RequestAnswer], Event]
    is_ours: Callable[[OpenRequest], bool]
    publish: Publish


class RequestQueue:
    """The open requests of one kind in one directory."""

    def __init__(
        self, store: ItemStore[OpenRequest], clock: Clock, policy: AskPolicy, kind: RequestKind
    ) -> None:
        self._store = store
        self._clock = clock
        self._policy = policy
        self._kind = kind
        self._waiting: dict[RequestID, WaitingRequest] = {}
        self._active: set[RequestID] = set()
        self._asked_by_run: dict[SessionID, set[RequestID]] = {}
        self._claimed: set[RequestID] = set()
        self._answered: deque[RequestID] = deque(maxlen=MAX_ANSWERED)
        self._closing = False
        self._abandoned: set[SessionID] = set()

    async def ask(self, request: OpenRequest, on_asked: OnAsked | None = None) -> AnsweredRequest:
        """Return the answer, given now or before. Raise `NobodyError` if nobody answers.

        `on_asked` is called with the request before it is published; not if an earlier answer is used.
        """
        earlier = await self._find(request)
        if earlier is not None:
            request = with_earlier_id(request, earlier)
        self._abandoned.discard(request.session_id)
        # No await since reading the store, so that two equal requests do not use one id.
        self._active.add(request.id)
        self._asked_by_run.setdefault(request.session_id, set()).add(request.id)
        try:
            if earlier is not None and earlier.answer is not None:
                await self.forget(request.id)
                await self._kind.publish(self._kind.to_answered(request, earlier.answer))
                return AnsweredRequest(request=request, answer=earlier.answer, earlier=True)
            return AnsweredRequest(request=request, answer=await self._wait_for(request, on_asked))
        finally:
            self._active.discard(request.id)

    def is_waiting(self, session: SessionID) -> bool:
        return any(each.request.session_id == session for each in self._waiting.values())

    async def pending(self) -> list[OpenRequest]:
        """Return the unanswered requests of all processes, oldest first."""
        stored = [
            each for each in await self._store.read() if each.answer is None and self._kind.is_ours(each)
        ]
        found = {each.id: each for each in stored} | {
            each.request.id: each.request for each in self._waiting.values()
        }
        return sorted(found.values(), key=lambda each: each.time)

    async def get(self, id: RequestID) -> OpenRequest:
        """Return an open request. Raise `ConflictError` if it was answered before, `NotFoundError` if it does not exist."""
        for each in await self.pending():
            if each.id == id:
                return each
        is_answered = any(each.id == id and self._kind.is_ours(each) for each in await self._store.read())
        if is_answered or id in self._answered:
            raise self._conflict(id)
        raise NotFoundError(self._kind.name, id)

    @asynccontextmanager
    async def claim(self, request: OpenRequest, answer: RequestAnswer) -> AsyncIterator[None]:
        """Make this the answer to an open request. Raise `ConflictError` if another answer came first.

        The body does what else the answer entails. If it fails, the request is open again. Afterwards a task that
        waits here continues at once, one in another process when it next polls.
        """
        if request.id in self._claimed or request.id in self._answered:
            raise self._conflict(request.id)
        waits_here = request.id in self._waiting
        self._claimed.add(request.id)
        try:
            if not await self._mark(request, answer, waits_here=waits_here):
                raise self._conflict(request.id)
            try:
                yield
            except BaseException:
                await run_to_completion(self._reopen(request, answer, waits_here=waits_here))
                raise
            self._answered.append(request.id)
            await run_to_completion(self._publish_answer(request, answer, waits_here=waits_here))
        finally:
            self._claimed.discard(request.id)

    async def _mark(self, request: OpenRequest, answer: RequestAnswer, *, waits_here: bool) -> bool:
        """Store the answer. Return False if there already is one.

        Changes of the store are ordered, so one of two processes is first.
        """
        is_first = False

        def mark(stored: tuple[OpenRequest, ...]) -> tuple[OpenRequest, ...]:
            nonlocal is_first
            found = next((each for each in stored if each.id == request.id), None)
            # A request that could not be stored is known to the task that waits for it here.
            is_first = waits_here if found is None else found.answer is None
            return tuple(_with_answer(each, request.id, answer) for each in stored)

        try:
            await self._store.change(mark)
        except StoreError:
            if not waits_here:
                raise
            return True  # a full disk must not block the task that waits here
        return is_first

    async def _reopen(self, request: OpenRequest, answer: RequestAnswer, *, waits_here: bool) -> None:
        if waits_here and request.id not in self._waiting:  # nobody waits any more
            await self._withdraw(request)
            return
        with suppress(StoreError):
            await self._store.change(
                lambda stored: tuple(
                    replace(each, answer=None) if each.id == request.id and each.answer == answer else each
                    for each in stored
                )
            )

    async def _publish_answer(self, request: OpenRequest, answer: RequestAnswer, *, waits_here: bool) -> None:
        waiting = self._waiting.pop(request.id, None)
        if waits_here:
            await self.forget(request.id)
        await self._kind.publish(self._kind.to_answered(request, answer))
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(answer)

    def _conflict(self, id: RequestID) -> ConflictError:
        return ConflictError(self._kind.name, id, "was answered already")

    async def end_run(self, session: SessionID) -> None:
        """Handle the end of a run: remove requests of an earlier run that this one did not make again."""
        asked = self._asked_by_run.pop(session, set())
        stored = await self._store.read()
        stale = {each.id for each in stored if self._is_stale(each, session, asked)}
        if stale:
            await self._store.change(lambda stored: tuple(each for each in stored if each.id not in stale))

    def _is_stale(self, request: OpenRequest, session: SessionID, asked: set[RequestID]) -> bool:
        return request.session_id == session and request.id not in asked and self._kind.is_ours(request)

    def abandon(self, session: SessionID) -> None:
        """Let the requests of a session stay open when they are cancelled: another process has taken it over."""
        self._abandoned.add(session)

    def close(self) -> None:
        """Prepare for the end of the process: from now on a cancelled request stays open."""
        self._closing = True

    async def _find(self, request: OpenRequest) -> OpenRequest | None:
        stored = await self._store.read()
        return next(
            (each for each in stored if each.id not in self._active and is_same_request(each, request)), None
        )

    async def _wait_for(self, request: OpenRequest, on_asked: OnAsked | None) -> RequestAnswer:
        await self._store_request(request)
        if on_asked is not None:
            on_asked(request)
        if not self._policy.can_ask:
            await self._kind.publish(self._kind.to_asked(request))
            await self._kind.publish(self._kind.to_answered(request, self._no_answer()))
            raise NobodyError(request=request.id)
        waiting = WaitingRequest(request, asyncio.get_running_loop().create_future())
        self._waiting[request.id] = waiting
        try:
            await self._kind.publish(self._kind.to_asked(request))
            with pause_deadlines():
                return await self._wait_for_answer(waiting)
        except asyncio.CancelledError:
            # OpenCode keeps the request of an aborted run open for ever.
            self._waiting.pop(request.id, None)
            is_left = self._closing or request.session_id in self._abandoned
            if not is_left and request.id not in self._claimed:
                await run_to_completion(self._withdraw(request))
            raise
        finally:
            self._waiting.pop(request.id, None)

    async def _wait_for_answer(self, waiting: WaitingRequest) -> RequestAnswer:
        if not self._store.shared and self._policy.timeout_seconds is None:
            return await waiting.answer
        async with open_tasks() as tasks:
            polling = tasks.create_task(self._poll(waiting))
            try:
                return await waiting.answer
            finally:
                polling.cancel()

    async def _poll(self, waiting: WaitingRequest) -> None:
        """Poll for an answer from another process, and for the timeout."""
        started, timeout = self._clock.now(), self._policy.timeout_seconds
        while not waiting.answer.done():
            await self._clock.sleep(POLL_SECONDS if timeout is None else min(POLL_SECONDS, timeout))
            answer = await self._find_answer(waiting.request.id) if self._store.shared else None
            if waiting.request.id in self._claimed or waiting.answer.done():
                continue  # it is being answered here right now
            if answer is not None:
                await self._publish_answer(waiting.request, answer, waits_here=True)
            elif timeout is not None and self._clock.now() - started >= timeout * 1000:
                self._waiting.pop(waiting.request.id, None)
                await self._kind.publish(self._kind.to_answered(waiting.request, self._no_answer()))
                waiting.answer.set_exception(NobodyError(request=waiting.request.id))

    async def _find_answer(self, id: RequestID) -> RequestAnswer | None:
        """Return the stored answer, None if there is none yet or the store cannot be read: the next poll may succeed."""
        try:
            stored = await self._store.read()
        except StoreError:
            return None
        return next((each.answer for each in stored if each.id == id), None)

    async def _withdraw(self, request: OpenRequest) -> None:
        await self.forget(request.id)
        await self._kind.publish(self._kind.to_answered(request, self._no_answer()))

    def _no_answer(self) -> RequestAnswer:
        return RequestAnswer(reply="reject", time=self._clock.now())

    async def _store_request(self, request: OpenRequest) -> None:
        oldest = request.time - MAX_AGE_MS

        def add(stored: tuple[OpenRequest, ...]) -> tuple[OpenRequest, ...]:
            return (*(each for each in stored if each.id != request.id and each.time > oldest), request)

        # A full disk must not prevent asking: the request then does not outlive this process.
        with suppress(StoreError):
            await self._store.change(add)

    async def forget(self, id: RequestID) -> None:
        """Remove a request from the store."""
        with suppress(StoreError):
            await self._store.change(lambda stored: tuple(each for each in stored if each.id != id))


def with_earlier_id(request: OpenRequest, earlier: OpenRequest) -> OpenRequest:
    """Return a request under the id of the earlier, equal request."""
    if request.permission is not None and earlier.permission is not None:
        return replace(request, permission=replace(request.permission, id=earlier.permission.id))
    if request.question is not None and earlier.question is not None:
        return replace(request, question=replace(request.question, id=earlier.question.id))
    return request


def _with_answer(request: OpenRequest, id: RequestID, answer: RequestAnswer) -> OpenRequest:
    return replace(request, answer=answer) if request.id == id and request.answer is None else request
