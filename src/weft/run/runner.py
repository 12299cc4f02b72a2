"""The runner: one run per session; start it, join it, abort it, wait for it."""

import asyncio
from contextlib import AsyncExitStack

from weft.errors import InvalidInputError, SessionBusyError
from weft.host.tasks import open_tasks
from weft.model.event import Event, SessionFailed, SessionRested, StatusChanged
from weft.model.ids import MessageID, SessionID
from weft.model.input import PromptInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.session import Session
from weft.model.status import Busy, Idle
from weft.model.transcript import Transcript
from weft.run.admit import admit
from weft.run.compaction import ask_for_summary
from weft.run.decide import last_answer, newest_prompt
from weft.run.failure import to_failure
from weft.run.kit import Kit
from weft.run.loop import run
from weft.run.title import name_session
from weft.session.settle import to_settle


class Run:
    """A session in our hands: its lease, and what is known of it. Prompts that come in are fed to its transcript."""

    def __init__(self, session: Session, transcript: Transcript, lease: AsyncExitStack) -> None:
        self.session = session
        self.transcript = transcript
        self.lease = lease
        self.aborted = False
        self.ended = False
        self.task: asyncio.Task[None] | None = None
        self.over = asyncio.Event()


class Runner:
    def __init__(self, kit: Kit, tasks: asyncio.TaskGroup) -> None:
        self._kit = kit
        self._tasks = tasks
        self._runs: dict[SessionID, Run] = {}
        self._doors: dict[SessionID, asyncio.Lock] = {}

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        """Admit a prompt and see it answered; gives the answer, or the prompt itself when no reply is wanted."""
        # Prompts come in one at a time, so that each sees what the one before it stored.
        async with self._doors.setdefault(session, asyncio.Lock()), AsyncExitStack() as unstarted:
            going = await self._under_way(session) or await self._open(session, unstarted)
            prompt = await self._admit(going, input)
            if input.no_reply:
                return whole(going.transcript, prompt)
            if going.ended:  # while the prompt was being stored
                await going.over.wait()
                going = await self._open(session, unstarted)
            if going.session.id not in self._runs:
                self._start(going)
                unstarted.pop_all()
        await going.over.wait()
        return answer_to(going.transcript, prompt)

    async def compact(self, session: SessionID) -> MessageWithParts:
        """Sum up what was said so far; gives the summary. A session that is being run is busy."""
        async with self._doors.setdefault(session, asyncio.Lock()), AsyncExitStack() as unstarted:
            if await self._under_way(session) is not None:
                raise SessionBusyError(session, self._kit.owner)
            going = await self._open(session, unstarted)
            if newest_prompt(going.transcript.messages()) is None:
                raise InvalidInputError("session", "there is nothing in it to sum up")
            request = await ask_for_summary(self._kit, session, going.transcript, auto=False)
            self._start(going)
            unstarted.pop_all()
        await going.over.wait()
        return answer_to(going.transcript, request)

    async def abort(self, session: SessionID) -> bool:
        """End the run of a session; it is over, and settled, when this returns."""
        going = self._runs.get(session)
        if going is None:
            return False
        going.aborted = True
        if going.task is not None:  # else it has yet to begin, and will see that it is not wanted
            going.task.cancel()
        await going.over.wait()
        return True

    async def recover(self) -> None:
        """Settle the sessions whose runs died with their process. One that somebody took up meanwhile is theirs."""
        for session in await self._kit.store.list_abandoned():
            try:
                async with AsyncExitStack() as held:
                    await self._open(session, held)
            except SessionBusyError:
                continue

    async def close(self) -> None:
        """End every run; all are settled when this returns."""
        for session in list(self._runs):
            await self.abort(session)

    async def _under_way(self, session: SessionID) -> Run | None:
        """The run to join. One that is being aborted is not: the next prompt waits for its end."""
        going = self._runs.get(session)
        if going is None or not going.aborted:
            return going
        await going.over.wait()
        return None

    async def _open(self, session: SessionID, held: AsyncExitStack) -> Run:
        """Take the session into our hands, and put in order what a dead run left of it."""
        kit, lease = self._kit, AsyncExitStack()
        found = await kit.store.get_session(session)
        await lease.enter_async_context(kit.store.lease(session, kit.owner))
        held.push_async_callback(lease.aclose)
        transcript = Transcript(await kit.store.list_messages(session))
        left_open = to_settle(transcript.messages(), kit.clock.now())
        if left_open:
            await kit.journal.commit(*left_open)
            transcript.feed(*left_open)
        return Run(found, transcript, lease)

    async def _admit(self, going: Run, input: PromptInput) -> MessageID:
        if input.message_id is not None and going.transcript.find(input.message_id) is not None:
            return input.message_id  # sent before: the same prompt is not asked twice
        return await admit(self._kit, going.session.id, going.transcript, input)

    def _start(self, going: Run) -> None:
        self._runs[going.session.id] = going
        self._tasks.create_task(self._go(going))

    async def _go(self, going: Run) -> None:
        journal, session = self._kit.journal, going.session.id
        going.task = asyncio.current_task()
        ending: list[Event] = []
        try:
            if not going.aborted:
                await journal.commit(StatusChanged(session_id=session, status=Busy()))
                async with open_tasks() as beside:
                    beside.create_task(name_session(self._kit, going.session, going.transcript))
                    await run(self._kit, going.session, going.transcript)
        except asyncio.CancelledError:
            if not going.aborted:
                raise
        except Exception as error:  # noqa: BLE001  whatever broke a run, the session lives on and says so
            ending.append(SessionFailed(session_id=session, error=to_failure(error)))
        finally:
            # Before anything is awaited: a prompt that is admitted from here on starts a run of its own.
            del self._runs[session]
            going.ended = True
            ending.append(StatusChanged(session_id=session, status=Idle()))
            await journal.commit(*ending, SessionRested(session_id=session))
            await going.lease.aclose()
            going.over.set()


def whole(transcript: Transcript, id: MessageID) -> MessageWithParts:
    found = transcript.find(id)
    assert found is not None, "a prompt is in the transcript it was admitted to"
    return found


def answer_to(transcript: Transcript, prompt: MessageID) -> MessageWithParts:
    """The last answer to a prompt. One that was answered along with a later prompt gets that answer."""
    history, asked = transcript.messages(), whole(transcript, prompt)
    answer = last_answer(history, asked.info) if isinstance(asked.info, UserMessage) else None
    return answer or history[-1]
