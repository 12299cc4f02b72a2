"""Which directories a caller may name, and worktrees made over HTTP."""

import subprocess
from pathlib import Path

import pytest

from given.serving import make_project, served


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
        assert "ended with 3" in site.post("/experimental/worktree", failing, 409)["data"]["message"]


def test_where_there_is_no_repository_there_are_no_worktrees(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    with served(tmp_path, project=bare) as site:
        assert site.get("/experimental/worktree") == []
        assert site.post("/experimental/worktree", {}, 404)["name"] == "DirectoryError"
