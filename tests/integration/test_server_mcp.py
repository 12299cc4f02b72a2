"""MCP servers over HTTP, route by route, in OpenCode's shapes."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from given.http_server import ProjectServer, prompt, serve_project
from given.mcp_servers import good
from given.mcp_servers.remote import OAuthProvider, app_with_login, serve_app

RAW = Path(__file__).parents[1] / "given" / "mcp_servers" / "raw.py"


@pytest.fixture(scope="module")
def remote_url() -> Iterator[str]:
    with serve_app(lambda _: good.server.streamable_http_app()) as url:
        yield f"{url}/mcp"


@pytest.fixture
def server(tmp_path: Path, remote_url: str) -> Iterator[ProjectServer]:
    servers = {
        "near": {"type": "local", "command": raw_command(tmp_path, "plain")},
        "far": {"type": "remote", "url": remote_url, "enabled": False},
        "broken": {"type": "local", "command": ["no-such-program"]},
    }
    with serve_project(
        tmp_path, config={"mcp": servers, "experimental": {"weft": {"mcp": {"wait": 30}}}}
    ) as found:
        yield found


def raw_command(home: Path, manner: str) -> list[str]:
    return [sys.executable, "-S", "-E", str(RAW), manner, str(home / f"{manner}.log")]


def test_listing_servers_connects_them_and_reports_their_status(server: ProjectServer) -> None:
    listed = server.get("/mcp")
    assert (listed["near"], listed["far"]) == ({"status": "connected"}, {"status": "disabled"})
    assert listed["broken"]["status"] == "failed"
    assert "no-such-program" in listed["broken"]["error"]


def test_listing_resources_and_commands_starts_no_server(server: ProjectServer, tmp_path: Path) -> None:
    assert server.get("/experimental/resource") == {}
    assert [each for each in server.get("/command") if each.get("mcp")] == []
    assert not (tmp_path / "plain.log").exists()


def test_a_run_connects_the_servers_and_reports_their_status(server: ProjectServer) -> None:
    session = server.post("/session", {})
    server.post(f"/session/{session['id']}/message", prompt("hello"))
    listed = server.get("/mcp")
    assert listed["near"] == {"status": "connected"}
    assert listed["far"] == {"status": "disabled"}
    assert listed["broken"]["status"] == "failed"
    assert "no-such-program" in listed["broken"]["error"]
    assert "near_echo" in server.get("/experimental/tool/ids")


def test_servers_are_connected_and_disconnected(server: ProjectServer) -> None:
    assert server.post("/mcp/far/connect") is True
    assert server.get("/mcp")["far"] == {"status": "connected"}
    assert server.get("/experimental/resource")["far:picture"] == {
        "name": "picture",
        "uri": "notes://picture",
        "mimeType": "image/png",
        "client": "far",
    }
    command = next(each for each in server.get("/command") if each["name"] == "far:review_it")
    assert (command["mcp"], command["hints"]) == (True, ["$1", "$2"])
    assert server.post("/mcp/far/disconnect") is True
    assert server.get("/mcp")["far"] == {"status": "disabled"}
    assert server.post("/mcp/broken/connect") is False


def test_a_server_is_added(server: ProjectServer, remote_url: str, tmp_path: Path) -> None:
    added = server.post("/mcp", {"name": "new", "config": {"type": "remote", "url": remote_url}})
    assert added == {"new": {"status": "connected"}}
    added = server.post(
        "/mcp", {"name": "off", "config": {"type": "remote", "url": remote_url, "enabled": False}}
    )
    assert added == {"off": {"status": "disabled"}}
    assert server.get("/mcp")["new"] == {"status": "connected"}
    for body in ({"name": "", "config": {}}, {"name": "x", "config": {"type": "odd"}}, {"name": "x"}):
        assert server.client.post("/mcp", json=body).status_code == 400


def test_without_a_shell_no_server_can_be_added(tmp_path: Path) -> None:
    with serve_project(tmp_path, routes={"shell": False}) as server:
        assert server.client.post("/mcp", json={"name": "x", "config": {}}).status_code in (404, 405)
        assert server.get("/mcp") == {}


def test_a_person_logs_in_and_out(tmp_path: Path) -> None:
    with serve_app(app_with_login(OAuthProvider())) as url:
        servers = {"far": {"type": "remote", "url": f"{url}/mcp"}}
        own = {"mcp": servers, "experimental": {"weft": {"mcp": {"callbackPort": 1}}}}
        with serve_project(tmp_path, config=own) as server:
            assert server.post("/mcp/far/connect") is False
            assert server.get("/mcp") == {"far": {"status": "needs_auth"}}
            address = server.post("/mcp/far/auth")["authorizationUrl"]
            code = httpx2.URL(
                httpx2.get(address, follow_redirects=False, timeout=60).headers["location"]
            ).params["code"]
            assert server.post("/mcp/far/auth/callback", {"code": code}) == {"status": "connected"}
            assert server.send("DELETE", "/mcp/far/auth") == {"success": True}
            assert server.post("/mcp/far/connect") is False
            assert server.get("/mcp") == {"far": {"status": "needs_auth"}}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/mcp/near/auth", None, 400),
        ("POST", "/mcp/near/auth/authenticate", None, 400),
        ("POST", "/mcp/near/auth/callback", {"code": "x"}, 400),
        ("POST", "/mcp/near/auth/callback", {"code": ""}, 400),
        ("POST", "/mcp/none/auth", None, 404),
        ("DELETE", "/mcp/none/auth", None, 404),
        ("POST", "/mcp/none/auth/callback", {"code": "x"}, 404),
        ("POST", "/mcp/none/auth/authenticate", None, 404),
        ("POST", "/mcp/none/connect", None, 404),
        ("POST", "/mcp/none/disconnect", None, 404),
    ],
)
def test_invalid_operations_are_refused(
    server: ProjectServer, method: str, path: str, body: Any, status: int
) -> None:
    server.send(method, path, body, status)
