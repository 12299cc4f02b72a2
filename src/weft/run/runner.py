"""Start, join, abort and await runs: at most one for each session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from msgspec.structs import replace

from weft.context.history import find_last_cut
from weft.context.view import Views
from weft.errors import (
    HandedOverError,
    InvalidInputError,
    LeaseLostError,
    SessionBusyError,
    StoreError,
    WeftError,
)
from weft.host.tasks import run_to_completion
from weft.model.event import (
    PartUpdated,
    SessionIdled,
    SessionWarned,
    StatusChanged,
)
from weft.model.failure import AnyFailure, StorageFailure, aborted_failure
from weft.model.ids import MessageID, SessionID
from weft.model.input import PromptInput, ShellInput
from weft.model.message import (
    AssistantMessage,
    MessageWithParts,
    UserMessage,
    find_newest_human_prompt_id,
    is_human_prompt,
    is_synthetic,
    list_from,
)
from weft.model.part import ModelRef
from weft.model.session import Busy, Idle, RevertResult, SessionInfo
from weft.model.transcript import Transcript
from weft.run.admit import admit, choose_models
from weft.run.answer import find_open_answer, record_failure
from weft.run.compaction import request_summary
from weft.run.decide import (
    ModelStep,
    StopRun,
    decide,
    find_last_answer,
    find_newest_prompt,
    find_unanswered_step,
    is_incomplete,
)
from weft.run.failure import to_failure
from weft.run.loop import RunLoop
from weft.run.questions import with_questions
from weft.run.runtime import Runtime
from weft.run.title import open_titles
from weft.session.lifecycle import refuse_departed
from weft.session.revert_point import WHOLE_REVERT, RevertScope, RevertTarget, cut_at_revert
from weft.session.settle import ClosedHistories, to_settling_events
from weft.tool.contract import ChildResult, ChildTask, ToolContext

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.run.shell import ManualCommand


class LeasedSession:
    """A session whose lease this process holds, and its run if it has one.

    Prompts that come in are fed to its transcript. `begun` is set when the session is busy. From `closing` on, no prompt can
    join the run any more. `settled` is set when the run has ended and the lease is released. A run that has `lost` its lease
    belongs to another process; one that was `handed_over` ended between two steps, and another process is to continue it.
    """

    def __init__(self, session: SessionInfo, transcript: Transcript, lease: AsyncExitStack) -> None:
        self.session = session
        self.transcript = transcript
        self.lease = lease
        self.aborted = False
        self.handed_over = False
        self.closing = False
        self.last_prompt: MessageID | None = None  # the newest prompt of a person that this run answers
        self.storing_error: Exception | None = None  # why its failure could not be stored
        self.lost: LeaseLostError | None = None  # another process has taken over the session
        self.command: ManualCommand | None = None
        self.task: asyncio.Task[None] | None = None
        self.begun = asyncio.Event()
        self.settled = asyncio.Event()


class Runner:
    """Runs sessions, in tasks of the given group. Each session has one run at a time, over all processes."""

    def __init__(self, runtime: Runtime, tasks: asyncio.TaskGroup) -> None:
        self._draining = False
        self._runtime = replace(
            runtime,
            spawn=self._spawn,
            make_resources=with_questions(runtime, self),
            is_draining=lambda: self._draining,
        )
        self._tasks = tasks
        self._runs: dict[SessionID, LeasedSession] = {}
        self._locks: WeakValueDictionary[SessionID, asyncio.Lock] = WeakValueDictionary()
        self._transcripts: WeakValueDictionary[SessionID, Transcript] = WeakValueDictionary()
        self._views = Views()
        self._closed = ClosedHistories()

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        """Store a prompt and wait until it is answered. Return the answer, or the prompt itself if no reply is wanted.

        Raise `HandedOverError` if another process is to continue the run.
        """
        leased, prompt = await self._begin(session, input)
        if input.no_reply:
            return get_message(leased.transcript, prompt)
        await leased.settled.wait()
        if leased.handed_over:
            raise HandedOverError(session)
        return await self._return_answer(leased, get_answer(leased.transcript, prompt), prompt)

    async def submit(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        """Store a prompt and start its run. Return the prompt, once the session is busy."""
        leased, prompt = await self._begin(session, input)
        if not input.no_reply:
            await leased.begun.wait()
        return get_message(leased.transcript, prompt)

    async def _begin(self, session: SessionID, input: PromptInput) -> tuple[LeasedSession, MessageID]:
        # One prompt at a time, so that each sees what the one before it stored.
        async with (
            self._locks.setdefault(session, asyncio.Lock()),
            AsyncExitStack() as release_unless_started,
        ):
            leased = await self._find_joinable_run(session) or await self._open_to_continue(
                session, release_unless_started, input
            )
            prompt = await self._admit(leased, input)
            if input.no_reply:
                return leased, prompt
            if leased.closing:  # while the prompt was being stored
                await leased.settled.wait()
                leased = await self._open(session, release_unless_started)
            if session in self._runs:
                leased.last_prompt = find_newest_human_prompt_id(leased.transcript.messages())
            elif input.message_id is not None and has_nothing_left(leased):
                mark_settled(leased)  # the client sent it before, and it is answered
                self._announce_idle(session)
            else:
                self._start(leased)
                release_unless_started.pop_all()
        return leased, prompt

    async def compact(self, session: SessionID, *, model: ModelRef | None = None) -> MessageWithParts:
        """Summarise the history so far, and return the summary. Raise `SessionBusyError` if the session has a run."""
        if model is not None:
            self._runtime.models.get(model)  # raises before anything is stored
        async with (
            self._locks.setdefault(session, asyncio.Lock()),
            AsyncExitStack() as release_unless_started,
        ):
            if await self._find_joinable_run(session) is not None:
                raise SessionBusyError(session, self._runtime.owner)
            leased = await self._open_to_continue(session, release_unless_started)
            if find_newest_prompt(leased.transcript.messages()) is None:
                raise InvalidInputError("session", "there is nothing to summarise")
            request = await request_summary(
                self._runtime, session, leased.transcript, auto=False, model=model
            )
            self._start(leased)
            release_unless_started.pop_all()
        await leased.settled.wait()
        return await self._return_answer(leased, get_answer(leased.transcript, request), request)

    async def uncompact(self, session: SessionID) -> bool:
        """Undo the last compaction, so that the model sees the full history again. Return False if there was none."""
        async with self._open_idle(session) as idle:
            refuse_departed(idle.session)
            mark = find_last_cut(idle.transcript.messages())
            if mark is None:
                return False
            await self._runtime.journal.commit(
                PartUpdated(part=replace(mark, undone=True)), into=idle.transcript
            )
            return True

    async def shell(self, session: SessionID, input: ShellInput) -> MessageWithParts:
        """Run a person's own command, and return the message that holds it. Raise `SessionBusyError` if the session has a run.

        Prompts that come in meanwhile are answered afterwards. OpenCode stores them and forgets them.
        """
        async with (
            self._locks.setdefault(session, asyncio.Lock()),
            AsyncExitStack() as release_unless_started,
        ):
            if await self._find_joinable_run(session) is not None:
                raise SessionBusyError(session, self._runtime.owner)
            from weft.run.shell import ManualCommand  # noqa: PLC0415  few people run commands by hand

            leased = await self._open_to_continue(session, release_unless_started)
            leased.command = command = ManualCommand(self._runtime, leased.session, leased.transcript, input)
            try:
                await command.begin()
            except BaseException:
                await command.cancel()
                raise
            self._start(leased)
            release_unless_started.pop_all()
        await leased.settled.wait()
        return await self._return_answer(leased, get_message(leased.transcript, command.answer))

    async def _return_answer(
        self, leased: LeasedSession, answer: MessageWithParts, prompt: MessageID | None = None
    ) -> MessageWithParts:
        """Return the answer as it is stored. Raise the error if not even its failure could be stored."""
        history = leased.transcript.messages()
        # Only the newest prompt and an answer without an end failed with the run. Its earlier answers are whole.
        if leased.storing_error is not None and (
            not isinstance(answer.info, AssistantMessage)
            or find_open_answer([answer])
            or prompt == find_newest_human_prompt_id(history)
        ):
            raise leased.storing_error
        if isinstance(answer.info, AssistantMessage) and isinstance(answer.info.error, StorageFailure):
            # The write may have succeeded although it raised. Then the store has more than the transcript.
            return await self._runtime.store.find_message(leased.session.id, answer.info.id) or answer
        return answer

    async def revert(
        self, session: SessionID, to: RevertTarget, scope: RevertScope = WHOLE_REVERT
    ) -> RevertResult:
        """Undo a session and its files back to a message. Raise `SessionBusyError` if the session has a run."""
        from weft.undo.revert import revert  # noqa: PLC0415  few sessions are undone

        async with self._open_idle(session) as idle:
            refuse_departed(idle.session)
            history = idle.transcript.messages()
            return await run_to_completion(
                revert(self._runtime.undo_context, idle.session, history, to, scope)
            )

    async def unrevert(self, session: SessionID, scope: RevertScope = WHOLE_REVERT) -> RevertResult:
        """Redo what `revert` undid. Raise `SessionBusyError` if the session has a run."""
        from weft.undo.revert import unrevert  # noqa: PLC0415  few sessions are undone

        async with self._open_idle(session) as idle:
            refuse_departed(idle.session)
            history = idle.transcript.messages()
            return await run_to_completion(unrevert(self._runtime.undo_context, idle.session, history, scope))

    def find_transcript(self, session: SessionID) -> Transcript | None:
        """Return the transcript of a session that is in use, so that a change from outside can be fed to it; else None."""
        return self._transcripts.get(session)

    def check_idle(self, session: SessionID) -> None:
        """Raise `SessionBusyError` if the session has a run in this process."""
        if session in self._runs:
            raise SessionBusyError(session, self._runtime.owner)

    def is_in_use(self, session: SessionID) -> bool:
        """Return True if this process uses the session: it runs, is about to run, or is being undone."""
        lock = self._locks.get(session)
        return session in self._runs or (lock is not None and lock.locked())

    async def abort(self, session: SessionID) -> bool:
        """End the run of a session, and wait until it has settled. Return False if there was none to abort."""
        leased = self._runs.get(session)
        if leased is None:
            return False
        if not leased.closing:
            leased.aborted = True
            if leased.task is not None:  # else it has not begun, and will see that it is aborted
                leased.task.cancel()
        await leased.settled.wait()
        return leased.aborted

    def end_lost_run(self, error: LeaseLostError) -> None:
        """End the run of a session that another process has taken over, and its tools.

        It is cancelled even if it awaits no write: the model's further answer would cost money, and could not be stored.
        """
        session = SessionID(error.session)
        leased = self._runs.get(session)
        if leased is not None and leased.lost is None and not leased.closing:
            leased.lost = error
            self._runtime.gate.abandon(session)
            self._runtime.questions.abandon(session)
            if leased.task is not None:  # else it has not begun, and its first write is refused
                leased.task.cancel()

    def hand_over(self) -> None:
        """Start no more steps. A run that is not done ends after its current step, and another process is to continue it."""
        self._draining = True

    async def settle(self, session: SessionID) -> None:
        """Settle a session whose run died with its process. Raise `SessionBusyError` if another process has opened it."""
        async with self._open_idle(session):
            self._announce_idle(session)

    def _announce_idle(self, session: SessionID) -> None:
        """Tell other nodes that nothing runs. They may have heard of a run that died."""
        if self._runtime.store.event_log is not None:
            idle = StatusChanged(session_id=session, status=Idle())
            self._runtime.journal.announce(idle, SessionIdled(session_id=session))

    async def settle_dead_runs(self) -> list[WeftError]:
        """Settle the sessions whose runs died with their process. Return the errors of those that could not be settled.

        Such a session stays as it is until the next opening, and does not keep others from being opened. A session that another
        process opened meanwhile is settled there. A session with open calls in another directory that still exists waits for an
        opening of that directory, or of the session itself: only there it is known which files the calls changed.
        """
        try:
            abandoned = await self._runtime.store.list_abandoned()
        except StoreError as error:
            return [error]
        if not abandoned:
            return []
        from weft.undo.evidence import needs_other_directory  # noqa: PLC0415  few runs die

        unsettled: list[WeftError] = []
        for session in abandoned:
            try:
                if not await needs_other_directory(self._runtime.undo_context, session):
                    await self.settle(session)
            except SessionBusyError:
                continue
            except Exception as error:  # noqa: BLE001  a broken session must not affect the others
                unsettled.append(
                    StoreError(
                        f"the dead run of session {session} is not settled yet: {error}",
                        hint="the next opening tries again; weft doctor says what is wrong",
                    )
                )
        return unsettled

    async def close(self) -> None:
        """End every run, and wait until all have settled."""
        for session in list(self._runs):
            await self.abort(session)

    async def _spawn(self, context: ToolContext, child_task: ChildTask) -> ChildResult:
        from weft.run.children import ChildSpawner  # noqa: PLC0415  few runs start a child session

        return await ChildSpawner(self._runtime, self).spawn(context, child_task)

    async def _find_joinable_run(self, session: SessionID) -> LeasedSession | None:
        """Return the run to join, or None. Wait for a run that is ending: nothing can join that one."""
        leased = self._runs.get(session)
        if leased is None or not (leased.aborted or leased.closing):
            return leased
        await leased.settled.wait()
        return None

    async def _open(self, session: SessionID, stack: AsyncExitStack) -> LeasedSession:
        """Take the lease of a session, read it, and settle what a dead run left open. Closing `stack` releases the lease."""
        runtime, lease = self._runtime, AsyncExitStack()
        await runtime.store.get_session(session)
        await lease.enter_async_context(
            runtime.journal.lease(session, runtime.owner, on_lost=self.end_lost_run)
        )
        stack.push_async_callback(lease.aclose)
        # First, store what an earlier run of ours could not store: settling would replace it with less.
        await runtime.journal.flush_session(session)
        # The last holder of the lease may have changed it, and its files.
        stored = await runtime.files.take_over(await runtime.store.get_session(session))
        transcript = Transcript(await runtime.store.list_messages(session))
        if self._closed.has_open(session, transcript.messages()):
            from weft.undo.evidence import settle_calls  # noqa: PLC0415  few runs die

            history, settling = await settle_calls(runtime.undo_context, session)
            transcript = Transcript(history)
            await runtime.journal.commit(*settling, into=transcript)
        self._transcripts[session] = transcript
        return LeasedSession(stored, transcript, lease)

    @asynccontextmanager
    async def _open_idle(self, session: SessionID) -> AsyncIterator[LeasedSession]:
        """Open a session that has no run. Prompts that come in meanwhile wait."""
        async with self._locks.setdefault(session, asyncio.Lock()), AsyncExitStack() as stack:
            if await self._find_joinable_run(session) is not None:
                raise SessionBusyError(session, self._runtime.owner)
            opened = await self._open(session, stack)
            yield opened
            await self._store_files(opened)

    async def _store_files(self, leased: LeasedSession) -> None:
        """Store the files for other nodes. If that fails, warn the person: the run itself has succeeded."""
        try:
            await self._runtime.files.store(leased.session, leased.transcript.messages())
        except (WeftError, OSError) as error:
            message = f"the last changes to files could not be stored for other nodes: {error}"
            self._runtime.journal.announce(SessionWarned(session_id=leased.session.id, message=message))

    async def _open_to_continue(
        self, session: SessionID, stack: AsyncExitStack, input: PromptInput | None = None
    ) -> LeasedSession:
        """Open a session to continue it. If it was undone, remove what was undone, after checking that the prompt is valid."""
        leased = await self._open(session, stack)
        refuse_departed(leased.session)
        if leased.session.revert is not None:
            from weft.undo.cleanup import clean_up  # noqa: PLC0415  few sessions are undone

            history = leased.transcript.messages()
            if input is not None:
                choose_models(self._runtime, input, cut_at_revert(leased.session.revert, history).kept)
            leased.session, removed = await clean_up(self._runtime.undo_context, leased.session, history)
            leased.transcript.feed(*removed)
        return leased

    async def _admit(self, leased: LeasedSession, input: PromptInput) -> MessageID:
        if input.message_id is not None and leased.transcript.find(input.message_id) is not None:
            return input.message_id  # the client sent the same prompt again
        return await admit(self._runtime, leased.session.id, leased.transcript, input)

    def _start(self, leased: LeasedSession) -> None:
        self._runs[leased.session.id] = leased
        leased.last_prompt = find_newest_human_prompt_id(leased.transcript.messages())
        self._tasks.create_task(self._run(leased))

    async def _run(self, leased: LeasedSession) -> None:
        journal, session = self._runtime.journal, leased.session.id
        leased.task = asyncio.current_task()
        failure: AnyFailure | None = None
        try:
            if leased.aborted:
                failure = aborted_failure()
            else:
                await journal.commit(StatusChanged(session_id=session, status=Busy()))
                leased.begun.set()
                if leased.command is not None:
                    await leased.command.run()
                await self._answer(leased)
        except asyncio.CancelledError:
            if leased.lost is not None:
                failure = to_failure(leased.lost)
            elif leased.aborted:
                failure = aborted_failure()
            else:
                raise
        except Exception as error:  # noqa: BLE001  a run that breaks must not break the session: it stores why
            failure = to_failure(error)
        finally:
            # Before anything is awaited: a prompt that is admitted from here on starts its own run.
            leased.closing = True
            leased.begun.set()
            unanswered_step = find_unanswered_step(leased.transcript.messages(), leased.last_prompt)
            await run_to_completion(self._end(leased, failure, unanswered_step))

    async def _answer(self, leased: LeasedSession) -> None:
        """Run loops until nothing is left to answer. The next loop answers a prompt that came too late for the last one.

        No prompt is lost: nothing is awaited between the last check for one and the end of the run.
        """
        with self._views.lend(leased.session.id) as view:
            runtime = replace(self._runtime, view=view)
            while True:
                loop = RunLoop(runtime, leased.session, leased.transcript)
                async with open_titles(runtime, leased.session, leased.transcript):
                    await loop.run()
                if loop.handed_over:
                    leased.handed_over = True
                    return
                newest = find_newest_prompt(leased.transcript.messages())
                if newest is None or newest.id == loop.newest_prompt:
                    return

    async def _end(
        self, leased: LeasedSession, failure: AnyFailure | None, unanswered_step: ModelStep | None
    ) -> None:
        session = leased.session.id
        try:
            try:
                if leased.command is not None:
                    await leased.command.cancel()
            except StoreError as error:
                failure = failure or to_failure(error)
            if leased.lost is None:  # else the requests are those of the new holder
                await self._runtime.gate.end_run(session)
                await self._runtime.questions.end_run(session)
            # The parent does not know of the jobs of its child, and whoever took over the session does not know of ours.
            if leased.session.parent_id is not None or leased.lost is not None:
                await self._runtime.end_jobs(session)
            if failure is not None:
                leased.storing_error = await record_failure(
                    self._runtime,
                    leased.session,
                    leased.transcript,
                    failure=failure,
                    unanswered_step=unanswered_step,
                )
            with suppress(StoreError):  # the journal tries again later
                await self._runtime.journal.flush_session(session)
                if failure is not None and leased.lost is None and self._runtime.store.event_log is not None:
                    await self._settle_rest(leased)
            if leased.lost is None:
                await self._store_files(leased)
            idle = StatusChanged(session_id=session, status=Idle())
            if leased.handed_over:  # it goes on elsewhere
                self._runtime.journal.publish_here(idle)
            else:
                await self._runtime.journal.commit(idle, SessionIdled(session_id=session))
        finally:
            self._runtime.briefings.pop(session, None)
            self._runtime.new_briefings.discard(session)
            await self._give_back(leased)

    async def _give_back(self, leased: LeasedSession) -> None:
        """Give back the lease of a run that has ended. If that fails, warn the person: whoever waits for the run must not wait on."""
        session = leased.session.id
        try:
            await leased.lease.aclose()
        except StoreError as error:
            message = f"other processes may find the session busy until this one ends: {error}"
            self._runtime.journal.announce(SessionWarned(session_id=session, message=message))
        finally:
            del self._runs[session]
            leased.settled.set()

    async def _settle_rest(self, leased: LeasedSession) -> None:
        """Close the parts that the run could not close while the store failed. All their text is stored by now.

        The next opening would close them too. But other nodes show the answer as it is stored, and it may never be opened again.
        """
        if to_settling_events(leased.transcript.messages()):
            from weft.undo.evidence import settle_calls  # noqa: PLC0415  few runs fail in this way

            _, settling = await settle_calls(self._runtime.undo_context, leased.session.id)
            await self._runtime.journal.commit(*settling, into=leased.transcript)


def has_nothing_left(leased: LeasedSession) -> bool:
    """Return True if nothing is left to answer."""
    return isinstance(decide(leased.transcript.messages()), StopRun)


def mark_settled(leased: LeasedSession) -> None:
    """Set both events of a session that needs no run, so that nobody waits for one."""
    leased.begun.set()
    leased.settled.set()


def get_message(transcript: Transcript, id: MessageID) -> MessageWithParts:
    found = transcript.find(id)
    assert found is not None, "a prompt is in the transcript that it was admitted to"
    return found


def get_answer(transcript: Transcript, prompt: MessageID) -> MessageWithParts:
    """Return the last answer to a prompt, also if a compaction came in between.

    A prompt that was answered together with a later prompt, or whose answer continued there, has the answer of that prompt.
    """
    history, found = transcript.messages(), get_message(transcript, prompt)
    for first in [found, *list_later_prompts(history, found)]:
        prompts = list(list_continuations(history, first))
        answers = [answer for each in prompts if (answer := find_last_answer(history, each)) is not None]
        found = answers[-1] if answers else found
        if answers and not is_incomplete(found, prompts[-1]):
            return found
    return found if isinstance(found.info, AssistantMessage) else history[-1]


def list_later_prompts(
    history: Sequence[MessageWithParts], prompt: MessageWithParts
) -> Iterator[MessageWithParts]:
    """Yield the prompts after this one that weft did not write itself."""
    return (message for message in list_from(history, prompt.info.id)[1:] if is_human_prompt(message))


def list_continuations(
    history: Sequence[MessageWithParts], prompt: MessageWithParts
) -> Iterator[UserMessage]:
    """Yield a prompt, and the prompts that weft added itself to continue it."""
    for message in list_from(history, prompt.info.id):
        if not isinstance(message.info, UserMessage):
            continue
        if message.info.id != prompt.info.id and not is_synthetic(message):
            return
        yield message.info
