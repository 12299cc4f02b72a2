"""The loop of a run: do what `decide` says until it says stop."""

from weft.context.tokens import is_counted, project_tokens
from weft.errors import CompactionIneffectiveError
from weft.host.tasks import Deadline
from weft.model.failure import DeadlineFailure
from weft.model.ids import MessageID
from weft.model.message import UserMessage, find_newest_human_prompt_id
from weft.model.session import SessionInfo
from weft.model.transcript import Transcript
from weft.permission.rules import to_rulesets
from weft.run.answer import PendingAnswer
from weft.run.compaction import (
    compute_overhead,
    continue_after_summary,
    exceeds_context,
    prune_old_outputs,
    request_summary,
)
from weft.run.decide import (
    Compact,
    ModelStep,
    NextAction,
    StopRun,
    Subtask,
    decide,
    find_newest_prompt,
)
from weft.run.failure import to_failure
from weft.run.runtime import Runtime, with_session_tools
from weft.run.spender import Spender
from weft.run.step import take_step

# A compaction failed if the next request still has more than this share of its tokens.
MAX_REMAINING_SHARE = 0.8


class RunLoop:
    """One pass over a run: from the newest prompt until `decide` says stop. A run makes another pass if a prompt came too late for this one.

    The history was read once, into `transcript`; from then on events are folded into it. A prompt that is admitted meanwhile
    goes into the same transcript. `newest_prompt` is the one that the last decision saw; a later prompt came too late for this loop.
    """

    def __init__(self, runtime: Runtime, session: SessionInfo, transcript: Transcript) -> None:
        self._runtime = runtime
        self._session = session
        self._transcript = transcript
        self._spender = Spender(runtime, session, transcript)
        self._deadline = self._make_deadline()
        self._newest_human_prompt: MessageID | None = None
        self._steps_taken = 0  # steps for that prompt
        self._compacted_at = -1  # steps taken before the last compaction
        self._refused_prompt: MessageID | None = None  # the prompt for which the person refused a call
        self._shrunk = False  # the last request fit only because some of the history was left out
        self._tokens_before = 0  # of the next request, before the last compaction; 0 if unknown
        # An agent, and the tokens of its requests besides the conversation.
        self._agent_overhead: tuple[str, int] | None = None
        self.newest_prompt: MessageID | None = None
        self.handed_over = False

    async def run(self) -> None:
        """Run until `decide` says stop, a person refuses a call, or another process is to continue (`handed_over`)."""
        try:
            # Between two turns the provider has to process most of the conversation again anyway, so pruning loses no cache here.
            await prune_old_outputs(self._runtime, self._transcript)
            while True:
                match await self._decide():
                    case StopRun():
                        return
                    case _ if self._runtime.is_draining() and self._session.parent_id is None:
                        self.handed_over = True
                        return
                    case Compact(prompt=prompt):
                        tokens_before = 0 if self._shrunk else await self._project_tokens()
                        await self._compact(prompt, tokens_before=tokens_before)
                    case Subtask() as subtask:
                        from weft.run.children import run_subtask  # noqa: PLC0415  few prompts are subtasks

                        await run_subtask(self._runtime, self._transcript, subtask)
                    case ModelStep(prompt=prompt) if prompt.id == self._refused_prompt:
                        return  # the person refused a call, and has to say how to go on
                    case ModelStep() as step:
                        await self._take_step(step)
        finally:
            await self._spender.close()

    async def _decide(self) -> NextAction:
        overhead = await self._get_overhead()
        # Nothing is awaited from here on, so no prompt that comes in is overlooked.
        history = self._transcript.messages()
        prompt = find_newest_prompt(history)
        if prompt is None:
            return StopRun()
        self.newest_prompt = prompt.id
        newest = find_newest_human_prompt_id(history)
        if newest != self._newest_human_prompt:
            # A person wrote meanwhile: that is a new turn, with all its steps.
            self._newest_human_prompt, self._steps_taken, self._compacted_at = newest, 0, -1
        agent = self._runtime.agents.get(prompt.agent)
        return decide(
            history,
            steps_taken=self._steps_taken,
            step_limit=agent.steps if agent else None,
            overflows=self._shrunk or exceeds_context(self._runtime, history, prompt, overhead=overhead),
        )

    async def _take_step(self, step: ModelStep) -> None:
        if not step.summary:
            # A prompt or a person may have changed the rules of the session since the last step.
            self._session = await self._runtime.store.get_session(self._session.id)
            agent = self._runtime.agents.get(step.prompt.agent)
            rulesets = to_rulesets(agent, self._session) if agent else ()
            self._runtime = await with_session_tools(self._runtime, self._session.id, rulesets)
        if not await self._spender.reserve(step):
            return
        within = self._spender.limit_time(self._deadline)
        outcome = await take_step(self._runtime, self._session, self._transcript, step, within=within)
        await self._spender.count()
        await self._runtime.files.store(self._session, self._transcript.messages())
        if isinstance(outcome.message.error, DeadlineFailure):
            self._deadline = self._make_deadline()  # a prompt that came in meanwhile has its own time
        if step.summary:
            if outcome.message.error is None:
                await self._continue_after_summary(step.prompt)
            return
        self._steps_taken += not outcome.overflowed  # a request that did not fit is no step
        self._shrunk = outcome.shrunk and self._runtime.compaction.auto
        self._refused_prompt = step.prompt.id if outcome.refused else None
        if outcome.overflowed and self._runtime.compaction.auto:
            await self._compact(step.prompt, tokens_before=0)

    def _make_deadline(self) -> Deadline:
        return Deadline("turn", self._runtime.deadlines.turn, self._runtime.clock)

    # --- compaction ---

    async def _compact(self, prompt: UserMessage, tokens_before: int) -> None:
        """Request a summary, unless one was made just now: another would not help, so the run fails.

        `tokens_before` is the size of the next request in tokens; 0 if it is unknown because a provider refused that request.
        """
        if self._compacted_at == self._steps_taken:
            await self._give_up(prompt)
            return
        self._compacted_at, self._shrunk, self._tokens_before = self._steps_taken, False, tokens_before
        await request_summary(self._runtime, self._session.id, self._transcript, auto=True)

    async def _continue_after_summary(self, request: UserMessage) -> None:
        """Go on after a summary. If it hardly made room, fail: the next summary would not either, and the run would not end."""
        if self._tokens_before and await self._project_tokens() > self._tokens_before * MAX_REMAINING_SHARE:
            await self._give_up(request)
        else:
            await continue_after_summary(self._runtime, self._transcript, request)

    async def _give_up(self, prompt: UserMessage) -> None:
        failure = to_failure(CompactionIneffectiveError(prompt.session_id))
        await PendingAnswer(self._runtime, self._session, self._transcript, ModelStep(prompt)).fail(failure)

    async def _project_tokens(self) -> int:
        overhead = await self._get_overhead()
        return project_tokens(self._transcript.messages(), overhead=overhead)

    async def _get_overhead(self) -> int:
        """Return the tokens of a request besides the conversation, or 0 once a provider's count includes them."""
        history = self._transcript.messages()
        prompt = find_newest_prompt(history)
        if prompt is None or is_counted(history):
            return 0
        if self._agent_overhead is None or self._agent_overhead[0] != prompt.agent:
            self._agent_overhead = (
                prompt.agent,
                await compute_overhead(self._runtime, self._session, prompt),
            )
        return self._agent_overhead[1]
