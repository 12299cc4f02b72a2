"""The runner: one run per session; start it, join it, abort it, wait for it."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import dropwhile
from weakref import WeakValueDictionary

from msgspec.structs import replace

from weft.context.history import last_cut
from weft.context.view import Views
from weft.errors import InvalidInputError, SessionBusyError, StoreError, WeftError
from weft.host.tasks import undivided
from weft.model.event import MessageUpdated, PartUpdated, SessionFailed, SessionRested, StatusChanged
from weft.model.failure import AbortedFailure, AnyFailure, StorageFailure, aborted
from weft.model.ids import MessageID, SessionID
from weft.model.input import PromptInput, ShellInput
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import ModelRef
from weft.model.session import Busy, Idle, Reverted, Session
from weft.model.transcript import Transcript
from weft.run.admit import admit, choose
from weft.run.answer import Answer
from weft.run.children import Spawner
from weft.run.compaction import ask_for_summary
from weft.run.decide import (
    Step,
    Stop,
    decide,
    find_owed,
    is_ours,
    is_request,
    last_answer,
    newest_prompt,
    newest_request,
    wants_more,
)
from weft.run.failure import to_failure
from weft.run.kit import Kit
from weft.run.loop import run
from weft.run.questions import turned
from weft.run.shell import ByHand
from weft.run.title import open_titles
from weft.session.revert_point import cut_at
from weft.session.settle import to_settle
from weft.session.totals import keep_count
from weft.undo.cleanup import clean_up
from weft.undo.revert import ALL, Target, Wish, revert, unrevert


async def excuse(
    kit: Kit, session: Session, transcript: Transcript, *, failure: AnyFailure, owed: Step | None
) -> WeftError | None:
    """An answer that was left without an end ends with the reason, and a prompt that is `owed` an answer has it for one,
    so that whoever asked, and whoever reads on later, knows. Return what kept it from being stored. OpenCode tells it at
    most, and gives back whatever message was the last."""
    unsaid: WeftError | None = None
    open_answer = find_open(transcript.messages())
    try:
        if open_answer is not None or owed is not None:
            if open_answer is not None:
                await _end(kit, transcript, open_answer, failure)
            elif owed is not None:
                await Answer(kit, session, transcript, owed).fail(failure)
            with suppress(StoreError):  # what is not counted now is counted the next time
                await keep_count(kit.journal, session.id, [each.info for each in transcript.messages()])
            return None
    except WeftError as error:
        unsaid = error
    if unsaid is not None or not isinstance(failure, AbortedFailure):  # one that was aborted says so itself
        await kit.journal.commit(SessionFailed(session_id=session.id, error=failure))
    return unsaid


async def _end(kit: Kit, transcript: Transcript, answer: AssistantMessage, failure: AnyFailure) -> None:
    """Say on an answer why it has no end. Its parts are left alone: more of them was told than could be stored, and the
    journal still tries to store it; whoever opens the session next settles them."""
    time = replace(answer.time, completed=max(kit.clock.now(), answer.time.created))
    ended = MessageUpdated(info=replace(answer, error=failure, time=time))
    said = SessionFailed(session_id=answer.session_id, error=failure)
    await kit.journal.commit(ended, said, into=transcript)


def find_open(history: Sequence[MessageWithParts]) -> AssistantMessage | None:
    """The last answer, if a run left it without an end and without a reason."""
    infos = (message.info for message in reversed(history) if isinstance(message.info, AssistantMessage))
    last = next(infos, None)
    return last if last is not None and last.time.completed is None and last.error is None else None


class Run:
    """A session in our hands: its lease, and what is known of it. Prompts that come in are fed to its transcript."""

    def __init__(self, session: Session, transcript: Transcript, lease: AsyncExitStack) -> None:
        self.session = session
        self.transcript = transcript
        self.lease = lease
        self.aborted = False
        self.ended = False
        self.asked: MessageID | None = None  # the newest prompt that it is to answer
        self.unsaid: Exception | None = None  # why nothing could be stored of its failure
        self.by_hand: ByHand | None = None
        self.task: asyncio.Task[None] | None = None
        self.begun = asyncio.Event()
        self.over = asyncio.Event()


class Runner:
    def __init__(self, kit: Kit, tasks: asyncio.TaskGroup) -> None:
        self._kit = replace(kit, spawn=Spawner(kit, self).spawn, desk=turned(kit, self))
        self._tasks = tasks
        self._runs: dict[SessionID, Run] = {}
        self._doors: WeakValueDictionary[SessionID, asyncio.Lock] = WeakValueDictionary()
        self._known: WeakValueDictionary[SessionID, Transcript] = WeakValueDictionary()
        self._views = Views()

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        """Admit a prompt and see it answered; gives the answer, or the prompt itself when no reply is wanted."""
        going, prompt = await self._begin(session, input)
        if input.no_reply:
            return whole(going.transcript, prompt)
        await going.over.wait()
        return await self._answered(going, answer_to(going.transcript, prompt), prompt)

    async def submit(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        """The same without waiting for the answer; gives the prompt, which is stored, of a session that is busy by now."""
        going, prompt = await self._begin(session, input)
        if not input.no_reply:
            await going.begun.wait()
        return whole(going.transcript, prompt)

    async def _begin(self, session: SessionID, input: PromptInput) -> tuple[Run, MessageID]:
        # Prompts come in one at a time, so that each sees what the one before it stored.
        async with self._doors.setdefault(session, asyncio.Lock()), AsyncExitStack() as unstarted:
            going = await self._under_way(session) or await self._open_to_go_on(session, unstarted, input)
            prompt = await self._admit(going, input)
            if input.no_reply:
                return going, prompt
            if going.ended:  # while the prompt was being stored
                await going.over.wait()
                going = await self._open(session, unstarted)
            if session in self._runs:
                going.asked = newest_request(going.transcript.messages())
            elif input.message_id is not None and is_settled(going):
                left_alone(going)  # it was sent before, and answered
            else:
                self._start(going)
                unstarted.pop_all()
        return going, prompt

    async def compact(self, session: SessionID, *, model: ModelRef | None = None) -> MessageWithParts:
        """Sum up what was said so far; gives the summary. A session that is being run is busy."""
        if model is not None:
            self._kit.models.get(model)  # said now if there is none
        async with self._doors.setdefault(session, asyncio.Lock()), AsyncExitStack() as unstarted:
            if await self._under_way(session) is not None:
                raise SessionBusyError(session, self._kit.owner)
            going = await self._open_to_go_on(session, unstarted)
            if newest_prompt(going.transcript.messages()) is None:
                raise InvalidInputError("session", "there is nothing in it to sum up")
            request = await ask_for_summary(self._kit, session, going.transcript, auto=False, model=model)
            self._start(going)
            unstarted.pop_all()
        await going.over.wait()
        return await self._answered(going, answer_to(going.transcript, request), request)

    async def uncompact(self, session: SessionID) -> bool:
        """Show the model again what the last summary cut off; gives whether there was one. Nothing was ever lost by it."""
        async with self._resting(session) as going:
            mark = last_cut(going.transcript.messages())
            if mark is None:
                return False
            await self._kit.journal.commit(
                PartUpdated(part=replace(mark, undone=True)), into=going.transcript
            )
            return True

    async def shell(self, session: SessionID, input: ShellInput) -> MessageWithParts:
        """Run a command of the person's own; gives the message it stands in. A session that is being run is busy.

        Prompts that come in meanwhile are answered after it. OpenCode stores them and forgets them.
        """
        async with self._doors.setdefault(session, asyncio.Lock()), AsyncExitStack() as unstarted:
            if await self._under_way(session) is not None:
                raise SessionBusyError(session, self._kit.owner)
            going = await self._open_to_go_on(session, unstarted)
            going.by_hand = by_hand = ByHand(self._kit, going.session, going.transcript, input)
            try:
                await by_hand.begin()
            except BaseException:
                await by_hand.call_off()
                raise
            self._start(going)
            unstarted.pop_all()
        await going.over.wait()
        return await self._answered(going, whole(going.transcript, by_hand.answer))

    async def _answered(
        self, going: Run, answer: MessageWithParts, prompt: MessageID | None = None
    ) -> MessageWithParts:
        """The answer as it is stored. If not even its failure could be stored, that is raised in its place."""
        history = going.transcript.messages()
        if going.unsaid is not None and (find_open([answer]) or prompt == newest_request(history)):
            raise going.unsaid
        if isinstance(answer.info, AssistantMessage) and isinstance(answer.info.error, StorageFailure):
            return await self._kit.store.find_message(going.session.id, answer.info.id) or answer
        return answer

    async def revert(self, session: SessionID, to: Target, wish: Wish = ALL) -> Reverted:
        """Take a session back, its files too. One that is being run is busy."""
        async with self._resting(session) as going:
            history = going.transcript.messages()
            return await undivided(revert(self._kit.undoer, going.session, history, to, wish))

    async def unrevert(self, session: SessionID, wish: Wish = ALL) -> Reverted:
        async with self._resting(session) as going:
            history = going.transcript.messages()
            return await undivided(unrevert(self._kit.undoer, going.session, history, wish))

    def known(self, session: SessionID) -> Transcript | None:
        """What whoever has the session in hand knows of it. What is changed by hand has to get there, too."""
        return self._known.get(session)

    def check_resting(self, session: SessionID) -> None:
        if session in self._runs:
            raise SessionBusyError(session, self._kit.owner)

    def holds(self, session: SessionID) -> bool:
        """Return whether a session is in our hands: it is being run, or about to be, or taken back."""
        door = self._doors.get(session)
        return session in self._runs or (door is not None and door.locked())

    async def abort(self, session: SessionID) -> bool:
        """End the run of a session; it is over, and settled, when this returns."""
        going = self._runs.get(session)
        if going is None:
            return False
        if not going.ended:
            going.aborted = True
            if going.task is not None:  # else it has yet to begin, and will see that it is not wanted
                going.task.cancel()
        await going.over.wait()
        return going.aborted

    async def recover(self) -> list[WeftError]:
        """Settle the sessions whose runs died with their process, and return what kept one from being settled.

        Such a session stays as it is until the next opening; it keeps no other from being opened. A session that
        somebody took up meanwhile is theirs to settle.
        """
        try:
            abandoned = await self._kit.store.list_abandoned()
        except StoreError as error:
            return [error]
        unsettled: list[WeftError] = []
        for session in abandoned:
            try:
                async with AsyncExitStack() as held:
                    await self._open(session, held)
            except SessionBusyError:
                continue
            except Exception as error:  # noqa: BLE001  whatever is wrong with one session is not the others' trouble
                unsettled.append(
                    StoreError(
                        f"the dead run of session {session} is not settled yet: {error}",
                        hint="the next opening tries again; weft doctor says what is wrong",
                    )
                )
        return unsettled

    async def close(self) -> None:
        """End every run; all are settled when this returns."""
        for session in list(self._runs):
            await self.abort(session)

    async def _under_way(self, session: SessionID) -> Run | None:
        """The run to join. One that is being aborted, or is at its end, is not: the next prompt waits for that."""
        going = self._runs.get(session)
        if going is None or not (going.aborted or going.ended):
            return going
        await going.over.wait()
        return None

    async def _open(self, session: SessionID, held: AsyncExitStack) -> Run:
        """Take the session into our hands, and put in order what a dead run left of it."""
        kit, lease = self._kit, AsyncExitStack()
        await kit.store.get_session(session)
        await lease.enter_async_context(kit.store.lease(session, kit.owner))
        held.push_async_callback(lease.aclose)
        # What an earlier run of ours told and could not store comes first, or settling would replace it with less.
        await kit.journal.flush_session(session)
        found = await kit.store.get_session(session)  # whoever held it before may have changed it
        transcript = Transcript(await kit.store.list_messages(session))
        self._known[session] = transcript
        left_open = to_settle(transcript.messages())
        if left_open:
            await kit.journal.commit(*left_open, into=transcript)
        return Run(found, transcript, lease)

    @asynccontextmanager
    async def _resting(self, session: SessionID) -> AsyncIterator[Run]:
        """A session in our hands that nobody runs; prompts that come in meanwhile wait."""
        async with self._doors.setdefault(session, asyncio.Lock()), AsyncExitStack() as held:
            if await self._under_way(session) is not None:
                raise SessionBusyError(session, self._kit.owner)
            yield await self._open(session, held)

    async def _open_to_go_on(
        self, session: SessionID, held: AsyncExitStack, input: PromptInput | None = None
    ) -> Run:
        """The same to go on with it: what it was taken back from goes, once it is clear that the prompt makes sense."""
        going = await self._open(session, held)
        if going.session.revert is not None:
            history = going.transcript.messages()
            if input is not None:
                choose(self._kit, input, cut_at(going.session.revert, history).kept)
            going.session, removed = await clean_up(self._kit.undoer, going.session, history)
            going.transcript.feed(*removed)
        return going

    async def _admit(self, going: Run, input: PromptInput) -> MessageID:
        if input.message_id is not None and going.transcript.find(input.message_id) is not None:
            return input.message_id  # sent before: the same prompt is not asked twice
        return await admit(self._kit, going.session.id, going.transcript, input)

    def _start(self, going: Run) -> None:
        self._runs[going.session.id] = going
        going.asked = newest_request(going.transcript.messages())
        self._tasks.create_task(self._go(going))

    async def _go(self, going: Run) -> None:
        journal, session = self._kit.journal, going.session.id
        going.task = asyncio.current_task()
        failure: AnyFailure | None = None
        try:
            if going.aborted:
                failure = aborted()
            else:
                await journal.commit(StatusChanged(session_id=session, status=Busy()))
                going.begun.set()
                if going.by_hand is not None:
                    await going.by_hand.run()
                await self._answer(going)
        except asyncio.CancelledError:
            if not going.aborted:
                raise
            failure = aborted()
        except Exception as error:  # noqa: BLE001  whatever broke a run, the session lives on and says so
            failure = to_failure(error)
        finally:
            # Before anything is awaited: a prompt that is admitted from here on starts a run of its own.
            going.ended = True
            going.begun.set()
            owed = find_owed(going.transcript.messages(), going.asked)
            await undivided(self._end(going, failure, owed))

    async def _answer(self, going: Run) -> None:
        """Until nothing is left to answer. What comes in while a run is ending, and came too late for it, is answered
        by another; between the last look for such and the end of the run nothing is awaited."""
        with self._views.of(going.session.id) as view:
            kit = replace(self._kit, view=view)
            while True:
                async with open_titles(kit, going.session, going.transcript):
                    seen = await run(kit, going.session, going.transcript)
                newest = newest_prompt(going.transcript.messages())
                if newest is None or newest.id == seen:
                    return

    async def _end(self, going: Run, failure: AnyFailure | None, owed: Step | None) -> None:
        session = going.session.id
        try:
            try:
                if going.by_hand is not None:
                    await going.by_hand.call_off()
            except StoreError as error:
                failure = failure or to_failure(error)
            await self._kit.gate.leave(session)
            await self._kit.questions.leave(session)
            if going.session.parent_id is not None:  # whoever sent it knows nothing of what it left running
                await self._kit.end_jobs(session)
            if failure is not None:
                going.unsaid = await excuse(
                    self._kit, going.session, going.transcript, failure=failure, owed=owed
                )
            with suppress(StoreError):  # what was told and does not fit waits, and is tried again
                await self._kit.journal.flush_session(session)
            idle = StatusChanged(session_id=session, status=Idle())
            await self._kit.journal.commit(idle, SessionRested(session_id=session))
        finally:
            self._kit.bases.pop(session, None)
            await going.lease.aclose()
            del self._runs[session]
            going.over.set()


def is_settled(going: Run) -> bool:
    """Whether nothing is left to answer."""
    return isinstance(decide(going.transcript.messages()), Stop)


def left_alone(going: Run) -> None:
    """A session that was only looked into: nobody has to wait for it."""
    going.begun.set()
    going.over.set()


def whole(transcript: Transcript, id: MessageID) -> MessageWithParts:
    found = transcript.find(id)
    assert found is not None, "a prompt is in the transcript it was admitted to"
    return found


def answer_to(transcript: Transcript, prompt: MessageID) -> MessageWithParts:
    """The last answer to a prompt, also where it came after a summary made on the way. One that was answered along
    with a later prompt, or whose answer went on with one, gets that answer."""
    history, found = transcript.messages(), whole(transcript, prompt)
    for asked in [found, *later_requests(history, found)]:
        prompts = list(gone_on(history, asked))
        answers = [answer for each in prompts if (answer := last_answer(history, each)) is not None]
        found = answers[-1] if answers else found
        if answers and not wants_more(found, prompts[-1]):
            return found
    return found if isinstance(found.info, AssistantMessage) else history[-1]


def later_requests(
    history: Sequence[MessageWithParts], asked: MessageWithParts
) -> Iterator[MessageWithParts]:
    after = dropwhile(lambda each: each.info.id != asked.info.id, history)
    return (message for message in after if message.info.id != asked.info.id and is_request(message))


def gone_on(history: Sequence[MessageWithParts], asked: MessageWithParts) -> Iterator[UserMessage]:
    """A prompt, and what we said ourselves to go on with it."""
    prompts = (message for message in history if isinstance(message.info, UserMessage))
    for message in dropwhile(lambda each: each.info.id != asked.info.id, prompts):
        if message.info.id != asked.info.id and not is_ours(message):
            return
        assert isinstance(message.info, UserMessage)
        yield message.info
