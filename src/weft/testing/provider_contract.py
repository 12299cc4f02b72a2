"""Checks that every provider must pass. Each is given a harness of its own and fails with an assertion.

`CHECKS` are for every provider, including the scripted one. `SERVER_CHECKS` are for providers that talk to a server.
`SSE_CHECKS` and `FRAME_CHECKS` (in `provider_bad_servers`) are for those that receive server-sent events or Amazon's frames.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from weft.provider.chunk import ReasoningEnd, Started, TextDelta, ToolInputDelta, Usage
from weft.provider.contract import (
    AssistantModelMessage,
    CallContent,
    ModelMessage,
    ReasoningContent,
    ResultContent,
    TextContent,
    ToolModelMessage,
    UserModelMessage,
)
from weft.provider.scripted import End, Fail, Say, Think, UseTool
from weft.testing.provider_bad_servers import BAD_SERVER_CHECKS
from weft.testing.provider_harness import (
    HELLO,
    KEY,
    ProviderHarness,
    ServerProviderHarness,
    collect_answer,
    make_request,
)

Check = Callable[[ProviderHarness], Awaitable[None]]
ServerCheck = Callable[[ServerProviderHarness], Awaitable[None]]


def make_prompt(words: str) -> UserModelMessage:
    return UserModelMessage(content=(TextContent(text=words),))


# --- an answer ---


async def text_is_streamed_in_pieces_and_complete(harness: ProviderHarness) -> None:
    harness.play([Say(text="one two  three\n\nvier 五 👩‍👩‍👧")])
    answer = await collect_answer(harness.provider, make_request(harness.model))
    assert answer.error is None
    assert answer.text() == "one two  three\n\nvier 五 👩‍👩‍👧"
    assert len([chunk for chunk in answer.chunks if isinstance(chunk, TextDelta)]) > 1
    assert (answer.finished().reason, answer.calls()) == ("stop", [])


async def reasoning_comes_before_text(harness: ProviderHarness) -> None:
    harness.play([Think(text="let me see"), Say(text="yes")])
    answer = await collect_answer(harness.provider, make_request(harness.model))
    assert (answer.thought(), answer.text()) == ("let me see", "yes")
    kinds = [type(chunk).__name__ for chunk in answer.chunks]
    assert kinds.index("ReasoningEnd") < kinds.index("TextStart")


async def a_call_is_reported_when_it_is_complete(harness: ProviderHarness) -> None:
    harness.play([Say(text="I look"), UseTool(tool="read", input={"path": 'a "b"\n五'})])
    answer = await collect_answer(harness.provider, make_request(harness.model))
    [call] = answer.calls()
    assert (call.tool, msgspec.json.decode(call.raw)) == ("read", {"path": 'a "b"\n五'})
    told = "".join(chunk.text for chunk in answer.chunks if isinstance(chunk, ToolInputDelta))
    assert told in ("", call.raw)
    assert answer.finished().reason == "tool-calls"


async def calls_of_one_answer_have_different_ids(harness: ProviderHarness) -> None:
    harness.play([UseTool(tool="read", input={"path": str(number)}) for number in range(3)])
    answer = await collect_answer(harness.provider, make_request(harness.model))
    assert [msgspec.json.decode(call.raw) for call in answer.calls()] == [
        {"path": "0"},
        {"path": "1"},
        {"path": "2"},
    ]
    assert len({call.call_id for call in answer.calls()}) == len(answer.calls())


async def a_call_without_input_has_an_empty_object(harness: ProviderHarness) -> None:
    harness.play([UseTool(tool="read", input={})])
    [call] = (await collect_answer(harness.provider, make_request(harness.model))).calls()
    assert msgspec.json.decode(call.raw) == {}


async def an_answer_ends_with_a_reason(harness: ProviderHarness) -> None:
    for reason in ("stop", "length", "content-filter"):
        harness.play([Say(text="so"), End(reason=reason)])
        finished = (await collect_answer(harness.provider, make_request(harness.model))).finished()
        assert (finished.reason, bool(finished.raw_reason)) == (reason, True)


async def no_token_is_counted_twice(harness: ProviderHarness) -> None:
    used = Usage(input=100, output=20, reasoning=7, cache_read=50)
    harness.play([Think(text="hm"), Say(text="so"), End(usage=used)])
    found = (await collect_answer(harness.provider, make_request(harness.model))).finished().usage
    # If an API does not report thinking separately, it is part of the output.
    undivided = replace(used, output=used.output + used.reasoning, reasoning=0)
    assert replace(found, raw=None) in (used, undivided)


async def simultaneous_answers_do_not_mix(harness: ProviderHarness) -> None:
    harness.play([Say(text="same words here")], [Say(text="same words here")], [Say(text="same words here")])
    answer = await asyncio.gather(
        *(collect_answer(harness.provider, make_request(harness.model)) for _ in range(3))
    )
    assert [each.text() for each in answer] == ["same words here"] * 3


async def a_failure_is_raised_and_not_retried(harness: ProviderHarness) -> None:
    harness.play([Say(text="so"), Fail(message="Overloaded", status=529, retryable=True)])
    answer = await collect_answer(harness.provider, make_request(harness.model))
    assert answer.error is not None
    assert (answer.error.retryable, str(answer.error)) == (True, "Overloaded"), repr(answer.error)
    assert harness.request_count == 1


async def reading_a_stream_sends_one_request(harness: ProviderHarness) -> None:
    harness.play([Say(text="a")], [Say(text="b")])
    for number in (1, 2):
        await collect_answer(harness.provider, make_request(harness.model))
        assert harness.request_count == number


async def no_request_is_sent_before_the_stream_is_read(harness: ProviderHarness) -> None:
    harness.play([Say(text="a")])
    stream = harness.provider.stream(make_request(harness.model))
    assert harness.request_count == 0
    await stream.aclose()
    assert harness.request_count == 0


# --- a conversation ---


def _call(id: str) -> CallContent:
    return CallContent(call_id=id, tool="read", input={"path": "a"})


def _result(id: str, output: str = "ok", *, error: bool = False) -> ResultContent:
    return ResultContent(call_id=id, tool="read", output=output, error=error)


CONVERSATIONS: dict[str, tuple[ModelMessage, ...]] = {
    "words": (HELLO, AssistantModelMessage(content=(TextContent(text="hi"),)), make_prompt("again")),
    "calls": (
        HELLO,
        AssistantModelMessage(content=(TextContent(text="I look"), _call("a"), _call("b"))),
        ToolModelMessage(content=(_result("a"), _result("b", "not there", error=True))),
    ),
    "a result of nothing": (
        HELLO,
        AssistantModelMessage(content=(_call("a"),)),
        ToolModelMessage(content=(_result("a", ""),)),
    ),
    "ids no server likes": (
        HELLO,
        AssistantModelMessage(
            content=(_call("functions.read:0/ä"), _call("functions.read:0 ä"), _call("x" * 300))
        ),
        ToolModelMessage(
            content=(_result("functions.read:0/ä"), _result("functions.read:0 ä"), _result("x" * 300))
        ),
    ),
    "the same id again": (
        HELLO,
        AssistantModelMessage(content=(_call("a"), _call("a"))),
        ToolModelMessage(content=(_result("a", "1"), _result("a", "2"))),
        AssistantModelMessage(content=(_call("a"),)),
        ToolModelMessage(content=(_result("a", "3"),)),
    ),
    "a call without a result": (HELLO, AssistantModelMessage(content=(_call("a"),)), make_prompt("go on")),
    "a result without a call": (HELLO, ToolModelMessage(content=(_result("a"),)), make_prompt("go on")),
    "words after a call": (
        HELLO,
        AssistantModelMessage(content=(_call("a"), TextContent(text="and then"))),
        ToolModelMessage(content=(_result("a"),)),
        make_prompt("go on"),
    ),
    "a foreign thought": (
        HELLO,
        AssistantModelMessage(
            content=(
                ReasoningContent(text="mine", metadata={"elsewhere": {"signature": "xyz"}}),
                TextContent(text="hi"),
            )
        ),
        make_prompt("go on"),
    ),
    "thoughts alone": (
        HELLO,
        AssistantModelMessage(content=(ReasoningContent(text="hm"),)),
        make_prompt("go on"),
    ),
    "nothing at all": (),
    "empty words": (
        UserModelMessage(content=(TextContent(text=" \n"),)),
        AssistantModelMessage(content=()),
        make_prompt("x"),
    ),
    "an answer last": (HELLO, AssistantModelMessage(content=(TextContent(text="half an "),))),
    "an answer first": (AssistantModelMessage(content=(TextContent(text="so far"),)), HELLO),
    "a name no server likes": (
        HELLO,
        AssistantModelMessage(content=(replace(_call("a"), tool="read file!" * 20),)),
        ToolModelMessage(content=(_result("a"),)),
    ),
    "letters that are no letters": (UserModelMessage(content=(TextContent(text="\ufffe \x00 \u202e"),)),),
}


async def every_conversation_is_accepted(harness: ProviderHarness) -> None:
    for name, messages in CONVERSATIONS.items():
        harness.play([Say(text="fine")])
        request = make_request(harness.model, *messages)
        if not messages:
            request = replace(request, messages=())
        answer = await collect_answer(harness.provider, request)
        assert answer.error is None, f"{name}: {answer.error}"


async def a_conversation_with_calls_is_accepted_without_tools(harness: ProviderHarness) -> None:
    harness.play([Say(text="fine")])
    answer = await collect_answer(
        harness.provider, make_request(harness.model, *CONVERSATIONS["calls"], tools=())
    )
    assert answer.error is None, str(answer.error)


async def an_answer_can_be_sent_back(harness: ProviderHarness) -> None:
    harness.play(
        [Think(text="hm, so \n"), Say(text="I look"), UseTool(tool="read", input={"path": "a"})],
        [Say(text="ok")],
    )
    answer = await collect_answer(harness.provider, make_request(harness.model))
    [call] = answer.calls()
    metadata = next((chunk.metadata for chunk in answer.chunks if isinstance(chunk, ReasoningEnd)), None)
    content = (
        # The store trims the end of a text.
        ReasoningContent(text=answer.thought().rstrip(), metadata=metadata),
        TextContent(text=answer.text()),
        CallContent(call_id=call.call_id, tool=call.tool, input={"path": "a"}, metadata=call.metadata),
    )
    results = ToolModelMessage(content=(_result(call.call_id),))
    again = await collect_answer(
        harness.provider, make_request(harness.model, HELLO, AssistantModelMessage(content=content), results)
    )
    assert again.error is None, str(again.error)


CHECKS: tuple[Check, ...] = (
    text_is_streamed_in_pieces_and_complete,
    reasoning_comes_before_text,
    a_call_is_reported_when_it_is_complete,
    calls_of_one_answer_have_different_ids,
    a_call_without_input_has_an_empty_object,
    an_answer_ends_with_a_reason,
    no_token_is_counted_twice,
    simultaneous_answers_do_not_mix,
    a_failure_is_raised_and_not_retried,
    reading_a_stream_sends_one_request,
    no_request_is_sent_before_the_stream_is_read,
    every_conversation_is_accepted,
    a_conversation_with_calls_is_accepted_without_tools,
    an_answer_can_be_sent_back,
)


# --- the connection ---


async def closing_the_stream_closes_the_connection(harness: ServerProviderHarness) -> None:
    harness.server.hang(Say(text="one two three"), pieces=6)
    async with aclosing(harness.provider.stream(make_request(harness.model))) as stream:
        async for chunk in stream:
            if isinstance(chunk, TextDelta | Started):
                break
    await harness.server.wait_for_disconnect()


async def cancelling_closes_the_connection(harness: ServerProviderHarness) -> None:
    harness.server.hang(Say(text="one two three"), pieces=6)
    began = asyncio.Event()

    async def listen() -> None:
        async with aclosing(harness.provider.stream(make_request(harness.model))) as stream:
            async for _ in stream:
                began.set()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(listen())
        await began.wait()
        task.cancel()
        await harness.server.wait_for_disconnect()


async def a_connection_is_reused(harness: ServerProviderHarness) -> None:
    harness.play([Say(text="a")], [Say(text="b")])
    for _ in range(2):
        await collect_answer(harness.provider, make_request(harness.model))
    ports = {request.headers.get("host") for request in harness.server.requests}
    assert len(ports) == 1
    assert harness.server.connections == 1


async def the_key_is_sent_and_never_shown(harness: ServerProviderHarness) -> None:
    harness.server.refuse(401, "who are you?")
    answer = await collect_answer(harness.provider, make_request(harness.model))
    assert any(KEY in value for value in harness.server.requests[0].headers.values())
    assert answer.error is not None
    assert KEY not in f"{answer.error!r} {answer.error.headers} {answer.error.body}"


async def headers_of_the_request_are_sent(harness: ServerProviderHarness) -> None:
    harness.play([Say(text="a")])
    request = make_request(harness.model)
    parameters = replace(request.parameters, headers={"X-Test": "yes", "User-Agent": "me"})
    await collect_answer(harness.provider, replace(request, parameters=parameters))
    headers = harness.server.requests[0].headers
    assert (headers.get("x-test"), headers.get("user-agent")) == ("yes", "me")


async def equal_requests_are_sent_as_equal_bytes(harness: ServerProviderHarness) -> None:
    for messages in CONVERSATIONS.values():
        harness.play([Say(text="a")], [Say(text="b")])
        for _ in range(2):
            await collect_answer(harness.provider, make_request(harness.model, *messages))
        first, second = harness.server.requests[-2:]
        assert first.raw == second.raw


SERVER_CHECKS: tuple[ServerCheck, ...] = (
    closing_the_stream_closes_the_connection,
    cancelling_closes_the_connection,
    a_connection_is_reused,
    the_key_is_sent_and_never_shown,
    headers_of_the_request_are_sent,
    equal_requests_are_sent_as_equal_bytes,
    *BAD_SERVER_CHECKS,
)
