"""How a run ended: its exit code, and the one object that says all of it (pure)."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from msgspec import UNSET, Struct

from weft.cli.exit import Exit
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
from weft.run.doom import BLOCKED

STATUS = {
    Exit.DONE: "done",
    Exit.FAILED: "failed",
    Exit.REFUSED: "refused",
    Exit.BUDGET: "budget",
    Exit.TIMEOUT: "timeout",
    Exit.LOOP: "loop",
}


class Course:
    """What happened in a run that its ending depends on: what it took, and what it failed of at last."""

    def __init__(self) -> None:
        self.failure: AnyFailure | None = None
        self._steps: dict[PartID, StepFinishPart] = {}

    def feed(self, event: Event) -> None:
        match event:
            case MessageUpdated(info=AssistantMessage(time=time)) if time.completed is None:
                self.failure = None  # it went on: what failed before was got over
            case SessionFailed(error=error) if error is not None:
                self.failure = error
            case _:
                self.feed_below(event)

    def feed_below(self, event: Event) -> None:
        """A child's failures are its own; what it took is on our bill."""
        match event:
            case PartUpdated(part=StepFinishPart() as part):
                self._steps[part.id] = part
            case _:
                pass

    def steps(self) -> Iterable[StepFinishPart]:
        return self._steps.values()


class Ending(Struct, frozen=True, kw_only=True):
    """`signal` is the number of the one that ended it, if one did."""

    answer: MessageWithParts
    course: Course
    signal: int | None = None

    @property
    def error(self) -> AnyFailure | None:
        info = self.answer.info
        return (info.error if isinstance(info, AssistantMessage) else None) or self.course.failure

    @property
    def code(self) -> int:
        return code_of(self.error) if self.signal is None and self.error else self._quiet_code()

    def _quiet_code(self) -> int:
        """Without a failure: by a signal, or by what the run left undone."""
        if self.signal is not None:
            return 128 + self.signal
        if not isinstance(self.answer.info, AssistantMessage):
            return Exit.FAILED  # nobody answered
        # An answer that ends in calls was not the last word: what came of them kept it from going on.
        calls = [part for part in self.answer.parts if isinstance(part, ToolPart)]
        if not calls or self.answer.info.structured is not UNSET:
            return Exit.DONE
        errors = [part.state.error for part in calls if isinstance(part.state, ErrorState)]
        looped = any(error.startswith(BLOCKED) for error in errors)
        return Exit.LOOP if looped else Exit.REFUSED


def code_of(failure: AnyFailure) -> Exit:
    match failure:
        case AbortedFailure():
            return Exit.INTERRUPTED
        case BudgetFailure():
            return Exit.BUDGET
        case DeadlineFailure():
            return Exit.TIMEOUT
        case ApiFailure(data=data) if (data.metadata or {}).get("kind") == "timeout":
            return Exit.TIMEOUT
        case _:
            return Exit.FAILED


def to_result(ending: Ending) -> dict[str, Any]:
    """All of it for a script. Cost and tokens are those of the whole run, children included."""
    info = ending.answer.info
    answered = info if isinstance(info, AssistantMessage) else None
    steps = list(ending.course.steps())
    result: dict[str, Any] = {
        "messageID": info.id,
        "status": STATUS.get(Exit(ending.code), "interrupted"),
        "exitCode": ending.code,
        "text": words_of(ending.answer) if answered else "",
        "finish": answered.finish if answered else None,
        "model": {"providerID": answered.provider_id, "modelID": answered.model_id} if answered else None,
        "agent": info.agent,
        "steps": len(steps),
        "cost": sum((step.cost for step in steps), Decimal(0)),
        "priced": all(step.priced for step in steps),
        "tokens": to_plain(_tokens(steps)),
        "counted": all(step.counted for step in steps),
    }
    if answered and answered.structured is not UNSET:
        result["structured"] = answered.structured
    if ending.error is not None:
        result["error"] = to_plain(ending.error)
    return result


def words_of(answer: MessageWithParts) -> str:
    return "".join(
        part.text
        for part in answer.parts
        if isinstance(part, TextPart) and not part.synthetic and not part.ignored
    )


def _tokens(steps: Iterable[StepFinishPart]) -> Tokens:
    counted = [step.tokens for step in steps]
    return Tokens(
        input=sum(each.input for each in counted),
        output=sum(each.output for each in counted),
        reasoning=sum(each.reasoning for each in counted),
        cache=CacheTokens(
            read=sum(each.cache.read for each in counted), write=sum(each.cache.write for each in counted)
        ),
    )
