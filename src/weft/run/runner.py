"""The runner: one run per session; start it, join it, abort it, wait for it."""

import asyncio

from weft.model.event import Event, SessionFailed, SessionRested, StatusChanged
from weft.model.ids import MessageID, SessionID
from weft.model.input import PromptInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.session import Session
from weft.model.status import Busy, Idle
from weft.model.transcript import Transcript
from weft.run.admit import admit
from weft.run.decide import last_answer
from weft.run.failure import to_failure
from weft.run.kit import Kit
from weft.run.loop import run


class Run:
    """A run under way. Prompts that come in meanwhile are fed to its transcript."""

    def __init__(self, session: Session, transcript: Transcript) -> None:
        self.session = session
        self.transcript = transcript
        self.aborted = False
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
        async with self._doors.setdefault(session, asyncio.Lock()):
            transcript = await self._transcript(session)
            prompt = await self._admit(session, transcript, input)
            if input.no_reply:
                return self._whole(transcript, prompt)
            going = self._runs.get(session)
            if going is None or going.aborted:
                going = await self._start(session, transcript, after=going)
        await going.over.wait()
        return self._answer(going.transcript, prompt)

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

    async def close(self) -> None:
        """End every run; all are settled when this returns."""
        for session in list(self._runs):
            await self.abort(session)

    async def _transcript(self, session: SessionID) -> Transcript:
        """What is known of a session: the running one's own, or read from the store."""
        going = self._runs.get(session)
        if going is not None:
            return going.transcript
        await self._kit.store.get_session(session)
        return Transcript(await self._kit.store.list_messages(session))

    async def _admit(self, session: SessionID, transcript: Transcript, input: PromptInput) -> MessageID:
        if input.message_id is not None and transcript.find(input.message_id) is not None:
            return input.message_id  # sent before: the same prompt is not asked twice
        return await admit(self._kit, session, transcript, input)

    async def _start(self, session: SessionID, transcript: Transcript, *, after: Run | None) -> Run:
        if after is not None:
            await after.over.wait()
        going = Run(await self._kit.store.get_session(session), transcript)
        self._runs[session] = going
        self._tasks.create_task(self._go(going))
        return going

    async def _go(self, going: Run) -> None:
        journal, session = self._kit.journal, going.session.id
        going.task = asyncio.current_task()
        ending: list[Event] = []
        try:
            if not going.aborted:
                await journal.commit(StatusChanged(session_id=session, status=Busy()))
                await run(self._kit, going.session, going.transcript)
        except asyncio.CancelledError:
            if not going.aborted:
                raise
        except Exception as error:  # noqa: BLE001  whatever broke a run, the session lives on and says so
            ending.append(SessionFailed(session_id=session, error=to_failure(error)))
        finally:
            # Before anything is awaited: a prompt that is admitted from here on starts a run of its own.
            del self._runs[session]
            ending.append(StatusChanged(session_id=session, status=Idle()))
            await journal.commit(*ending, SessionRested(session_id=session))
            going.over.set()

    def _whole(self, transcript: Transcript, id: MessageID) -> MessageWithParts:
        found = transcript.find(id)
        assert found is not None, "a prompt is in the transcript it was admitted to"
        return found

    def _answer(self, transcript: Transcript, prompt: MessageID) -> MessageWithParts:
        """The last answer to a prompt. One that was answered along with a later prompt gets that answer."""
        history = transcript.messages()
        asked = self._whole(transcript, prompt)
        answer = last_answer(history, asked.info) if isinstance(asked.info, UserMessage) else None
        return answer or history[-1]
