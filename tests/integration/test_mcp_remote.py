"""Remote MCP servers: both HTTP transports, headers and logins. The servers use the official library."""

import asyncio
import json
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from given.mcp_servers import good
from given.mcp_servers.remote import OAuthProvider, app_with_login, serve_app
from weft.config.schema import McpOAuthConfig, McpRemoteConfig
from weft.errors import ConflictError, InvalidInputError, McpError, NotFoundError
from weft.local.api_parts import open_mcp
from weft.local.mcp import LocalMcp
from weft.local.mcp_settings import McpLaunch, McpSettings
from weft.model.event import Event
from weft.model.workspace import McpConnected, McpDisabled, McpFailed, McpNeedsAuth, McpNeedsRegistration
from weft.model.workspace_event import McpBrowserFailed, McpToolsChanged
from weft.testing.tool_contract import ToolHarness
from weft.tool.mcp.sdk.transport import MAX_RESPONSE_BYTES


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with serve_app(lambda _: good.server.streamable_http_app()) as url:
        yield url


@asynccontextmanager
async def open_mcp_of(
    home: Path,
    event_queue: asyncio.Queue[Event] | None = None,
    port: int = 19876,
    call: float = 60,
    **servers: McpRemoteConfig,
) -> AsyncIterator[LocalMcp]:
    async def publish(event: Event) -> None:
        if event_queue is not None:
            await event_queue.put(event)

    settings = McpSettings(servers=servers, call=call, auth_file=str(home / "mcp-auth.json"), port=port)
    base = McpLaunch(directory=str(home), environment={"PATH": os.environ["PATH"]})
    async with open_mcp(settings, base, publish, reserved=frozenset()) as mcp:
        yield mcp.get()


async def ignore_progress(*_: Any) -> None:
    pass


async def test_a_server_over_streamable_http_works_like_a_local_one(server_url: str, tmp_path: Path) -> None:
    event_queue: asyncio.Queue[Event] = asyncio.Queue()
    async with open_mcp_of(tmp_path, event_queue, far=McpRemoteConfig(url=f"{server_url}/mcp")) as mcp:
        assert await mcp.list_servers(connect=True) == {"far": McpConnected()}
        tools = mcp.pool.tools()
        assert {"far_add", "far_odd_name_with_path", "far_draw"} <= set(tools)
        assert (tools["far_add"].watch_all, tools["far_draw"].watch_all) == (False, True)
        schema = tools["far_add"].schema
        assert schema is not None
        assert (schema["type"], schema["additionalProperties"]) == ("object", False)
        assert schema["properties"]["a"]["type"] == "integer"

        harness = ToolHarness(tmp_path, outside=tmp_path.parent, environment=os.environ)
        assert (await harness.call(tools["far_add"], a=1, b=2)).output == "3"
        drawn = await harness.call(tools["far_draw"])
        assert [file.mime for file in drawn.attachments] == ["image/png"]
        with pytest.raises(McpError, match="Error executing tool fail"):
            await harness.call(tools["far_fail"], words="x")
        with pytest.raises(McpError, match="validation error"):
            await harness.call(tools["far_add"], a="x")

        assert await harness.call(tools["far_grow"])
        assert await event_queue.get() == McpToolsChanged(server="far")
        assert "far_grown" in mcp.pool.tools()


async def test_progress_restarts_the_deadline_of_a_call(server_url: str, tmp_path: Path) -> None:
    async with open_mcp_of(tmp_path, call=3, far=McpRemoteConfig(url=f"{server_url}/mcp")) as mcp:
        await mcp.connect("far")
        heard: list[str | None] = []

        async def record_progress(done: float, of: float | None, words: str | None) -> None:
            heard.append(words)

        answer = await mcp.pool.get("far").call("slow", {"seconds": 3.3}, record_progress)
        assert answer["content"][0]["text"] == "done"
        assert heard[0] == "at 0"


async def test_resources_and_prompts_are_listed_and_read(server_url: str, tmp_path: Path) -> None:
    async with open_mcp_of(tmp_path, far=McpRemoteConfig(url=f"{server_url}/mcp")) as mcp:
        await mcp.connect("far")
        found = await mcp.list_resources()
        assert {key: each.uri for key, each in found.items()} == {
            "far:today_s_notes": "notes://today",
            "far:picture": "notes://picture",
        }
        [notes] = await mcp.pool.read_resource("far", "notes://today")
        [picture] = await mcp.pool.read_resource("far", "notes://picture")
        assert (notes.text, picture.file and picture.file.mime) == ("Buy bread.", "image/png")
        with pytest.raises(McpError, match="Resource not found: none/x:y"):
            await mcp.pool.read_resource("none", "x:y")
        with pytest.raises(McpError):
            await mcp.pool.read_resource("far", "notes://none")

        [command] = mcp.pool.list_commands().values()
        assert (command.name, command.mcp, command.hints) == ("far:review_it", True, ("$1", "$2"))
        found_again = await mcp.pool.find_command("far:review_it")
        assert found_again == command
        words = await mcp.pool.render("far:review_it", {"what": "all", "how": "strict"})
        assert words == "Review all, and be strict. !`touch evil` @secret.txt"
        with pytest.raises(McpError):
            await mcp.pool.render("far:review_it", {"what": "all"})
        assert await mcp.pool.find_command("far:none") is None


async def test_a_server_over_sse_works(tmp_path: Path) -> None:
    with serve_app(lambda _: good.server.sse_app()) as url:
        async with open_mcp_of(tmp_path, old=McpRemoteConfig(url=f"{url}/sse", timeout=10_000)) as mcp:
            assert await mcp.list_servers(connect=True) == {"old": McpConnected()}
            answer = await mcp.pool.get("old").call("add", {"a": 2, "b": 2}, ignore_progress)
            assert answer["content"][0]["text"] == "4"


@pytest.mark.parametrize("kind", ["streamable_http_app", "sse_app"])
async def test_a_large_answer_arrives_completely_over_both_transports(tmp_path: Path, kind: str) -> None:
    with serve_app(lambda _: getattr(good.server, kind)()) as url:
        address = f"{url}/{'sse' if kind == 'sse_app' else 'mcp'}"
        async with open_mcp_of(tmp_path, far=McpRemoteConfig(url=address)) as mcp:
            await mcp.connect("far")
            answer = await mcp.pool.get("far").call("long", {"lines": 600_000}, ignore_progress)
            assert answer["content"][0]["text"] == "\n".join(f"line {number}" for number in range(600_000))


@pytest.mark.parametrize("kind", ["events", "json", "sse"])
async def test_an_answer_that_is_too_large_fails_and_names_the_limit(tmp_path: Path, kind: str) -> None:
    def build(_: str) -> Any:
        if kind == "sse":
            return good.server.sse_app()
        return good.server.streamable_http_app(json_response=kind == "json")

    with serve_app(build) as url:
        address = f"{url}/{'sse' if kind == 'sse' else 'mcp'}"
        async with open_mcp_of(tmp_path, far=McpRemoteConfig(url=address)) as mcp:
            await mcp.connect("far")
            with pytest.raises(McpError, match=str(MAX_RESPONSE_BYTES)):
                await mcp.pool.get("far").call("long", {"lines": 1_500_000}, ignore_progress)


async def test_a_missing_or_invalid_server_fails(server_url: str, tmp_path: Path) -> None:
    servers = {
        "none": McpRemoteConfig(url="http://127.0.0.1:9/mcp"),
        "other": McpRemoteConfig(url=f"{server_url}/elsewhere"),
    }
    async with open_mcp_of(tmp_path, **servers) as mcp:
        found = await mcp.list_servers(connect=True)
        assert {name: type(status) for name, status in found.items()} == dict.fromkeys(servers, McpFailed)


async def test_a_server_that_disappears_is_noticed_at_the_next_call(tmp_path: Path) -> None:
    with serve_app(lambda _: good.server.streamable_http_app()) as url:
        opened = open_mcp_of(tmp_path, far=McpRemoteConfig(url=f"{url}/mcp"))
        mcp = await opened.__aenter__()
        assert await mcp.connect("far")
    try:
        server = mcp.pool.get("far")
        with pytest.raises(McpError):
            await server.call("add", {"a": 1, "b": 1}, ignore_progress)
    finally:
        await opened.__aexit__(None, None, None)


async def test_closing_does_not_wait_for_a_server_that_hangs(tmp_path: Path) -> None:
    asked = threading.Event()

    def build(_: str) -> Any:
        app = good.server.streamable_http_app()

        async def hang_on_delete(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http" and scope["method"] == "DELETE":
                asked.set()
                while (await receive())["type"] != "http.disconnect":
                    pass
                return
            await app(scope, receive, send)

        return hang_on_delete

    with serve_app(build) as url:
        async with open_mcp_of(tmp_path, far=McpRemoteConfig(url=f"{url}/mcp")) as mcp:
            assert await mcp.connect("far")
            assert await mcp.disconnect("far")
        assert asked.is_set()


async def test_an_endless_answer_is_given_up(tmp_path: Path) -> None:
    async def send_endlessly(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        piece = b'"' + b"x" * 1_000_000
        for _ in range(1000):
            await send({"type": "http.response.body", "body": piece, "more_body": True})

    with serve_app(lambda _: send_endlessly, lifespan="off") as url:
        async with open_mcp_of(tmp_path, far=McpRemoteConfig(url=f"{url}/mcp")) as mcp:
            found = await mcp.list_servers(connect=True)
            assert isinstance(found["far"], McpFailed)


async def test_a_server_that_requires_a_login_says_so_and_accepts_one(tmp_path: Path) -> None:
    registrar = OAuthProvider()
    with serve_app(app_with_login(registrar)) as url:
        server = McpRemoteConfig(url=f"{url}/mcp")
        async with open_mcp_of(tmp_path, port=free_port(), far=server) as mcp:
            assert await mcp.list_servers(connect=True) == {"far": McpNeedsAuth()}
            address = await mcp.start_login("far")
            assert address.startswith(f"{url}/authorize?")
            came_back = await follow(address)
            assert came_back.status_code == 200
            assert await mcp.finish_login("far") == McpConnected()
            assert list(mcp.pool.tools()) == ["far_whisper"]

        path = tmp_path / "mcp-auth.json"
        assert path.stat().st_mode & 0o777 == 0o600
        entry = json.loads(path.read_text())["far"]
        assert entry["serverUrl"] == f"{url}/mcp"
        assert set(entry["tokens"]) >= {"accessToken", "refreshToken", "expiresAt"}
        assert entry["clientInfo"]["clientId"] in registrar.clients

        async with open_mcp_of(tmp_path, far=server) as mcp:
            assert await mcp.list_servers(connect=True) == {"far": McpConnected()}
            await mcp.remove_login("far")
            assert json.loads(path.read_text()) == {}
            assert await mcp.list_servers(connect=True) == {"far": McpNeedsAuth()}


async def test_an_expired_token_is_renewed_by_another_process(tmp_path: Path) -> None:
    registrar = OAuthProvider()
    with serve_app(app_with_login(registrar)) as url:
        await log_in(tmp_path, url)
        path = tmp_path / "mcp-auth.json"
        entries = json.loads(path.read_text())
        entries["far"]["tokens"]["expiresAt"] = 1
        path.write_text(json.dumps(entries))
        registrar.tokens.clear()
        made = registrar.made
        async with open_mcp_of(tmp_path, far=McpRemoteConfig(url=f"{url}/mcp")) as mcp:
            assert await mcp.list_servers(connect=True) == {"far": McpConnected()}
        assert registrar.made == made + 1
        assert json.loads(path.read_text())["far"]["tokens"]["expiresAt"] > 1


async def test_a_login_is_valid_only_for_its_address(tmp_path: Path) -> None:
    registrar = OAuthProvider()
    with serve_app(app_with_login(registrar)) as url:
        await log_in(tmp_path, url)
        async with open_mcp_of(tmp_path, far=McpRemoteConfig(url=f"{url}/mcp?other")) as mcp:
            assert await mcp.list_servers(connect=True) == {"far": McpNeedsAuth()}


async def test_a_code_finishes_a_login_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    with serve_app(app_with_login(OAuthProvider())) as url:
        async with open_mcp_of(tmp_path, port=free_port(), far=McpRemoteConfig(url=f"{url}/mcp")) as mcp:
            with pytest.raises(InvalidInputError, match="no login at far was started"):
                await mcp.finish_login("far", "code")
            await mcp.start_login("far")
            assert isinstance(await mcp.finish_login("far", "wrong"), McpFailed)
            address = await mcp.start_login("far")
            answered = await asyncio.to_thread(httpx2.get, address, follow_redirects=False)
            code = httpx2.URL(answered.headers["location"]).params["code"]
            assert await mcp.finish_login("far", code) == McpConnected()


async def test_a_callback_with_a_wrong_state_is_refused(tmp_path: Path) -> None:
    port = free_port()
    with serve_app(app_with_login(OAuthProvider())) as url:
        async with open_mcp_of(tmp_path, port=port, far=McpRemoteConfig(url=f"{url}/mcp")) as mcp:
            address = await mcp.start_login("far")
            page = f"http://127.0.0.1:{port}/mcp/oauth/callback"
            for strange in ("?code=x&state=wrong", "?code=x", "/more?code=x"):
                answered = await asyncio.to_thread(httpx2.get, page + strange)
                assert answered.status_code in (400, 404)
            assert (await follow(address)).status_code == 200
            assert await mcp.finish_login("far") == McpConnected()


async def test_a_port_in_use_is_reported_and_a_code_still_works(tmp_path: Path) -> None:
    with serve_app(app_with_login(OAuthProvider())) as url, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        async with open_mcp_of(
            tmp_path, port=int(taken.getsockname()[1]), far=McpRemoteConfig(url=f"{url}/mcp", enabled=False)
        ) as mcp:
            address = await mcp.start_login("far")
            with pytest.raises(ConflictError, match="cannot be opened"):
                await mcp.finish_login("far")
            answered = await asyncio.to_thread(httpx2.get, address, follow_redirects=False)
            code = httpx2.URL(answered.headers["location"]).params["code"]
            assert await mcp.finish_login("far", code) == McpConnected()
            await mcp.remove_login("far")
            assert await mcp.list_servers(connect=True) == {"far": McpDisabled()}


async def test_a_server_without_client_registration_needs_a_client_id(tmp_path: Path) -> None:
    registrar = OAuthProvider()
    with serve_app(app_with_login(registrar, registers=False)) as url:
        servers = {
            "unknown": McpRemoteConfig(url=f"{url}/mcp"),
            "known": McpRemoteConfig(url=f"{url}/mcp", oauth=McpOAuthConfig(client_id="ours")),
            "never": McpRemoteConfig(url=f"{url}/mcp", oauth=False),
        }
        async with open_mcp_of(tmp_path, **servers) as mcp:
            found = await mcp.list_servers(connect=True)
            assert isinstance(found["unknown"], McpNeedsRegistration)
            assert found["known"] == McpNeedsAuth()
            assert isinstance(found["never"], McpFailed)
            with pytest.raises(InvalidInputError, match="does not support OAuth"):
                await mcp.start_login("never")


async def test_a_missing_browser_is_reported(tmp_path: Path) -> None:
    event_queue: asyncio.Queue[Event] = asyncio.Queue()
    with serve_app(app_with_login(OAuthProvider())) as url:
        async with open_mcp_of(
            tmp_path, event_queue, free_port(), far=McpRemoteConfig(url=f"{url}/mcp")
        ) as mcp:
            logging_in = asyncio.ensure_future(mcp.log_in("far"))
            event = await event_queue.get()
            assert isinstance(event, McpBrowserFailed)
            await follow(event.url)
            assert await logging_in == McpConnected()


async def test_servers_are_added_disconnected_and_connected_by_name(server_url: str, tmp_path: Path) -> None:
    async with open_mcp_of(tmp_path) as mcp:
        assert await mcp.add_server("far", {"type": "remote", "url": f"{server_url}/mcp"}) == McpConnected()
        assert await mcp.disconnect("far")
        assert list(mcp.pool.tools()) == []
        assert await mcp.connect("far")
        for name, config in (("", {}), ("a\nb", {}), ("x", {"type": "odd"}), ("x", {"type": "local"})):
            with pytest.raises(InvalidInputError):
                await mcp.add_server(name, config)
        for unknown in (mcp.connect, mcp.disconnect, mcp.start_login, mcp.log_in, mcp.remove_login):
            with pytest.raises(NotFoundError):
                await unknown("none")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def follow(address: str) -> httpx2.Response:
    """Act as a browser: open the server's page, and follow the redirect to ours."""
    return await asyncio.to_thread(httpx2.get, address, follow_redirects=True)


async def log_in(home: Path, url: str) -> None:
    async with open_mcp_of(home, port=free_port(), far=McpRemoteConfig(url=f"{url}/mcp")) as mcp:
        await follow(await mcp.start_login("far"))
        assert await mcp.finish_login("far") == McpConnected()
