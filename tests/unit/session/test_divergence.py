"""Where two sessions first differ."""

from typing import Any

from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage, AssistantTime, MessagePath, MessageWithParts
from weft.model.part import AnyPart, CallTime, CompletedState, TextPart, ToolPart
from weft.model.trial import Divergence
from weft.session.divergence import NO_STEP, find_divergence
from weft.session.steps import SessionStep

SESSION, MESSAGE = SessionID("ses_1"), MessageID("msg_1")
IDS: dict[str, Any] = {"session_id": SESSION, "message_id": MESSAGE}


def text_part(text: str) -> AnyPart:
    return TextPart(id=PartID("prt_1"), text=text, **IDS)


def call(output: str, **input: str) -> AnyPart:
    state = CompletedState(input=input, output=output, title="", metadata={}, time=CallTime(start=1, end=2))
    return ToolPart(id=PartID("prt_2"), call_id="call_1", tool="bash", state=state, **IDS)


def step(*parts: AnyPart, number: int = 1, root: str = "/here") -> SessionStep:
    info = AssistantMessage(
        id=MESSAGE, session_id=SESSION, time=AssistantTime(created=1), path=MessagePath(cwd=root, root=root)
    )
    return SessionStep(number=number, message=MessageWithParts(info=info, parts=parts))


def test_sessions_that_differ_only_in_paths_and_times_are_equal() -> None:
    one = [
        step(call("/here/a: 3 passed in 0.12s", command="cat /here/a")),
        step(text_part("Done at 10:11:12.")),
    ]
    other = [
        step(call("/there/a: 3 passed in 1.5s", command="cat /there/a"), root="/there"),
        step(text_part("Done at 12:00:00."), root="/there"),
    ]
    assert find_divergence(one, other) is None


def test_the_first_difference_is_named_with_both_sides() -> None:
    same = step(call("out", command="ls"))
    assert find_divergence([same, step(text_part("Yes."))], [same, step(text_part("No."))]) == Divergence(
        step=2, what="text", one="Yes.", other="No."
    )
    assert find_divergence([same], [step(call("out", command="pwd"))]) == Divergence(
        step=1, what="call", one='bash {"command":"ls"}', other='bash {"command":"pwd"}'
    )
    changed = [step(call("other", command="ls"))]
    assert find_divergence([same], changed) == Divergence(
        step=1, what="result", one="bash: out", other="bash: other"
    )
    assert find_divergence([same], changed, results=False) is None


def test_a_session_that_ends_earlier_or_changes_other_files_differs() -> None:
    same = step(call("out", command="ls"))
    assert find_divergence([same, step(text_part("Yes."))], [same]) == Divergence(
        step=2, what="end", one="Yes.", other=NO_STEP
    )
    ours, theirs = {1: frozenset({("a", "1234567890")})}, {1: frozenset({("a", "0987654321"), ("b", "")})}
    assert find_divergence([same], [same], files_of_one=ours, files_of_other=theirs) == Divergence(
        step=1, what="files", one="a (12345678)", other="a (09876543), b (removed)"
    )
