"""A server that ends refuses work, and still lets people read, answer and abort."""

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from weft.api import Api
from weft.server.access import AccessPolicy
from weft.server.application import RouteEndpoint
from weft.server.http_server import HttpServer, ServerSetup
from weft.server.route import Method, ServerCall, route


async def answer(call: ServerCall) -> str:
    """Answer."""
    del call
    return "done"


def open_nothing(directory: str) -> AbstractAsyncContextManager[Api]:
    raise AssertionError(f"{directory} is not needed")


async def ask(server: HttpServer, method: Method, name: str) -> tuple[int, dict[str, str]]:
    """Return the status and the headers of the answer of a route."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"method": method, "path": "/x", "path_params": {}, "query_string": b"", "headers": []}
    await RouteEndpoint(server, [route(method, "/x", name, answer)])(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers


@pytest.mark.parametrize(
    ("method", "name", "status"),
    [
        ("POST", "session.prompt", 503),
        ("POST", "session.abort", 200),
        ("POST", "weft.clientTool.accept", 200),
        ("POST", "weft.clientTool.ask", 200),
        ("POST", "weft.clientTool.report", 200),
        ("POST", "weft.clientTool.finish", 200),
        ("PUT", "weft.clientTool.offer", 503),
        ("GET", "session.list", 200),
    ],
)
async def test_a_server_that_shuts_down_accepts_no_new_work(method: Method, name: str, status: int) -> None:
    setup = ServerSetup(
        open=open_nothing,
        default_directory="/work",
        access=AccessPolicy(password=None),
        name="boot",
        note=pytest.fail,
        now=lambda: 0,
    )
    server = HttpServer(setup, [])
    assert (await ask(server, method, name))[0] == 200
    server.shutting_down = True
    answered, headers = await ask(server, method, name)
    assert (answered, headers.get("retry-after")) == (status, "1" if status == 503 else None)
