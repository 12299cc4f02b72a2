"""Tool calls as an editor shows them."""

import pytest

from weft.acp.tool_calls import EditorToolCall, to_text_content
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.part import AnyToolState, CallTime, CompletedState, ErrorState, ToolPart

TIME = CallTime(start=1, end=2)
NOTES = "no\n\n\n<bash_metadata>\nexit code 3\n</bash_metadata>"


def call(tool: str, state: AnyToolState) -> EditorToolCall:
    part = ToolPart(
        id=PartID("prt_1"),
        session_id=SessionID("ses_1"),
        message_id=MessageID("msg_1"),
        call_id="c",
        tool=tool,
        state=state,
    )
    return EditorToolCall(part=part, directory="/work")


def completed_call(name: str, output: str, **input: str) -> EditorToolCall:
    return call(
        name, CompletedState(input=input, output=output, title="Invalid Tool", metadata={}, time=TIME)
    )


@pytest.mark.parametrize(
    "shown", [completed_call("bash", NOTES), call("bash", ErrorState(input={}, error=NOTES, time=TIME))]
)
def test_tags_for_the_model_are_removed_from_an_output(shown: EditorToolCall) -> None:
    assert shown.content() == [to_text_content("no\n(exit code 3)")]


def test_an_invalid_call_is_titled_with_the_tool_that_was_meant() -> None:
    assert completed_call("invalid", "…", tool="rread", error="there is no tool 'rread'").title() == (
        "Rread there is no tool 'rread'"
    )
