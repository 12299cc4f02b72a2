"""The exit code and the JSON result of a run, for every way in which it can end."""

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from given.conversation import SESSION, user_message
from weft.cli.exit import ExitCode
from weft.cli.outcome import RunOutcome, RunTally, to_result
from weft.cli.run_screen import TextScreen
from weft.errors import ProviderError
from weft.model.event import Event, MessageUpdated, PartUpdated, SessionFailed, SessionUpdated
from weft.model.failure import (
    AnyFailure,
    BudgetData,
    BudgetFailure,
    DeadlineData,
    DeadlineFailure,
    aborted_failure,
    unknown_failure,
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
from weft.model.session import SessionInfo, SessionTime, WeftSessionData, with_weft_data
from weft.model.spending import Ledger, Spent
from weft.run.doom import CallLoop, describe_loop
from weft.run.failure import to_failure

BUDGET = BudgetFailure(
    data=BudgetData(
        message="no more", scope="run", measure="steps", limit=Decimal(2), spent=Decimal(2), next=Decimal(1)
    )
)


def timeout_failure() -> AnyFailure:
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


def failed_call(error: str) -> ToolPart:
    state = ErrorState(input={}, error=error, time=CallTime(start=1, end=2))
    return ToolPart(
        id=PartID("prt_c"),
        session_id=SESSION,
        message_id=MessageID("A1"),
        call_id="c",
        tool="x",
        state=state,
    )


def tally(*events: Event) -> RunTally:
    made = RunTally()
    for event in events:
        made.feed(event)
    return made


def outcome(answer: MessageWithParts, *events: Event, signal: int | None = None) -> RunOutcome:
    return RunOutcome(answer=answer, tally=tally(*events), signal=signal)


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (outcome(message(text("Done."), finish="stop")), ExitCode.DONE),
        (outcome(message(error=unknown_failure("broken"))), ExitCode.FAILED),
        (outcome(message(failed_call("The user rejected permission"))), ExitCode.REFUSED),
        (outcome(message(error=BUDGET)), ExitCode.BUDGET),
        (outcome(message(error=timeout_failure())), ExitCode.TIMEOUT),
        (
            outcome(message(error=DeadlineFailure(data=DeadlineData(message="", limit="turn", seconds=1)))),
            ExitCode.TIMEOUT,
        ),
        (outcome(message(failed_call(describe_loop(CallLoop(length=1, times=3))))), ExitCode.LOOP),
        (outcome(message(error=aborted_failure())), ExitCode.INTERRUPTED),
        (outcome(message(error=aborted_failure()), signal=2), 130),
        (outcome(message(error=aborted_failure()), signal=15), 143),
        (outcome(message(text("Done."), finish="stop"), signal=15), 143),
        (outcome(message(failed_call("x"), text("", ignored=True), structured={"a": 1})), ExitCode.DONE),
        (outcome(user_message("U1", 1)), ExitCode.FAILED),
    ],
)
def test_every_outcome_has_its_exit_code(ended: RunOutcome, code: int) -> None:
    assert ended.code == code


def test_only_a_failure_without_recovery_counts() -> None:
    begun = MessageUpdated(info=replace(message().info, time=AssistantTime(created=1)))
    broke = SessionFailed(session_id=SESSION, error=unknown_failure("too long"))
    done = message(text("Done."), finish="stop")

    assert outcome(done, broke, begun).code == ExitCode.DONE
    assert outcome(done, begun, broke).code == ExitCode.FAILED


def test_the_result_adds_up_the_steps_of_the_run_and_its_children() -> None:
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

    run = tally(step("prt_1", "0.1"), step("prt_1", "0.1"))
    run.feed_child(step("prt_2", "0.02"))
    done = message(text("Well "), text("woven"), text("not this", synthetic=True), finish="stop")

    assert to_result(RunOutcome(answer=done, tally=run)) == {
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


def test_the_result_counts_titles_and_no_earlier_cost() -> None:
    def record(cost: str, until: int) -> SessionInfo:
        session = SessionInfo(id=SESSION, time=SessionTime(created=1, updated=1))
        ledger = Ledger(own=Spent(cost=Decimal(cost)), until=until)
        return with_weft_data(session, WeftSessionData(spent=ledger))

    tally = RunTally(record("7", 1))
    tally.feed(SessionUpdated(info=record("7.5", 2)))  # a message that was not recorded before
    tally.feed(SessionUpdated(info=record("7.75", 2)))  # a title
    assert (tally.spent.cost, tally.spent.steps) == (Decimal("0.25"), 0)


def test_what_an_answer_that_broke_off_used_is_unknown_and_not_zero() -> None:
    broken = message(priced=False, counted=False).info
    begun = replace(broken, time=AssistantTime(created=1), priced=True, counted=True)
    tallies = [
        tally(MessageUpdated(info=begun)),
        tally(MessageUpdated(info=begun), MessageUpdated(info=broken)),
        tally(MessageUpdated(info=broken)),  # it was there before the run, and is settled now
    ]
    assert [(each.spent.priced, each.spent.counted) for each in tallies] == [
        (False, False),
        (False, False),
        (True, True),
    ]


def test_the_result_contains_the_failure_or_the_structured_value() -> None:
    stopped = to_result(outcome(message(error=BUDGET)))
    value = to_result(outcome(message(structured=None)))

    assert (stopped["status"], stopped["error"]["name"]) == ("budget", "BudgetExceededError")
    assert (value["status"], value["structured"]) == ("done", None)


def test_a_failure_that_no_event_reported_is_printed_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    cut = message(error=unknown_failure("the run was cut short"))
    TextScreen().end(RunOutcome(answer=cut, tally=RunTally()))
    assert capsys.readouterr().err.splitlines()[0] == "error: the run was cut short"
    course = RunTally()
    course.feed(SessionFailed(session_id=SESSION, error=unknown_failure("the run was cut short")))
    TextScreen().end(RunOutcome(answer=cut, tally=course))
    assert "error:" not in capsys.readouterr().err
