"""Tools, prompts and resources of MCP servers in runs, which no server can block or break."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from msgspec.structs import replace

from given.engine import ALLOW, PLACE, Engine, open_engine, text_prompt
from given.mcp_servers.remote import serve_app
from weft.config.schema import McpLocalConfig, McpRemoteConfig, McpServerConfig
from weft.errors import InvalidInputError, NotFoundError
from weft.host.clock import SystemClock
from weft.local.mcp_settings import McpSettings
from weft.local.permissions import PermissionSettings
from weft.model.agent import CommandArgument
from weft.model.event import QuestionAsked, SessionIdled, SessionWarned
from weft.model.input import CommandInput, FileInput, PromptInput, SessionInput, TextInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import (
    CompletedState,
    ErrorState,
    FilePart,
    ResourceSource,
    SourceText,
    TextPart,
    ToolPart,
)
from weft.model.permission import Rule
from weft.model.workspace import McpConnected, McpFailed
from weft.permission.policy import AskPolicy
from weft.provider.scripted import Say, UseTool

CAN_ASK = PermissionSettings(policy=AskPolicy(can_ask=True))
RAW = Path(__file__).parents[1] / "given" / "mcp_servers" / "raw.py"


def raw_config(home: Path, manner: str, **more: Any) -> McpLocalConfig:
    command = (sys.executable, "-S", "-E", str(RAW), manner, str(home / f"{manner}.log"))
    return McpLocalConfig(command=command, **more)


def open_with_servers(
    home: Path,
    *script: Any,
    wait: float | None = 30,
    servers: Mapping[str, McpServerConfig],
    eager: bool = False,
    notice: float = 5,
    **more: Any,
) -> Any:
    place = replace(PLACE, directory=str(home), worktree=str(home))
    settings = McpSettings(
        servers=servers, wait=wait, notice=notice, eager=eager, auth_file=str(home / "mcp-auth.json")
    )
    return open_engine(*script, place=place, clock=SystemClock(), mcp=settings, **more)


async def ask(engine: Engine, input: PromptInput) -> list[MessageWithParts]:
    session = await engine.api.create_session(SessionInput(title="x"))
    await engine.api.prompt(session.id, input)
    return await engine.api.list_messages(session.id)


def names(engine: Engine, request: int) -> list[str]:
    return [tool.name for tool in engine.provider.requests[request].tools]


def results(messages: list[MessageWithParts]) -> list[tuple[str, str, str]]:
    calls = [part for message in messages for part in message.parts if isinstance(part, ToolPart)]
    return [(part.tool, *to_outcome(part.state)) for part in calls]


def to_outcome(state: Any) -> tuple[str, str]:
    match state:
        case CompletedState(output=output):
            return "completed", output
        case ErrorState(error=error):
            return "error", error
        case _:
            return "open", ""


async def test_a_run_is_offered_the_tools_and_calls_them(tmp_path: Path) -> None:
    script = [UseTool(tool="near_echo", input={"words": "hi"})], [Say(text="done")]
    async with open_with_servers(
        tmp_path, *script, servers={"near": raw_config(tmp_path, "plain")}
    ) as engine:
        assert not (tmp_path / "plain.log").exists()
        messages = await ask(engine, text_prompt("go"))
        assert results(messages) == [("near_echo", "completed", '{"words": "hi"}')]
        assert names(engine, 0) == names(engine, 1) == ["echo", "near_echo"]
        [spec] = [tool for tool in engine.provider.requests[0].tools if tool.name == "near_echo"]
        assert spec.schema == {"type": "object", "additionalProperties": False, "properties": {}}


async def test_servers_can_be_started_on_opening(tmp_path: Path) -> None:
    async with open_with_servers(
        tmp_path, servers={"near": raw_config(tmp_path, "plain")}, eager=True
    ) as engine:
        assert await engine.api.mcp.list_servers(connect=True) == {"near": McpConnected()}
        assert [tool.id for tool in await engine.api.workspace.list_tools()] == ["echo", "near_echo"]


async def test_rules_apply_by_the_name_of_the_tool(tmp_path: Path) -> None:
    rules = (*ALLOW, Rule(permission="near_*", pattern="*", action="deny"))
    async with open_with_servers(
        tmp_path, [Say(text="ok")], servers={"near": raw_config(tmp_path, "plain")}, rules=rules
    ) as engine:
        await ask(engine, text_prompt("go"))
        assert names(engine, 0) == ["echo"]


async def test_the_tools_of_a_slow_server_are_added_later_and_none_is_removed(tmp_path: Path) -> None:
    script = [UseTool(tool="echo", input={"words": "a"})], [Say(text="done")], [Say(text="again")]
    servers = {"late": raw_config(tmp_path, "slowly"), "near": raw_config(tmp_path, "plain")}
    async with open_with_servers(tmp_path, *script, servers=servers, wait=0) as engine:
        pool = engine.api.mcp.pool  # type: ignore[attr-defined]
        await pool.wait_until_settled([pool.get("near")])
        await ask(engine, text_prompt("go"))
        assert names(engine, 0) == names(engine, 1) == ["echo", "near_echo"]
        (tmp_path / "slowly.log.go").touch()
        await pool.wait_until_settled()
        await ask(engine, text_prompt("go"))
        assert names(engine, 2) == ["echo", "late_echo", "near_echo"]


async def test_a_tool_added_by_a_local_server_during_a_call_is_offered_in_the_next_step(
    tmp_path: Path,
) -> None:
    script = [UseTool(tool="near_echo")], [UseTool(tool="near_new")], [Say(text="done")]
    async with open_with_servers(
        tmp_path, *script, servers={"near": raw_config(tmp_path, "grows")}
    ) as engine:
        messages = await ask(engine, text_prompt("go"))
        assert names(engine, 0) == ["echo", "near_echo"]
        assert names(engine, 1) == names(engine, 2) == ["echo", "near_echo", "near_new"]
        assert results(messages) == [("near_echo", "completed", "{}"), ("near_new", "completed", "{}")]


async def test_a_tool_added_by_a_remote_server_during_a_call_is_offered_in_the_next_step(
    tmp_path: Path,
) -> None:
    script = [UseTool(tool="far_grow")], [UseTool(tool="far_grown")], [Say(text="done")]
    with serve_app(lambda _: make_growing_server().streamable_http_app()) as url:
        servers = {"far": McpRemoteConfig(url=f"{url}/mcp")}
        async with open_with_servers(tmp_path, *script, servers=servers) as engine:
            messages = await ask(engine, text_prompt("go"))
            assert (names(engine, 0), names(engine, 1)) == (
                ["echo", "far_grow"],
                ["echo", "far_grow", "far_grown"],
            )
            assert results(messages) == [
                ("far_grow", "completed", "grew"),
                ("far_grown", "completed", "grown"),
            ]


def make_growing_server() -> MCPServer:
    server = MCPServer("growing")

    def grown() -> str:
        return "grown"

    @server.tool()
    async def grow(ctx: Context) -> str:
        server.add_tool(grown, name="grown")
        await ctx.session.send_tool_list_changed()
        return "grew"

    return server


async def test_a_server_that_constantly_reports_changes_delays_no_step(tmp_path: Path) -> None:
    script = [UseTool(tool="near_echo")], [Say(text="done")]
    async with open_with_servers(
        tmp_path, *script, servers={"near": raw_config(tmp_path, "restless")}
    ) as engine:
        messages = await ask(engine, text_prompt("go"))
        assert results(messages) == [("near_echo", "completed", "{}")]


async def test_a_server_that_dies_fails_one_call_and_no_run(tmp_path: Path) -> None:
    script = [UseTool(tool="near_echo")], [Say(text="it died")]
    async with open_with_servers(tmp_path, *script, servers={"near": raw_config(tmp_path, "dies")}) as engine:
        messages = await ask(engine, text_prompt("go"))
        [(_, status, error)] = results(messages)
        assert status == "error"
        assert "out of memory" in error
        assert names(engine, 1) == ["echo", "near_echo"]
        assert isinstance(messages[-1].parts[1], TextPart)


async def test_unusable_servers_do_not_prevent_a_run(tmp_path: Path) -> None:
    servers = {name: raw_config(tmp_path, name) for name in ("exits", "babble")}
    async with open_with_servers(tmp_path, [Say(text="fine")], servers=servers) as engine:
        await ask(engine, text_prompt("go"))
        assert names(engine, 0) == ["echo"]
        found = await engine.api.workspace.list_mcp()
        assert {name: status.__struct_config__.tag for name, status in found.items()} == {
            "exits": "failed",
            "babble": "failed",
        }


async def list_warnings(engine: Engine) -> list[str]:
    """Return the warnings of a run."""
    listening = engine.api.events()
    await ask(engine, text_prompt("go"))
    warnings: list[str] = []
    async for each in listening:
        match each.event:
            case SessionWarned(message=message):
                warnings.append(message)
            case SessionIdled():
                break
            case _:
                pass
    return warnings


async def test_a_run_reports_once_which_servers_are_missing_and_why(tmp_path: Path) -> None:
    nothing = McpLocalConfig(command=(str(tmp_path / "nothing"),))
    servers = {
        "near": raw_config(tmp_path, "plain"),
        "gone": nothing,
        "off": McpLocalConfig(command=("x",), enabled=False),
    }
    async with open_with_servers(tmp_path, [Say(text="a")], [Say(text="b")], servers=servers) as engine:
        [warnings] = await list_warnings(engine)
        missing = f"{tmp_path}/nothing cannot be run: there is no such program"
        assert warnings == f"the MCP server gone is not available: {missing}"
        assert await list_warnings(engine) == []


async def test_a_run_reports_which_servers_it_did_not_wait_for(tmp_path: Path) -> None:
    script = [Say(text="a")], [Say(text="b")]
    async with open_with_servers(
        tmp_path, *script, servers={"late": raw_config(tmp_path, "slowly")}, wait=0
    ) as engine:
        assert await list_warnings(engine) == [
            "the MCP server late is still connecting: its tools will be available later"
        ]
        (tmp_path / "slowly.log.go").touch()
        await engine.api.mcp.list_servers(connect=True)
        assert await list_warnings(engine) == []


async def test_a_one_shot_run_waits_for_a_starting_server_with_a_notice(tmp_path: Path) -> None:
    late = {"late": raw_config(tmp_path, "slowly")}
    async with open_with_servers(tmp_path, [Say(text="a")], servers=late, wait=None, notice=0) as engine:
        warnings: list[str] = []

        async def follow() -> None:
            async for each in engine.api.events():
                if isinstance(each.event, SessionWarned):
                    warnings.append(each.event.message)
                    (tmp_path / "slowly.log.go").touch()

        following = asyncio.ensure_future(follow())
        await ask(engine, text_prompt("go"))
        following.cancel()
        assert warnings == ["waiting for the MCP server late, which is still starting"]
        assert names(engine, 0) == ["echo", "late_echo"]


async def test_a_run_does_not_wait_for_a_server_whose_tools_its_agent_may_not_use(tmp_path: Path) -> None:
    rules = (*ALLOW, Rule(permission="late_*", pattern="*", action="deny"))
    servers = {"late": raw_config(tmp_path, "slowly"), "near": raw_config(tmp_path, "plain")}
    async with open_with_servers(
        tmp_path, [Say(text="a")], servers=servers, wait=None, rules=rules
    ) as engine:
        await ask(engine, text_prompt("go"))
        assert names(engine, 0) == ["echo", "near_echo"]
        assert engine.api.mcp.pool.get("late").is_connecting  # type: ignore[attr-defined]


async def test_a_failure_to_add_a_server_is_returned_and_not_warned_about(tmp_path: Path) -> None:
    async with open_with_servers(tmp_path, [Say(text="a")], servers={}) as engine:
        said = {"type": "local", "command": [str(tmp_path / "nothing")]}
        assert isinstance(await engine.api.mcp.add_server("gone", said), McpFailed)
        assert await list_warnings(engine) == []


async def test_a_long_answer_is_cut_and_stored_completely(tmp_path: Path) -> None:
    script = [UseTool(tool="near_echo", input={"words": "x" * 100_000})], [Say(text="long")]
    async with open_with_servers(
        tmp_path, *script, servers={"near": raw_config(tmp_path, "plain")}
    ) as engine:
        [(_, status, output)] = results(await ask(engine, text_prompt("go")))
        assert status == "completed"
        assert len(output) < 60_000
        assert "Full output saved to" in output


# --- prompts and resources, by a server of the official library ---


@pytest.fixture
def good_server(tmp_path: Path) -> dict[str, McpLocalConfig]:
    (tmp_path / "secret.txt").write_text("secret")
    path = Path(__file__).parents[1] / "given" / "mcp_servers" / "good.py"
    return {"good": McpLocalConfig(command=(sys.executable, str(path)))}


async def test_a_prompt_of_a_server_is_a_command_whose_text_runs_nothing(
    tmp_path: Path, good_server: dict[str, McpLocalConfig]
) -> None:
    script = [[Say(text="reviewed")] for _ in range(3)]
    async with open_with_servers(tmp_path, *script, servers=good_server) as engine:
        session = await engine.api.create_session(SessionInput(title="x"))
        for typed in ("all strict", "how=strict what=all", "how='strict' all"):
            await engine.api.command(session.id, CommandInput(command="good:review_it", arguments=typed))
        prompts = [
            each for each in await engine.api.list_messages(session.id) if isinstance(each.info, UserMessage)
        ]
        assert [part.text for each in prompts for part in each.parts if isinstance(part, TextPart)] == [
            "Review all, and be strict. !`touch evil` @secret.txt"
        ] * 3
        assert not (tmp_path / "evil").exists()
        listed = {command.name: command for command in await engine.api.list_commands()}
        assert (listed["good:review_it"].mcp, listed["good:review_it"].hints) == (True, ("$1", "$2"))
        assert listed["good:review_it"].arguments == (
            CommandArgument(name="what", required=True),
            CommandArgument(name="how", required=True),
        )
        with pytest.raises(NotFoundError):
            await engine.api.get_command("good:none")

        # The same server, for what is read of it into prompts.
        answers = await resources(engine)
        assert answers == [
            ["Reading MCP resource: notes (notes://today)", "Buy bread.", "file text/plain notes://today"],
            [
                "Reading MCP resource: notes (notes://picture)",
                "[Binary content: image/png]",
                "file image/png data:image/png",
                "file text/plain notes://picture",
            ],
            [
                "Reading MCP resource: notes (notes://none)",
                "Failed to read MCP resource notes: Unknown resource: notes://none",
            ],
            [
                "Reading MCP resource: notes (x:y)",
                "Failed to read MCP resource notes: Resource not found: nobody/x:y",
            ],
        ]


async def test_missing_arguments_of_a_prompt_are_asked_for(
    tmp_path: Path, good_server: dict[str, McpLocalConfig]
) -> None:
    async with open_with_servers(
        tmp_path, [Say(text="reviewed")], servers=good_server, permissions=CAN_ASK
    ) as engine:
        session = await engine.api.create_session(SessionInput(title="x"))
        heard = engine.api.events()
        wanted = CommandInput(command="good:review_it", arguments="what=all")
        running = asyncio.ensure_future(engine.api.command(session.id, wanted))
        async for each in heard:
            if isinstance(each.event, QuestionAsked):
                asked = each.event.request
                break
        assert (
            asked.session_id,
            [(each.header, each.question, each.options) for each in asked.questions],
        ) == (
            session.id,
            [("how", "good:review_it: how?", ())],
        )
        await engine.api.reply_question(asked.id, (("brief",),))
        await running
        [prompt, _] = await engine.api.list_messages(session.id)
        assert [part.text for part in prompt.parts if isinstance(part, TextPart)] == [
            "Review all, and be brief. !`touch evil` @secret.txt"
        ]


async def test_missing_arguments_are_named_if_nobody_can_be_asked(
    tmp_path: Path, good_server: dict[str, McpLocalConfig]
) -> None:
    async with open_with_servers(tmp_path, servers=good_server) as engine:
        session = await engine.api.create_session(SessionInput(title="x"))
        with pytest.raises(InvalidInputError, match="good:review_it needs what, how") as refused:
            await engine.api.command(session.id, CommandInput(command="good:review_it", arguments=""))
        assert (refused.value.field, refused.value.hint) == ("arguments", "name them: what=… how=…")
        assert await engine.api.list_messages(session.id) == []


async def resources(engine: Engine) -> list[list[str]]:
    session = await engine.api.create_session(SessionInput(title="x"))
    seen: list[list[str]] = []
    for client, uri in (
        ("good", "notes://today"),
        ("good", "notes://picture"),
        ("good", "notes://none"),
        ("nobody", "x:y"),
    ):
        source = ResourceSource(client_name=client, uri=uri, text=SourceText(value="@notes", start=0, end=6))
        file = FileInput(mime="text/plain", filename="notes", url=uri, source=source)
        input = PromptInput(parts=(TextInput(text="see @notes"), file), no_reply=True)
        stored = await engine.api.prompt(session.id, input)
        seen.append([to_words(part) for part in stored.parts[1:]])
    return seen


def to_words(part: Any) -> str:
    if isinstance(part, FilePart):
        return f"file {part.mime} {part.url.partition(';')[0]}"
    return str(part.text)
