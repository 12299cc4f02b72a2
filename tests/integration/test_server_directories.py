"""Which directories a client may name, and worktrees created over HTTP."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from given.http_server import ProjectServer, make_project, prompt, serve_project, stream_events
from weft.provider.scripted import AnyMove, Say, UseTool


def test_a_directory_of_an_unknown_project_is_not_opened(tmp_path: Path) -> None:
    other = make_project(tmp_path / "other")
    with serve_project(tmp_path) as server:
        for given in (str(other), str(tmp_path), "/", "/etc", f"{server.project}/../other"):
            refused = server.client.get("/path", params={"directory": given})
            assert server.get_refusal(refused) == (403, "DirectoryNotServedError")
        streamed = server.client.get("/event", params={"directory": str(other)})
        assert server.get_refusal(streamed) == (403, "DirectoryNotServedError")
        (server.project / "out").symlink_to(other)
        linked = server.client.get("/path", headers={"x-opencode-directory": f"{server.project}/out"})
        assert server.get_refusal(linked) == (403, "DirectoryNotServedError")


def test_following_the_hint_of_a_refusal_permits_the_directory(tmp_path: Path) -> None:
    plain, repository = tmp_path / "plain", make_project(tmp_path / "repository")
    plain.mkdir()
    hint = "a git repository with a commit is also allowed once weft or OpenCode has worked in it"
    with serve_project(tmp_path) as server:
        for directory in (plain, repository):
            refused = server.get("/path", 403, params={"directory": str(directory)})
            assert refused["data"]["hint"] == f"weft serve --allow-dir {directory} allows it; {hint}"
    with serve_project(tmp_path, project=plain) as server:
        server.post("/session", {})
    with serve_project(tmp_path, project=repository) as server:
        server.post("/session", {})
    with serve_project(tmp_path, project=tmp_path / "project") as server:
        server.get("/path", params={"directory": str(repository)})
        server.get("/path", 403, params={"directory": str(plain)})
    with serve_project(tmp_path, project=tmp_path / "project", allowed=(plain,)) as server:
        server.get("/path", params={"directory": str(plain)})


def test_directories_below_known_projects_or_allowed_ones_are_opened(tmp_path: Path) -> None:
    other = make_project(tmp_path / "other")
    (other / "deep").mkdir()
    with serve_project(tmp_path, allowed=(tmp_path / "other",)) as server:
        (server.project / "sub").mkdir()
        assert server.get("/path", params={"directory": "sub"})["directory"] == str(server.project / "sub")
        assert server.get("/path", params={"directory": str(other / "deep")})["worktree"] == str(other)
    # By now it is a project like any other.
    with serve_project(tmp_path, project=tmp_path / "project") as server:
        assert server.get("/path", params={"directory": str(other)})["directory"] == str(other)


def test_a_directory_that_could_not_be_opened_is_tried_again(tmp_path: Path) -> None:
    with serve_project(tmp_path) as server:
        late = server.project / "late"
        assert server.get("/path", 404, params={"directory": str(late)})["name"] == "DirectoryError"
        late.mkdir()
        assert server.get("/path", params={"directory": str(late)})["directory"] == str(late)


@pytest.mark.parametrize("shell", [True, False])
def test_a_worktree_is_created_used_reset_and_removed(tmp_path: Path, shell: bool) -> None:
    with serve_project(tmp_path, routes={"shell": shell}) as server:
        made = server.post("/experimental/worktree", {"name": "My Fix"})
        place = Path(made["directory"])
        assert (made["name"], made["branch"]) == ("my-fix", "opencode/my-fix")
        assert server.get("/experimental/worktree") == [str(place)]
        assert server.get("/weft/worktree") == [made]
        inside = {"directory": str(place)}
        session = server.post("/session", {}, params=inside)
        assert session["directory"] == str(place)
        (place / "hello.txt").write_text("work\n")
        (place / "more.txt").write_text("work\n")
        (place / "ignored").write_text("kept\n")
        for method, path in (("POST", "/experimental/worktree/reset"), ("DELETE", "/experimental/worktree")):
            assert server.send(method, path, inside, 409)["name"] == "ConflictError"
        assert server.send("POST", "/experimental/worktree/reset?force=true", inside) is True
        assert (place / "hello.txt").read_text() == "hello there\n"
        assert (not (place / "more.txt").exists(), (place / "ignored").exists()) == (True, True)
        kept = subprocess.run(
            ["git", "-C", str(server.project), "show", "refs/weft/reset/my-fix:more.txt"],
            check=True,
            capture_output=True,
            text=True,
        )
        assert kept.stdout == "work\n"
        assert server.send("DELETE", "/experimental/worktree", inside) is True
        assert not place.exists()
        assert server.get("/experimental/worktree") == []


def test_only_worktrees_of_sessions_are_changed(tmp_path: Path) -> None:
    with serve_project(tmp_path) as server:
        own = tmp_path / "own"
        subprocess.run(
            ["git", "-C", str(server.project), "worktree", "add", "-q", "-b", "own", str(own)], check=True
        )
        for given in (str(server.project), str(own), "/", "a\0b", ""):
            sent = server.client.request("DELETE", "/experimental/worktree", json={"directory": given})
            assert server.get_refusal(sent)[0] in (400, 404), given
        assert own.exists()


def test_a_start_command_runs_only_if_the_shell_is_enabled(tmp_path: Path) -> None:
    asked = {"name": "ready", "startCommand": "echo ready > started.txt"}
    with serve_project(tmp_path, routes={"shell": False}) as server:
        assert server.post("/experimental/worktree", asked, 403)["name"] == "NotPermittedError"
    with serve_project(tmp_path, project=tmp_path / "project") as server:
        made = server.post("/experimental/worktree", asked)
        assert (Path(made["directory"]) / "started.txt").read_text() == "ready\n"
        assert server.post("/experimental/worktree", asked, 409)["name"] == "ConflictError"
        failing = {"name": "broken", "startCommand": "exit 3"}
        assert "exited with 3" in server.post("/experimental/worktree", failing, 409)["data"]["message"]


def test_without_a_repository_there_are_no_worktrees(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    with serve_project(tmp_path, project=bare) as server:
        assert server.get("/experimental/worktree") == []
        assert server.post("/experimental/worktree", {}, 404)["name"] == "DirectoryError"


# --- sessions of other directories ---


def other_session(server: ProjectServer, other: Path) -> str:
    """Create a session in another directory, which is then closed."""
    inside = {"directory": str(other)}
    session = server.post("/session", {}, params=inside)
    server.post("/instance/dispose", params=inside)
    id: str = session["id"]
    return id


def write(name: str) -> list[AnyMove]:
    return [UseTool(tool="write", input={"filePath": name, "content": "made\n"})]


def test_a_session_of_another_project_works_in_its_own_directory(tmp_path: Path) -> None:
    other = make_project(tmp_path / "other")
    script = [write("new.txt"), [Say(text="Done.")]]
    with serve_project(tmp_path, script, allowed=(other,), config={"permission": "allow"}) as server:
        session = other_session(server, other)
        with stream_events(server, "/event") as events:
            answer = server.post(f"/session/{session}/message", prompt("go"))
            assert answer["info"]["path"] == {"cwd": str(other), "root": str(other)}
            assert (other / "new.txt").read_text() == "made\n"
            assert not (server.project / "new.txt").exists()
            shown = server.post(f"/session/{session}/shell", {"agent": "build", "command": "pwd"})
            assert shown["parts"][0]["state"]["output"].strip() == str(other)
            # A listener that names no directory receives the events too.
            heard = {each["type"] for each in take_until_idle(events)}
            assert {"message.updated", "session.status", "session.idle"} <= heard
        asked = server.get(f"/session/{session}/message")[0]["info"]["id"]
        reverted = server.post(f"/session/{session}/revert", {"messageID": asked})
        assert (reverted["revert"]["messageID"], (other / "new.txt").exists()) == (asked, False)
        server.post(f"/session/{session}/unrevert")
        assert (other / "new.txt").read_text() == "made\n"
        forked = server.post(f"/session/{session}/fork", {})
        assert forked["directory"] == str(other)


def take_until_idle(events: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for event in events:
        found.append(event)
        if event["type"] == "session.idle":
            break
    return found


def test_a_session_whose_directory_is_not_served_can_be_read_but_not_run(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with serve_project(tmp_path, allowed=(outside,)) as server:
        session = other_session(server, outside)
    with serve_project(tmp_path, project=tmp_path / "project") as server:
        for path, body in (
            ("message", prompt("go")),
            ("prompt_async", prompt("go")),
            ("shell", {"agent": "build", "command": "touch made"}),
            ("command", {"command": "init", "arguments": ""}),
            ("summarize", {"providerID": "scripted", "modelID": "test"}),
            ("revert", {"messageID": "msg_1"}),
            ("unrevert", None),
            ("fork", {}),
        ):
            refused = server.post(f"/session/{session}/{path}", body, 403)
            assert refused["name"] == "DirectoryNotServedError"
            assert str(outside) in refused["data"]["message"]
        assert not (server.project / "made").exists()
        assert server.get(f"/session/{session}")["directory"] == str(outside)
        assert (server.get(f"/session/{session}/message"), server.get(f"/session/{session}/diff")) == ([], [])
        assert server.send("PATCH", f"/session/{session}", {"title": "Renamed"})["title"] == "Renamed"
        assert server.send("DELETE", f"/session/{session}") is True


def test_requests_of_another_project_are_answered_without_naming_its_directory(
    tmp_path: Path,
) -> None:
    other = make_project(tmp_path / "other")
    script = [write("new.txt"), [Say(text="Done.")]]
    with serve_project(tmp_path, script, allowed=(other,), config={"permission": {"edit": "ask"}}) as server:
        session = other_session(server, other)
        with stream_events(server, "/event") as events:
            server.post(f"/session/{session}/prompt_async", prompt("go"), 204)
            asked = next(each for each in events if each["type"] == "permission.asked")["properties"]
            assert [each["id"] for each in server.get("/permission")] == [asked["id"]]
            assert list(server.get("/session/status")) == [session]
            assert server.post(f"/permission/{asked['id']}/reply", {"reply": "once"}) is True
            take_until_idle(events)
    assert (other / "new.txt").read_text() == "made\n"


def test_a_session_of_a_removed_checkout_continues_in_its_project(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with serve_project(tmp_path, allowed=(gone,)) as server:
        subprocess.run(["git", "-C", str(server.project), "worktree", "add", "-q", str(gone)], check=True)
        session = other_session(server, gone)
        subprocess.run(["git", "-C", str(server.project), "worktree", "remove", str(gone)], check=True)
        answer = server.post(f"/session/{session}/message", prompt("go"))
        assert answer["info"]["path"]["cwd"] == str(server.project)


def test_a_session_runs_in_the_directory_that_the_request_names(tmp_path: Path) -> None:
    other = make_project(tmp_path / "other")
    with serve_project(tmp_path, allowed=(other,)) as server:
        session = other_session(server, other)
        named = {"directory": str(server.project)}
        answer = server.post(f"/session/{session}/message", prompt("go"), params=named)
        assert answer["info"]["path"]["cwd"] == str(server.project)
