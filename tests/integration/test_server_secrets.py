"""What a server does not show: the share secrets that OpenCode left in sessions, and files if they are switched off."""

import json
from pathlib import Path
from typing import Any

import pytest

from given.http_server import ProjectServer, prompt, serve_project, stream_events

SECRET = "the-secret-of-a-share"
SHARE = {"id": "shr1", "url": "https://share.example/shr1"}


def document(tmp_path: Path, session: str) -> Path:
    (found,) = (tmp_path / "storage" / "session").glob(f"*/{session}.json")
    return found


def make_shared_session(tmp_path: Path, server: ProjectServer) -> str:
    """Return a session as OpenCode's auto-share leaves it."""
    session = str(server.post("/session", {"title": "shown"})["id"])
    path = document(tmp_path, session)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"share": SHARE | {"secret": SECRET}}))
    return session


def test_the_share_secret_of_a_session_is_never_shown_and_stays_stored(tmp_path: Path) -> None:
    with serve_project(tmp_path) as server:
        session = make_shared_session(tmp_path, server)
        with stream_events(server, "/event") as events:
            seen: list[Any] = [
                server.get(f"/session/{session}"),
                server.get("/session"),
                server.get("/weft/session"),
                server.get(f"/weft/session/{session}/tree"),
                server.get(f"/weft/session/{session}/export"),
                server.send("PATCH", f"/session/{session}", {"title": "another"}),
                server.post(f"/weft/session/{session}/touch"),
                next(events),
            ]
        assert seen[0]["share"] == SHARE
        assert SECRET not in json.dumps(seen)
        assert json.loads(document(tmp_path, session).read_text())["share"]["secret"] == SECRET
        gone = server.send("DELETE", f"/weft/session/{session}"), server.get("/weft/trash")
        assert SECRET not in json.dumps(gone)


def test_a_session_with_a_share_secret_can_be_changed_as_it_was_shown(tmp_path: Path) -> None:
    with serve_project(tmp_path) as server:
        session = make_shared_session(tmp_path, server)
        expected = server.get(f"/session/{session}")
        asked = {"change": {"title": "another"}, "expected": expected}
        assert server.send("PATCH", f"/weft/session/{session}", asked)["title"] == "another"
        server.send("PATCH", f"/weft/session/{session}", asked, status=409)


@pytest.mark.parametrize("how", ["message", "prompt_async", "command"])
def test_files_are_not_attached_by_name_if_file_routes_are_off(tmp_path: Path, how: str) -> None:
    (tmp_path / "own.txt").write_text(SECRET)
    named = {"type": "file", "mime": "text/plain", "url": (tmp_path / "own.txt").as_uri()}
    more = {"command": "init", "arguments": ""} if how == "command" else {"noReply": True}
    with serve_project(tmp_path, routes={"files": False}) as server:
        path = f"/session/{server.post('/session', {})['id']}"
        for url in (named["url"], named["url"].replace("file:", "FILE:")):
            answer = server.client.post(f"{path}/{how}", json={**more, "parts": [{**named, "url": url}]})
            assert server.get_refusal(answer) == (403, "NotPermittedError")
        assert server.get(f"{path}/message") == []
        sent = {**named, "url": "data:text/plain;base64,aGVsbG8="}
        assert "hello" in json.dumps(
            server.post(f"{path}/message", prompt("look", noReply=True) | {"parts": [sent]})
        )
