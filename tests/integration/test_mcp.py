"""Local MCP servers: connected when needed, limited, ended; a misbehaving one affects nothing else."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from weft.errors import McpError
from weft.host.tasks import open_tasks
from weft.model.workspace import McpConnected, McpDisabled, McpFailed
from weft.testing.tool_contract import AskedPermission, ToolHarness, processes_in
from weft.tool.mcp.connection import MAX_TOOLS, SdkConnector
from weft.tool.mcp.contract import McpTimeouts
from weft.tool.mcp.entry import MAX_NAME_LENGTH, LocalEntry
from weft.tool.mcp.login import McpLoginStore
from weft.tool.mcp.pool import ConfiguredServer, McpPool
from weft.tool.mcp.server import MAX_REASON_LENGTH, McpServerContext

RAW = Path(__file__).parents[1] / "given" / "mcp_servers" / "raw.py"


def raw(home: Path, manner: str, name: str = "", **more: Any) -> LocalEntry:
    return LocalEntry(
        name=name or manner,
        argv=(sys.executable, "-S", "-E", str(RAW), manner, str(home / f"{manner}.log")),
        directory=str(home),
        environment={"PATH": os.environ["PATH"]},
        **more,
    )


@asynccontextmanager
async def pooled(home: Path, *entries: LocalEntry, **more: Any) -> AsyncIterator[McpPool]:
    changed_servers: list[str] = []

    async def changed(name: str) -> None:
        changed_servers.append(name)

    configured = tuple(ConfiguredServer(entry=entry) for entry in entries)
    dial = SdkConnector(McpLoginStore(str(home / "mcp-auth.json")), "http://127.0.0.1:1/callback")
    async with open_tasks() as tasks:
        pool = McpPool(McpServerContext(connector=dial, on_change=changed, tasks=tasks), **more)
        for each in configured:
            pool.put(each)
        try:
            yield pool
        finally:
            await pool.close()
    assert processes_in(home) == []


async def quiet(*_: Any) -> None:
    pass


async def arrive(pool: McpPool) -> list[str]:
    return [words async for words in pool.connect_all(lambda _: True)]


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110  what another process does to a file wakes nobody
        await asyncio.sleep(0.005)


def log(home: Path, manner: str) -> list[str]:
    path = home / f"{manner}.log"
    return path.read_text().splitlines() if path.exists() else []


async def test_nothing_is_started_before_something_is_to_be_done(tmp_path: Path) -> None:
    async with pooled(tmp_path, raw(tmp_path, "plain")) as pool:
        assert pool.list_status() == {"plain": McpDisabled(note=pool.servers["plain"].status.note)}
        assert (list(pool.tools()), log(tmp_path, "plain")) == ([], [])
        await pool.wait_until_settled()
        assert pool.list_status() == {"plain": McpConnected()}
        assert list(pool.tools()) == ["plain_echo"]


async def test_a_call_asks_under_the_tools_own_name_and_brings_the_answer(tmp_path: Path) -> None:
    async with pooled(tmp_path, raw(tmp_path, "plain")) as pool:
        await pool.wait_until_settled()
        harness = ToolHarness(tmp_path, outside=tmp_path.parent, environment=os.environ)
        result = await harness.call(pool.tools()["plain_echo"], words="hello")
        assert (result.title, result.output, result.attachments) == ("", '{"words": "hello"}', ())
        assert harness.asked == [AskedPermission(permission="plain_echo", patterns=("*",), always=("*",))]


@pytest.mark.parametrize(
    ("manner", "said"),
    [
        ("exits", "has ended; it said: no such key"),
        ("babble", "it writes what is not MCP to its standard output: this is not MCP"),
        ("line", "it sent a message without an end"),
        ("mute", "it did not answer within 0.5 seconds"),
    ],
)
async def test_a_server_that_does_not_speak_mcp_has_failed_with_the_reason(
    tmp_path: Path, manner: str, said: str
) -> None:
    more = {"connect": 0.5} if manner == "mute" else {}
    async with pooled(tmp_path, raw(tmp_path, manner, **more)) as pool:
        await pool.wait_until_settled()
        status = pool.servers[manner].status
        assert isinstance(status, McpFailed)
        assert said in status.error


async def test_the_reason_of_one_that_failed_has_what_it_said_last(tmp_path: Path) -> None:
    async with pooled(tmp_path, raw(tmp_path, "traceback")) as pool:
        await pool.wait_until_settled()
        status = pool.servers["traceback"].status
        assert isinstance(status, McpFailed)
        program = os.path.basename(sys.executable)
        assert status.error.startswith(f"{program} has ended; it said: ")
        assert " … " in status.error
        assert status.error.endswith("File line 79 KeyError: 'API_TOKEN'")
        assert len(status.error) <= MAX_REASON_LENGTH


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    entry = LocalEntry(
        name="x", argv=("no-such-program",), directory=str(tmp_path), environment={"PATH": "/bin"}
    )
    async with pooled(tmp_path, entry) as pool:
        await pool.wait_until_settled()
        status = pool.servers["x"].status
        assert isinstance(status, McpFailed)
        assert status.error == "no-such-program cannot be run: there is no such program"


async def test_junk_before_the_first_message_is_passed_over(tmp_path: Path) -> None:
    async with pooled(tmp_path, raw(tmp_path, "junk")) as pool:
        await pool.wait_until_settled()
        assert list(pool.tools()) == ["junk_echo"]


async def test_too_many_tools_are_cut_and_that_is_said(tmp_path: Path) -> None:
    async with pooled(tmp_path, raw(tmp_path, "many"), raw(tmp_path, "endless")) as pool:
        await pool.wait_until_settled()
        status = pool.servers["many"].status
        assert isinstance(status, McpConnected)
        assert len([key for key in pool.tools() if key.startswith("many_")]) == MAX_TOOLS
        assert status.note is not None
        assert f"more than {MAX_TOOLS}" in status.note
        assert isinstance(pool.servers["endless"].status, McpConnected)


async def test_what_is_too_long_to_be_told_is_cut_or_left_out(tmp_path: Path) -> None:
    async with pooled(tmp_path, raw(tmp_path, "huge"), raw(tmp_path, "deep")) as pool:
        await pool.wait_until_settled()
        tools = pool.tools()
        assert list(tools) == ["huge_echo", "deep_echo"]
        assert len(tools["huge_echo"].about) < 20_000
        status = pool.servers["deep"].status
        assert isinstance(status, McpConnected)
        assert status.note == "1 tool with too long a schema left out"


async def test_odd_names_are_made_fit_and_stay_apart(tmp_path: Path) -> None:
    reserved = frozenset({"odd_same_name"})
    async with pooled(tmp_path, raw(tmp_path, "odd"), reserved=reserved) as pool:
        await pool.wait_until_settled()
        # By their own names, so that the same tools are told in the same order whatever a server lists first.
        assert list(pool.tools()) == [
            "odd_",
            "odd_______etc_passwd",
            "odd_a_b__31mc",
            "odd_same_name_2",
            "odd_same_name_3",
            ("odd_" + "x" * 200)[:MAX_NAME_LENGTH],
        ]


async def test_a_flood_keeps_nobody_from_calling(tmp_path: Path) -> None:
    async with pooled(tmp_path, raw(tmp_path, "flood")) as pool:
        await pool.wait_until_settled()
        answer = await pool.get("flood").call("echo", {"a": 1}, quiet)
        assert answer["content"][0]["text"] == '{"a": 1}'


async def test_a_slow_server_does_not_block_a_run_and_is_added_later(tmp_path: Path) -> None:
    entries = raw(tmp_path, "plain"), raw(tmp_path, "slowly")
    async with pooled(tmp_path, *entries, timeouts=McpTimeouts(wait=0.0)) as pool:
        await arrive(pool)
        assert "slowly_echo" not in pool.tools()
        (tmp_path / "slowly.log.go").touch()
        await pool.wait_until_settled()
        await arrive(pool)
        assert list(pool.tools()) == ["plain_echo", "slowly_echo"]


async def test_a_call_that_is_not_answered_ends_and_the_server_is_told(tmp_path: Path) -> None:
    async with pooled(tmp_path, raw(tmp_path, "silent", call=0.2)) as pool:
        await pool.wait_until_settled()
        with pytest.raises(McpError, match=r"did not answer within 0\.2 seconds"):
            await pool.get("silent").call("echo", {}, quiet)
        await until(lambda: "notifications/cancelled" in log(tmp_path, "silent"))


async def test_a_cancelled_call_does_not_wait_for_the_server(tmp_path: Path) -> None:
    async with pooled(tmp_path, raw(tmp_path, "silent")) as pool:
        await pool.wait_until_settled()
        calling = asyncio.ensure_future(pool.get("silent").call("echo", {}, quiet))
        await until(lambda: "called" in log(tmp_path, "silent"))
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await until(lambda: "notifications/cancelled" in log(tmp_path, "silent"))


async def test_a_server_that_dies_reports_its_last_output_and_is_not_restarted_at_once(
    tmp_path: Path,
) -> None:
    async with pooled(tmp_path, raw(tmp_path, "dies")) as pool:
        await pool.wait_until_settled()
        server = pool.get("dies")
        tool = pool.tools()["dies_echo"]
        with pytest.raises(McpError, match=r"disconnected: .* it said: out of memory"):
            await server.call("echo", {}, quiet)
        await until(lambda: isinstance(server.status, McpFailed))
        assert list(pool.tools()) == []
        assert not server.is_due
        harness = ToolHarness(tmp_path, outside=tmp_path.parent, environment=os.environ)
        with pytest.raises(McpError, match="is not connected"):
            await harness.call(tool)
        server.start_connecting()
        await server.wait_until_settled()
        assert pool.tools()["dies_echo"].name == tool.name
        assert [line.split()[0] for line in log(tmp_path, "dies")].count("started") == 2


async def test_a_result_that_is_no_result_is_the_calls_fault_alone(tmp_path: Path) -> None:
    async with pooled(tmp_path, raw(tmp_path, "wrong")) as pool:
        await pool.wait_until_settled()
        with pytest.raises(McpError, match="not MCP"):
            await pool.get("wrong").call("echo", {}, quiet)
        assert isinstance(pool.servers["wrong"].status, McpConnected)


async def test_a_server_that_ignores_signals_is_killed_with_its_children(tmp_path: Path) -> None:
    async with pooled(tmp_path, raw(tmp_path, "stubborn")) as pool:
        await pool.wait_until_settled()
        assert len(processes_in(tmp_path)) >= 2
        await pool.get("stubborn").disconnect()
        assert processes_in(tmp_path) == []
        assert pool.list_status() == {"stubborn": McpDisabled()}
        await arrive(pool)
        assert pool.list_status() == {"stubborn": McpDisabled()}


async def test_a_disabled_server_stays_disconnected_until_it_is_connected(tmp_path: Path) -> None:
    async with pooled(tmp_path) as pool:
        server = pool.put(ConfiguredServer(entry=raw(tmp_path, "plain"), enabled=False))
        await arrive(pool)
        assert (pool.list_status(), log(tmp_path, "plain")) == ({"plain": McpDisabled()}, [])
        server.start_connecting()
        await server.wait_until_settled()
        assert server.status == McpConnected()


async def test_what_may_not_be_run_is_not(tmp_path: Path) -> None:
    async with pooled(tmp_path, raw(tmp_path, "plain", refusal="no wall can be had")) as pool:
        await pool.wait_until_settled()
        assert pool.list_status() == {"plain": McpFailed(error="no wall can be had")}
        assert log(tmp_path, "plain") == []
