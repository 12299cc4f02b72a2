"""What the page receives: events with text as rendered blocks, of the sessions that it shows, and the views that it requests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from given.http_server import ProjectServer, prompt, serve_project, stream_events
from weft.provider.scripted import Say, Think

SCRIPT = [
    [Think(text="first *think*"), Say(text="# Head\n\nsome **bold** words\n\n```py\nx = 1\n```\n")]
] * 50


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProjectServer]:
    with serve_project(tmp_path, SCRIPT) as server:
        yield server


def read_until_idle(events: Iterator[dict[str, Any]], session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for event in events:
        payload = event["payload"]
        found.append(payload)
        if payload["type"] == "session.idle" and payload["properties"]["sessionID"] == session:
            return found
    raise AssertionError("the stream ended")


def fold(events: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Apply what a page is told about texts, and return the blocks of each part."""
    parts: dict[str, list[str]] = {}
    for event in events:
        properties = event["properties"]
        if event["type"] == "weft.part.updated":
            parts[properties["part"]["id"]] = list(properties["part"].get("blocks", []))
        elif event["type"] == "weft.part.grew":
            blocks = parts[properties["partID"]]
            assert properties["at"] == len(blocks), "blocks arrive in order, none is left out"
            blocks += properties.get("blocks", [])
    return parts


def test_a_page_receives_blocks_and_ends_in_the_state_of_a_reload(server: ProjectServer) -> None:
    session = server.post("/session")["id"]
    with stream_events(server, f"/weft/view/event?session={session}") as events:
        server.post(f"/session/{session}/message", prompt("go"))
        told = read_until_idle(events, session)
    assert {"message.part.delta", "message.part.updated"}.isdisjoint(each["type"] for each in told)
    views = [
        part for each in server.get(f"/weft/session/{session}/view")["messages"] for part in each["parts"]
    ]
    shown = {part["id"]: part.get("blocks", []) for part in views}
    assert {id: blocks for id, blocks in fold(told).items() if id in shown} == shown
    (answer,) = [part for part in views if part["type"] == "text" and "Head" in part["blocks"][0]]
    assert answer["blocks"][:2] == ["<h3>Head</h3>", "<p>some <strong>bold</strong> words</p>"]


def test_a_page_receives_no_messages_of_sessions_that_it_does_not_show(server: ProjectServer) -> None:
    shown, other = server.post("/session")["id"], server.post("/session")["id"]
    with stream_events(server, f"/weft/view/event?session={shown}") as events:
        server.post(f"/session/{other}/message", prompt("go"))
        told = read_until_idle(events, other)
    kinds = {each["type"] for each in told}
    assert "session.status" in kinds
    assert {"message.updated", "weft.part.updated", "weft.part.grew"}.isdisjoint(kinds)


def test_other_clients_receive_parts_and_no_events_of_the_page(server: ProjectServer) -> None:
    session = server.post("/session")["id"]
    with (
        stream_events(server, f"/weft/view/event?session={session}"),
        stream_events(server, "/event") as events,
    ):
        server.post(f"/session/{session}/message", prompt("go"))
        kinds: set[str] = set()
        for event in events:
            kinds.add(event["type"])
            if event["type"] == "session.idle":
                break
    assert "message.part.updated" in kinds
    assert not any(kind.startswith("weft.part") for kind in kinds)


def test_content_omitted_from_a_closed_view_is_available_on_request(server: ProjectServer) -> None:
    session = server.post("/session")["id"]
    server.post(f"/session/{session}/message", prompt("go"))
    (_, answer) = server.get(f"/weft/session/{session}/view")["messages"]
    (thought,) = [part for part in answer["parts"] if part["type"] == "reasoning"]
    path = f"/weft/session/{session}/message/{answer['info']['id']}"
    assert server.get(f"{path}/part/{thought['id']}/view") == {"html": "<p>first <em>think</em></p>"}
    assert server.get(f"{path}/view")["parts"] == answer["parts"]
    server.get(f"{path}/part/prt_none/view", status=404)
    assert server.get(f"/weft/session/{session}/diff/view") == []
    page = server.client.get(f"/weft/session/{session}/page")
    assert page.headers["content-disposition"] == "attachment"
    assert "<h3>Head</h3>" in page.text


def test_messages_are_paged_from_the_end(server: ProjectServer) -> None:
    session = server.post("/session")["id"]
    for number in range(3):
        server.post(f"/session/{session}/message", prompt(f"go {number}"))
    last = server.get(f"/weft/session/{session}/view?limit=4")
    first = server.get(f"/weft/session/{session}/view?limit=4&before={last['before']}")
    assert [len(page["messages"]) for page in (first, last)] == [2, 4]
    assert "before" not in first


def test_an_attached_file_is_shown_only_if_it_is_an_image(server: ProjectServer) -> None:
    session = server.post("/session")["id"]
    files = [
        {"type": "file", "mime": "image/png", "filename": "a.png", "url": "data:image/png;base64,AAAA"},
        {
            "type": "file",
            "mime": "text/html",
            "filename": "a.html",
            "url": "data:text/html,<script>1</script>",
        },
    ]
    body = {"parts": [{"type": "text", "text": "go"}, *files], "noReply": True}
    stored = server.post(f"/session/{session}/message", body)
    found = [part["id"] for part in stored["parts"] if part["type"] == "file"]
    answers = [
        server.client.get(f"/weft/session/{session}/message/{stored['info']['id']}/part/{id}/file")
        for id in found
    ]
    kinds = {
        (each.headers["content-type"], each.headers["content-disposition"].partition(";")[0])
        for each in answers
        if each.status_code == 200
    }
    assert ("image/png", "inline") in kinds
    assert not any(kind.startswith("text/html") for kind, _ in kinds)
    assert all(
        "sandbox" in each.headers["content-security-policy"] for each in answers if each.status_code == 200
    )


def test_the_status_of_everything_is_one_request(server: ProjectServer) -> None:
    session = server.post("/session")["id"]
    server.post(f"/session/{session}/message", prompt("go"))
    found = server.get("/weft/view/status")
    assert (found["status"], found["permissions"], found["questions"]) == ({}, [], [])
    assert found["directory"] == str(server.project)
