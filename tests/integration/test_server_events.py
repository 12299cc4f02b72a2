"""Streams over real HTTP: begun, heard, and ended when a directory is closed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from given.serving import Site, listening, make_project, prompt, served
from weft.provider.scripted import Wait


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with served(tmp_path) as site:
        yield site


def types_until(events: Iterator[dict[str, Any]], last: str) -> list[str]:
    heard: list[str] = []
    for event in events:
        heard.append(event.get("payload", event)["type"])
        if heard[-1] == last:
            break
    return heard


def test_a_turn_is_told_from_beginning_to_end(site: Site) -> None:
    with listening(site, "/event") as events, listening(site, "/global/event") as everywhere:
        session = site.post("/session", {})["id"]
        site.post(f"/session/{session}/message", prompt("hi"))
        told = types_until(events, "session.idle")
        assert told[:3] == ["session.created", "session.updated", "message.updated"]
        assert {"message.part.updated", "session.status", "session.updated"} <= set(told)
        assert "message.part.delta" not in told
        assert "message.part.delta" in types_until(everywhere, "session.idle")


def test_every_new_session_is_told_as_created_and_then_as_updated(site: Site) -> None:
    """OpenCode's terminal learns of sessions from `session.updated` alone."""
    with listening(site, "/event") as events:
        root = site.post("/session", {})
        child = site.post("/session", {"parentID": root["id"]})
        fork = site.post(f"/session/{root['id']}/fork")
        told = [next(events) for _ in range(6)]
    assert [(event["type"], event["properties"]) for event in told] == [
        (kind, {"info": session})
        for session in (root, child, fork)
        for kind in ("session.created", "session.updated")
    ]


def test_closing_a_directory_ends_its_stream_and_it_can_be_opened_again(site: Site) -> None:
    with listening(site, "/event") as events, listening(site, "/global/event") as everywhere:
        assert site.post("/instance/dispose") is True
        assert [event["type"] for event in events] == ["server.instance.disposed"]
        session = site.post("/session", {})["id"]
        heard = next(event for event in everywhere if event["payload"]["type"] == "session.created")
        assert (heard["directory"], heard["payload"]["properties"]["info"]["id"]) == (
            str(site.project),
            session,
        )


def test_closing_every_directory_is_told_to_who_hears_of_all(site: Site) -> None:
    with listening(site, "/global/event") as everywhere:
        site.get("/path")
        assert site.post("/global/dispose") is True
        last = next(event for event in everywhere if event["payload"]["type"] == "global.disposed")
        assert last["directory"] == "global"


def test_a_run_that_is_closed_with_its_directory_says_how_it_ended(tmp_path: Path) -> None:
    with served(tmp_path, [[Wait(seconds=60)]]) as site, listening(site, "/event") as events:
        session = site.post("/session", {})["id"]
        site.client.post(f"/session/{session}/prompt_async", json=prompt("hi"))
        next(event for event in events if event["properties"].get("info", {}).get("role") == "assistant")
        site.post("/instance/dispose")
        told = [event["type"] for event in events]
        assert told.index("session.idle") < told.index("server.instance.disposed")
        last = site.get(f"/session/{session}/message")[-1]
        assert last["info"]["error"]["name"] == "MessageAbortedError"


def test_each_directory_has_its_own_project_and_events(tmp_path: Path) -> None:
    other = make_project(tmp_path / "other project")
    with served(tmp_path, allowed=(other,)) as site:
        each_has_its_own(site, other)


def each_has_its_own(site: Site, other: Path) -> None:
    (other / "new.txt").write_text("x")
    with listening(site, f"/event?directory={other}") as events:
        site.post("/session", {"title": "here"})
        there = site.post(f"/session?directory={other}", {"title": "there"})
        assert there["directory"] == str(other)
        heard = next(event for event in events if event["type"] == "session.created")
        assert heard["properties"]["info"]["title"] == "there"
    header = site.get("/path", headers={"x-opencode-directory": str(other).replace(" ", "%20")})
    assert header["directory"] == str(other)
    none = site.client.get("/path", params={"directory": f"{other}/nowhere/at/all"})
    assert site.refused(none) == (404, "DirectoryError")


def test_two_names_of_a_directory_are_one_directory(site: Site, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(site.project)
    with listening(site, f"/event?directory={tmp_path / 'link'}/") as events:
        site.post("/session", {"title": "here"})
        assert next(events)["properties"]["info"]["title"] == "here"


def test_screens_hear_what_they_are_asked_to_do(site: Site) -> None:
    session = site.post("/session", {})["id"]
    with listening(site, "/event") as events:
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
            assert site.post(f"/tui/{path}", body) is True
        told = [next(events) for _ in range(11)]
    assert [(event["type"], event["properties"]) for event in told] == [
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
    durable = {"type": "session.deleted", "properties": {"info": site.get(f"/session/{session}")}}
    assert site.refused(site.client.post("/tui/publish", json=durable)) == (400, "InvalidInputError")
    missing = {"sessionID": "ses_000000000000000000000000zz"}
    assert site.refused(site.client.post("/tui/select-session", json=missing)) == (404, "NotFoundError")


def test_a_line_for_the_log_is_one_line(site: Site) -> None:
    line = {"service": "mine", "level": "info", "message": "one\ntwo"}
    assert site.post("/log", line) is True
    assert site.notes == ["info 'mine': 'one\\ntwo'"]
