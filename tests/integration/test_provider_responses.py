"""A session over OpenAI's Responses API, with a server that refuses what the real one refuses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fake.responses import ResponsesDialect
from given.engine import ECHO, Engine, open_engine, text_prompt
from given.model_requests import GPT_5
from weft.model.failure import ApiFailure
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage
from weft.model.part import ReasoningPart, TextPart, Tokens, ToolPart
from weft.provider.chunk import Usage
from weft.provider.openai_responses.adapter import OpenAIResponses
from weft.provider.scripted import End, Fail, Say, Think, UseTool
from weft.testing.provider_harness import ServerProviderHarness, open_provider_harness
from weft.tool.registry import INVALID

T = TypeVar("T")

HI = {"role": "user", "content": [{"type": "input_text", "text": "say hi"}]}


@asynccontextmanager
async def open_session() -> AsyncIterator[tuple[Engine, ServerProviderHarness]]:
    async with (
        open_provider_harness(ResponsesDialect(), OpenAIResponses, GPT_5) as harness,
        open_engine(model=GPT_5, provider=harness.provider, tools=(ECHO, INVALID)) as engine,
    ):
        yield engine, harness


def get_sent_items(harness: ServerProviderHarness, number: int) -> list[dict[str, Any]]:
    """Return the items of a request, without the system prompt."""
    items: list[dict[str, Any]] = harness.server.requests[number].body["input"]
    return [item for item in items if item.get("role") != "developer"]


async def test_a_thought_and_a_call_are_sent_back_unchanged() -> None:
    async with open_session() as (engine, harness):
        harness.play(
            [
                Think(text="Let me see."),
                Say(text="One moment."),
                UseTool(tool="echo", input={"words": "hi"}),
            ],
            [Say(text="It said hi."), End(usage=Usage(input=7, output=3, reasoning=2, cache_read=40))],
        )
        session = await engine.api.create_session(SessionInput())
        answer = await engine.api.prompt(session.id, text_prompt("say hi"))
        [_, first, last] = await engine.api.list_messages(session.id)
    thought, call = _only_part(first.parts, ReasoningPart), _only_part(first.parts, ToolPart)
    assert thought.metadata is not None
    assert get_sent_items(harness, 0) == [HI]
    assert get_sent_items(harness, 1) == [
        HI,
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Let me see."}],
            "encrypted_content": thought.metadata["openai"]["reasoningEncryptedContent"],
        },
        {"role": "assistant", "content": [{"type": "output_text", "text": "One moment."}]},
        {
            "type": "function_call",
            "call_id": call.call_id,
            "name": "echo",
            "arguments": '{"words":"hi"}',
        },
        {"type": "function_call_output", "call_id": call.call_id, "output": "hi"},
    ]
    assert answer == last
    assert isinstance(last.info, AssistantMessage)
    assert [part.text for part in last.parts if isinstance(part, TextPart)] == ["It said hi."]
    used = last.info.tokens
    assert (used.input, used.output, used.reasoning, used.cache.read) == (7, 3, 2, 40)


async def test_a_session_continues_after_an_answer_that_broke_off() -> None:
    async with open_session() as (engine, harness):
        harness.play(
            [Think(text="Let me see."), Say(text="One"), Fail(message="boom")],
            [Say(text="Here I am.")],
        )
        session = await engine.api.create_session(SessionInput())
        broken = await engine.api.prompt(session.id, text_prompt("say hi"))
        whole = await engine.api.prompt(session.id, text_prompt("again"))
    assert isinstance(broken.info, AssistantMessage)
    assert isinstance(broken.info.error, ApiFailure)
    assert (broken.info.error.data.message, broken.info.error.data.status_code) == ("boom", 400)
    assert isinstance(whole.info, AssistantMessage)
    assert whole.info.error is None
    assert get_sent_items(harness, 1) == [
        HI,
        {"role": "user", "content": [{"type": "input_text", "text": "again"}]},
    ]


async def test_arguments_that_are_not_json_become_an_error_result() -> None:
    async with open_session() as (engine, harness):
        harness.play([UseTool(tool="echo", raw='{"words": "h')], [Say(text="I see.")])
        session = await engine.api.create_session(SessionInput())
        answer = await engine.api.prompt(session.id, text_prompt("say hi"))
    assert isinstance(answer.info, AssistantMessage)
    assert answer.info.error is None
    call, result = get_sent_items(harness, 1)[1:]
    assert (call["type"], result["type"]) == ("function_call", "function_call_output")
    assert result["call_id"] == call["call_id"]


async def test_an_answer_truncated_by_its_limit_is_kept() -> None:
    async with open_session() as (engine, harness):
        harness.play([Say(text="As far as"), End(reason="length", usage=Usage(input=1, output=2))])
        session = await engine.api.create_session(SessionInput())
        answer = await engine.api.prompt(session.id, text_prompt("say hi"))
    assert isinstance(answer.info, AssistantMessage)
    assert (answer.info.finish, answer.info.tokens) == ("length", Tokens(input=1, output=2))


def _only_part(parts: Any, kind: type[T]) -> T:
    [found] = [part for part in parts if isinstance(part, kind)]
    return found
