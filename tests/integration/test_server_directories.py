"""Which directories a caller may name, and worktrees made over HTTP."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from given.serving import Site, listening, make_project, prompt, served
from weft.provider.scripted import AnyMove, Say, UseTool


def test_a_directory_of_no_known_project_is_not_opened(tmp_path: Path) -> None:
    other = make_project(tmp_path / "other")
    with served(tmp_path) as site:
        for given in (str(other), str(tmp_path), "/", "/etc", f"{site.project}/../other"):
            refused = site.client.get("/path", params={"directory": given})
            assert site.refused(refused) == (403, "DirectoryNotServedError")
        streamed = site.client.get("/event", params={"directory": str(other)})
        assert site.refused(streamed) == (403, "DirectoryNotServedError")
        (site.project / "out").symlink_to(other)
        linked = site.client.get("/path", headers={"x-opencode-directory": f"{site.project}/out"})
        assert site.refused(linked) == (403, "DirectoryNotServedError")


def test_the_way_out_that_a_refusal_names_leads_out(tmp_path: Path) -> None:
    plain, repository = tmp_path / "plain", make_project(tmp_path / "repository")
    plain.mkdir()
    hint = "a git repository with a commit is also allowed once weft or OpenCode has worked in it"
    with served(tmp_path) as site:
        for directory in (plain, repository):
            refused = site.get("/path", 403, params={"directory": str(directory)})
            assert refused["data"]["hint"] == f"weft serve --allow-dir {directory} allows it; {hint}"
    with served(tmp_path, project=plain) as site:
        site.post("/session", {})
    with served(tmp_path, project=repository) as site:
        site.post("/session", {})
    with served(tmp_path, project=tmp_path / "project") as site:
        site.get("/path", params={"directory": str(repository)})
        site.get("/path", 403, params={"directory": str(plain)})
    with served(tmp_path, project=tmp_path / "project", allowed=(plain,)) as site:
        site.get("/path", params={"directory": str(plain)})


def test_what_is_below_a_known_project_or_was_let_in_is_opened(tmp_path: Path) -> None:
    other = make_project(tmp_path / "other")
    (other / "deep").mkdir()
    with served(tmp_path, allowed=(tmp_path / "other",)) as site:
        (site.project / "sub").mkdir()
        assert site.get("/path", params={"directory": "sub"})["directory"] == str(site.project / "sub")
        assert site.get("/path", params={"directory": str(other / "deep")})["worktree"] == str(other)
    # By now it is a project like any other.
    with served(tmp_path, project=tmp_path / "project") as site:
        assert site.get("/path", params={"directory": str(other)})["directory"] == str(other)


def test_a_directory_that_could_not_be_opened_is_tried_again(tmp_path: Path) -> None:
    with served(tmp_path) as site:
        late = site.project / "late"
        assert site.get("/path", 404, params={"directory": str(late)})["name"] == "DirectoryError"
        late.mkdir()
        assert site.get("/path", params={"directory": str(late)})["directory"] == str(late)


@pytest.mark.parametrize("shell", [True, False])
def test_a_worktree_is_made_worked_in_put_back_and_removed(tmp_path: Path, shell: bool) -> None:
    with served(tmp_path, routes={"shell": shell}) as site:
        made = site.post("/experimental/worktree", {"name": "My Fix"})
        place = Path(made["directory"])
        assert (made["name"], made["branch"]) == ("my-fix", "opencode/my-fix")
        assert site.get("/experimental/worktree") == [str(place)]
        assert site.get("/weft/worktree") == [made]
        inside = {"directory": str(place)}
        session = site.post("/session", {}, params=inside)
        assert session["directory"] == str(place)
        (place / "hello.txt").write_text("work\n")
        (place / "more.txt").write_text("work\n")
        (place / "ignored").write_text("kept\n")
        for method, path in (("POST", "/experimental/worktree/reset"), ("DELETE", "/experimental/worktree")):
            assert site.send(method, path, inside, 409)["name"] == "ConflictError"
        assert site.send("POST", "/experimental/worktree/reset?force=true", inside) is True
        assert (place / "hello.txt").read_text() == "hello there\n"
        assert (not (place / "more.txt").exists(), (place / "ignored").exists()) == (True, True)
        kept = subprocess.run(
            ["git", "-C", str(site.project), "show", "refs/weft/reset/my-fix:more.txt"],
            check=True,
            capture_output=True,
            text=True,
        )
        assert kept.stdout == "work\n"
        assert site.send("DELETE", "/experimental/worktree", inside) is True
        assert not place.exists()
        assert site.get("/experimental/worktree") == []


def test_only_worktrees_made_for_sessions_are_touched(tmp_path: Path) -> None:
    with served(tmp_path) as site:
        own = tmp_path / "own"
        subprocess.run(
            ["git", "-C", str(site.project), "worktree", "add", "-q", "-b", "own", str(own)], check=True
        )
        for given in (str(site.project), str(own), "/", "a\0b", ""):
            sent = site.client.request("DELETE", "/experimental/worktree", json={"directory": given})
            assert site.refused(sent)[0] in (400, 404), given
        assert own.exists()


def test_a_start_command_is_run_where_there_is_a_shell_and_nowhere_else(tmp_path: Path) -> None:
    asked = {"name": "ready", "startCommand": "echo ready > started.txt"}
    with served(tmp_path, routes={"shell": False}) as site:
        assert site.post("/experimental/worktree", asked, 403)["name"] == "NotPermittedError"
    with served(tmp_path, project=tmp_path / "project") as site:
        made = site.post("/experimental/worktree", asked)
        assert (Path(made["directory"]) / "started.txt").read_text() == "ready\n"
        assert site.post("/experimental/worktree", asked, 409)["name"] == "ConflictError"
        failing = {"name": "broken", "startCommand": "exit 3"}
        assert "exited with 3" in site.post("/experimental/worktree", failing, 409)["data"]["message"]


def test_where_there_is_no_repository_there_are_no_worktrees(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    with served(tmp_path, project=bare) as site:
        assert site.get("/experimental/worktree") == []
        assert site.post("/experimental/worktree", {}, 404)["name"] == "DirectoryError"


# --- sessions of other directories ---


def other_session(site: Site, other: Path) -> str:
    """Make a session in another directory, which is then closed."""
    inside = {"directory": str(other)}
    session = site.post("/session", {}, params=inside)
    site.post("/instance/dispose", params=inside)
    id: str = session["id"]
    return id


def write(name: str) -> list[AnyMove]:
    return [UseTool(tool="write", input={"filePath": name, "content": "made\n"})]


def test_a_session_of_another_project_works_in_its_own_directory(tmp_path: Path) -> None:
    other = make_project(tmp_path / "other")
    script = [write("new.txt"), [Say(text="Done.")]]
    with served(tmp_path, script, allowed=(other,), config={"permission": "allow"}) as site:
        session = other_session(site, other)
        with listening(site, "/event") as events:
            answer = site.post(f"/session/{session}/message", prompt("go"))
            assert answer["info"]["path"] == {"cwd": str(other), "root": str(other)}
            assert (other / "new.txt").read_text() == "made\n"
            assert not (site.project / "new.txt").exists()
            shown = site.post(f"/session/{session}/shell", {"agent": "build", "command": "pwd"})
            assert shown["parts"][0]["state"]["output"].strip() == str(other)
            # Whoever names no directory hears what comes of it all the same.
            heard = {each["type"] for each in take_until_idle(events)}
            assert {"message.updated", "session.status", "session.idle"} <= heard
        asked = site.get(f"/session/{session}/message")[0]["info"]["id"]
        reverted = site.post(f"/session/{session}/revert", {"messageID": asked})
        assert (reverted["revert"]["messageID"], (other / "new.txt").exists()) == (asked, False)
        site.post(f"/session/{session}/unrevert")
        assert (other / "new.txt").read_text() == "made\n"
        forked = site.post(f"/session/{session}/fork", {})
        assert forked["directory"] == str(other)


def take_until_idle(events: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for event in events:
        found.append(event)
        if event["type"] == "session.idle":
            break
    return found


def test_a_session_whose_directory_is_not_served_is_read_and_does_not_work(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with served(tmp_path, allowed=(outside,)) as site:
        session = other_session(site, outside)
    with served(tmp_path, project=tmp_path / "project") as site:
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
            refused = site.post(f"/session/{session}/{path}", body, 403)
            assert refused["name"] == "DirectoryNotServedError"
            assert str(outside) in refused["data"]["message"]
        assert not (site.project / "made").exists()
        assert site.get(f"/session/{session}")["directory"] == str(outside)
        assert (site.get(f"/session/{session}/message"), site.get(f"/session/{session}/diff")) == ([], [])
        assert site.send("PATCH", f"/session/{session}", {"title": "Renamed"})["title"] == "Renamed"
        assert site.send("DELETE", f"/session/{session}") is True


def test_what_a_session_of_another_project_asks_is_answered_without_naming_its_directory(
    tmp_path: Path,
) -> None:
    other = make_project(tmp_path / "other")
    script = [write("new.txt"), [Say(text="Done.")]]
    with served(tmp_path, script, allowed=(other,), config={"permission": {"edit": "ask"}}) as site:
        session = other_session(site, other)
        with listening(site, "/event") as events:
            site.post(f"/session/{session}/prompt_async", prompt("go"), 204)
            asked = next(each for each in events if each["type"] == "permission.asked")["properties"]
            assert [each["id"] for each in site.get("/permission")] == [asked["id"]]
            assert list(site.get("/session/status")) == [session]
            assert site.post(f"/permission/{asked['id']}/reply", {"reply": "once"}) is True
            take_until_idle(events)
    assert (other / "new.txt").read_text() == "made\n"


def test_a_session_of_a_checkout_that_is_gone_goes_on_in_its_project(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with served(tmp_path, allowed=(gone,)) as site:
        subprocess.run(["git", "-C", str(site.project), "worktree", "add", "-q", str(gone)], check=True)
        session = other_session(site, gone)
        subprocess.run(["git", "-C", str(site.project), "worktree", "remove", str(gone)], check=True)
        answer = site.post(f"/session/{session}/message", prompt("go"))
        assert answer["info"]["path"]["cwd"] == str(site.project)


def test_a_directory_that_is_named_is_worked_in(tmp_path: Path) -> None:
    other = make_project(tmp_path / "other")
    with served(tmp_path, allowed=(other,)) as site:
        session = other_session(site, other)
        named = {"directory": str(site.project)}
        answer = site.post(f"/session/{session}/message", prompt("go"), params=named)
        assert answer["info"]["path"]["cwd"] == str(site.project)
