"""The routes under `/weft`: operations of the API that OpenCode does not have."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from given.http_server import ProjectServer, prompt, serve_project
from weft.provider.scripted import Say, UseTool, Wait


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProjectServer]:
    with serve_project(tmp_path) as server:
        yield server


def make(server: ProjectServer, **more: Any) -> str:
    return str(server.post("/session", more)["id"])


def test_a_session_is_changed_atomically_and_only_if_it_is_as_expected(server: ProjectServer) -> None:
    session = make(server, title="first")
    before = server.get(f"/session/{session}")
    change = {"title": "second", "pinned": True, "tag": ["red", "blue"]}
    after = server.send("PATCH", f"/weft/session/{session}", {"change": change, "expected": before})
    assert (after["title"], after["weft"]["pinned"], set(after["weft"]["tags"])) == (
        "second",
        True,
        {"red", "blue"},
    )
    again = {"change": {"untag": ["red"]}, "expected": before}
    assert server.send("PATCH", f"/weft/session/{session}", again, 409)["name"] == "ConflictError"
    archived = server.send("PATCH", f"/weft/session/{session}", {"change": {"archived": True}})
    assert archived["time"]["archived"] > 0


def test_sessions_are_filtered_by_their_properties(server: ProjectServer) -> None:
    red, plain = make(server, title="a red one"), make(server)
    server.send("PATCH", f"/weft/session/{red}", {"change": {"tag": ["red"]}})
    assert [each["id"] for each in server.get("/weft/session", params={"tag": "red"})] == [red]
    server.send("PATCH", f"/weft/session/{plain}", {"change": {"archived": True}})
    assert [each["id"] for each in server.get("/weft/session", params={"archived": "false"})] == [red]
    here = {"at": str(server.project), "limit": 1, "order": "updated", "everywhere": "true"}
    assert len(server.get("/weft/session", params=here)) == 1
    assert server.get("/weft/session", 400, params={"order": "size"})["name"] == "InvalidInputError"


def test_a_session_is_created_under_a_given_id_in_the_project_only(
    server: ProjectServer, tmp_path: Path
) -> None:
    id = "ses_0000000000000000000000000a"
    (server.project / "below").mkdir()
    made = server.post("/weft/session", {"id": id, "directory": "below", "title": "mine"})
    assert (made["id"], made["directory"]) == (id, str(server.project / "below"))
    assert server.post("/weft/session", {"id": id}, 409)["name"] == "ConflictError"
    assert server.post("/weft/session", {"directory": str(tmp_path)}, 403)["name"] == "OutsideError"
    assert server.post("/weft/session", {"directory": "a\0b"}, 403)["name"] == "OutsideError"
    (server.project / "out").symlink_to(tmp_path)
    assert server.post("/weft/session", {"directory": "out"}, 403)["name"] == "OutsideError"


def test_a_family_of_sessions_is_trashed_restored_or_deleted(server: ProjectServer) -> None:
    top = make(server)
    child = make(server, parentID=top)
    tree = server.get(f"/weft/session/{top}/tree")
    assert (tree["session"]["id"], [each["session"]["id"] for each in tree["children"]]) == (top, [child])
    assert [each["id"] for each in server.send("DELETE", f"/weft/session/{top}")] == [child, top]
    assert [each["sessions"][0]["id"] for each in server.get("/weft/trash")] == [top]
    assert {each["id"] for each in server.post(f"/weft/session/{top}/restore")} == {top, child}
    server.client.delete(f"/weft/session/{top}", params={"trash": "false"}).raise_for_status()
    assert server.get("/weft/trash") == []
    assert server.post(f"/weft/session/{top}/restore", status=404)["name"] == "NotFoundError"


def test_touching_updates_the_time_of_a_session(server: ProjectServer) -> None:
    session = make(server)
    before = server.get(f"/session/{session}")["time"]["updated"]
    assert server.post(f"/weft/session/{session}/touch")["time"]["updated"] >= before


def test_sessions_are_searched_counted_and_moved(server: ProjectServer) -> None:
    session = make(server, title="about otters")
    server.post(f"/session/{session}/message", prompt("where do otters live"))
    assert [hit["sessionID"] for hit in server.get("/weft/search", params={"words": "otters"})] == [session]
    assert server.get(f"/weft/session/{session}/spending")["own"]["steps"] == 1
    assert server.get("/weft/figures", params={"days": 0})["sessions"] == 1
    export = server.get(f"/weft/session/{session}/export")
    assert export["info"]["id"] == session
    tried = server.post("/weft/import", export, params={"dryRun": "true"})
    assert (tried["verdict"], tried["id"]) == ("same", session)
    server.client.delete(f"/weft/session/{session}", params={"trash": "false"}).raise_for_status()
    assert server.post("/weft/import", export)["verdict"] == "new"
    assert len(server.get(f"/session/{session}/message")) == 2


def test_a_prompt_is_checked_sent_and_returned_as_stored(server: ProjectServer) -> None:
    session = make(server)
    assert server.post("/weft/prompt/check", prompt("hi", agent="nobody"), 404)["name"] == "NotFoundError"
    assert server.post("/weft/prompt/check", prompt("hi"), 204) is None
    sent = server.post(f"/weft/session/{session}/submit", prompt("hi"))
    assert (sent["info"]["role"], sent["parts"][0]["text"]) == ("user", "hi")


def test_messages_and_parts_are_stored_under_their_address(server: ProjectServer) -> None:
    session = make(server)
    asked = server.post(f"/weft/session/{session}/submit", prompt("hi", noReply=True))
    info, part = asked["info"], asked["parts"][0]
    at = f"/weft/session/{session}/message/{info['id']}"
    assert server.send("PUT", at, {**info, "agent": "plan"})["agent"] == "plan"
    put = server.send("PUT", f"{at}/part/{part['id']}", {"part": {**part, "text": "hi you"}, "delta": " you"})
    assert put["text"] == "hi you"
    assert server.send("PUT", at, {**info, "id": "msg_" + "0" * 26}, 400)["name"] == "InvalidInputError"


def test_compacting_returns_the_summary_and_can_be_undone(server: ProjectServer) -> None:
    session = make(server)
    server.post(f"/session/{session}/message", prompt("hi"))
    assert server.post(f"/weft/session/{session}/uncompact") is False
    assert server.post(f"/weft/session/{session}/compact")["info"]["summary"] is True
    assert server.post(f"/weft/session/{session}/uncompact") is True


def test_aborting_returns_whether_there_was_a_run(tmp_path: Path) -> None:
    with serve_project(tmp_path, [[Wait(seconds=60)], [Say(text="title")]]) as server:
        session = make(server, title="long")
        assert server.post(f"/weft/session/{session}/abort") is False
        assert server.get(f"/weft/session/{session}/status") == {"type": "idle"}
        server.post(f"/weft/session/{session}/submit", prompt("wait"))
        assert server.get(f"/weft/session/{session}/status")["type"] == "busy"
        assert server.post(f"/weft/session/{session}/abort") is True


def test_undo_reports_the_fate_of_files_and_has_a_dry_run(tmp_path: Path) -> None:
    call = UseTool(tool="write", input={"filePath": "made.txt", "content": "made\n"})
    with serve_project(tmp_path, [[call], [Say(text="done")]]) as server:
        session = make(server, title="writes")
        asked = server.post(f"/weft/session/{session}/submit", prompt("write"))
        server.post(f"/session/{session}/message", prompt("and?", noReply=True))
        wait_until_idle(server, session)
        message = asked["info"]["id"]
        tried = server.post(f"/weft/session/{session}/revert", {"messageID": message, "dryRun": True})
        made = server.project / "made.txt"
        assert [each["file"] for each in tried["files"]] == [str(made)]
        assert made.exists()
        none = server.post(f"/weft/session/{session}/revert", {"messageID": message, "files": []})
        assert none["session"]["revert"]["messageID"] == message
        assert made.exists()
        server.post(f"/weft/session/{session}/unrevert")
        server.post(f"/weft/session/{session}/revert", {"messageID": message})
        assert not made.exists()
        back = server.post(f"/weft/session/{session}/unrevert", {"dryRun": False})
        assert [each["file"] for each in back["files"]] == [str(made)]
        assert made.exists()


def wait_until_idle(server: ProjectServer, session: str) -> None:
    """Wait until the run of a session has ended."""
    with server.client.stream("GET", "/event") as events:
        if server.get(f"/weft/session/{session}/status")["type"] == "idle":
            return
        for line in events.iter_lines():
            if '"session.idle"' in line and session in line:
                return


def test_a_grant_has_options_and_is_listed_and_revoked(tmp_path: Path) -> None:
    ask = {"permission": {"bash": "ask"}}
    call = UseTool(tool="bash", input={"command": "echo hi", "description": "say hi"})
    with serve_project(tmp_path, [[call], [Say(text="done")]], config=ask) as server:
        session = make(server, title="asks")
        with server.client.stream("GET", "/event") as events:
            lines = events.iter_lines()
            server.post(f"/weft/session/{session}/submit", prompt("say hi"))
            next(line for line in lines if '"permission.asked"' in line)
        (asked,) = server.get("/permission")
        answer = {"reply": "always", "grant": {"scope": "session", "anyAgent": True}}
        assert server.post(f"/weft/permission/{asked['id']}/reply", answer) is True
        (grant,) = server.get("/weft/grant")
        assert (grant["scope"], grant["permission"]) == ("session", "bash")
        assert server.send("DELETE", f"/weft/grant/{grant['id']}") is True
        assert server.get("/weft/grant") == []
        assert server.send("DELETE", f"/weft/grant/{grant['id']}", None, 404)["name"] == "NotFoundError"


def test_commands_and_tools_can_be_read_by_name(server: ProjectServer) -> None:
    assert server.get("/weft/command/init")["name"] == "init"
    assert server.get("/weft/command/nothing", 404)["name"] == "NotFoundError"
    assert "bash" in {tool["id"] for tool in server.get("/weft/tool")}
