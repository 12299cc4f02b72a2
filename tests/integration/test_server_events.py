"""Event streams over real HTTP: opened, read, and ended when a directory is closed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from given.http_server import ProjectServer, make_project, prompt, serve_project, stream_events
from weft.provider.scripted import Wait


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProjectServer]:
    with serve_project(tmp_path) as server:
        yield server


def read_types_until(events: Iterator[dict[str, Any]], last: str) -> list[str]:
    heard: list[str] = []
    for event in events:
        heard.append(event.get("payload", event)["type"])
        if heard[-1] == last:
            break
    return heard


def test_a_turn_is_streamed_from_beginning_to_end(server: ProjectServer) -> None:
    with stream_events(server, "/event") as events, stream_events(server, "/global/event") as everywhere:
        session = server.post("/session", {})["id"]
        server.post(f"/session/{session}/message", prompt("hi"))
        received = read_types_until(events, "session.idle")
        assert received[:3] == ["session.created", "session.updated", "message.updated"]
        assert {"message.part.updated", "session.status", "session.updated"} <= set(received)
        assert "message.part.delta" not in received
        assert "message.part.delta" in read_types_until(everywhere, "session.idle")


def test_every_new_session_is_published_as_created_and_then_as_updated(server: ProjectServer) -> None:
    """OpenCode's terminal learns of sessions from `session.updated` alone."""
    with stream_events(server, "/event") as events:
        root = server.post("/session", {})
        child = server.post("/session", {"parentID": root["id"]})
        fork = server.post(f"/session/{root['id']}/fork")
        received = [next(events) for _ in range(6)]
    assert [(event["type"], event["properties"]) for event in received] == [
        (kind, {"info": session})
        for session in (root, child, fork)
        for kind in ("session.created", "session.updated")
    ]


def test_closing_a_directory_ends_its_stream_and_it_can_be_opened_again(server: ProjectServer) -> None:
    with stream_events(server, "/event") as events, stream_events(server, "/global/event") as everywhere:
        assert server.post("/instance/dispose") is True
        assert [event["type"] for event in events] == ["server.instance.disposed"]
        session = server.post("/session", {})["id"]
        heard = next(event for event in everywhere if event["payload"]["type"] == "session.created")
        assert (heard["directory"], heard["payload"]["properties"]["info"]["id"]) == (
            str(server.project),
            session,
        )


def test_closing_every_directory_is_sent_to_global_listeners(server: ProjectServer) -> None:
    with stream_events(server, "/global/event") as everywhere:
        server.get("/path")
        assert server.post("/global/dispose") is True
        last = next(event for event in everywhere if event["payload"]["type"] == "global.disposed")
        assert last["directory"] == "global"


def test_a_run_closed_with_its_directory_reports_how_it_ended(tmp_path: Path) -> None:
    with serve_project(tmp_path, [[Wait(seconds=60)]]) as server, stream_events(server, "/event") as events:
        session = server.post("/session", {})["id"]
        server.client.post(f"/session/{session}/prompt_async", json=prompt("hi"))
        next(event for event in events if event["properties"].get("info", {}).get("role") == "assistant")
        server.post("/instance/dispose")
        received = [event["type"] for event in events]
        assert received.index("session.idle") < received.index("server.instance.disposed")
        last = server.get(f"/session/{session}/message")[-1]
        assert last["info"]["error"]["name"] == "MessageAbortedError"


def test_each_directory_has_its_own_project_and_events(tmp_path: Path) -> None:
    other = make_project(tmp_path / "other project")
    with serve_project(tmp_path, allowed=(other,)) as server:
        check_each_has_its_own(server, other)


def check_each_has_its_own(server: ProjectServer, other: Path) -> None:
    (other / "new.txt").write_text("x")
    with stream_events(server, f"/event?directory={other}") as events:
        server.post("/session", {"title": "here"})
        there = server.post(f"/session?directory={other}", {"title": "there"})
        assert there["directory"] == str(other)
        heard = next(event for event in events if event["type"] == "session.created")
        assert heard["properties"]["info"]["title"] == "there"
    header = server.get("/path", headers={"x-opencode-directory": str(other).replace(" ", "%20")})
    assert header["directory"] == str(other)
    none = server.client.get("/path", params={"directory": f"{other}/nowhere/at/all"})
    assert server.get_refusal(none) == (404, "DirectoryError")


def test_two_paths_of_a_directory_are_one_directory(server: ProjectServer, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(server.project)
    with stream_events(server, f"/event?directory={tmp_path / 'link'}/") as events:
        server.post("/session", {"title": "here"})
        assert next(events)["properties"]["info"]["title"] == "here"


def test_terminals_receive_commands_of_the_api(server: ProjectServer) -> None:
    session = server.post("/session", {})["id"]
    with stream_events(server, "/event") as events:
        for path, body in (
            ("append-prompt", {"text": "words"}),
            ("open-help", None),
            ("open-sessions", None),
            ("open-themes", None),
            ("open-models", None),
            ("submit-prompt", None),
            ("clear-prompt", None),
            ("execute-command", {"command": "agent_cycle"}),
            ("show-toast", {"message": "hi", "variant": "info", "duration": 1500.5}),
            ("select-session", {"sessionID": session}),
            ("publish", {"type": "tui.prompt.append", "properties": {"text": "more"}}),
        ):
            assert server.post(f"/tui/{path}", body) is True
        received = [next(events) for _ in range(11)]
    assert [(event["type"], event["properties"]) for event in received] == [
        ("tui.prompt.append", {"text": "words"}),
        *(
            ("tui.command.execute", {"command": command})
            for command in (
                "help.show",
                "session.list",
                "theme.switch",
                "model.list",
                "prompt.submit",
                "prompt.clear",
                "agent.cycle",
            )
        ),
        ("tui.toast.show", {"message": "hi", "variant": "info", "duration": 1500.5}),
        ("tui.session.select", {"sessionID": session}),
        ("tui.prompt.append", {"text": "more"}),
    ]
    durable = {"type": "session.deleted", "properties": {"info": server.get(f"/session/{session}")}}
    assert server.get_refusal(server.client.post("/tui/publish", json=durable)) == (400, "InvalidInputError")
    missing = {"sessionID": "ses_000000000000000000000000zz"}
    assert server.get_refusal(server.client.post("/tui/select-session", json=missing)) == (
        404,
        "NotFoundError",
    )


def test_a_log_entry_is_one_line(server: ProjectServer) -> None:
    line = {"service": "mine", "level": "info", "message": "one\ntwo"}
    assert server.post("/log", line) is True
    assert server.notes == ["info 'mine': 'one\\ntwo'"]
