"""A call that a crash interrupted is repeated only if somebody agrees."""

from typing import Any

import pytest
from msgspec.structs import replace

from given.conversation import assistant_message, tool_part, user_message
from given.engine import ALLOW, NOW, Engine, open_engine, text_prompt
from weft.model.event import MessageUpdated, PartUpdated
from weft.model.input import SessionInput
from weft.model.part import CallTime, ErrorState, PendingState, ToolPart
from weft.model.permission import Rule
from weft.model.verdict import find_verdict
from weft.provider.scripted import Say, UseTool
from weft.session.settle import INTERRUPTED
from weft.session.verdict import NOT_REPEATED, is_unsafe_to_repeat
from weft.store.memory import MemoryStore

WORDS = {"words": "x"}


def interrupted_call(tool: str, input: dict[str, Any], error: str = INTERRUPTED) -> ToolPart:
    state = ErrorState(input=input, error=error, time=CallTime(start=1, end=2))
    return replace(tool_part("A1", 1, tool), state=state)


def test_only_the_last_equal_call_counts_and_only_if_it_was_interrupted() -> None:
    before = [
        user_message("U1", 1),
        assistant_message("A1", 2, "U1", interrupted_call("bash", {"command": "make"})),
    ]
    done = assistant_message("A2", 3, "U1", replace(tool_part("A2", 2, "bash"), state=tool_part("A2").state))

    assert is_unsafe_to_repeat(before, "c", "bash", {"command": "make"})
    assert not is_unsafe_to_repeat(before, "c", "bash", {"command": "make test"})
    assert not is_unsafe_to_repeat(before, "call_1", "bash", {"command": "make"})
    assert not is_unsafe_to_repeat([*before, done], "c", "bash", {"x": 1})
    assert not is_unsafe_to_repeat(
        [assistant_message("A1", 2, "U1", interrupted_call("read", WORDS))], "c", "read", WORDS
    )
    assert not is_unsafe_to_repeat(
        [assistant_message("A1", 2, "U1", interrupted_call("bash", WORDS, "exit 1"))], "c", "bash", WORDS
    )


async def outcome(engine: Engine) -> ToolPart:
    session = (await engine.api.create_session(SessionInput(title="t"))).id
    await engine.api.prompt(session, text_prompt("begin", no_reply=True))
    prompt = (await engine.api.list_messages(session))[0].info
    left = assistant_message("msg_left", prompt.time.created, prompt.id)
    info = replace(left.info, session_id=session)
    part = replace(interrupted_call("echo", WORDS), session_id=session, message_id=info.id)
    await engine.store.apply(MessageUpdated(info=info), PartUpdated(part=part))
    await engine.api.prompt(session, text_prompt("go on"))
    calls = [
        part
        for message in await engine.api.list_messages(session)
        for part in message.parts
        if isinstance(part, ToolPart) and message.info.id != info.id
    ]
    return calls[-1]


async def test_an_interrupted_call_needs_permission_to_be_repeated() -> None:
    rules = (*ALLOW, Rule(permission="interrupted", pattern="*", action="ask"))
    script = ([UseTool(tool="echo", input=WORDS)], [Say(text="I looked first.")])
    async with open_engine(*script, store=MemoryStore(), rules=rules) as engine:
        state = (await outcome(engine)).state
        assert isinstance(state, ErrorState)
        assert state.error == NOT_REPEATED


async def test_a_rule_can_allow_interrupted_calls_to_be_repeated() -> None:
    script = ([UseTool(tool="echo", input=WORDS)], [Say(text="Done.")])
    async with open_engine(*script, store=MemoryStore()) as engine:
        assert not isinstance((await outcome(engine)).state, ErrorState)


@pytest.mark.parametrize(("age", "verdict"), [(1, "not-started"), (10**12, "unknown")])
async def test_a_call_older_than_the_last_boot_may_have_started(age: int, verdict: str) -> None:
    async with open_engine() as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        left = assistant_message("msg_left", NOW - age, "msg_prompt")
        pending = replace(
            tool_part("msg_left"),
            session_id=session,
            message_id=left.info.id,
            state=PendingState(input={}, raw=""),
        )
        info = replace(left.info, session_id=session)
        await engine.store.apply(MessageUpdated(info=info), PartUpdated(part=pending))
        await engine.api.runner.settle(session)
        [settled] = (await engine.api.list_messages(session))[0].parts
    assert isinstance(settled, ToolPart)
    found = find_verdict(settled.state.metadata) if isinstance(settled.state, ErrorState) else None
    assert found is not None
    assert found.kind == verdict
