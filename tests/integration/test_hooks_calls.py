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


async def list_calls(engine: Engine, session: SessionID) -> list[ToolPart]:
    messages = await engine.api.list_messages(session)
    return [part for message in messages for part in message.parts if isinstance(part, ToolPart)]


def to_line(part: ToolPart) -> str:
    match part.state:
        case CompletedState(output=output):
            return output
        case ErrorState(error=error):
            return f"! {error}"
        case _:
            return "?"


def add_exclamation_mark(told: CallHookInput, now: CallArguments) -> CallArguments:
    return now.but(args={"words": f"{now.args['words']}!"})


# --- before a call ---


async def test_a_call_runs_with_the_arguments_of_the_plugin_and_shows_those_of_the_model() -> None:
    hooks = FakeHooks({"tool.execute.before": add_exclamation_mark})
    async with open_engine([CALL], [Say(text="ok")], hooks=hooks) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (call,) = await list_calls(engine, session)
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


async def test_rules_apply_to_the_changed_arguments() -> None:
    rules = (
        Rule(permission="*", pattern="*", action="allow"),
        Rule(permission="echo", pattern="x!", action="deny"),
    )
    hooks = FakeHooks({"tool.execute.before": add_exclamation_mark})
    async with open_engine([CALL], [Say(text="ok")], hooks=hooks, rules=rules) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (call,) = await list_calls(engine, session)
        assert isinstance(call.state, ErrorState)


async def test_invalid_changed_arguments_are_an_error_that_the_model_reads() -> None:
    hooks = FakeHooks({"tool.execute.before": lambda _, now: now.but(args={"word": 1})})
    async with open_engine([CALL], [Say(text="ok")], hooks=hooks) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (call,) = await list_calls(engine, session)
        assert "invalid arguments" in to_line(call)


async def test_a_blocked_call_is_not_run_and_the_model_reads_why() -> None:
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


async def test_calls_of_a_batch_and_of_a_subtask_reach_the_hooks() -> None:
    hooks = FakeHooks({"tool.execute.before": leave, "tool.execute.after": leave})
    batch = UseTool(tool="batch", input={"tool_calls": [{"tool": "echo", "parameters": {"words": "a"}}]})
    script = ([batch], [Say(text="ok")], [Say(text="done")], [Say(text="ok")])
    agents = tuple(AGENTS.values()) if isinstance(AGENTS, dict) else AGENTS
    async with open_engine(*script, hooks=hooks, tools=(BATCH, ECHO, INVALID, TASK), agents=agents) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        subtask = SubtaskInput(prompt="look", description="Look", agent="general")
        await engine.api.prompt(session, PromptInput(parts=(subtask,)))
        calls = await list_calls(engine, session)
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


async def test_a_plugin_changes_the_result_of_a_call() -> None:
    def replace_outcome(told: CallHookInput, now: CallOutcome) -> CallOutcome:
        return now.but(title="T", output=f"<{now.output}>", metadata={**now.metadata, "seen": told.args})

    async with open_engine(
        [CALL], [Say(text="ok")], hooks=FakeHooks({"tool.execute.after": replace_outcome})
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (call,) = await list_calls(engine, session)
        assert isinstance(call.state, CompletedState)
        assert (call.state.title, call.state.output) == ("T", "<x>")
        assert call.state.metadata["seen"] == {"words": "x"}


@pytest.mark.parametrize("own", [{}, {"truncated": False}])
async def test_an_output_changed_by_a_plugin_is_bounded(own: dict[str, Any]) -> None:
    def flood(told: CallHookInput, now: CallOutcome) -> CallOutcome:
        return now.but(output="line\n" * MAX_BYTES, metadata=own)

    async with open_engine(
        [CALL], [Say(text="ok")], hooks=FakeHooks({"tool.execute.after": flood})
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (call,) = await list_calls(engine, session)
        assert isinstance(call.state, CompletedState)
        assert call.state.metadata["truncated"] is True
        assert len(call.state.output) < 2 * MAX_BYTES


# --- commands ---


def commands(**templates: str) -> Any:
    said = {name: CommandConfig(template=template) for name, template in templates.items()}
    return build_commands(Config(command=said), "/nowhere")


async def test_a_plugin_changes_the_prompt_of_a_slash_command() -> None:
    def add_part(told: CommandHookInput, now: CommandParts) -> CommandParts:
        return now.but(parts=(*now.parts, TextInput(text=f"({told.command} {told.arguments})")))

    hooks = FakeHooks({"command.execute.before": add_part})
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


async def test_a_shell_command_in_a_template_can_be_blocked() -> None:
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


async def read_audit_log(store: Store) -> list[dict[str, Any]]:
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
async def test_a_plugin_may_answer_a_permission_request(hook: Any, result: str, what: str) -> None:
    hooks = FakeHooks({"permission.ask": hook})
    permitting = PermissionSettings(persistent=True)
    async with open_engine(
        [CALL], [Say(text="ok")], hooks=hooks, rules=ASK, permissions=permitting
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        assert [to_line(call) for call in await list_calls(engine, session)] == [result]
        assert hooks.calls[0][1].patterns == ("x",)
    assert [(each["what"], each["rule"]) for each in await read_audit_log(engine.store)] == [
        (what, "a plugin's permission.ask")
    ]


async def test_a_hook_that_returns_nothing_leaves_the_question_to_the_user() -> None:
    async with open_engine([CALL], hooks=FakeHooks({"permission.ask": leave}), rules=ASK) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        assert "nobody" in to_line((await list_calls(engine, session))[0])


async def test_a_plugin_is_not_asked_about_a_denied_call() -> None:
    hooks = FakeHooks({"permission.ask": answer("allow")})
    rules = (Rule(permission="*", pattern="x*", action="deny"),)
    async with open_engine(
        [CALL], [Say(text="ok")], hooks=hooks, rules=rules, tools=(ECHO, INVALID)
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        assert to_line((await list_calls(engine, session))[0]).startswith("! ")
        assert hooks.calls == []
