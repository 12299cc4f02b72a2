"""How a run ended: its exit code, and its result as one JSON object (pure)."""

from typing import Any

from msgspec import UNSET, Struct

from weft.cli.exit import ExitCode
from weft.model.event import Event, MessageUpdated, PartUpdated, SessionCreated, SessionFailed, SessionUpdated
from weft.model.failure import (
    AbortedFailure,
    AnyFailure,
    ApiFailure,
    BudgetFailure,
    DeadlineFailure,
)
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import CacheTokens, ErrorState, StepFinishPart, TextPart, Tokens, ToolPart
from weft.model.session import SessionInfo, get_ledger
from weft.model.spending import RunSpending, Spent
from weft.model.wire import to_plain
from weft.run.doom import BLOCKED_PREFIX

STATUS_NAMES = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "failed",
    ExitCode.REFUSED: "refused",
    ExitCode.BUDGET: "budget",
    ExitCode.TIMEOUT: "timeout",
    ExitCode.LOOP: "loop",
}


class RunTally:
    """Collects what the outcome of a run depends on: what it spent, and the failure it ended with.

    `session` is as it is before the run, and then follows the events.
    """

    def __init__(self, session: SessionInfo | None = None) -> None:
        self.session = session
        self.failure: AnyFailure | None = None
        self._spending = RunSpending()
        if session is not None:
            self._spending.record(session.id, get_ledger(session))

    def feed(self, event: Event) -> None:
        match event:
            case MessageUpdated(info=AssistantMessage(time=time)) if time.completed is None:
                self.failure = None  # the run continued, so it recovered from the failure
                self.feed_child(event)
            case SessionFailed(error=error) if error is not None:
                self.failure = error
            case SessionUpdated(info=info):
                self.session = info
                self.feed_child(event)
            case _:
                self.feed_child(event)

    def feed_child(self, event: Event) -> None:
        """Count what a child session spends. Its failures do not fail this run."""
        match event:
            case PartUpdated(part=StepFinishPart() as part):
                self._spending.count(part)
            case MessageUpdated(info=AssistantMessage() as answer):
                self._spending.follow(answer.id, answer, is_open=answer.time.completed is None)
            case SessionCreated(info=info) | SessionUpdated(info=info):
                self._spending.record(info.id, get_ledger(info))
            case _:
                pass

    @property
    def spent(self) -> Spent:
        """What the run has spent, with its child sessions and the requests for titles."""
        return self._spending.total()


class RunOutcome(Struct, frozen=True, kw_only=True):
    """How a run ended. `signal` is the number of the signal that ended it, if one did."""

    answer: MessageWithParts
    tally: RunTally
    signal: int | None = None

    @property
    def error(self) -> AnyFailure | None:
        info = self.answer.info
        return (info.error if isinstance(info, AssistantMessage) else None) or self.tally.failure

    @property
    def code(self) -> int:
        return (
            to_failure_code(self.error)
            if self.signal is None and self.error
            else self._get_code_without_error()
        )

    def _get_code_without_error(self) -> int:
        """Return the exit code of a run that a signal ended, or that has no error: its last calls show why it stopped."""
        if self.signal is not None:
            return 128 + self.signal
        if not isinstance(self.answer.info, AssistantMessage):
            return ExitCode.FAILED  # no model answered
        # A run ends with an answer without tool calls, unless the result of a call stopped it.
        calls = [part for part in self.answer.parts if isinstance(part, ToolPart)]
        if not calls or self.answer.info.structured is not UNSET:
            return ExitCode.DONE
        errors = [part.state.error for part in calls if isinstance(part.state, ErrorState)]
        looped = any(error.startswith(BLOCKED_PREFIX) for error in errors)
        return ExitCode.LOOP if looped else ExitCode.REFUSED


def to_failure_code(failure: AnyFailure) -> ExitCode:
    match failure:
        case AbortedFailure():
            return ExitCode.INTERRUPTED
        case BudgetFailure():
            return ExitCode.BUDGET
        case DeadlineFailure():
            return ExitCode.TIMEOUT
        case ApiFailure(data=data) if (data.metadata or {}).get("kind") == "timeout":
            return ExitCode.TIMEOUT
        case _:
            return ExitCode.FAILED


def to_result(outcome: RunOutcome) -> dict[str, Any]:
    """Return the result for a script. Cost and tokens include those of child sessions and titles."""
    info = outcome.answer.info
    answer = info if isinstance(info, AssistantMessage) else None
    spent = outcome.tally.spent
    cache = CacheTokens(read=spent.cache_read, write=spent.cache_write)
    result: dict[str, Any] = {
        "messageID": info.id,
        "status": STATUS_NAMES.get(ExitCode(outcome.code), "interrupted"),
        "exitCode": outcome.code,
        "text": get_text(outcome.answer) if answer else "",
        "finish": answer.finish if answer else None,
        "model": {"providerID": answer.provider_id, "modelID": answer.model_id} if answer else None,
        "agent": info.agent,
        "steps": spent.steps,
        "cost": spent.cost,
        "priced": spent.priced,
        "tokens": to_plain(
            Tokens(input=spent.input, output=spent.output, reasoning=spent.reasoning, cache=cache)
        ),
        "counted": spent.counted,
    }
    if answer and answer.structured is not UNSET:
        result["structured"] = answer.structured
    if outcome.error is not None:
        result["error"] = to_plain(outcome.error)
    return result


def get_text(answer: MessageWithParts) -> str:
    return "".join(
        part.text
        for part in answer.parts
        if isinstance(part, TextPart) and not part.synthetic and not part.ignored
    )
