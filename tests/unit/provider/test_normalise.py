"""Any conversation made one that every API takes."""

import base64

import pytest
from msgspec.structs import replace

from given.models import BLIND, CLAUDE, GPT, LOCAL, ROUTED
from weft.model.catalog import Model
from weft.provider.cache_points import message_marks, system_marks, wants_marks
from weft.provider.contract import (
    AssistantTurn,
    CallContent,
    FileContent,
    ResultContent,
    TextContent,
    ToolTurn,
    UserTurn,
)
from weft.provider.media import EMPTY_IMAGE, Data, MediaLimits, show_files, to_data
from weft.provider.normalise import (
    GO_ON,
    INTERRUPTED,
    claude_id,
    ends_with_question,
    metadata_key,
    mistral_id,
    own_metadata,
    pair_calls,
    short_id,
    tool_name,
)

HELLO = UserTurn(content=(TextContent(text="hello"),))
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x23\x28\x00\x00\x00\x10rest").decode()


def call(id: str) -> CallContent:
    return CallContent(call_id=id, tool="read", input={})


def result(id: str, output: str = "ok", **more: object) -> ResultContent:
    return ResultContent(call_id=id, tool="read", output=output, **more)


def test_a_call_without_a_result_was_interrupted() -> None:
    turn = AssistantTurn(content=(call("a"), call("b")))
    assert pair_calls([HELLO, turn, ToolTurn(content=(result("b"),)), HELLO]) == [
        HELLO,
        turn,
        ToolTurn(content=(result("a", INTERRUPTED, error=True), result("b"))),
        HELLO,
    ]


def test_a_result_without_a_call_is_left_out() -> None:
    orphan = ToolTurn(content=(result("a"),))
    assert pair_calls([orphan, HELLO, orphan, UserTurn(content=()), AssistantTurn(content=())]) == [HELLO]


def test_ids_that_repeat_are_told_apart_in_order() -> None:
    turns = [
        AssistantTurn(content=(call("a"), call("a"))),
        ToolTurn(content=(result("a", "1"), result("a", "2"))),
        AssistantTurn(content=(call("a"),)),
        ToolTurn(content=(result("a", "3"),)),
    ]
    assert pair_calls(turns) == [
        AssistantTurn(content=(call("a"), call("a_2"))),
        ToolTurn(content=(result("a", "1"), result("a_2", "2"))),
        AssistantTurn(content=(call("a_3"),)),
        ToolTurn(content=(result("a_3", "3"),)),
    ]


def test_ids_cut_to_the_same_are_told_apart() -> None:
    ids = [f"call_123456789{letter}" for letter in "abc"]
    [turn, results] = pair_calls([AssistantTurn(content=tuple(call(id) for id in ids))], mistral_id)
    named = [item.call_id for item in turn.content if isinstance(item, CallContent)]
    assert (len(set(named)), {len(name) for name in named}) == (3, {9})
    assert [item.call_id for item in results.content] == named


def test_shapes() -> None:
    assert claude_id("functions.read:0/ä") == "functions_read_0__"
    assert mistral_id("call-1") == "call10000"
    assert (short_id(9)("call_1234"), len(short_id(9)("call_12345"))) == ("call_1234", 29)
    assert (tool_name("mcp server.do it!"), tool_name(""), len(tool_name("n" * 99))) == (
        "mcp_server_do_it_",
        "unnamed",
        64,
    )


def test_a_conversation_ends_with_a_question() -> None:
    answer = AssistantTurn(content=(TextContent(text="so"),))
    go_on = UserTurn(content=(TextContent(text=GO_ON),))
    assert ends_with_question([]) == [go_on]
    assert ends_with_question([answer]) == [go_on, answer, go_on]
    assert ends_with_question([HELLO]) == [HELLO]


def test_the_key_of_a_provider() -> None:
    assert [metadata_key(model) for model in (CLAUDE, GPT, ROUTED, LOCAL)] == [
        "anthropic",
        "openai",
        "openrouter",
        "ollama",
    ]
    assert own_metadata({"mine": {"a": 1}}, "x", "mine") == {"a": 1}
    assert own_metadata({"x": "nonsense"}, "x") == own_metadata(None, "x") == {}


# --- files ---


def shown(model: Model, *files: FileContent, limits: MediaLimits | None = None) -> list[object]:
    [turn] = show_files([UserTurn(content=files)], model, lambda _: True, limits or MediaLimits())
    return [item.text if isinstance(item, TextContent) else item for item in turn.content]


def picture(data: str = PNG, *, mime: str = "image/png", name: str | None = "a.png") -> FileContent:
    return FileContent(url=f"data:{mime};base64,{data}", mime=mime, filename=name)


def test_what_a_data_url_holds() -> None:
    assert to_data(f"data:image/jpeg;base64,{PNG}") == Data(mime="image/png", base64=PNG)
    assert to_data("data:text/plain,a%20b") == Data(mime="text/plain", base64="YSBi")
    assert to_data("data:image/x;base64,AA%3D%3D") == Data(mime="image/x", base64="AA==")
    assert to_data("https://example.com/a.png") is None


def test_what_a_model_cannot_read_is_said() -> None:
    assert shown(BLIND, picture(), picture(name=None)) == [
        'ERROR: Cannot read "a.png" (this model does not support image input). Inform the user.',
        "ERROR: Cannot read image (this model does not support image input). Inform the user.",
    ]
    assert shown(GPT, picture("")) == shown(GPT, picture("!!!!")) == [EMPTY_IMAGE]
    assert shown(GPT, FileContent(url="data:text/csv;base64,YSxi", mime="text/csv", filename="t.csv")) == [
        "t.csv:\na,b"
    ]
    assert shown(GPT, picture()) == [picture()]


def test_a_result_keeps_its_words_when_its_picture_goes() -> None:
    turn = ToolTurn(content=(result("a", "done", files=(picture(),)),))
    [told] = show_files([turn], BLIND, lambda _: True, MediaLimits())
    assert told == ToolTurn(
        content=(
            result(
                "a",
                'done\n\nERROR: Cannot read "a.png" (this model does not support image input). Inform the user.',
            ),
        )
    )


@pytest.mark.parametrize(
    "limits",
    [
        MediaLimits(count=1),
        MediaLimits(total=len(picture().url) + 10),
        MediaLimits(many=1, pixels_when_many=100, count=0),
    ],
)
def test_the_newest_files_stay(limits: MediaLimits) -> None:
    left_out = "[a.png is not shown: too large, or too much with the files after it]"
    expected: list[object] = [left_out, picture()] if limits.count else [left_out, left_out]
    assert shown(GPT, picture(), picture(), limits=limits) == expected


def test_a_picture_too_wide_is_not_shown() -> None:
    [told] = shown(GPT, picture(), limits=MediaLimits(pixels=8000))
    assert told == "[a.png is not shown: too large, or too much with the files after it]"
    assert shown(GPT, picture(), limits=MediaLimits(pixels=9000)) == [picture()]


# --- cache points ---


def test_the_first_system_entries_and_the_last_messages_are_marked() -> None:
    assert [list(system_marks(count)) for count in (0, 1, 2, 5)] == [[], [0], [0, 1], [0, 1]]
    assert [list(message_marks(count)) for count in (0, 1, 2, 5)] == [[], [0], [0, 1], [3, 4]]


def test_claude_wants_marks_wherever_it_is() -> None:
    bedrock = replace(LOCAL, api=replace(LOCAL.api, id="us.anthropic.claude-sonnet-4"))
    assert [wants_marks(model) for model in (CLAUDE, ROUTED, bedrock, GPT, LOCAL)] == [
        True,
        True,
        True,
        False,
        False,
    ]
