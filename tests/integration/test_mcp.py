"""Local MCP servers: connected when needed, limited, ended; a misbehaving one affects nothing else."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from given.damage import IN_ONE_DIRECTORY, allow_refusal, damaged_lines
from given.mcp_servers.remote import answer_as_told, serve_app
from weft.errors import McpError
from weft.host.tasks import open_tasks
from weft.model.workspace import McpConnected, McpDisabled, McpFailed
from weft.testing.tool_contract import AskedPermission, ToolHarness, list_processes
from weft.tool.mcp.connection import MAX_TOOLS, SdkConnector
from weft.tool.mcp.contract import McpTimeouts
from weft.tool.mcp.entry import MAX_NAME_LENGTH, AnyEntry, LocalEntry, RemoteEntry
from weft.tool.mcp.login import McpLoginStore
from weft.tool.mcp.pool import ConfiguredServer, McpPool
from weft.tool.mcp.result import to_result
from weft.tool.mcp.server import MAX_REASON_LENGTH, McpServerContext

RAW = Path(__file__).parents[1] / "given" / "mcp_servers" / "raw.py"


def raw_entry(home: Path, manner: str, name: str = "", **more: Any) -> LocalEntry:
    return LocalEntry(
        name=name or manner,
        argv=(sys.executable, "-S", "-E", str(RAW), manner, str(home / f"{manner}.log")),
        directory=str(home),
        environment={"PATH": os.environ["PATH"]},
        **more,
    )


@asynccontextmanager
async def open_pool(home: Path, *entries: AnyEntry, **more: Any) -> AsyncIterator[McpPool]:
    changed_servers: list[str] = []

    async def record_change(name: str) -> None:
        changed_servers.append(name)

    configured = tuple(ConfiguredServer(entry=entry) for entry in entries)
    dial = SdkConnector(McpLoginStore(str(home / "mcp-auth.json")), "http://127.0.0.1:1/callback")
    async with open_tasks() as tasks:
        pool = McpPool(McpServerContext(connector=dial, on_change=record_change, tasks=tasks), **more)
        for each in configured:
            pool.put(each)
        try:
            yield pool
        finally:
            await pool.close()
    assert list_processes(home) == []


async def ignore_progress(*_: Any) -> None:
    pass


async def connect_all(pool: McpPool) -> list[str]:
    return [words async for words in pool.connect_all(lambda _: True)]


async def wait_until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110  what another process does to a file wakes nobody
        await asyncio.sleep(0.005)


def log(home: Path, manner: str) -> list[str]:
    path = home / f"{manner}.log"
    return path.read_text().splitlines() if path.exists() else []


async def test_no_server_is_started_before_it_is_needed(tmp_path: Path) -> None:
    async with open_pool(tmp_path, raw_entry(tmp_path, "plain")) as pool:
        assert pool.list_status() == {"plain": McpDisabled(note=pool.servers["plain"].status.note)}
        assert (list(pool.tools()), log(tmp_path, "plain")) == ([], [])
        await pool.wait_until_settled()
        assert pool.list_status() == {"plain": McpConnected()}
        assert list(pool.tools()) == ["plain_echo"]


async def test_a_call_asks_under_the_name_of_its_tool_and_returns_the_answer(tmp_path: Path) -> None:
    async with open_pool(tmp_path, raw_entry(tmp_path, "plain")) as pool:
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
async def test_a_server_that_does_not_speak_mcp_fails_with_the_reason(
    tmp_path: Path, manner: str, said: str
) -> None:
    more = {"connect": 0.5} if manner == "mute" else {}
    async with open_pool(tmp_path, raw_entry(tmp_path, manner, **more)) as pool:
        await pool.wait_until_settled()
        status = pool.servers[manner].status
        assert isinstance(status, McpFailed)
        assert said in status.error


async def test_the_reason_of_a_failure_contains_the_last_output(tmp_path: Path) -> None:
    async with open_pool(tmp_path, raw_entry(tmp_path, "traceback")) as pool:
        await pool.wait_until_settled()
        status = pool.servers["traceback"].status
        assert isinstance(status, McpFailed)
        program = os.path.basename(sys.executable)
        assert status.error.startswith(f"{program} has ended; it said: ")
        assert " … " in status.error
        assert status.error.endswith("File line 79 KeyError: 'API_TOKEN'")
        assert len(status.error) <= MAX_REASON_LENGTH


async def test_a_missing_program_is_named(tmp_path: Path) -> None:
    entry = LocalEntry(
        name="x", argv=("no-such-program",), directory=str(tmp_path), environment={"PATH": "/bin"}
    )
    async with open_pool(tmp_path, entry) as pool:
        await pool.wait_until_settled()
        status = pool.servers["x"].status
        assert isinstance(status, McpFailed)
        assert status.error == "no-such-program cannot be run: there is no such program"


async def test_invalid_output_before_the_first_message_is_ignored(tmp_path: Path) -> None:
    async with open_pool(tmp_path, raw_entry(tmp_path, "junk")) as pool:
        await pool.wait_until_settled()
        assert list(pool.tools()) == ["junk_echo"]


async def test_too_many_tools_are_dropped_with_a_notice(tmp_path: Path) -> None:
    async with open_pool(tmp_path, raw_entry(tmp_path, "many"), raw_entry(tmp_path, "endless")) as pool:
        await pool.wait_until_settled()
        status = pool.servers["many"].status
        assert isinstance(status, McpConnected)
        assert len([key for key in pool.tools() if key.startswith("many_")]) == MAX_TOOLS
        assert status.note is not None
        assert f"more than {MAX_TOOLS}" in status.note
        assert isinstance(pool.servers["endless"].status, McpConnected)


async def test_long_descriptions_are_cut_and_tools_with_long_schemas_dropped(tmp_path: Path) -> None:
    async with open_pool(tmp_path, raw_entry(tmp_path, "huge"), raw_entry(tmp_path, "deep")) as pool:
        await pool.wait_until_settled()
        tools = pool.tools()
        assert list(tools) == ["huge_echo", "deep_echo"]
        assert len(tools["huge_echo"].about) < 20_000
        status = pool.servers["deep"].status
        assert isinstance(status, McpConnected)
        assert status.note == "1 tool with too long a schema left out"


async def test_invalid_names_are_corrected_and_stay_distinct(tmp_path: Path) -> None:
    reserved = frozenset({"odd_same_name"})
    async with open_pool(tmp_path, raw_entry(tmp_path, "odd"), reserved=reserved) as pool:
        await pool.wait_until_settled()
        # Sorted by name, so that the model gets the same tools in the same order whatever a server lists first.
        assert list(pool.tools()) == [
            "odd_",
            "odd_______etc_passwd",
            "odd_a_b__31mc",
            "odd_same_name_2",
            "odd_same_name_3",
            ("odd_" + "x" * 200)[:MAX_NAME_LENGTH],
        ]


async def test_a_flood_of_messages_does_not_block_calls(tmp_path: Path) -> None:
    async with open_pool(tmp_path, raw_entry(tmp_path, "flood")) as pool:
        await pool.wait_until_settled()
        answer = await pool.get("flood").call("echo", {"a": 1}, ignore_progress)
        assert answer["content"][0]["text"] == '{"a": 1}'


async def test_a_slow_server_does_not_block_a_run_and_is_added_later(tmp_path: Path) -> None:
    entries = raw_entry(tmp_path, "plain"), raw_entry(tmp_path, "slowly")
    async with open_pool(tmp_path, *entries, timeouts=McpTimeouts(wait=0.0)) as pool:
        await connect_all(pool)
        assert "slowly_echo" not in pool.tools()
        (tmp_path / "slowly.log.go").touch()
        await pool.wait_until_settled()
        await connect_all(pool)
        assert list(pool.tools()) == ["plain_echo", "slowly_echo"]


async def test_an_unanswered_call_ends_and_the_server_is_told(tmp_path: Path) -> None:
    async with open_pool(tmp_path, raw_entry(tmp_path, "silent", call=0.2)) as pool:
        await pool.wait_until_settled()
        with pytest.raises(McpError, match=r"did not answer within 0\.2 seconds"):
            await pool.get("silent").call("echo", {}, ignore_progress)
        await wait_until(lambda: "notifications/cancelled" in log(tmp_path, "silent"))


async def test_a_cancelled_call_does_not_wait_for_the_server(tmp_path: Path) -> None:
    async with open_pool(tmp_path, raw_entry(tmp_path, "silent")) as pool:
        await pool.wait_until_settled()
        calling = asyncio.ensure_future(pool.get("silent").call("echo", {}, ignore_progress))
        await wait_until(lambda: "called" in log(tmp_path, "silent"))
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await wait_until(lambda: "notifications/cancelled" in log(tmp_path, "silent"))


async def test_a_server_that_dies_reports_its_last_output_and_is_not_restarted_at_once(
    tmp_path: Path,
) -> None:
    async with open_pool(tmp_path, raw_entry(tmp_path, "dies")) as pool:
        await pool.wait_until_settled()
        server = pool.get("dies")
        tool = pool.tools()["dies_echo"]
        with pytest.raises(McpError, match=r"disconnected: .* it said: out of memory"):
            await server.call("echo", {}, ignore_progress)
        await wait_until(lambda: isinstance(server.status, McpFailed))
        assert list(pool.tools()) == []
        assert not server.is_due
        harness = ToolHarness(tmp_path, outside=tmp_path.parent, environment=os.environ)
        with pytest.raises(McpError, match="is not connected"):
            await harness.call(tool)
        server.start_connecting()
        await server.wait_until_settled()
        assert pool.tools()["dies_echo"].name == tool.name
        assert [line.split()[0] for line in log(tmp_path, "dies")].count("started") == 2


async def test_an_invalid_result_fails_only_its_call(tmp_path: Path) -> None:
    async with open_pool(tmp_path, raw_entry(tmp_path, "wrong")) as pool:
        await pool.wait_until_settled()
        with pytest.raises(McpError, match="not MCP"):
            await pool.get("wrong").call("echo", {}, ignore_progress)
        assert isinstance(pool.servers["wrong"].status, McpConnected)


async def test_a_server_that_ignores_signals_is_killed_with_its_children(tmp_path: Path) -> None:
    async with open_pool(tmp_path, raw_entry(tmp_path, "stubborn")) as pool:
        await pool.wait_until_settled()
        assert len(list_processes(tmp_path)) >= 2
        await pool.get("stubborn").disconnect()
        assert list_processes(tmp_path) == []
        assert pool.list_status() == {"stubborn": McpDisabled()}
        await connect_all(pool)
        assert pool.list_status() == {"stubborn": McpDisabled()}


async def test_a_disabled_server_stays_disconnected_until_it_is_connected(tmp_path: Path) -> None:
    async with open_pool(tmp_path) as pool:
        server = pool.put(ConfiguredServer(entry=raw_entry(tmp_path, "plain"), enabled=False))
        await connect_all(pool)
        assert (pool.list_status(), log(tmp_path, "plain")) == ({"plain": McpDisabled()}, [])
        server.start_connecting()
        await server.wait_until_settled()
        assert server.status == McpConnected()


async def test_a_server_that_is_disconnected_before_it_starts_can_be_connected_again(tmp_path: Path) -> None:
    async with open_pool(tmp_path, raw_entry(tmp_path, "plain")) as pool:
        server = pool.servers["plain"]
        server.start_connecting()
        await server.disconnect()
        async with asyncio.timeout(10):
            await server.wait_until_settled()
            server.start_connecting()
            await server.wait_until_settled()
        assert server.status == McpConnected()


async def test_a_server_may_fail_any_number_of_times(tmp_path: Path) -> None:
    async with open_pool(tmp_path, raw_entry(tmp_path, "exits")) as pool:
        server = pool.servers["exits"]
        server.failures = 2000
        await pool.wait_until_settled()
        assert (type(server.status), server.failures, server.is_due) == (McpFailed, 2001, False)


async def test_a_server_that_may_not_run_is_not_started(tmp_path: Path) -> None:
    async with open_pool(tmp_path, raw_entry(tmp_path, "plain", refusal="there is no sandbox")) as pool:
        await pool.wait_until_settled()
        assert pool.list_status() == {"plain": McpFailed(error="there is no sandbox")}
        assert log(tmp_path, "plain") == []


class Parrot:
    """A connected server that says whatever it is told to, and then answers."""

    def __init__(self, home: Path, entry: AnyEntry) -> None:
        self._runner = asyncio.Runner()
        self._done = asyncio.Event()
        self._connected: asyncio.Future[McpPool] = self._runner.get_loop().create_future()
        self._owner = self._runner.get_loop().create_task(self._own(home, entry))

    async def _own(self, home: Path, entry: AnyEntry) -> None:
        async with open_pool(home, entry) as pool:
            await pool.wait_until_settled()
            self._connected.set_result(pool)
            await self._done.wait()

    def call(self, words: bytes = b"") -> dict[str, Any]:
        async def call() -> dict[str, Any]:
            server = (await self._connected).servers["parrot"]
            return await server.call("echo", {"hex": words.hex()}, ignore_progress)

        return self._runner.run(call())

    def close(self) -> None:
        async def close() -> None:
            self._done.set()
            await self._owner

        self._runner.run(close())
        self._runner.close()


@pytest.fixture(params=["local", "remote"])
def parrot(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Parrot]:
    with serve_app(lambda _: answer_as_told, lifespan="off") as url:
        local, remote = raw_entry(tmp_path, "parrot"), RemoteEntry(name="parrot", url=f"{url}/mcp")
        parrot = Parrot(tmp_path, local if request.param == "local" else remote)
        yield parrot
        parrot.close()


def list_messages() -> list[dict[str, Any]]:
    """Return messages that a server may send while it is asked something. The server puts the id of the call into them."""
    id = "<id>"
    content = [
        {"type": "text", "text": "words"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///x", "text": "words"}},
        {"type": "resource_link", "uri": "file:///x", "name": "x"},
    ]
    result = {"content": content, "structuredContent": {"a": 1}, "isError": False, "_meta": {"b": 2}}
    progress = {"progressToken": id, "progress": 1, "total": 2, "message": "half"}
    return [
        {"jsonrpc": "2.0", "id": id, "result": result},
        {"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": "no", "data": {"why": 1}}},
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress},
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}},
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": "a", "method": "sampling/createMessage", "params": {"messages": []}},
        {"jsonrpc": "2.0", "id": 2, "method": "roots/list"},
    ]


@given(words=damaged_lines(list_messages()))
@IN_ONE_DIRECTORY
def test_any_message_of_a_server_fails_at_most_its_call(parrot: Parrot, words: bytes) -> None:
    with allow_refusal(McpError):
        to_result(parrot.call(words))
    assert to_result(parrot.call()).output == '{"hex": ""}'
