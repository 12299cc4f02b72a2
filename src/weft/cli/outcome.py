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
from weft.model.part import ErrorState, StepFinishPart, TextPart, ToolPart, add_tokens
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
    """Collects what the outcome of a run depends on: its steps, and the failure it ended with."""

    def __init__(self) -> None:
        self.failure: AnyFailure | None = None
        self._steps: dict[PartID, StepFinishPart] = {}

    def feed(self, event: Event) -> None:
        match event:
            case MessageUpdated(info=AssistantMessage(time=time)) if time.completed is None:
                self.failure = None  # the run continued, so it recovered from the failure
            case SessionFailed(error=error) if error is not None:
                self.failure = error
            case _:
                self.feed_child(event)

    def feed_child(self, event: Event) -> None:
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
    """Return the result for a script. Cost and tokens include those of child sessions."""
    info = outcome.answer.info
    answer = info if isinstance(info, AssistantMessage) else None
    steps = list(outcome.tally.steps())
    result: dict[str, Any] = {
        "messageID": info.id,
        "status": STATUS_NAMES.get(ExitCode(outcome.code), "interrupted"),
        "exitCode": outcome.code,
        "text": get_text(outcome.answer) if answer else "",
        "finish": answer.finish if answer else None,
        "model": {"providerID": answer.provider_id, "modelID": answer.model_id} if answer else None,
        "agent": info.agent,
        "steps": len(steps),
        "cost": sum((step.cost for step in steps), Decimal(0)),
        "priced": all(step.priced for step in steps),
        "tokens": to_plain(add_tokens(step.tokens for step in steps)),
        "counted": all(step.counted for step in steps),
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
