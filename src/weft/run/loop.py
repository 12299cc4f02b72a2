"""The loop of a run: do what `decide` says until it says stop."""

from weft.context.tokens import is_counted, project_tokens
from weft.errors import CompactionIneffectiveError
from weft.host.tasks import Deadline
from weft.model.failure import DeadlineFailure
from weft.model.ids import MessageID
from weft.model.message import UserMessage
from weft.model.session import Session
from weft.model.transcript import Transcript
from weft.permission.rules import to_limits
from weft.run.answer import PendingAnswer
from weft.run.children import run_subtask
from weft.run.compaction import (
    continue_after_summary,
    exceeds_context,
    find_overhead,
    prune_old_outputs,
    request_summary,
)
from weft.run.decide import (
    Compact,
    ModelStep,
    Next,
    StopRun,
    Subtask,
    decide,
    find_newest_prompt,
    find_newest_request,
)
from weft.run.failure import to_failure
from weft.run.runtime import Runtime, with_mcp_tools
from weft.run.spender import Spender
from weft.run.step import take_step

# A summary is useless if the next request is still larger than this share of what it would have been.
WORTHWHILE = 0.8


class RunLoop:
    """One run of a session, from a stored prompt until nothing is left to do.

    The history was read once, into `transcript`; from then on events are folded into it. A prompt that is admitted meanwhile
    goes into the same transcript. `seen` is the newest prompt at the last look: a newer one came too late for this run.
    """

    def __init__(self, runtime: Runtime, session: Session, transcript: Transcript) -> None:
        self._runtime = runtime
        self._session = session
        self._transcript = transcript
        self._spender = Spender(runtime, session, transcript)
        self._deadline = self._set_deadline()
        self._request: MessageID | None = None  # the newest prompt that a person wrote
        self._taken = 0  # steps for that prompt
        self._compacted_at = -1  # the number of steps at the last compaction
        self._refused: MessageID | None = None  # the prompt for which the person refused a call
        self._shrunk = False  # the last request fit only because some of the history was left out
        self._before = 0  # tokens of the next request before the compaction
        self._overhead: tuple[str, int] | None = None  # of an agent
        self.seen: MessageID | None = None

    async def run(self) -> None:
        """Run until `decide` says stop, a person refuses a call, or nothing more can be done."""
        try:
            # Here, between two turns, the provider has to read most of the conversation anew anyhow.
            await prune_old_outputs(self._runtime, self._transcript)
            while True:
                match await self._decide():
                    case StopRun():
                        return
                    case Compact(prompt=prompt):
                        before = 0 if self._shrunk else await self._project_tokens()
                        await self._make_room(prompt, before=before)
                    case Subtask() as subtask:
                        await run_subtask(self._runtime, self._transcript, subtask)
                    case ModelStep(prompt=prompt) if prompt.id == self._refused:
                        return  # the person refused a call, and has to say how to go on
                    case ModelStep() as step:
                        await self._take(step)
        finally:
            await self._spender.close()

    async def _decide(self) -> Next:
        overhead = await self._find_overhead()
        # Nothing is awaited from here on, so no prompt that comes in is overlooked.
        history = self._transcript.messages()
        prompt = find_newest_prompt(history)
        if prompt is None:
            return StopRun()
        self.seen = prompt.id
        request = find_newest_request(history)
        if request != self._request:  # a person wrote meanwhile: that is a new turn, with all its steps
            self._request, self._taken, self._compacted_at = request, 0, -1
        agent = self._runtime.agents.get(prompt.agent)
        return decide(
            history,
            taken=self._taken,
            limit=agent.steps if agent else None,
            overflows=self._shrunk or exceeds_context(self._runtime, history, prompt, overhead=overhead),
        )

    async def _take(self, step: ModelStep) -> None:
        if not step.summary:
            # A prompt or a person may have changed the rules of the session since the last step.
            self._session = await self._runtime.store.get_session(self._session.id)
            agent = self._runtime.agents.get(step.prompt.agent)
            limits = to_limits(agent, self._session) if agent else ()
            self._runtime = await with_mcp_tools(self._runtime, self._session.id, limits)
        if not await self._spender.reserve(step):
            return
        within = self._spender.limit_time(self._deadline)
        outcome = await take_step(self._runtime, self._session, self._transcript, step, within=within)
        await self._spender.settle()
        if isinstance(outcome.message.error, DeadlineFailure):
            self._deadline = self._set_deadline()  # a prompt that came in meanwhile has its own time
        if step.summary:
            if outcome.message.error is None:
                await self._continue(step.prompt)
            return
        self._taken += not outcome.overflowed  # a request that did not fit is no step
        self._shrunk = outcome.shrunk and self._runtime.compaction.auto
        self._refused = step.prompt.id if outcome.refused else None
        if outcome.overflowed and self._runtime.compaction.auto:
            await self._make_room(step.prompt, before=0)

    def _set_deadline(self) -> Deadline:
        return Deadline("turn", self._runtime.deadlines.turn, self._runtime.clock)

    # --- compaction ---

    async def _make_room(self, prompt: UserMessage, before: int) -> None:
        """Request a summary, unless one was made just now: another would not help, so the run fails.

        `before` is the size of the next request in tokens; 0 if it is unknown because a provider refused the request.
        """
        if self._compacted_at == self._taken:
            await self._give_up(prompt)
            return
        self._compacted_at, self._shrunk, self._before = self._taken, False, before
        await request_summary(self._runtime, self._session.id, self._transcript, auto=True)

    async def _continue(self, request: UserMessage) -> None:
        """Go on after a summary. If it hardly made room, fail: the next summary would not either, and the run would not end."""
        if self._before and await self._project_tokens() > self._before * WORTHWHILE:
            await self._give_up(request)
        else:
            await continue_after_summary(self._runtime, self._transcript, request)

    async def _give_up(self, prompt: UserMessage) -> None:
        failure = to_failure(CompactionIneffectiveError(prompt.session_id))
        await PendingAnswer(self._runtime, self._session, self._transcript, ModelStep(prompt)).fail(failure)

    async def _project_tokens(self) -> int:
        overhead = await self._find_overhead()
        return project_tokens(self._transcript.messages(), overhead=overhead)

    async def _find_overhead(self) -> int:
        """Return the tokens of a request besides the conversation, or 0 once a provider's count includes them."""
        history = self._transcript.messages()
        prompt = find_newest_prompt(history)
        if prompt is None or is_counted(history):
            return 0
        if self._overhead is None or self._overhead[0] != prompt.agent:
            self._overhead = (prompt.agent, await find_overhead(self._runtime, self._session, prompt))
        return self._overhead[1]
