"""openai-agents with its sessions in weft: real agents with a scripted model."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    SessionSettings,
    SQLiteSession,
    Usage,
    function_tool,
)
from agents.memory import Session as SessionProtocol
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)
from openai.types.responses.response_reasoning_item import Summary

from weft.agent.sessions import Session, SessionStore, open_store
from weft.integrations.openai_agents import WeftSession
from weft.model.message import AssistantMessage
from weft.model.part import CompletedState, ReasoningPart, RunningState, TextPart, ToolPart
from weft.session.append import NewFile, NewToolCall, assistant_message, user_message

WEFT = str(Path(sys.executable).with_name("weft"))
QUIET = RunConfig(tracing_disabled=True)


class Scripted(Model):
    """Answers with the outputs of a script, one for each request, and keeps what it was sent."""

    def __init__(self, *script: list[Any]) -> None:
        self.script = list(script)
        self.sent: list[Any] = []

    async def get_response(self, *args: Any, **rest: Any) -> ModelResponse:
        _, input, *_ = (*args, *rest.values())
        self.sent.append(json.loads(json.dumps(input)))
        return ModelResponse(output=self.script.pop(0), usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **rest: Any) -> AsyncIterator[Any]:
        raise NotImplementedError(args, rest)


def text_item(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(annotations=[], text=text, type="output_text")
    return ResponseOutputMessage(
        id=f"msg_{text[:3]}", content=[content], role="assistant", status="completed", type="message"
    )


def calls(name: str, id: str, **arguments: Any) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        arguments=json.dumps(arguments), call_id=id, name=name, type="function_call", id=f"fc_{id}"
    )


def reasoning_item(text: str) -> ResponseReasoningItem:
    return ResponseReasoningItem(
        id="rs_1", summary=[Summary(text=text, type="summary_text")], type="reasoning"
    )


@function_tool
def find_order(number: int) -> str:
    """Find an order."""
    return f"order {number} is in Hamburg"


def make_agent(model: Model) -> Agent:
    return Agent(name="support", instructions="Be nice.", model=model, tools=[find_order])


async def ask(model: Model, words: str, session: Any) -> str:
    result = await Runner.run(make_agent(model), words, session=session, run_config=QUIET)
    return str(result.final_output)


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


def first_turns() -> Scripted:
    return Scripted(
        [reasoning_item("Look it up."), calls("find_order", "call_1", number=42)],
        [text_item("It is in Hamburg.")],
        [text_item("You are welcome.")],
    )


async def test_an_agent_remembers_two_turns_and_continues_with_another_handle(tmp_path: Path) -> None:
    model, measure = first_turns(), SQLiteSession("measure")
    async with open_store(tmp_path / "history", directory=tmp_path) as store:
        session = WeftSession(await store.session("support-42"))
        assert isinstance(session, SessionProtocol)
        assert await ask(model, "Where is order 42?", session) == "It is in Hamburg."
        assert await ask(model, "Thanks!", session) == "You are welcome."
    same = first_turns()
    for words in ("Where is order 42?", "Thanks!"):  # openai-agents' own session holds what ours should hold
        await ask(same, words, measure)

    async with open_store(tmp_path / "history", directory=tmp_path) as store:
        session = WeftSession(await store.session("support-42"))
        assert await session.get_items() == await measure.get_items()
        model, same = Scripted([text_item("42.")]), Scripted([text_item("42.")])
        assert await ask(model, "Which order was it?", session) == "42."
        await ask(same, "Which order was it?", measure)
        assert model.sent == same.sent
        assert len(model.sent[0]) == 8


async def test_the_work_of_the_agent_is_readable_in_weft(tmp_path: Path) -> None:
    async with open_store(tmp_path / "history", directory=tmp_path) as store:
        session = await store.session("support-42")
        await ask(first_turns(), "Where is order 42?", WeftSession(session))
        messages = await session.load()
        assert [hit.session_id for hit in await store.search("hamburg")] == [session.id]
    assert [[type(part) for part in message.parts] for message in messages] == [
        [TextPart],
        [ReasoningPart, ToolPart],
        [TextPart],
    ]
    [_, call] = messages[1].parts
    assert isinstance(call, ToolPart)
    assert isinstance(call.state, CompletedState)
    assert (call.tool, call.state.input, call.state.output) == (
        "find_order", {"number": 42}, "order 42 is in Hamburg",
    )  # fmt: skip
    shown = await asyncio.to_thread(show, session.id, tmp_path)
    for words in ("> Where is order 42?", "Look it up.", "| Find_order", "It is in Hamburg."):
        assert words in shown


ITEMS: list[Any] = [
    {"role": "user", "content": "Hi", "unknown": {"n": 1.5}},
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "See this"},
            {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"},
            {"type": "input_file", "filename": "a.txt", "file_data": "aGk="},
        ],
    },
    {"role": "developer", "content": "Be brief."},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "not json"},
    {"type": "function_call", "call_id": "c2", "name": "g", "arguments": '{"x": 1}'},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "one"}]},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "tea"}},
    {"type": "mcp_call", "id": "mcp_1", "name": "x", "server_label": "s", "arguments": "{}", "error": "refused"},
    {"type": "item_reference", "id": "msg_9"},
    {"type": "brand_new_item", "payload": [None, True, {"deep": 12345678901234567890123}]},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
]  # fmt: skip


async def test_items_of_every_kind_are_returned_exactly(store: SessionStore) -> None:
    session = WeftSession(await store.session())
    await session.add_items(ITEMS[:6])
    await session.add_items(ITEMS[6:])
    assert await session.get_items() == ITEMS
    assert await session.get_items(limit=3) == ITEMS[-3:]
    assert await session.get_items(limit=0) == []
    limited = WeftSession(await store.session(session.session_id), session_settings=SessionSettings(limit=2))
    assert await limited.get_items() == ITEMS[-2:]
    assert await limited.get_items(limit=100) == ITEMS


async def test_a_call_is_open_until_its_result_is_added(store: SessionStore) -> None:
    session = await store.session()
    items = WeftSession(session)

    async def states() -> list[type]:
        return [
            type(part.state)
            for message in await session.load()
            for part in message.parts
            if isinstance(part, ToolPart)
        ]

    await items.add_items([ITEMS[5]])
    assert await states() == [RunningState]
    await items.add_items([{"type": "function_call_output", "call_id": "c2", "output": "done"}])
    assert await states() == [CompletedState]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)  # fmt: skip
ITEM = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["message", "function_call", "function_call_output", "reasoning", "odd", "x_call"]),
        "role": st.sampled_from(["user", "assistant", "system"]),
        "content": JSON,
        "call_id": st.sampled_from(["c1", "c2"]),
        "name": st.text(max_size=3),
        "arguments": st.text(max_size=5),
        "output": JSON,
        "summary": JSON,
    }
)  # fmt: skip


@given(
    batches=st.lists(st.lists(ITEM, max_size=4), max_size=4), pops=st.integers(0, 5), limit=st.integers(0, 6)
)
async def test_any_items_are_returned_and_popped_in_order(
    batches: list[list[Any]], pops: int, limit: int
) -> None:
    async with open_store("memory:") as store:
        session, held = WeftSession(await store.session()), [item for batch in batches for item in batch]
        for batch in batches:
            await session.add_items(batch)
        for _ in range(pops):
            assert await session.pop_item() == (held.pop() if held else None)
        assert await session.get_items() == held
        assert await session.get_items(limit=limit) == (held[-limit:] if limit else [])
        await session.clear_session()
        assert await session.get_items() == []
        await session.add_items([ITEMS[0]])
        assert await session.get_items() == [ITEMS[0]]


async def test_messages_appended_by_others_are_items_too(store: SessionStore) -> None:
    session: Session = await store.session()
    await session.append(
        user_message("Where is it?", NewFile("data:image/png;base64,aGk=", "image/png")),
        assistant_message(
            NewToolCall("find", {"n": 1}, "c1", output="here"), NewToolCall("open", {}, "c2"), "Here."
        ),
    )
    items = WeftSession(session)
    derived: list[Any] = [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Where is it?"},
                {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"},
            ],
        },
        {"type": "function_call", "call_id": "c1", "name": "find", "arguments": '{"n":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "here"},
        {"role": "assistant", "content": "Here."},
    ]
    assert await items.get_items() == derived
    assert await ask(Scripted([text_item("Again.")]), "And now?", items) == "Again."
    assert (await items.get_items())[:4] == derived


async def test_popping_keeps_the_rest_readable(store: SessionStore) -> None:
    session = await store.session()
    items = WeftSession(session)
    await items.add_items([ITEMS[0], ITEMS[4], ITEMS[6]])
    await items.pop_item()
    [_, answer] = await session.load()
    [call] = answer.parts
    assert isinstance(answer.info, AssistantMessage)
    assert isinstance(call, ToolPart)
    assert isinstance(call.state, RunningState)
    assert call.state.input == {"input": "not json"}
