"""Hooks on tool calls of every kind, on slash commands and on permissions."""

import json
from typing import Any

import pytest

from given.engine import ECHO, Engine, open_engine, text_prompt
from given.fake_hooks import FakeHooks, block, leave
from given.subtask_engine import AGENTS
from weft.config.commands import build_commands
from weft.config.schema import CommandConfig, Config
from weft.errors import BlockedError
from weft.local.permissions import PermissionSettings
from weft.model.ids import SessionID
from weft.model.input import CommandInput, PromptInput, SessionInput, SubtaskInput, TextInput
from weft.model.part import CompletedState, ErrorState, TextPart, ToolPart
from weft.model.permission import PermissionRequest, Rule
from weft.plugin.hooks import (
    CallArguments,
    CallHookInput,
    CallOutcome,
    CommandHookInput,
    CommandParts,
    PermissionAnswer,
)
from weft.provider.contract import AssistantModelMessage, CallContent, ResultContent, ToolModelMessage
from weft.provider.scripted import Say, UseTool
from weft.store.contract import Store
from weft.tool.contract import Tool, ToolContext, ToolResult
from weft.tool.registry import BASH, BATCH, INVALID, TASK
from weft.tool.truncate import MAX_BYTES

CALL = UseTool(tool="echo", input={"words": "x"})
ASK = (Rule(permission="*", pattern="*", action="ask"),)


async def start(engine: Engine) -> SessionID:
    return (await engine.api.create_session(SessionInput(title="t"))).id


async def calls_of(engine: Engine, session: SessionID) -> list[ToolPart]:
    messages = await engine.api.list_messages(session)
    return [part for message in messages for part in message.parts if isinstance(part, ToolPart)]


def short(part: ToolPart) -> str:
    match part.state:
        case CompletedState(output=output):
            return output
        case ErrorState(error=error):
            return f"! {error}"
        case _:
            return "?"


def louder(told: CallHookInput, now: CallArguments) -> CallArguments:
    return now.but(args={"words": f"{now.args['words']}!"})


# --- before a call ---


async def test_a_call_is_made_with_the_arguments_of_the_plugin_and_shown_with_those_of_the_model() -> None:
    hooks = FakeHooks({"tool.execute.before": louder})
    async with open_engine([CALL], [Say(text="ok")], hooks=hooks) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (call,) = await calls_of(engine, session)
        made, brought = engine.provider.requests[1].messages[1:]

        assert isinstance(call.state, CompletedState)
        assert (call.state.input, call.state.output) == ({"words": "x"}, "x!")
        assert call.state.metadata["weft"] == {"args": {"words": "x!"}}
        assert isinstance(made, AssistantModelMessage)
        assert isinstance(made.content[0], CallContent)
        assert made.content[0].input == {"words": "x"}
        assert isinstance(brought, ToolModelMessage)
        assert brought.content[0].output == "x!"
        assert hooks.calls[0][1] == CallHookInput(
            tool="echo", session_id=session, call_id=call.call_id, args={"words": "x"}
        )


async def test_rules_judge_what_is_done_and_not_what_was_written() -> None:
    rules = (
        Rule(permission="*", pattern="*", action="allow"),
        Rule(permission="echo", pattern="x!", action="deny"),
    )
    hooks = FakeHooks({"tool.execute.before": louder})
    async with open_engine([CALL], [Say(text="ok")], hooks=hooks, rules=rules) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (call,) = await calls_of(engine, session)
        assert isinstance(call.state, ErrorState)


async def test_arguments_that_the_tool_does_not_take_are_an_error_the_model_reads() -> None:
    hooks = FakeHooks({"tool.execute.before": lambda _, now: now.but(args={"word": 1})})
    async with open_engine([CALL], [Say(text="ok")], hooks=hooks) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (call,) = await calls_of(engine, session)
        assert "invalid arguments" in short(call)


async def test_a_blocked_call_is_not_made_and_the_model_reads_why() -> None:
    made: list[str] = []

    async def note(wanted: Any, ctx: ToolContext) -> ToolResult:
        made.append(wanted.words)
        return ToolResult(title="", output="")

    tool = Tool(name="echo", about="", takes=ECHO.takes, run=note)
    hooks = FakeHooks({"tool.execute.before": block("no echoes here")})
    async with open_engine([CALL], [Say(text="ok")], hooks=hooks, tools=(tool,)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        result = engine.provider.requests[1].messages[-1]

        assert made == []
        assert isinstance(result, ToolModelMessage)
        assert result.content == (
            ResultContent(
                call_id=result.content[0].call_id,
                tool="echo",
                output="Blocked by a plugin: no echoes here",
                error=True,
            ),
        )


async def test_calls_of_a_batch_and_of_a_subtask_are_told_like_all_others() -> None:
    hooks = FakeHooks({"tool.execute.before": leave, "tool.execute.after": leave})
    batch = UseTool(tool="batch", input={"tool_calls": [{"tool": "echo", "parameters": {"words": "a"}}]})
    script = ([batch], [Say(text="ok")], [Say(text="done")], [Say(text="ok")])
    agents = tuple(AGENTS.values()) if isinstance(AGENTS, dict) else AGENTS
    async with open_engine(*script, hooks=hooks, tools=(BATCH, ECHO, INVALID, TASK), agents=agents) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        subtask = SubtaskInput(prompt="look", description="Look", agent="general")
        await engine.api.prompt(session, PromptInput(parts=(subtask,)))
        calls = await calls_of(engine, session)
        told = [(name.rpartition(".")[2], at.tool, at.call_id) for name, at, _ in hooks.calls]

        by_tool = {call.tool: call.call_id for call in calls}
        assert told == [
            ("before", "batch", by_tool["batch"]),
            ("before", "echo", by_tool["echo"]),
            ("after", "echo", by_tool["echo"]),
            ("after", "batch", by_tool["batch"]),
            ("before", "task", by_tool["task"]),
            ("after", "task", by_tool["task"]),
        ]


# --- after a call ---


async def test_what_came_of_a_call_is_told_as_the_plugin_would_have_it() -> None:
    def retold(told: CallHookInput, now: CallOutcome) -> CallOutcome:
        return now.but(title="T", output=f"<{now.output}>", metadata={**now.metadata, "seen": told.args})

    async with open_engine(
        [CALL], [Say(text="ok")], hooks=FakeHooks({"tool.execute.after": retold})
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (call,) = await calls_of(engine, session)
        assert isinstance(call.state, CompletedState)
        assert (call.state.title, call.state.output) == ("T", "<x>")
        assert call.state.metadata["seen"] == {"words": "x"}


@pytest.mark.parametrize("own", [{}, {"truncated": False}])
async def test_what_a_plugin_makes_of_an_output_is_bounded_too(own: dict[str, Any]) -> None:
    def flood(told: CallHookInput, now: CallOutcome) -> CallOutcome:
        return now.but(output="line\n" * MAX_BYTES, metadata=own)

    async with open_engine(
        [CALL], [Say(text="ok")], hooks=FakeHooks({"tool.execute.after": flood})
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (call,) = await calls_of(engine, session)
        assert isinstance(call.state, CompletedState)
        assert call.state.metadata["truncated"] is True
        assert len(call.state.output) < 2 * MAX_BYTES


# --- commands ---


def commands(**templates: str) -> Any:
    said = {name: CommandConfig(template=template) for name, template in templates.items()}
    return build_commands(Config(command=said), "/nowhere")


async def test_a_command_becomes_the_prompt_that_a_plugin_makes_of_it() -> None:
    def more(told: CommandHookInput, now: CommandParts) -> CommandParts:
        return now.but(parts=(*now.parts, TextInput(text=f"({told.command} {told.arguments})")))

    hooks = FakeHooks({"command.execute.before": more})
    async with open_engine([Say(text="ok")], hooks=hooks, commands=commands(greet="Greet $1.")) as engine:
        session = await start(engine)
        await engine.api.command(session, CommandInput(command="greet", arguments="Ada"))
        asked, _ = await engine.api.list_messages(session)
        assert [part.text for part in asked.parts if isinstance(part, TextPart)] == [
            "Greet Ada.",
            "(greet Ada)",
        ]


async def test_a_blocked_command_stores_nothing() -> None:
    hooks = FakeHooks({"command.execute.before": block("not that one")})
    async with open_engine(hooks=hooks, commands=commands(greet="Greet $1.")) as engine:
        session = await start(engine)
        with pytest.raises(BlockedError, match="not that one"):
            await engine.api.command(session, CommandInput(command="greet", arguments="Ada"))
        assert await engine.api.list_messages(session) == []


async def test_a_shell_command_in_a_template_is_a_call_that_can_be_blocked() -> None:
    hooks = FakeHooks({"tool.execute.before": block("no shell")})
    async with open_engine(hooks=hooks, tools=(BASH,), commands=commands(now="It is !`date`.")) as engine:
        session = await start(engine)
        with pytest.raises(BlockedError, match="no shell"):
            await engine.api.command(session, CommandInput(command="now"))
        assert await engine.api.list_messages(session) == []


# --- permissions ---


def answer(status: Any) -> Any:
    def reply(told: PermissionRequest, now: PermissionAnswer) -> PermissionAnswer:
        return now.but(status=status)

    return reply


async def logged(store: Store) -> list[dict[str, Any]]:
    [log] = await store.list_logs()
    return [json.loads(line)["entry"] for line in await store.read_log(log)]


@pytest.mark.parametrize(
    ("hook", "result", "what"),
    [
        (answer("allow"), "x", "allowed"),
        (answer("deny"), "! Blocked by a plugin: it denies echo x", "denied"),
        (block("ask me tomorrow"), "! Blocked by a plugin: ask me tomorrow", "denied"),
    ],
)
async def test_a_plugin_may_answer_in_a_persons_place(hook: Any, result: str, what: str) -> None:
    hooks = FakeHooks({"permission.ask": hook})
    permitting = PermissionSettings(persistent=True)
    async with open_engine(
        [CALL], [Say(text="ok")], hooks=hooks, rules=ASK, permissions=permitting
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        assert [short(call) for call in await calls_of(engine, session)] == [result]
        assert hooks.calls[0][1].patterns == ("x",)
    assert [(each["what"], each["rule"]) for each in await logged(engine.store)] == [
        (what, "a plugin's permission.ask")
    ]


async def test_a_hook_that_returns_nothing_leaves_the_question_to_the_user() -> None:
    async with open_engine([CALL], hooks=FakeHooks({"permission.ask": leave}), rules=ASK) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        assert "nobody" in short((await calls_of(engine, session))[0])


async def test_what_a_rule_denies_no_plugin_is_asked_about() -> None:
    hooks = FakeHooks({"permission.ask": answer("allow")})
    rules = (Rule(permission="*", pattern="x*", action="deny"),)
    async with open_engine(
        [CALL], [Say(text="ok")], hooks=hooks, rules=rules, tools=(ECHO, INVALID)
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        assert short((await calls_of(engine, session))[0]).startswith("! ")
        assert hooks.calls == []
