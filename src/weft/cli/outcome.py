"""How a run ended: its exit code, and its result as one JSON object (pure)."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from msgspec import UNSET, Struct

from weft.cli.exit import ExitCode
from weft.model.event import Event, MessageUpdated, PartUpdated, SessionFailed
from weft.model.failure import (
    AbortedFailure,
    AnyFailure,
    ApiFailure,
    BudgetFailure,
    DeadlineFailure,
)
from weft.model.ids import PartID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import CacheTokens, ErrorState, StepFinishPart, TextPart, Tokens, ToolPart
from weft.model.wire import to_plain
from weft.run.doom import BLOCKED_PREFIX

STATUS = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "failed",
    ExitCode.REFUSED: "refused",
    ExitCode.BUDGET: "budget",
    ExitCode.TIMEOUT: "timeout",
    ExitCode.LOOP: "loop",
}


class RunTally:
    """Collects what the outcome of a run depends on: its steps, and the failure it ended with."""

    def __init__(self) -> None:
        self.failure: AnyFailure | None = None
        self._steps: dict[PartID, StepFinishPart] = {}

    def feed(self, event: Event) -> None:
        match event:
            case MessageUpdated(info=AssistantMessage(time=time)) if time.completed is None:
                self.failure = None  # the run went on, so it recovered from the failure before
            case SessionFailed(error=error) if error is not None:
                self.failure = error
            case _:
                self.feed_below(event)

    def feed_below(self, event: Event) -> None:
        """Count the steps of a child session. Its failures do not fail this run."""
        match event:
            case PartUpdated(part=StepFinishPart() as part):
                self._steps[part.id] = part
            case _:
                pass

    def steps(self) -> Iterable[StepFinishPart]:
        return self._steps.values()


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
        return to_failure_code(self.error) if self.signal is None and self.error else self._quiet_code()

    def _quiet_code(self) -> int:
        """Return the exit code of a run that did not fail: by its signal, or by what it left undone."""
        if self.signal is not None:
            return 128 + self.signal
        if not isinstance(self.answer.info, AssistantMessage):
            return ExitCode.FAILED  # no model answered
        # An answer that ends in tool calls is not the last one. The results of the calls kept the run from going on.
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
    """Return the result for a script. Cost and tokens include those of child sessions."""
    info = outcome.answer.info
    answered = info if isinstance(info, AssistantMessage) else None
    steps = list(outcome.tally.steps())
    result: dict[str, Any] = {
        "messageID": info.id,
        "status": STATUS.get(ExitCode(outcome.code), "interrupted"),
        "exitCode": outcome.code,
        "text": get_text(outcome.answer) if answered else "",
        "finish": answered.finish if answered else None,
        "model": {"providerID": answered.provider_id, "modelID": answered.model_id} if answered else None,
        "agent": info.agent,
        "steps": len(steps),
        "cost": sum((step.cost for step in steps), Decimal(0)),
        "priced": all(step.priced for step in steps),
        "tokens": to_plain(_add_tokens(steps)),
        "counted": all(step.counted for step in steps),
    }
    if answered and answered.structured is not UNSET:
        result["structured"] = answered.structured
    if outcome.error is not None:
        result["error"] = to_plain(outcome.error)
    return result


def get_text(answer: MessageWithParts) -> str:
    return "".join(
        part.text
        for part in answer.parts
        if isinstance(part, TextPart) and not part.synthetic and not part.ignored
    )


def _add_tokens(steps: Iterable[StepFinishPart]) -> Tokens:
    counted = [step.tokens for step in steps]
    return Tokens(
        input=sum(each.input for each in counted),
        output=sum(each.output for each in counted),
        reasoning=sum(each.reasoning for each in counted),
        cache=CacheTokens(
            read=sum(each.cache.read for each in counted), write=sum(each.cache.write for each in counted)
        ),
    )
