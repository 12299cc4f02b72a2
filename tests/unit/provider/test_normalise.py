"""Normalise any conversation to one that every API accepts."""

from msgspec.structs import replace

from given.models import CLAUDE, GPT, LOCAL, ROUTED
from weft.provider.body import list_message_marks, list_system_marks, needs_cache_marks
from weft.provider.contract import (
    AssistantModelMessage,
    CallContent,
    ResultContent,
    TextContent,
    ToolModelMessage,
    UserModelMessage,
)
from weft.provider.normalise import (
    CONTINUE_TEXT,
    INTERRUPTED,
    ensure_user_messages,
    get_metadata_key,
    get_own_metadata,
    limit_id,
    pair_calls,
    to_claude_id,
    to_mistral_id,
    to_tool_name,
)

HELLO = UserModelMessage(content=(TextContent(text="hello"),))


def call(id: str) -> CallContent:
    return CallContent(call_id=id, tool="read", input={})


def result(id: str, output: str = "ok", **more: object) -> ResultContent:
    return ResultContent(call_id=id, tool="read", output=output, **more)


def test_a_call_without_a_result_gets_an_interrupted_one() -> None:
    turn = AssistantModelMessage(content=(call("a"), call("b")))
    assert pair_calls([HELLO, turn, ToolModelMessage(content=(result("b"),)), HELLO]) == [
        HELLO,
        turn,
        ToolModelMessage(content=(result("a", INTERRUPTED, error=True), result("b"))),
        HELLO,
    ]


def test_a_result_without_a_call_is_omitted() -> None:
    orphan = ToolModelMessage(content=(result("a"),))
    assert pair_calls(
        [orphan, HELLO, orphan, UserModelMessage(content=()), AssistantModelMessage(content=())]
    ) == [HELLO]


def test_repeated_ids_are_made_unique_in_order() -> None:
    turns = [
        AssistantModelMessage(content=(call("a"), call("a"))),
        ToolModelMessage(content=(result("a", "1"), result("a", "2"))),
        AssistantModelMessage(content=(call("a"),)),
        ToolModelMessage(content=(result("a", "3"),)),
    ]
    assert pair_calls(turns) == [
        AssistantModelMessage(content=(call("a"), call("a_2"))),
        ToolModelMessage(content=(result("a", "1"), result("a_2", "2"))),
        AssistantModelMessage(content=(call("a_3"),)),
        ToolModelMessage(content=(result("a_3", "3"),)),
    ]


def test_ids_that_become_equal_by_truncation_are_made_unique() -> None:
    ids = [f"call_123456789{letter}" for letter in "abc"]
    [turn, results] = pair_calls(
        [AssistantModelMessage(content=tuple(call(id) for id in ids))], to_mistral_id
    )
    named = [item.call_id for item in turn.content if isinstance(item, CallContent)]
    assert (len(set(named)), {len(name) for name in named}) == (3, {9})
    assert [item.call_id for item in results.content] == named


def test_ids_and_names_of_tools_are_made_valid_for_each_api() -> None:
    assert to_claude_id("functions.read:0/ä") == "functions_read_0__"
    assert to_mistral_id("call-1") == "call10000"
    assert (limit_id(9)("call_1234"), len(limit_id(9)("call_12345"))) == ("call_1234", 29)
    assert (to_tool_name("mcp server.do it!"), to_tool_name(""), len(to_tool_name("n" * 99))) == (
        "mcp_server_do_it_",
        "unnamed",
        64,
    )


def test_a_conversation_ends_with_a_user_message() -> None:
    answer = AssistantModelMessage(content=(TextContent(text="so"),))
    go_on = UserModelMessage(content=(TextContent(text=CONTINUE_TEXT),))
    assert ensure_user_messages([]) == [go_on]
    assert ensure_user_messages([answer]) == [go_on, answer, go_on]
    assert ensure_user_messages([HELLO]) == [HELLO]


def test_provider_metadata_has_a_key_for_each_provider() -> None:
    assert [get_metadata_key(model) for model in (CLAUDE, GPT, ROUTED, LOCAL)] == [
        "anthropic",
        "openai",
        "openrouter",
        "ollama",
    ]
    assert get_own_metadata({"mine": {"a": 1}}, "x", "mine") == {"a": 1}
    assert get_own_metadata({"x": "nonsense"}, "x") == get_own_metadata(None, "x") == {}


# --- cache points ---


def test_the_first_system_entries_and_the_last_messages_get_cache_marks() -> None:
    assert [list(list_system_marks(count)) for count in (0, 1, 2, 5)] == [[], [0], [0, 1], [0, 1]]
    assert [list(list_message_marks(count)) for count in (0, 1, 2, 5)] == [[], [0], [0, 1], [3, 4]]


def test_claude_gets_cache_marks_through_any_provider() -> None:
    bedrock = replace(LOCAL, api=replace(LOCAL.api, id="us.anthropic.claude-sonnet-4"))
    assert [needs_cache_marks(model) for model in (CLAUDE, ROUTED, bedrock, GPT, LOCAL)] == [
        True,
        True,
        True,
        False,
        False,
    ]
