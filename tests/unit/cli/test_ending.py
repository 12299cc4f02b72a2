"""How a run ended: one test a code, and the object that says all of it."""

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from given.conversation import SESSION, asked
from weft.cli.ending import Course, Ending, to_result
from weft.cli.exit import Exit
from weft.cli.screen import Terminal
from weft.errors import ProviderError
from weft.model.event import Event, MessageUpdated, PartUpdated, SessionFailed
from weft.model.failure import (
    AnyFailure,
    BudgetData,
    BudgetFailure,
    DeadlineData,
    DeadlineFailure,
    aborted,
    unknown,
)
from weft.model.ids import MessageID, PartID
from weft.model.message import AssistantMessage, AssistantTime, MessageWithParts
from weft.model.part import (
    CacheTokens,
    CallTime,
    ErrorState,
    StepFinishPart,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.run.doom import Doom, hint
from weft.run.failure import to_failure

BUDGET = BudgetFailure(
    data=BudgetData(
        message="no more", scope="run", measure="steps", limit=Decimal(2), spent=Decimal(2), next=Decimal(1)
    )
)


def slow() -> AnyFailure:
    error = ProviderError("no answer", retryable=True)
    error.kind = "timeout"
    return to_failure(error)


def message(*parts: Any, **more: Any) -> MessageWithParts:
    info = AssistantMessage(
        id=MessageID("A1"),
        session_id=SESSION,
        time=AssistantTime(created=1, completed=2),
        provider_id="p",
        model_id="m",
        agent="build",
        **more,
    )
    return MessageWithParts(info=info, parts=parts)


def text(words: str, **more: Any) -> TextPart:
    return TextPart(
        id=PartID(f"prt_{words}"), session_id=SESSION, message_id=MessageID("A1"), text=words, **more
    )


def failed(error: str) -> ToolPart:
    state = ErrorState(input={}, error=error, time=CallTime(start=1, end=2))
    return ToolPart(
        id=PartID("prt_c"),
        session_id=SESSION,
        message_id=MessageID("A1"),
        call_id="c",
        tool="x",
        state=state,
    )


def course(*events: Event) -> Course:
    made = Course()
    for event in events:
        made.feed(event)
    return made


def ending(answer: MessageWithParts, *events: Event, signal: int | None = None) -> Ending:
    return Ending(answer=answer, course=course(*events), signal=signal)


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (ending(message(text("Done."), finish="stop")), Exit.DONE),
        (ending(message(error=unknown("broken"))), Exit.FAILED),
        (ending(message(failed("The user rejected permission"))), Exit.REFUSED),
        (ending(message(error=BUDGET)), Exit.BUDGET),
        (ending(message(error=slow())), Exit.TIMEOUT),
        (
            ending(message(error=DeadlineFailure(data=DeadlineData(message="", limit="turn", seconds=1)))),
            Exit.TIMEOUT,
        ),
        (ending(message(failed(hint(Doom(length=1, times=3))))), Exit.LOOP),
        (ending(message(error=aborted())), Exit.INTERRUPTED),
        (ending(message(error=aborted()), signal=2), 130),
        (ending(message(error=aborted()), signal=15), 143),
        (ending(message(text("Done."), finish="stop"), signal=15), 143),
        (ending(message(failed("x"), text("", ignored=True), structured={"a": 1})), Exit.DONE),
        (ending(asked("U1", 1)), Exit.FAILED),
    ],
)
def test_a_code_for_every_way_to_end(ended: Ending, code: int) -> None:
    assert ended.code == code


def test_what_was_got_over_is_no_failure_and_what_was_not_is_one() -> None:
    begun = MessageUpdated(info=replace(message().info, time=AssistantTime(created=1)))
    broke = SessionFailed(session_id=SESSION, error=unknown("too long"))
    done = message(text("Done."), finish="stop")

    assert ending(done, broke, begun).code == Exit.DONE
    assert ending(done, begun, broke).code == Exit.FAILED


def test_the_result_says_all_of_it() -> None:
    def step(id: str, cost: str) -> PartUpdated:
        return PartUpdated(
            part=StepFinishPart(
                id=PartID(id),
                session_id=SESSION,
                message_id=MessageID("A1"),
                reason="stop",
                cost=Decimal(cost),
                tokens=Tokens(input=10, output=2, reasoning=1, cache=CacheTokens(read=3, write=4)),
            )
        )

    run = course(step("prt_1", "0.1"), step("prt_1", "0.1"))
    run.feed_below(step("prt_2", "0.02"))
    done = message(text("Well "), text("woven"), text("not this", synthetic=True), finish="stop")

    assert to_result(Ending(answer=done, course=run)) == {
        "messageID": "A1",
        "status": "done",
        "exitCode": 0,
        "text": "Well woven",
        "finish": "stop",
        "model": {"providerID": "p", "modelID": "m"},
        "agent": "build",
        "steps": 2,
        "cost": Decimal("0.12"),
        "priced": True,
        "tokens": {"input": 20, "output": 4, "reasoning": 2, "cache": {"read": 6, "write": 8}},
        "counted": True,
    }


def test_the_result_of_a_failure_and_of_a_value_says_so() -> None:
    stopped = to_result(ending(message(error=BUDGET)))
    value = to_result(ending(message(structured=None)))

    assert (stopped["status"], stopped["error"]["name"]) == ("budget", "BudgetExceededError")
    assert (value["status"], value["structured"]) == ("done", None)


def test_a_failure_that_no_event_told_of_is_said_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    cut = message(error=unknown("the run was cut short"))
    Terminal().end(Ending(answer=cut, course=Course()))
    assert capsys.readouterr().err.splitlines()[0] == "error: the run was cut short"
    course = Course()
    course.feed(SessionFailed(session_id=SESSION, error=unknown("the run was cut short")))
    Terminal().end(Ending(answer=cut, course=course))
    assert "error:" not in capsys.readouterr().err
