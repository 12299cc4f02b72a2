"""Open requests: stored until they are answered, also beyond the process that asked."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import ConflictError, NobodyError, NotFoundError, StoreError
from weft.host.clock import Clock
from weft.host.tasks import off_the_clock, open_tasks, undivided
from weft.model.event import Event
from weft.model.ids import MessageID, PermissionID, ProjectID, QuestionID, SessionID
from weft.model.permission import PermissionRequest, QuestionRequest, Reply
from weft.model.wire import Wire
from weft.permission.storage import Shelf
from weft.permission.terms import Terms

KEPT_MS = 7 * 24 * 3600 * 1000


class Answer(Wire, frozen=True, kw_only=True):
    """What a person said: to a permission `reply`, to questions the `answers` (a `reject` dismisses them)."""

    reply: Reply
    message: str = ""
    answers: tuple[tuple[str, ...], ...] = ()
    by: str = ""
    time: int = 0


class Asked(Wire, frozen=True, kw_only=True):
    """An open question, of one kind or the other: who asked, in which turn, and where in the tree of sessions.

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
    answer: Answer | None = None

    @property
    def id(self) -> PermissionID | QuestionID:
        return self._request.id

    @property
    def session_id(self) -> SessionID:
        return self._request.session_id

    @property
    def _request(self) -> PermissionRequest | QuestionRequest:
        request = self.permission or self.question
        assert request is not None, "whatever is asked is a permission or a question"
        return request


def same(one: Asked, other: Asked) -> bool:
    """Whether both ask for the same thing in the same session, whatever call they came from.

    An answer given while nobody waited for it is used by the call that asks for just that again, and no other:
    patterns are compared as they are, not matched.
    """
    if one.session_id != other.session_id or one.agent != other.agent:
        return False
    if one.permission is not None and other.permission is not None:
        mine, theirs = one.permission, other.permission
        return (mine.permission, mine.patterns) == (theirs.permission, theirs.patterns)
    if one.question is not None and other.question is not None:
        return one.question.questions == other.question.questions
    return False


POLL_SECONDS = 1.0
# So many answered questions are remembered, to tell a late second answer from one to a question that never was.
REMEMBERED = 1000

RequestID = PermissionID | QuestionID


class Open(Struct, frozen=True):
    """A question that is open here: what was asked, and who waits for the answer."""

    asked: Asked
    answer: asyncio.Future[Answer]


class Answered(Struct, frozen=True, kw_only=True):
    """What was asked, under the name it is known by, and the answer; `earlier` if that was there before the question."""

    asked: Asked
    answer: Answer
    earlier: bool = False


class Ways(Struct, frozen=True, kw_only=True):
    """How one kind of question is told of: that it was asked, and that it was answered, dismissed or withdrawn."""

    kind: str
    asked: Callable[[Asked], Event]
    settled: Callable[[Asked, Answer], Event]
    mine: Callable[[Asked], bool]
    tell: Callable[[Event], Awaitable[None]]


class Asking:
    """One for a directory and a kind of question."""

    def __init__(self, shelf: Shelf[Asked], clock: Clock, terms: Terms, ways: Ways) -> None:
        self._shelf = shelf
        self._clock = clock
        self._terms = terms
        self._ways = ways
        self._open: dict[RequestID, Open] = {}
        self._busy: set[RequestID] = set()
        self._raised: dict[SessionID, set[RequestID]] = {}
        self._claimed: set[RequestID] = set()
        self._answered: deque[RequestID] = deque(maxlen=REMEMBERED)
        self._closing = False

    async def ask(self, asked: Asked) -> Answered:
        """The answer, given now or before. Raises `NobodyError`."""
        known = await self._find(asked)
        if known is not None:
            asked = under_its_name(asked, known)
        # Nothing is awaited since the look at the shelf: two who ask the same do not go by one name.
        self._busy.add(asked.id)
        self._raised.setdefault(asked.session_id, set()).add(asked.id)
        try:
            if known is not None and known.answer is not None:
                await self.forget(asked.id)
                await self._ways.tell(self._ways.settled(asked, known.answer))
                return Answered(asked=asked, answer=known.answer, earlier=True)
            return Answered(asked=asked, answer=await self._wait_for(asked))
        finally:
            self._busy.discard(asked.id)

    def is_waiting(self, session: SessionID) -> bool:
        return any(each.asked.session_id == session for each in self._open.values())

    async def pending(self) -> list[Asked]:
        """What is open here or elsewhere, oldest first."""
        kept = [each for each in await self._shelf.read() if each.answer is None and self._ways.mine(each)]
        found = {each.id: each for each in kept} | {each.asked.id: each.asked for each in self._open.values()}
        return sorted(found.values(), key=lambda each: each.time)

    async def get(self, id: RequestID) -> Asked:
        """Return the open question. Raise `ConflictError` if it was answered before, `NotFoundError` if there is none."""
        for each in await self.pending():
            if each.id == id:
                return each
        waits_for_use = any(each.id == id and self._ways.mine(each) for each in await self._shelf.read())
        if waits_for_use or id in self._answered:
            raise self._conflict(id)
        raise NotFoundError(self._ways.kind, id)

    @asynccontextmanager
    async def claim(self, asked: Asked, answer: Answer) -> AsyncIterator[None]:
        """Make this the answer to an open question. Raise `ConflictError` if another answer came first.

        The body does what else the answer entails. If it fails, the question is open again; afterwards whoever waits
        for the answer here goes on at once, and elsewhere when they look.
        """
        if asked.id in self._claimed or asked.id in self._answered:
            raise self._conflict(asked.id)
        here = asked.id in self._open
        self._claimed.add(asked.id)
        try:
            if not await self._mark(asked, answer, here=here):
                raise self._conflict(asked.id)
            try:
                yield
            except BaseException:
                await undivided(self._reopen(asked, answer, here=here))
                raise
            self._answered.append(asked.id)
            await undivided(self._settle(asked, answer, here=here))
        finally:
            self._claimed.discard(asked.id)

    async def _mark(self, asked: Asked, answer: Answer, *, here: bool) -> bool:
        """Write the answer down. Return False if there is one: changes of the shelf come one after the other, so that
        of two processes that answer one is first."""
        first = False

        def marked(kept: tuple[Asked, ...]) -> tuple[Asked, ...]:
            nonlocal first
            found = next((each for each in kept if each.id == asked.id), None)
            # A question that could not be written down is known to whoever waits for it here.
            first = here if found is None else found.answer is None
            return tuple(_answered(each, asked.id, answer) for each in kept)

        try:
            await self._shelf.change(marked)
        except StoreError:
            if not here:
                raise
            return True  # a full disk is no reason not to answer who waits here
        return first

    async def _reopen(self, asked: Asked, answer: Answer, *, here: bool) -> None:
        if here and asked.id not in self._open:  # nobody waits any more
            await self._withdraw(asked)
            return
        with suppress(StoreError):
            await self._shelf.change(
                lambda kept: tuple(
                    replace(each, answer=None) if each.id == asked.id and each.answer == answer else each
                    for each in kept
                )
            )

    async def _settle(self, asked: Asked, answer: Answer, *, here: bool) -> None:
        waiting = self._open.pop(asked.id, None)
        if here:
            await self.forget(asked.id)
        await self._ways.tell(self._ways.settled(asked, answer))
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(answer)

    def _conflict(self, id: RequestID) -> ConflictError:
        return ConflictError(self._ways.kind, id, "was answered already")

    async def leave(self, session: SessionID) -> None:
        """A run has ended: what an earlier one left open, and this one did not ask again, is asked no more."""
        raised = self._raised.pop(session, set())
        kept = await self._shelf.read()
        stale = {each.id for each in kept if self._is_stale(each, session, raised)}
        if stale:
            await self._shelf.change(lambda kept: tuple(each for each in kept if each.id not in stale))

    def _is_stale(self, each: Asked, session: SessionID, raised: set[RequestID]) -> bool:
        return each.session_id == session and each.id not in raised and self._ways.mine(each)

    def close(self) -> None:
        """From now on whoever stops waiting does so because the process ends: what they asked stays open."""
        self._closing = True

    async def _find(self, asked: Asked) -> Asked | None:
        kept = await self._shelf.read()
        return next((each for each in kept if each.id not in self._busy and same(each, asked)), None)

    async def _wait_for(self, asked: Asked) -> Answer:
        await self._keep(asked)
        if not self._terms.answered:
            await self._ways.tell(self._ways.asked(asked))
            await self._ways.tell(self._ways.settled(asked, self._nobody()))
            raise NobodyError(request=asked.id)
        here = Open(asked, asyncio.get_running_loop().create_future())
        self._open[asked.id] = here
        try:
            await self._ways.tell(self._ways.asked(asked))
            with off_the_clock():
                return await self._answer_to(here)
        except asyncio.CancelledError:
            # OpenCode keeps the question of an aborted run open for ever.
            self._open.pop(asked.id, None)
            if not self._closing and asked.id not in self._claimed:
                await undivided(self._withdraw(asked))
            raise
        finally:
            self._open.pop(asked.id, None)

    async def _answer_to(self, here: Open) -> Answer:
        if not self._shelf.shared and self._terms.timeout_seconds is None:
            return await here.answer
        async with open_tasks() as tasks:
            watch = tasks.create_task(self._watch(here))
            try:
                return await here.answer
            finally:
                watch.cancel()

    async def _watch(self, here: Open) -> None:
        """Look for an answer from elsewhere, and for the time that is up."""
        started, most = self._clock.now(), self._terms.timeout_seconds
        while not here.answer.done():
            await self._clock.sleep(POLL_SECONDS if most is None else min(POLL_SECONDS, most))
            elsewhere = await self._find_answer(here.asked.id) if self._shelf.shared else None
            if here.asked.id in self._claimed or here.answer.done():
                continue  # somebody is answering it here, just now
            if elsewhere is not None:
                await self._settle(here.asked, elsewhere, here=True)
            elif most is not None and self._clock.now() - started >= most * 1000:
                self._open.pop(here.asked.id, None)
                await self._ways.tell(self._ways.settled(here.asked, self._nobody()))
                here.answer.set_exception(NobodyError(request=here.asked.id))

    async def _find_answer(self, id: RequestID) -> Answer | None:
        return next((each.answer for each in await self._shelf.read() if each.id == id), None)

    async def _withdraw(self, asked: Asked) -> None:
        await self.forget(asked.id)
        await self._ways.tell(self._ways.settled(asked, self._nobody()))

    def _nobody(self) -> Answer:
        return Answer(reply="reject", time=self._clock.now())

    async def _keep(self, asked: Asked) -> None:
        oldest = asked.time - KEPT_MS

        def with_it(kept: tuple[Asked, ...]) -> tuple[Asked, ...]:
            return (*(each for each in kept if each.id != asked.id and each.time > oldest), asked)

        # A full disk is no reason not to ask: the question then only does not outlive us.
        with suppress(StoreError):
            await self._shelf.change(with_it)

    async def forget(self, id: RequestID) -> None:
        """It is asked no more."""
        with suppress(StoreError):
            await self._shelf.change(lambda kept: tuple(each for each in kept if each.id != id))


def under_its_name(asked: Asked, known: Asked) -> Asked:
    """What is asked now, under the id that it was asked by before."""
    if asked.permission is not None and known.permission is not None:
        return replace(asked, permission=replace(asked.permission, id=known.permission.id))
    if asked.question is not None and known.question is not None:
        return replace(asked, question=replace(asked.question, id=known.question.id))
    return asked


def _answered(each: Asked, id: RequestID, answer: Answer) -> Asked:
    return replace(each, answer=answer) if each.id == id and each.answer is None else each
