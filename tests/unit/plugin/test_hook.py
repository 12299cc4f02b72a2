"""Mark functions as hooks, and validate what they return."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from given.damage import allow_refusal, damaged_bytes, damaged_values, to_json
from weft.errors import InvalidInputError, NotFoundError, WeftError
from weft.host.processes import CapturedOutput
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.input import FileInput, TextInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import AnyPart, ModelRef, Moment, TextPart
from weft.model.wire import decode, encode
from weft.plugin.chain import check_result, deep_copy
from weft.plugin.command import read_result
from weft.plugin.hooks import (
    CHAT_MESSAGE,
    CHAT_PARAMS,
    COMMAND_BEFORE,
    EVENT,
    HOOKS,
    MESSAGES_TRANSFORM,
    TOOL_BEFORE,
    CallArguments,
    ChatHeaders,
    ChatMessage,
    ChatParams,
    CommandParts,
    NoChange,
    ShownMessages,
    hook,
)
from weft.plugin.loader import collect

NOW = ChatParams(temperature=0.5, top_p=None, top_k=None, options={"a": {"b": [1]}})


def test_an_unknown_hook_is_refused_with_similar_names() -> None:
    with pytest.raises(NotFoundError) as raised:
        hook("chat.parms")
    assert raised.value.near[0] == "chat.params"
    with pytest.raises(NotFoundError) as raised:
        hook("nonsense")
    assert "tool.execute.before" in raised.value.hint


def test_a_decorator_without_parentheses_is_refused_with_a_hint() -> None:
    with pytest.raises(NotFoundError, match="there is no hook") as raised:
        hook(lambda *_: None)  # type: ignore[arg-type]
    assert "tool.execute.before" in raised.value.hint


def test_a_hook_that_is_not_a_function_is_refused() -> None:
    def set_temperature(by: float, told: Any, now: ChatParams) -> ChatParams:
        del told
        return now.but(temperature=by)

    with pytest.raises(InvalidInputError, match=r"hook chat\.params: it is not on a function"):
        hook("chat.params")(partial(set_temperature, 0.1))


def test_hooks_of_a_module_keep_their_order() -> None:
    @hook("chat.params")
    def second(told: Any, now: Any) -> None: ...

    @hook("tool.execute.before")
    @hook("tool.execute.after")
    def both(told: Any, now: Any) -> None: ...

    class Odd:
        def __getattr__(self, name: str) -> str:
            return "chat.params"

    found = collect({"both": both, "again": both, "odd": Odd(), "second": second, "other": len})

    assert [(each.hook, each.function) for each in found.hooks] == [
        ("tool.execute.after", both),
        ("tool.execute.before", both),
        ("chat.params", second),
    ]
    assert both(None, None) is None


def test_returning_none_changes_nothing() -> None:
    assert check_result(CHAT_PARAMS, NOW, None) is NOW


def test_a_returned_value_is_copied() -> None:
    options = {"a": 1}
    given = check_result(CHAT_PARAMS, NOW, NOW.but(options=options, top_k=3))
    options["a"] = 2

    assert given == NOW.but(options={"a": 1}, top_k=3)


def test_a_returned_dict_changes_the_named_fields() -> None:
    assert check_result(CHAT_PARAMS, NOW, {"topP": 0.1}) == NOW.but(top_p=0.1)
    with pytest.raises(WeftError, match="unknown field 'top_p'") as raised:
        check_result(CHAT_PARAMS, NOW, {"top_p": 0.1})
    assert raised.value.hint == "it may have temperature, topP, topK, options"


def test_the_return_value_of_an_event_hook_is_ignored() -> None:
    now = NoChange()
    assert check_result(EVENT, now, 3) is now


def test_a_copy_shares_nothing_mutable() -> None:
    made = deep_copy(NOW)
    made.options["a"]["b"].append(2)

    assert made != NOW
    assert NOW.options == {"a": {"b": [1]}}


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.builds(object),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner)
    ),
    max_leaves=8,
)
PARAMS = st.builds(
    ChatParams, temperature=ANYTHING, top_p=ANYTHING, top_k=ANYTHING, options=ANYTHING
) | st.builds(ChatHeaders, headers=ANYTHING)
CHANGES = st.dictionaries(st.sampled_from(["temperature", "topP", "topK", "options", "else"]), ANYTHING)


@given(ANYTHING | PARAMS | CHANGES)
def test_a_returned_value_has_the_right_type_or_is_refused(given: Any) -> None:
    try:
        found = check_result(CHAT_PARAMS, NOW, given)
    except (WeftError, TypeError, ValueError, OverflowError):
        return
    assert type(found) is ChatParams
    assert all(isinstance(each, float | None) for each in (found.temperature, found.top_p))
    assert isinstance(found.top_k, int | None)
    assert isinstance(found.options, dict)


PRINTED = damaged_values(
    {"output": {"temperature": 0.5, "topP": 1, "topK": 3, "options": {"a": [1, {"b": None}]}}}
).map(to_json)


@given(PRINTED | PRINTED.flatmap(damaged_bytes), st.sampled_from([0, 1, 2, None]), st.text(), st.booleans())
def test_whatever_a_command_prints_is_a_result_or_refused(
    printed: bytes, code: int | None, errors: str, cut: bool
) -> None:
    with allow_refusal(WeftError):
        found = read_result(
            CHAT_PARAMS, NOW, CapturedOutput(code=code, output=printed, errors=errors, cut=cut)
        )
        assert isinstance(found, ChatParams)
        assert decode(encode(found), ChatParams) == found


def test_a_circular_value_is_refused() -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    with pytest.raises(WeftError):
        check_result(TOOL_BEFORE, CallArguments(args={}), CallArguments(args=circle))


def test_the_hooks_that_may_block_are_listed() -> None:
    assert [name for name, each in HOOKS.items() if each.blocks] == [
        "chat.message",
        "command.execute.before",
        "tool.execute.before",
        "permission.ask",
    ]


def sample() -> list[tuple[Any, Any]]:
    """Return a value for each hook with non-trivial fields."""
    user = UserMessage(
        id=MessageID("msg_1"),
        session_id=SessionID("ses_1"),
        time=Moment(created=1),
        agent="build",
        model=ModelRef(provider_id="p", model_id="m"),
    )
    text = TextPart(id=PartID("prt_1"), session_id=SessionID("ses_1"), message_id=user.id, text="\ud800 odd")
    part = decode(b'{"type": "new", "id": "prt_2", "sessionID": "s", "messageID": "m", "x": 1.50}', AnyPart)
    return [
        (CHAT_MESSAGE, ChatMessage(message=user, parts=(text, part))),
        (MESSAGES_TRANSFORM, ShownMessages(messages=(MessageWithParts(info=user, parts=(text, part)),))),
        (COMMAND_BEFORE, CommandParts(parts=(TextInput(text="x"), FileInput(mime="a/b", url="file:///x")))),
        (TOOL_BEFORE, CallArguments(args={"a": None, "b": [1.5, {"c": "d"}]})),
    ]


@pytest.mark.parametrize(("hook", "now"), sample(), ids=lambda each: getattr(each, "name", ""))
def test_a_value_returned_unchanged_is_equal(hook: Any, now: Any) -> None:
    assert check_result(hook, now, deep_copy(now)) == now
    assert check_result(hook, now, {}) == now
    assert encode(check_result(hook, now, now)) == encode(now)
