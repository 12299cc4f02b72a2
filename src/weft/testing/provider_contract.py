"""Checks that every provider must pass. Each is given a stand of its own and fails with an assertion.

`CHECKS` are for every provider, including the scripted one. `SERVER_CHECKS` are for providers that talk to a server.
`IN_LINES` and `IN_FRAMES` (in `provider_bad_servers`) are for those that receive server-sent events or Amazon's frames.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from weft.provider.chunk import ReasoningEnd, Started, TextDelta, ToolInputDelta, Usage
from weft.provider.contract import (
    AssistantTurn,
    CallContent,
    ModelMessage,
    ReasoningContent,
    ResultContent,
    TextContent,
    ToolTurn,
    UserTurn,
)
from weft.provider.scripted import End, Fail, Say, Think, UseTool
from weft.testing.provider_bad_servers import BAD_SERVERS
from weft.testing.provider_stand import HELLO, KEY, ServerStand, Stand, asking, hear

Check = Callable[[Stand], Awaitable[None]]
ServerCheck = Callable[[ServerStand], Awaitable[None]]


def said(words: str) -> UserTurn:
    return UserTurn(content=(TextContent(text=words),))


# --- an answer ---


async def text_comes_in_pieces_and_whole(stand: Stand) -> None:
    stand.play([Say(text="one two  three\n\nvier 五 👩‍👩‍👧")])
    heard = await hear(stand.provider, asking(stand.model))
    assert heard.error is None
    assert heard.text() == "one two  three\n\nvier 五 👩‍👩‍👧"
    assert len([chunk for chunk in heard.chunks if isinstance(chunk, TextDelta)]) > 1
    assert (heard.finished().reason, heard.calls()) == ("stop", [])


async def a_thought_comes_before_the_words(stand: Stand) -> None:
    stand.play([Think(text="let me see"), Say(text="yes")])
    heard = await hear(stand.provider, asking(stand.model))
    assert (heard.thought(), heard.text()) == ("let me see", "yes")
    kinds = [type(chunk).__name__ for chunk in heard.chunks]
    assert kinds.index("ReasoningEnd") < kinds.index("TextStart")


async def a_call_is_told_when_it_is_whole(stand: Stand) -> None:
    stand.play([Say(text="I look"), UseTool(tool="read", input={"path": 'a "b"\n五'})])
    heard = await hear(stand.provider, asking(stand.model))
    [call] = heard.calls()
    assert (call.tool, msgspec.json.decode(call.raw)) == ("read", {"path": 'a "b"\n五'})
    told = "".join(chunk.text for chunk in heard.chunks if isinstance(chunk, ToolInputDelta))
    assert told in ("", call.raw)
    assert heard.finished().reason == "tool-calls"


async def calls_of_one_answer_are_told_apart(stand: Stand) -> None:
    stand.play([UseTool(tool="read", input={"path": str(number)}) for number in range(3)])
    heard = await hear(stand.provider, asking(stand.model))
    assert [msgspec.json.decode(call.raw) for call in heard.calls()] == [
        {"path": "0"},
        {"path": "1"},
        {"path": "2"},
    ]
    assert len({call.call_id for call in heard.calls()}) == len(heard.calls())


async def a_call_without_input_has_an_empty_one(stand: Stand) -> None:
    stand.play([UseTool(tool="read", input={})])
    [call] = (await hear(stand.provider, asking(stand.model))).calls()
    assert msgspec.json.decode(call.raw) == {}


async def the_end_says_why(stand: Stand) -> None:
    for reason in ("stop", "length", "content-filter"):
        stand.play([Say(text="so"), End(reason=reason)])
        finished = (await hear(stand.provider, asking(stand.model))).finished()
        assert (finished.reason, bool(finished.raw_reason)) == (reason, True)


async def no_token_is_counted_twice(stand: Stand) -> None:
    used = Usage(input=100, output=20, reasoning=7, cache_read=50)
    stand.play([Think(text="hm"), Say(text="so"), End(usage=used)])
    found = (await hear(stand.provider, asking(stand.model))).finished().usage
    # If an API does not report thinking separately, it is part of the output.
    undivided = replace(used, output=used.output + used.reasoning, reasoning=0)
    assert replace(found, raw=None) in (used, undivided)


async def answers_at_once_do_not_mix(stand: Stand) -> None:
    stand.play([Say(text="same words here")], [Say(text="same words here")], [Say(text="same words here")])
    heard = await asyncio.gather(*(hear(stand.provider, asking(stand.model)) for _ in range(3)))
    assert [each.text() for each in heard] == ["same words here"] * 3


async def a_failure_is_raised_and_not_retried(stand: Stand) -> None:
    stand.play([Say(text="so"), Fail(message="Overloaded", status=529, retryable=True)])
    heard = await hear(stand.provider, asking(stand.model))
    assert heard.error is not None
    assert (heard.error.retryable, str(heard.error)) == (True, "Overloaded"), repr(heard.error)
    assert stand.asked() == 1


async def one_stream_is_one_request(stand: Stand) -> None:
    stand.play([Say(text="a")], [Say(text="b")])
    for number in (1, 2):
        await hear(stand.provider, asking(stand.model))
        assert stand.asked() == number


async def nothing_is_asked_before_somebody_listens(stand: Stand) -> None:
    stand.play([Say(text="a")])
    stream = stand.provider.stream(asking(stand.model))
    assert stand.asked() == 0
    await stream.aclose()
    assert stand.asked() == 0


# --- a conversation ---


def _call(id: str) -> CallContent:
    return CallContent(call_id=id, tool="read", input={"path": "a"})


def _result(id: str, output: str = "ok", *, error: bool = False) -> ResultContent:
    return ResultContent(call_id=id, tool="read", output=output, error=error)


CONVERSATIONS: dict[str, tuple[ModelMessage, ...]] = {
    "words": (HELLO, AssistantTurn(content=(TextContent(text="hi"),)), said("again")),
    "calls": (
        HELLO,
        AssistantTurn(content=(TextContent(text="I look"), _call("a"), _call("b"))),
        ToolTurn(content=(_result("a"), _result("b", "not there", error=True))),
    ),
    "a result of nothing": (
        HELLO,
        AssistantTurn(content=(_call("a"),)),
        ToolTurn(content=(_result("a", ""),)),
    ),
    "ids no server likes": (
        HELLO,
        AssistantTurn(content=(_call("functions.read:0/ä"), _call("functions.read:0 ä"), _call("x" * 300))),
        ToolTurn(content=(_result("functions.read:0/ä"), _result("functions.read:0 ä"), _result("x" * 300))),
    ),
    "the same id again": (
        HELLO,
        AssistantTurn(content=(_call("a"), _call("a"))),
        ToolTurn(content=(_result("a", "1"), _result("a", "2"))),
        AssistantTurn(content=(_call("a"),)),
        ToolTurn(content=(_result("a", "3"),)),
    ),
    "a call without a result": (HELLO, AssistantTurn(content=(_call("a"),)), said("go on")),
    "a result without a call": (HELLO, ToolTurn(content=(_result("a"),)), said("go on")),
    "words after a call": (
        HELLO,
        AssistantTurn(content=(_call("a"), TextContent(text="and then"))),
        ToolTurn(content=(_result("a"),)),
        said("go on"),
    ),
    "a foreign thought": (
        HELLO,
        AssistantTurn(
            content=(
                ReasoningContent(text="mine", metadata={"elsewhere": {"signature": "xyz"}}),
                TextContent(text="hi"),
            )
        ),
        said("go on"),
    ),
    "thoughts alone": (HELLO, AssistantTurn(content=(ReasoningContent(text="hm"),)), said("go on")),
    "nothing at all": (),
    "empty words": (UserTurn(content=(TextContent(text=" \n"),)), AssistantTurn(content=()), said("x")),
    "an answer last": (HELLO, AssistantTurn(content=(TextContent(text="half an "),))),
    "an answer first": (AssistantTurn(content=(TextContent(text="so far"),)), HELLO),
    "a name no server likes": (
        HELLO,
        AssistantTurn(content=(replace(_call("a"), tool="read file!" * 20),)),
        ToolTurn(content=(_result("a"),)),
    ),
    "letters that are no letters": (UserTurn(content=(TextContent(text="\ufffe \x00 \u202e"),)),),
}


async def every_conversation_is_taken(stand: Stand) -> None:
    for name, messages in CONVERSATIONS.items():
        stand.play([Say(text="fine")])
        request = asking(stand.model, *messages)
        if not messages:
            request = replace(request, messages=())
        heard = await hear(stand.provider, request)
        assert heard.error is None, f"{name}: {heard.error}"


async def a_conversation_with_calls_is_taken_without_tools(stand: Stand) -> None:
    stand.play([Say(text="fine")])
    heard = await hear(stand.provider, asking(stand.model, *CONVERSATIONS["calls"], tools=()))
    assert heard.error is None, str(heard.error)


async def what_was_answered_can_be_sent_back(stand: Stand) -> None:
    stand.play(
        [Think(text="hm, so \n"), Say(text="I look"), UseTool(tool="read", input={"path": "a"})],
        [Say(text="ok")],
    )
    heard = await hear(stand.provider, asking(stand.model))
    [call] = heard.calls()
    metadata = next((chunk.metadata for chunk in heard.chunks if isinstance(chunk, ReasoningEnd)), None)
    content = (
        # The store trims the end of a text.
        ReasoningContent(text=heard.thought().rstrip(), metadata=metadata),
        TextContent(text=heard.text()),
        CallContent(call_id=call.call_id, tool=call.tool, input={"path": "a"}, metadata=call.metadata),
    )
    results = ToolTurn(content=(_result(call.call_id),))
    again = await hear(stand.provider, asking(stand.model, HELLO, AssistantTurn(content=content), results))
    assert again.error is None, str(again.error)


CHECKS: tuple[Check, ...] = (
    text_comes_in_pieces_and_whole,
    a_thought_comes_before_the_words,
    a_call_is_told_when_it_is_whole,
    calls_of_one_answer_are_told_apart,
    a_call_without_input_has_an_empty_one,
    the_end_says_why,
    no_token_is_counted_twice,
    answers_at_once_do_not_mix,
    a_failure_is_raised_and_not_retried,
    one_stream_is_one_request,
    nothing_is_asked_before_somebody_listens,
    every_conversation_is_taken,
    a_conversation_with_calls_is_taken_without_tools,
    what_was_answered_can_be_sent_back,
)


# --- the connection ---


async def closing_the_stream_closes_the_connection(stand: ServerStand) -> None:
    stand.server.hang(Say(text="one two three"), pieces=6)
    async with aclosing(stand.provider.stream(asking(stand.model))) as stream:
        async for chunk in stream:
            if isinstance(chunk, TextDelta | Started):
                break
    await stand.server.left()


async def cancelling_closes_the_connection(stand: ServerStand) -> None:
    stand.server.hang(Say(text="one two three"), pieces=6)
    began = asyncio.Event()

    async def listen() -> None:
        async with aclosing(stand.provider.stream(asking(stand.model))) as stream:
            async for _ in stream:
                began.set()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(listen())
        await began.wait()
        task.cancel()
        await stand.server.left()


async def a_connection_serves_again(stand: ServerStand) -> None:
    stand.play([Say(text="a")], [Say(text="b")])
    for _ in range(2):
        await hear(stand.provider, asking(stand.model))
    ports = {request.headers.get("host") for request in stand.server.requests}
    assert len(ports) == 1
    assert stand.server.connections == 1


async def the_key_is_sent_and_never_told(stand: ServerStand) -> None:
    stand.server.refuse(401, "who are you?")
    heard = await hear(stand.provider, asking(stand.model))
    assert any(KEY in value for value in stand.server.requests[0].headers.values())
    assert heard.error is not None
    assert KEY not in f"{heard.error!r} {heard.error.headers} {heard.error.body}"


async def headers_of_the_request_are_sent(stand: ServerStand) -> None:
    stand.play([Say(text="a")])
    request = asking(stand.model)
    parameters = replace(request.parameters, headers={"X-Test": "yes", "User-Agent": "me"})
    await hear(stand.provider, replace(request, parameters=parameters))
    headers = stand.server.requests[0].headers
    assert (headers.get("x-test"), headers.get("user-agent")) == ("yes", "me")


async def the_same_request_is_the_same_bytes(stand: ServerStand) -> None:
    for messages in CONVERSATIONS.values():
        stand.play([Say(text="a")], [Say(text="b")])
        for _ in range(2):
            await hear(stand.provider, asking(stand.model, *messages))
        first, second = stand.server.requests[-2:]
        assert first.raw == second.raw


SERVER_CHECKS: tuple[ServerCheck, ...] = (
    closing_the_stream_closes_the_connection,
    cancelling_closes_the_connection,
    a_connection_serves_again,
    the_key_is_sent_and_never_told,
    headers_of_the_request_are_sent,
    the_same_request_is_the_same_bytes,
    *BAD_SERVERS,
)
