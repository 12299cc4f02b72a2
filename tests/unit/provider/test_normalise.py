"""Any conversation made one that every API takes."""

from msgspec.structs import replace

from given.models import CLAUDE, GPT, LOCAL, ROUTED
from weft.provider.body import message_marks, system_marks, wants_marks
from weft.provider.contract import (
    AssistantTurn,
    CallContent,
    ResultContent,
    TextContent,
    ToolTurn,
    UserTurn,
)
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
