"""pydantic-ai with its message history in weft: real agents with the models that pydantic-ai has for tests."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent, ImageUrl, ModelRetry
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from weft.agent.sessions import SessionStore, open_store
from weft.integrations.openai_agents import WeftSession
from weft.integrations.pydantic_ai import WeftHistory
from weft.model import part as parts
from weft.model.message import AssistantMessage
from weft.session.append import NewReasoning, NewToolCall, assistant_message

WEFT = str(Path(sys.executable).with_name("weft"))


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool for a prompt, then repeat how many messages were sent."""
    last = messages[-1].parts[-1]
    usage = RequestUsage(input_tokens=10, output_tokens=5, cache_read_tokens=4)
    if isinstance(last, UserPromptPart):
        call = ToolCallPart("find_order", {"number": 42}, tool_call_id=f"call_{len(messages)}")
        return ModelResponse([ThinkingPart("Look it up."), call], usage=usage, provider_name="p")
    return ModelResponse([TextPart(f"It is in Hamburg ({len(messages)}).")], usage=usage)


def make_agent() -> Agent[None, str]:
    agent = Agent(FunctionModel(answer, model_name="f"), system_prompt="Be nice.")

    @agent.tool_plain
    def find_order(number: int) -> dict[str, Any]:
        return {"number": number, "place": "Hamburg"}

    return agent


def show(session: str, directory: Path) -> str:
    """Return what `weft session show` prints."""
    return subprocess.run(
        [WEFT, "session", "show", session, "--store", "history"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    url = "memory:" if request.param == "memory" else str(tmp_path / "history")
    async with open_store(url, directory=tmp_path) as opened:
        yield opened


async def test_an_agent_remembers_two_turns_and_continues_with_another_handle(tmp_path: Path) -> None:
    agent = make_agent()
    async with open_store(tmp_path / "history", directory=tmp_path) as store:
        history = WeftHistory(await store.session("support-42"))
        for words in ("Where is order 42?", "And now?"):
            result = await agent.run(words, message_history=await history.load())
            await history.append(result.new_messages())
    async with open_store(tmp_path / "history", directory=tmp_path) as store:
        history = WeftHistory(await store.session("support-42"))
        loaded = await history.load()
        assert loaded == result.all_messages()
        assert ModelMessagesTypeAdapter.dump_json(loaded) == result.all_messages_json()
        again = await agent.run("Still?", message_history=loaded)
        assert again.output == "It is in Hamburg (11)."


async def test_the_work_of_the_agent_is_readable_in_weft(tmp_path: Path) -> None:
    async with open_store(tmp_path / "history", directory=tmp_path) as store:
        session = await store.session("support-42")
        await WeftHistory(session).append((await make_agent().run("Where is order 42?")).new_messages())
        messages = await session.load()
        assert [hit.session_id for hit in await store.search("hamburg")] == [session.id]
    assert [[type(part) for part in message.parts] for message in messages] == [
        [parts.TextPart, parts.TextPart],
        [parts.ReasoningPart, parts.ToolPart],
        [parts.TextPart],
    ]
    info, call = messages[1].info, messages[1].parts[1]
    assert isinstance(info, AssistantMessage)
    assert (info.provider_id, info.model_id, info.counted) == ("p", "f", True)
    assert info.tokens == parts.Tokens(input=6, output=5, cache=parts.CacheTokens(read=4))
    assert isinstance(call, parts.ToolPart)
    assert isinstance(call.state, parts.CompletedState)
    assert (call.state.input, call.state.output) == ({"number": 42}, '{"number":42,"place":"Hamburg"}')
    shown = await asyncio.to_thread(show, session.id, tmp_path)
    for words in ("> Where is order 42?", "Look it up.", "| Find_order", "It is in Hamburg (3)."):
        assert words in shown
    assert "Be nice." not in shown


async def test_a_run_of_the_test_model_is_returned_exactly(store: SessionStore) -> None:
    agent = Agent(TestModel(), instructions="Say what the tools say.")
    tries: list[int] = []

    @agent.tool_plain
    def flaky(x: int) -> int:
        tries.append(x)
        if len(tries) == 1:
            raise ModelRetry("once more")
        return x

    result = await agent.run("Try it.")
    history = WeftHistory(await store.session())
    await history.append(result.new_messages())
    loaded = await history.load()
    assert loaded == result.all_messages()
    assert ModelMessagesTypeAdapter.dump_json(loaded) == result.all_messages_json()


MESSAGES: list[ModelMessage] = [
    ModelRequest(
        [
            SystemPromptPart("Be brief."),
            UserPromptPart(
                [
                    "See these",
                    ImageUrl("https://example.test/a.png"),
                    BinaryContent(b"\xff\xfe\xfb", media_type="image/png"),
                ]
            ),
        ],
        instructions="None.",
        metadata={"trace": ["x"]},
    ),
    ModelResponse([ToolCallPart("f", "not json", "c1"), ToolCallPart("g", None, "c2")]),
    ModelRequest([ToolReturnPart("f", {"a": (1, 2)}, "c1", outcome="failed")]),
    ModelRequest([ToolReturnPart("g", [], "c2"), UserPromptPart("Go on.")]),
    ModelRequest([ToolReturnPart("h", "no such thing", "c3", outcome="retried")]),
    ModelRequest([RetryFeedbackPart("Say something.", retry=RetryInfo(cause="no_output"))]),
    ModelResponse([]),
]


async def test_messages_of_every_kind_are_returned_as_the_adapter_reads_them(store: SessionStore) -> None:
    history = WeftHistory(await store.session())
    for message in MESSAGES:  # a result may be appended long after its call
        await history.append([message])
    expected = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(MESSAGES))
    loaded = await history.load()
    assert loaded == expected
    assert ModelMessagesTypeAdapter.dump_json(loaded) == ModelMessagesTypeAdapter.dump_json(expected)


async def test_a_failed_call_is_shown_as_failed(store: SessionStore) -> None:
    session = await store.session()
    await WeftHistory(session).append(MESSAGES[:3])
    [asked, answer] = await session.load()
    assert [type(part) for part in asked.parts] == [
        parts.TextPart, parts.TextPart, parts.FilePart, parts.FilePart,
    ]  # fmt: skip
    files = [part for part in asked.parts if isinstance(part, parts.FilePart)]
    assert [(file.mime, file.url) for file in files] == [
        ("image/png", "https://example.test/a.png"),
        ("image/png", "data:image/png;base64,//77"),
    ]
    [failed, opened] = [part for part in answer.parts if isinstance(part, parts.ToolPart)]
    assert isinstance(failed.state, parts.ErrorState)
    assert (failed.state.input, failed.state.error) == ({"input": "not json"}, '{"a":[1,2]}')
    assert isinstance(opened.state, parts.RunningState)


async def test_a_fork_and_a_session_of_another_framework_can_be_used_as_histories(
    store: SessionStore,
) -> None:
    session = await store.session()
    result = await make_agent().run("Where is order 42?")
    await WeftHistory(session).append(result.new_messages())
    copy = await session.fork()
    assert await WeftHistory(copy).load() == result.all_messages()

    items = await WeftSession(copy).get_items()
    assert [item.get("type", item.get("role")) for item in items] == [
        "user", "function_call", "function_call_output", "assistant",
    ]  # fmt: skip

    other = await store.session()
    await WeftSession(other).add_items([{"role": "user", "content": "Hi"}])
    await other.append(assistant_message(NewReasoning("Hm."), NewToolCall("f", {}, "c1", error="no"), "Ho"))
    [asked, answered, results] = await WeftHistory(other).load()
    assert [type(part) for part in asked.parts] == [UserPromptPart]
    assert [type(part) for part in answered.parts] == [ThinkingPart, ToolCallPart, TextPart]
    [returned] = results.parts
    assert isinstance(returned, ToolReturnPart)
    assert (returned.content, returned.outcome) == ("no", "failed")
