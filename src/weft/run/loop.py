"""The loop: until decide says stop, take a step."""

from functools import partial

from weft.context.tokens import is_counted, projected
from weft.errors import CompactionIneffectiveError
from weft.host.tasks import Deadline
from weft.model.failure import DeadlineFailure
from weft.model.ids import MessageID
from weft.model.message import UserMessage
from weft.model.session import Session
from weft.model.transcript import Transcript
from weft.permission.rules import limits_for
from weft.run.answer import Answer
from weft.run.children import run_subtask
from weft.run.compaction import ask_for_summary, forget_old_outputs, go_on, is_crowded, overhead_in
from weft.run.decide import Compact, Next, Step, Stop, Subtask, decide, newest_prompt, newest_request
from weft.run.failure import to_failure
from weft.run.kit import Kit, joined
from weft.run.spending import Spender
from weft.run.step import take_step

# A summary that leaves more than this of what was there was not worth it.
WORTHWHILE = 0.8


async def run(kit: Kit, session: Session, transcript: Transcript) -> MessageID | None:
    """One run, from a stored prompt to idle. The history was read once; from then on it is folded from events.

    A prompt that is admitted meanwhile goes into the same transcript. Gives the newest one there was at the last look:
    if there is a newer one by the time that whoever called this is done, it came too late for this run.
    """
    spender = Spender(kit, session, transcript)
    loop = _Loop(kit, session, transcript, spender)
    try:
        await loop.run()
    finally:
        await spender.close()
    return loop.seen


class _Loop:
    """A run under way: how many steps it took, and what ends it."""

    def __init__(self, kit: Kit, session: Session, transcript: Transcript, spender: Spender) -> None:
        self._kit = kit
        self._session = session
        self._transcript = transcript
        self._spender = spender
        self.seen: MessageID | None = None
        self._asked: MessageID | None = None
        self._taken = 0
        self._compacted_at = -1
        self._refused: MessageID | None = None
        self._squeezed = False
        self._before = 0
        self._overhead: tuple[str, int] | None = None
        self._deadline = self._set_deadline()

    async def run(self) -> None:
        # Between turns, where the model's cache of the conversation has to give way anyhow.
        await forget_old_outputs(self._kit, self._transcript)
        while True:
            match await self._next():
                case Stop():
                    return
                case Compact(prompt=prompt):
                    known = 0 if self._squeezed else self._projected(await self._weigh_overhead())
                    await self._make_room(prompt, before=known)
                case Subtask() as subtask:
                    await run_subtask(self._kit, self._transcript, subtask)
                case Step(prompt=prompt) if prompt.id == self._refused:
                    return  # the person said no: it is for them to say what next
                case Step() as step:
                    await self._take(step)

    async def _next(self) -> Next:
        # Before the last look: from there on nothing is awaited, so that no prompt is overlooked.
        overhead = await self._weigh_overhead()
        history = self._transcript.messages()
        prompt = newest_prompt(history)
        if prompt is None:
            return Stop()
        self._turn_to(prompt, newest_request(history))
        agent = self._kit.agents.get(prompt.agent)
        return decide(
            history,
            taken=self._taken,
            limit=agent.steps if agent else None,
            crowded=self._squeezed or is_crowded(self._kit, history, prompt, overhead=overhead),
        )

    async def _weigh_overhead(self) -> int:
        """What a request holds beside the conversation. Once a provider has counted one, that is in its count."""
        history = self._transcript.messages()
        prompt = newest_prompt(history)
        if prompt is None or is_counted(history):
            return 0
        if self._overhead is None or self._overhead[0] != prompt.agent:
            weight = await overhead_in(self._kit, self._session, prompt)
            self._overhead = (prompt.agent, weight)
        return self._overhead[1]

    def _turn_to(self, prompt: UserMessage, asked: MessageID | None) -> None:
        """What a person asks meanwhile is a turn of its own: the agent has all its steps for it."""
        self.seen = prompt.id
        if asked != self._asked:
            self._asked, self._taken, self._compacted_at = asked, 0, -1

    async def _take(self, step: Step) -> None:
        if not step.summary:
            # A prompt or a person may have changed the rules of the session since the last step.
            self._session = await self._kit.store.get_session(self._session.id)
            agent = self._kit.agents.get(step.prompt.agent)
            limits = limits_for(agent, self._session) if agent else ()
            self._kit = await joined(self._kit, self._session.id, limits)
        take = partial(take_step, self._kit, self._session, self._transcript, step)
        outcome = await self._spender.take(step, take, self._deadline)
        if outcome is None:
            return  # a budget is used up: that is this step's answer, and it is for the person to give more
        if isinstance(outcome.message.error, DeadlineFailure):
            self._deadline = self._set_deadline()  # a prompt that came in meanwhile is a turn of its own
        if step.summary:
            if outcome.message.error is None:
                await self._go_on(step.prompt)
            return
        self._taken += not outcome.overflowed  # one that did not fit was none
        self._squeezed = outcome.squeezed and self._kit.compaction.auto
        self._refused = step.prompt.id if outcome.refused else None
        if outcome.overflowed and self._kit.compaction.auto:
            await self._make_room(step.prompt, before=0)

    def _set_deadline(self) -> Deadline:
        return Deadline("turn", self._kit.deadlines.turn, self._kit.clock)

    async def _go_on(self, request: UserMessage) -> None:
        """The summary stands. If it hardly made room, the next would not either: better to end than to turn in a circle."""
        after = self._projected(await self._weigh_overhead())
        if self._before and after > self._before * WORTHWHILE:
            await self._give_up(request)
        else:
            await go_on(self._kit, self._transcript, request)

    def _projected(self, overhead: int) -> int:
        return projected(self._transcript.messages(), overhead=overhead)

    async def _make_room(self, prompt: UserMessage, before: int) -> None:
        """Ask for a summary; but if one has just been made and there is still no room, another will not help.

        `before` is how large the next request would be; 0 when a provider said it was too large, and we do not know.
        """
        if self._compacted_at == self._taken:
            await self._give_up(prompt)
            return
        self._compacted_at, self._squeezed, self._before = self._taken, False, before
        await ask_for_summary(self._kit, self._session.id, self._transcript, auto=True)

    async def _give_up(self, prompt: UserMessage) -> None:
        failure = to_failure(CompactionIneffectiveError(prompt.session_id))
        await Answer(self._kit, self._session, self._transcript, Step(prompt)).fail(failure)
