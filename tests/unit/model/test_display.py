"""How a call is shown to a person: its name and result, without the tags that are for the model."""

import pytest

from weft.model.display import (
    MAX_OUTPUT_LINES,
    find_call_error,
    format_count,
    get_called_tool,
    make_call_title,
    shorten,
    strip_tags,
)
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.part import AnyToolState, CallTime, CompletedState, ErrorState, ToolPart


@pytest.mark.parametrize(
    ("tool", "output", "shown"),
    [
        ("bash", "no\n\n\n<bash_metadata>\nexit code 3\n</bash_metadata>", "no\n(exit code 3)"),
        ("bash", "\n\n<bash_metadata>\na\nb\n</bash_metadata>", "(a; b)"),
        ("bash", "x\n\n<metadata>\nexit code 1\n</metadata>", "x\n(exit code 1)"),
        ("bash", "<file>\n<bash_metadata>\nhi\n", "<file>\n<bash_metadata>\nhi\n"),
        ("task", "found it\n\n<task_metadata>\nsession_id: ses_1\n</task_metadata>", "found it"),
        ("read", "<file>\n00001| <file>\n</file>", "00001| <file>"),
        (
            "read",
            "<file>\n00001| a\n</file>\n\n<system-reminder>\nmind\n</system-reminder>",
            "00001| a",
        ),
        (
            "edit",
            'Done.\n<diagnostics file="a.py">\nERROR [1:1] no\n</diagnostics>',
            "Done.\na.py:\nERROR [1:1] no",
        ),
        ("grep", "<file>\n</file>", "<file>\n</file>"),
    ],
)
def test_tags_of_a_tool_are_not_shown(tool: str, output: str, shown: str) -> None:
    assert strip_tags(tool, output) == shown


def call(tool: str, state: AnyToolState) -> ToolPart:
    return ToolPart(
        id=PartID("prt_1"),
        session_id=SessionID("ses_1"),
        message_id=MessageID("msg_1"),
        call_id="c",
        tool=tool,
        state=state,
    )


def test_an_invalid_call_is_shown_as_a_failed_call_of_the_tool_that_was_meant() -> None:
    time = CallTime(start=1, end=2)
    given = {"tool": "rread", "error": "there is no tool 'rread'"}
    invalid = call(
        "invalid", CompletedState(input=given, output="…", title="Invalid Tool", metadata={}, time=time)
    )
    assert (get_called_tool(invalid), find_call_error(invalid)) == (
        "rread",
        "there is no tool 'rread'",
    )
    done = call("read", CompletedState(input={}, output="x", title="a", metadata={}, time=time))
    failed = call("read", ErrorState(input={}, error="no", time=time))
    assert [(get_called_tool(each), find_call_error(each)) for each in (done, failed)] == [
        ("read", None),
        ("read", "no"),
    ]


def test_counts_are_singular_or_plural() -> None:
    assert [format_count(number, "file") for number in (0, 1, 2, 1200)] == [
        "0 files",
        "1 file",
        "2 files",
        "1,200 files",
    ]
    assert format_count(1, "session is", "sessions are") == "1 session is"


def test_a_call_that_asks_is_called_by_its_first_question() -> None:
    questions = [{"question": "Which colour?", "header": "Colour"}, {"question": "Why?"}]
    assert make_call_title({"questions": questions}) == "Which colour?"
    assert make_call_title({"questions": []}) == '{"questions": []}'


def test_a_long_output_ends_with_the_number_of_lines_left_out() -> None:
    assert shorten("a\n" * MAX_OUTPUT_LINES) == "\n".join("a" * MAX_OUTPUT_LINES)
    assert shorten("a\n" * (MAX_OUTPUT_LINES + 1)).splitlines()[MAX_OUTPUT_LINES:] == ["… 1 more line"]
    assert shorten("a\n" * (MAX_OUTPUT_LINES + 2)).splitlines()[MAX_OUTPUT_LINES:] == ["… 2 more lines"]
