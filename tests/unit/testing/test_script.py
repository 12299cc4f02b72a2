"""Models written in Python: what a script plays, to whom, and what it says if it cannot."""

import asyncio
import math
import re
from dataclasses import dataclass
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import InvalidInputError, ProviderError
from weft.provider.chunk import AnyChunk, Finished, ReasoningDelta, TextDelta, ToolCall, Usage
from weft.provider.contract import (
    AssistantModelMessage,
    CallContent,
    ModelMessage,
    ModelRequest,
    Provider,
    ResultContent,
    TextContent,
    ToolModelMessage,
    ToolSpec,
    UserModelMessage,
)
from weft.provider.scripted import AnyMove, End, Say, Think, UseTool
from weft.testing import FunctionModel, ModelConversation, Reply, Script, call, say, think
from weft.testing.clock import HandClock
from weft.testing.script import FAULTS, Fault, make_test_model

READ = CallContent(call_id="c", tool="read", input={})
RESULT = ToolModelMessage(content=(ResultContent(call_id="c", tool="read", output="one"),))


def user(*texts: str) -> UserModelMessage:
    return UserModelMessage(content=tuple(TextContent(text=text) for text in texts))


def request(*messages: ModelMessage, session: str = "ses_1") -> ModelRequest:
    return ModelRequest(
        model=make_test_model("script"), system=("Be", "brief."), messages=messages, session=session
    )


def ask(prompt: str, session: str = "ses_1") -> ModelRequest:
    return request(user(prompt), session=session)


def request_after(prompt: str, session: str = "ses_1") -> ModelRequest:
    """Return the request after a call: the model sees its result."""
    return request(user(prompt), AssistantModelMessage(content=(READ,)), RESULT, session=session)


def serve(model: Script | FunctionModel) -> Provider:
    return model.serve(HandClock()).provider


async def respond(provider: Provider, asked: ModelRequest) -> list[AnyChunk]:
    return [chunk async for chunk in provider.stream(asked)]


async def read(provider: Provider, asked: ModelRequest) -> list[str | tuple[str, str]]:
    """Return a response in short: its text, its reasoning in brackets, its calls with their arguments, and why it ended."""
    found: list[str | tuple[str, str]] = []
    for chunk in await respond(provider, asked):
        match chunk:
            case TextDelta(text=text):
                found.append(text)
            case ReasoningDelta(text=text):
                found.append(f"[{text}]")
            case ToolCall(tool=tool, raw=raw):
                found.append((tool, raw))
            case Finished(reason=reason):
                found.append(f"<{reason}>")
            case _:
                pass
    return found


async def fail(provider: Provider, asked: ModelRequest) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await respond(provider, asked)
    return caught.value


async def test_every_call_and_every_text_is_a_separate_response() -> None:
    script = Script("go").says("Look").calls("read", path="a").calls("list").says("Done").says("Really")
    provider = serve(script)
    assert await read(provider, ask("go")) == ["Look", ("read", '{"path":"a"}'), "<tool-calls>"]
    assert await read(provider, request_after("go")) == [("list", "{}"), "<tool-calls>"]
    assert await read(provider, request_after("go")) == ["Done", "<stop>"]
    assert await read(provider, request_after("go")) == ["Really", "<stop>"]
    script.assert_finished()
    assert len(script.requests) == 4


async def test_reasoning_and_a_second_call_belong_to_the_response() -> None:
    provider = serve(
        Script().thinks("Hm").calls("read").also_calls("list", tool="x", self="y").thinks("So").says("Yes")
    )
    first = ["[Hm]", ("read", "{}"), ("list", '{"tool":"x","self":"y"}'), "<tool-calls>"]
    assert await read(provider, ask("go")) == first
    assert await read(provider, request_after("go")) == ["[So]", "Yes", "<stop>"]


async def test_a_response_ends_with_its_token_counts() -> None:
    provider = serve(Script().calls("read").uses(input=10, output=2).says("Yes").uses(input=3))
    called, said = await respond(provider, ask("go")), await respond(provider, request_after("go"))
    assert called[-1] == Finished(
        reason="tool-calls", raw_reason="tool-calls", usage=Usage(input=10, output=2)
    )
    assert said[-1] == Finished(reason="stop", raw_reason="stop", usage=Usage(input=3, output=0))


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_scripted_fault_equals_that_of_an_api(fault: Fault) -> None:
    status, retryable, message = FAULTS[fault]
    provider = serve(Script().fails(fault).says("Well."))
    error = await fail(provider, ask("go"))
    assert (error.kind, error.status, error.retryable, str(error)) == (fault, status, retryable, message)
    assert error.wait_ms == (0 if retryable else None)
    assert await read(provider, ask("go")) == ["Well.", "<stop>"]


async def test_a_fault_may_have_a_message_and_come_after_some_text() -> None:
    provider = serve(Script().says("Half").fails("network", "cut off"))
    assert str(await fail(provider, ask("go"))) == "cut off"


def test_every_fault_is_in_the_table() -> None:
    assert tuple(FAULTS) == get_args(Fault)


async def test_a_model_that_hangs_says_nothing_until_it_is_cancelled() -> None:
    told: list[AnyChunk] = []

    class NeverSleepingClock(HandClock):
        async def sleep(self, seconds: float) -> None:
            assert seconds == math.inf
            hung.set()
            await asyncio.Event().wait()

    async def listen() -> None:
        async for chunk in Script().says("So").hangs().serve(NeverSleepingClock()).provider.stream(ask("go")):
            told.append(chunk)  # noqa: PERF401  what came before the end is of interest

    hung = asyncio.Event()
    listening = asyncio.ensure_future(listen())
    await hung.wait()
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    assert any(chunk == TextDelta(id="1.0", text="So") for chunk in told)
    assert not any(isinstance(chunk, Finished) for chunk in told)


@dataclass
class Risk:
    level: str


@pytest.mark.parametrize(
    ("value", "text"), [({"a": [1, None]}, '{"a":[1,null]}'), (Risk("low"), '{"level":"low"}'), ("x", '"x"')]
)
async def test_a_value_is_answered_as_json(value: object, text: str) -> None:
    assert await read(serve(Script().answers(value)), ask("go")) == [text, "<stop>"]


# --- matching prompts ---


@pytest.mark.parametrize("expected", ["Go on.", " Go on.\n", re.compile("on"), None])
async def test_a_prompt_is_matched_as_a_whole_or_by_a_pattern(expected: str | None) -> None:
    assert await read(serve(Script(expected).says("Yes")), ask("Go on.")) == ["Yes", "<stop>"]


async def test_a_prompt_may_be_one_of_several_texts() -> None:
    asked = request(user("Before"), AssistantModelMessage(content=()), user("Go", "a reminder"), user("more"))
    assert await read(serve(Script("Go").says("Yes")), asked) == ["Yes", "<stop>"]
    assert "but the prompt is 'more'" in str(await fail(serve(Script("Before").says("No")), asked))


async def test_concurrent_sessions_each_get_the_turn_that_expects_them() -> None:
    provider = serve(Script("a").calls("read").says("A").asked("b").calls("list").says("B"))
    assert await read(provider, ask("b", "ses_b")) == [("list", "{}"), "<tool-calls>"]
    assert await read(provider, ask("a", "ses_a")) == [("read", "{}"), "<tool-calls>"]
    assert await read(provider, request_after("b", "ses_b")) == ["B", "<stop>"]
    assert await read(provider, request_after("a", "ses_a")) == ["A", "<stop>"]


async def test_the_next_prompt_is_answered_even_if_the_last_turn_was_not_finished() -> None:
    script = Script("a").calls("read").says("A").asked("b").says("B")
    provider = serve(script)
    await respond(provider, ask("a"))
    assert await read(provider, ask("b")) == ["B", "<stop>"]
    with pytest.raises(AssertionError, match=r"^the script was not played to its end: 1 more for 'a'$"):
        script.assert_finished()


async def test_serving_a_script_again_plays_it_from_the_beginning() -> None:
    script = Script("a").says("A")
    for _ in range(2):
        assert await read(serve(script), ask("a")) == ["A", "<stop>"]
        assert len(script.requests) == 1


# --- errors ---


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (Script("a").says("A"), "the script expects 'a', but the prompt is 'x'"),
        (Script(re.compile("a+")).says("A"), "the script expects 'a+', but the prompt is 'x'"),
        (Script().asked("b").says("B"), "the script expects 'b', but the prompt is 'x'"),
        (Script(), "the script is over: nothing answers 'x'; add .asked('x').says(…)"),
        (Script("x").asked("b").says("B"), "the script has no response to 'x': add .says(…)"),
    ],
)
async def test_an_unexpected_prompt_fails_and_shows_both(script: Script, message: str) -> None:
    assert str(await fail(serve(script), ask("x"))) == message


async def test_a_script_that_ends_with_a_call_says_what_is_missing() -> None:
    provider = serve(Script().calls("read"))
    await respond(provider, ask("go"))
    message = "the script is over, but the agent continues after its last call: add .says(…)"
    assert str(await fail(provider, request_after("go"))) == message


async def test_unplayed_turns_are_named() -> None:
    script = Script().says("A").asked("b").says("B")
    with pytest.raises(
        AssertionError, match=r"^the script was not played to its end: any prompt was not asked$"
    ):
        script.assert_finished()
    await respond(serve(script), ask("go"))
    with pytest.raises(AssertionError, match=r"^the script was not played to its end: 'b' was not asked$"):
        script.assert_finished()
    Script().assert_finished()


def test_an_invalid_script_is_refused_when_it_is_built() -> None:
    with pytest.raises(InvalidInputError, match=r"^also_calls: there is no call before it\b") as caught:
        Script().says("A").also_calls("read")
    assert caught.value.hint == "begin with .calls(…)"
    with pytest.raises(InvalidInputError, match=r"^also_calls: there is no call before it\b"):
        Script().calls("read").uses(input=1).also_calls("read")
    with pytest.raises(InvalidInputError, match=r"^fails: 'tired' is none of overload, rate-limit, server"):
        Script().fails("tired")  # type: ignore[arg-type]
    for method, write in (
        ("answers", lambda it: it.answers(object())),
        ("calls", lambda it: it.calls("read", path=object())),
        ("also_calls", lambda it: it.calls("read").also_calls("read", path=object())),
    ):
        with pytest.raises(InvalidInputError, match=f"^{method}: JSON cannot express it: "):
            write(Script())


# --- a function ---


async def test_a_function_sees_the_conversation_and_makes_the_response() -> None:
    seen: list[ModelConversation] = []

    def model(conversation: ModelConversation) -> Reply:
        seen.append(conversation)
        return "Done" if conversation.results else [think("Hm"), say("I look"), call("read", path="a")]

    function = FunctionModel(model)
    provider = serve(function)
    tools = (ToolSpec(name="read", about="", schema={}),)
    first = ModelRequest(
        model=make_test_model("x"), system=("Be", "brief."), messages=(user("go"),), tools=tools
    )
    assert await read(provider, first) == ["[Hm]", "I ", "look", ("read", '{"path":"a"}'), "<tool-calls>"]
    assert await read(provider, request_after("go")) == ["Done", "<stop>"]
    assert seen == [
        ModelConversation(
            prompt="go", results=(), messages=first.messages, tools=("read",), system="Be\n\nbrief."
        ),
        ModelConversation(
            prompt="go",
            results=("one",),
            messages=request_after("go").messages,
            tools=(),
            system="Be\n\nbrief.",
        ),
    ]
    assert function.requests == [first, request_after("go")]


@pytest.mark.parametrize("reply", [None, 1, [1], ["text"], {"do": "say"}])
async def test_a_function_that_returns_something_else_gets_an_error_with_the_valid_types(
    reply: object,
) -> None:
    provider = serve(FunctionModel(lambda _: reply))  # type: ignore[arg-type,return-value]
    message = f"the function returned {reply!r}: return text, say(…), think(…), call(…) or a list of these"
    assert str(await fail(provider, ask("go"))) == message


async def test_an_error_of_the_function_is_the_error_of_the_model() -> None:
    def model(conversation: ModelConversation) -> Reply:
        return [conversation.tools[7]]  # type: ignore[list-item]

    error = await fail(serve(FunctionModel(model)), ask("go"))
    assert str(error) == "the function raised IndexError: tuple index out of range"
    assert isinstance(error.__cause__, IndexError)


# --- what holds for every script ---

WORDS = st.text("abc ", min_size=1, max_size=8)
MOVES = st.lists(
    st.one_of(
        WORDS.map(lambda text: ("says", text)),
        WORDS.map(lambda text: ("thinks", text)),
        st.sampled_from(["read", "list"]).map(lambda tool: ("calls", tool)),
        st.sampled_from(["read", "list"]).map(lambda tool: ("also_calls", tool)),
        st.just(("uses", "")),
    ),
    max_size=12,
)


def write(moves: list[tuple[str, str]]) -> tuple[Script, list[AnyMove]]:
    """Write a script, and return what it should play, all responses in a row."""
    script, written = Script("go"), list[AnyMove]()
    for method, word in moves:
        match method:
            case "says":
                script.says(word)
                written.append(Say(text=word))
            case "thinks":
                script.thinks(word)
                written.append(Think(text=word))
            case "uses":
                script.uses(input=1)
            case _:
                try:
                    getattr(script, method)(word, n=1)
                except InvalidInputError:
                    continue
                written.append(UseTool(tool=word, input={"n": 1}))
    return script, written


@given(MOVES)
def test_every_scripted_response_is_played_once_in_order(moves: list[tuple[str, str]]) -> None:
    script, written = write(moves)
    provider = serve(script)

    async def play() -> list[list[AnyMove]]:
        played = []
        while True:
            try:
                script.assert_finished()
            except AssertionError:
                played.append(to_moves(await respond(provider, request_after("go") if played else ask("go"))))
            else:
                return played

    responses = asyncio.run(play())
    assert [move for response in responses for move in response] == written
    for response in responses:
        calls = [isinstance(move, UseTool) for move in response]
        assert calls == sorted(calls), "a call ends the text of its response"
        assert sum(isinstance(move, Say) for move in response) <= 1


def to_moves(chunks: list[AnyChunk]) -> list[AnyMove]:
    """Return the moves that a response was made of. An `End` leaves no trace but its tokens."""
    texts: dict[str, AnyMove] = {}
    for chunk in chunks:
        match chunk:
            case TextDelta(id=id, text=text):
                texts[id] = Say(text=texts.get(id, Say(text="")).text + text)
            case ReasoningDelta(id=id, text=text):
                texts[id] = Think(text=texts.get(id, Think(text="")).text + text)
            case ToolCall(call_id=id, tool=tool):
                texts[id] = UseTool(tool=tool, input={"n": 1})
            case _:
                pass
    assert not any(isinstance(move, End) for move in texts.values())
    return list(texts.values())


@given(st.permutations(["a", "b", "c", "d"]))
def test_any_order_of_sessions_gets_the_same_answers(order: list[str]) -> None:
    script = Script("a").says("A").asked("b").says("B").asked("c").says("C").asked("d").says("D")
    provider = serve(script)

    async def play() -> list[list[str | tuple[str, str]]]:
        return [await read(provider, ask(each, f"ses_{each}")) for each in order]

    assert asyncio.run(play()) == [[each.upper(), "<stop>"] for each in order]
    script.assert_finished()
