"""Random requests to every operation of our OpenAPI document: the server answers, and never with an internal error."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from given.http_server import ProjectServer, prompt, serve_project
from given.request_strategies import GeneratedRequest, requests
from weft.server.openapi import to_document
from weft.server.routes.table import list_routes

# No shell and no terminal: generated commands must never run. No configuration file: it could name programs.
ROUTES = {"shell": False}
LEFT_OUT = {
    "config.update",
    "global.config.update",
    "event.subscribe",
    "global.event",
    "weft.view.events",
    "tui.control.next",  # waits
    "session.command",
    "session.init",
    "weft.session.initialize",
    "weft.metrics",  # text
}
DOCUMENT = to_document(list_routes(shell=False), version="1")
REAL: dict[str, list[str]] = {
    "sessionID": [],
    "messageID": [],
    "projectID": ["global"],
    "providerID": ["scripted"],
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProjectServer]:
    with serve_project(tmp_path, routes=ROUTES) as server:
        for number in range(3):
            session = server.post("/session", {"title": f"number {number}"})["id"]
            REAL["sessionID"].append(session)
            REAL["messageID"].append(server.post(f"/session/{session}/message", prompt("hi"))["info"]["id"])
        yield server
        made = server.post("/session", {})
        assert server.post(f"/session/{made['id']}/message", prompt("hi"))["info"]["role"] == "assistant"


@settings(
    max_examples=250,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.filter_too_much,
    ],
)
@given(data=st.data())
def test_no_request_causes_a_server_error(server: ProjectServer, data: st.DataObject) -> None:
    asked = data.draw(requests(DOCUMENT, LEFT_OUT, REAL))
    response = server.client.request(asked.method, address(asked), **to_request(asked))
    about = (asked, response.status_code, response.text[:500], server.notes)
    assert response.status_code < 500 or is_unsupported(response.json()), about
    if response.status_code >= 400:
        assert set(response.json()) == {"name", "data"}, about


def address(asked: GeneratedRequest) -> str:
    path = asked.path
    for name, value in asked.names.items():
        path = path.replace(f"{{{name}}}", quote(value, safe="", errors="replace") or "x")
    return path


def to_request(asked: GeneratedRequest) -> dict[str, Any]:
    query = {
        name: json.dumps(value) if not isinstance(value, str) else value
        for name, value in asked.query.items()
    }
    params = {name: value.encode(errors="replace").decode() for name, value in query.items()}
    more: dict[str, Any] = {"params": params}
    if asked.has_body:
        more["content"] = json.dumps(asked.body)
        more["headers"] = {"content-type": "application/json"}
    return more


def is_unsupported(body: Any) -> bool:
    """Return True if the server says that it does not support the operation."""
    return bool(body["name"] == "UnsupportedError")
