"""The workspace over real HTTP: configuration, models, project, files and tools, without any secret."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from given.http_server import ProjectServer, serve_project
from weft.config.schema import get_default_keybinds
from weft.local.files import to_patch

SECRET = "sk-do-not-show-this-to-anybody"
CONFIG = {
    "username": "Ada",
    "provider": {
        "mine": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Mine",
            "options": {
                "baseURL": "http://127.0.0.1:9/v1",
                "apiKey": SECRET,
                "headers": {"x-team": SECRET},
                "timeout": 1000,
            },
            "models": {"large": {"name": "Large", "limit": {"context": 1000, "output": 100}}},
        }
    },
    "agent": {"odd": {"prompt": f"never say {SECRET}", "options": {"apiKey": SECRET}}},
    "mcp": {"remote": {"type": "remote", "url": "https://mcp.example", "headers": {"Authorization": SECRET}}},
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProjectServer]:
    monkeypatch.setenv("MINE_API_KEY", SECRET)
    with serve_project(tmp_path, config=CONFIG) as server:
        yield server


def test_no_response_contains_a_secret(server: ProjectServer) -> None:
    for path in (
        "/config",
        "/global/config",
        "/config/providers",
        "/provider",
        "/provider/auth",
        "/api/provider",
        "/api/model",
        "/api/integration",
        "/agent",
        "/path",
        "/app",
        "/doc",
    ):
        answer = server.client.get(path)
        assert (path, answer.status_code, SECRET in answer.text) == (path, 200, False)


def test_the_configuration_contains_every_key_binding(server: ProjectServer) -> None:
    config = server.get("/config")
    assert config["keybinds"] == get_default_keybinds()
    assert config["model"] == "scripted/test"
    assert (config["mode"], config["plugin"]) == ({}, [])
    assert config["provider"]["mine"]["options"]["apiKey"] == "***"
    assert server.get("/global/config")["username"] == "Ada"


def test_providers_are_listed_with_models_defaults_and_which_are_connected(server: ProjectServer) -> None:
    listed = server.get("/provider")
    assert set(listed) == {"all", "default", "connected"}
    assert {"scripted", "mine"} <= set(listed["connected"])
    assert "opencode" not in listed["connected"]
    configured = server.get("/config/providers")
    assert [each["id"] for each in configured["providers"]] == listed["connected"]
    assert configured["default"]["scripted"] == "test"
    mine = next(each for each in configured["providers"] if each["id"] == "mine")
    assert mine["options"] == {
        "baseURL": "http://127.0.0.1:9/v1",
        "apiKey": "***",
        "headers": {"x-team": "***"},
        "timeout": 1000,
    }
    large = mine["models"]["large"]
    assert {"id", "providerID", "name", "api", "capabilities", "cost", "limit", "status"} <= set(large)
    assert {"options", "headers", "release_date"} <= set(large)
    assert (large["priced"], large["cost"]["input"]) == (False, 0)
    families = [model["family"] for each in listed["all"] for model in each["models"].values()]
    assert (large["family"], all(isinstance(family, str) for family in families)) == ("", True)


def test_agents_tools_and_helpers_are_listed(server: ProjectServer) -> None:
    agents = server.get("/agent")
    assert agents[0]["name"] == "build"
    assert {"name", "mode", "permission", "options"} <= set(agents[0])
    ids = server.get("/experimental/tool/ids")
    assert {"bash", "read", "edit"} <= set(ids)
    tools = server.get("/experimental/tool?provider=scripted&model=test")
    assert {"id", "description", "parameters"} == set(tools[0])
    assert server.get_refusal(server.client.get("/experimental/tool?provider=no&model=no"))[0] == 400
    assert {"name", "extensions", "enabled"} == set(server.get("/formatter")[0])
    assert [server.get(path) for path in ("/lsp", "/skill", "/experimental/resource")] == [[], [], {}]


def test_paths_and_project_are_returned(server: ProjectServer) -> None:
    path = server.get("/path")
    assert (path["directory"], path["worktree"]) == (str(server.project), str(server.project))
    assert path["home"] == os.environ["HOME"]
    assert server.get("/vcs") == {"branch": "main"}
    project = server.get("/project/current")
    assert (project["worktree"], project["vcs"]) == (str(server.project), "git")
    assert server.send("PATCH", f"/project/{project['id']}", {"name": "loom"})["name"] == "loom"
    assert server.get("/project/current")["name"] == "loom"
    assert [each["name"] for each in server.get("/project")] == ["loom"]
    assert server.get(f"/project/{project['id']}/directories") == [{"directory": str(server.project)}]
    assert server.get_refusal(server.client.get("/project/none/directories")) == (404, "NotFoundError")
    assert server.get_refusal(server.client.patch("/project/none", json={"name": "x"})) == (
        404,
        "NotFoundError",
    )


# --- files ---


def test_dangling_links_are_listed(server: ProjectServer) -> None:
    (server.project / "circle").symlink_to("circle")
    (server.project / "gone").symlink_to("nowhere")
    nodes = {node["name"]: node["type"] for node in server.get("/file?path=")}
    assert (nodes["circle"], nodes["gone"], nodes["hello.txt"]) == ("file", "file", "file")
    assert server.get_refusal(server.client.get("/file/content?path=circle"))[0] == 400


def test_directories_and_files_are_shown(server: ProjectServer) -> None:
    (server.project / "sub").mkdir()
    (server.project / "ignored").write_text("x")
    (server.project / "sub" / "deep.py").write_text("print(1)\n")
    (server.project / "picture.png").write_bytes(b"\x89PNG\0")
    nodes = {node["name"]: node for node in server.get("/file?path=.")}
    assert ".git" not in nodes
    assert list(nodes) == ["sub", ".gitignore", "hello.txt", "ignored", "picture.png"]
    assert nodes["sub"] == {
        "name": "sub",
        "path": "sub",
        "absolute": str(server.project / "sub"),
        "type": "directory",
        "ignored": False,
    }
    assert nodes["ignored"]["ignored"] is True
    assert [node["path"] for node in server.get("/file?path=sub")] == ["sub/deep.py"]
    assert server.get("/file/content?path=hello.txt") == {"type": "text", "content": "hello there\n"}
    picture = server.get("/file/content?path=picture.png")
    assert (picture["encoding"], picture["mimeType"]) == ("base64", "image/png")
    assert server.get("/file?path=hello.txt") == {"type": "raw", "content": "hello there\n"}


def test_changed_files_are_listed(server: ProjectServer) -> None:
    (server.project / "hello.txt").write_text("hello there\nand here\n")
    (server.project / "new.txt").write_text("one\ntwo\n")
    assert server.get("/file/status") == [
        {"path": "hello.txt", "added": 1, "removed": 0, "status": "modified"},
        {"path": "new.txt", "added": 2, "removed": 0, "status": "added"},
    ]
    content = server.get("/file/content?path=hello.txt")
    assert content["patch"]["hunks"] == [
        {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 2, "lines": [" hello there", "+and here"]}
    ]
    assert "+and here" in content["diff"]
    (server.project / "hello.txt").unlink()
    assert server.get("/vcs/status")[0] == {
        "file": "hello.txt",
        "additions": 0,
        "deletions": 1,
        "status": "deleted",
    }


def test_no_path_leads_out_of_the_project(server: ProjectServer, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (server.project / "link").symlink_to(outside)
    (server.project / "file-link").symlink_to(outside / "secret.txt")
    for path in (
        "../outside/secret.txt",
        "link/secret.txt",
        "file-link",
        str(outside / "secret.txt"),
        "/etc/passwd",
    ):
        answer = server.client.get("/file/content", params={"path": path})
        assert server.get_refusal(answer) == (403, "OutsideError")
    for path in ("..", "link", "/", str(outside)):
        assert server.get_refusal(server.client.get("/file", params={"path": path})) == (403, "OutsideError")
    assert server.get_refusal(server.client.get("/api/fs/list", params={"path": "link"})) == (
        403,
        "OutsideError",
    )
    assert "secret" not in json.dumps(server.get("/find?pattern=secret"))


def test_files_that_cannot_be_shown_are_refused(server: ProjectServer) -> None:
    (server.project / "large.bin").write_bytes(b"x" * (8 << 20) + b"y")
    os.mkfifo(server.project / "pipe")
    for path, refusal in (
        ("large.bin", (400, "InvalidInputError")),
        ("pipe", (400, "InvalidInputError")),
        (".", (400, "InvalidInputError")),
        ("none.txt", (404, "NotFoundError")),
        ("a\0b", (400, "InvalidInputError")),
        ("x" * 5000, (400, "InvalidInputError")),
    ):
        assert server.get_refusal(server.client.get("/file/content", params={"path": path})) == refusal


def test_files_and_text_are_searched(server: ProjectServer) -> None:
    (server.project / "sub").mkdir()
    (server.project / "sub" / "deep_thought.py").write_text("answer = 42\n")
    assert server.get("/find/file?query=dpth") == ["sub/deep_thought.py"]
    assert server.get("/find/file?query=sub") == ["sub/", "sub/deep_thought.py"]
    assert server.get("/find/file?query=sub&type=directory") == ["sub/"]
    assert server.get("/find/file?query=sub&dirs=false") == ["sub/deep_thought.py"]
    assert server.get("/find/file?query=&limit=2") == ["sub/", ".gitignore"]
    (match,) = server.get("/find?pattern=answer.*42")
    assert match == {
        "path": {"text": "sub/deep_thought.py"},
        "lines": {"text": "answer = 42\n"},
        "line_number": 1,
        "absolute_offset": 0,
        "submatches": [{"match": {"text": "answer = 42"}, "start": 0, "end": 11}],
    }
    assert server.get_refusal(server.client.get("/find", params={"pattern": "("})) == (
        400,
        "InvalidInputError",
    )
    assert server.get_refusal(server.client.get("/find")) == (400, "InvalidInputError")
    assert server.get("/find/symbol?query=x") == []
    found = server.get(f"/api/fs/find?query=deep&limit=20&location[directory]={server.project}")
    assert found["location"]["directory"] == str(server.project)
    assert found["data"] == [{"path": "sub/deep_thought.py", "type": "file"}]


def test_file_routes_can_be_left_out(tmp_path: Path) -> None:
    with serve_project(tmp_path, routes={"files": False, "shell": False}) as server:
        for path in ("/file?path=.", "/find?pattern=x", "/api/fs/find?query=x", "/pty"):
            assert server.get_refusal(server.client.get(path)) == (404, "NotFoundError")
        session = server.post("/session", {})["id"]
        assert server.client.post(f"/session/{session}/shell", json={"command": "true"}).status_code == 404
        assert "/pty" not in server.get("/doc")["paths"]


# --- credentials ---


def test_credentials_are_stored_readable_by_the_owner_only(server: ProjectServer) -> None:
    path = Path(os.environ["XDG_DATA_HOME"]) / "opencode" / "auth.json"
    assert server.send("PUT", "/auth/anthropic", {"type": "api", "key": "sk-abc"}) is True
    oauth = {"type": "oauth", "refresh": "r", "access": "a", "expires": 12, "accountId": "me"}
    assert server.send("PUT", "/auth/openai", oauth) is True
    assert json.loads(path.read_text()) == {"anthropic": {"type": "api", "key": "sk-abc"}, "openai": oauth}
    assert path.stat().st_mode & 0o777 == 0o600
    assert server.send("DELETE", "/auth/anthropic") is True
    assert server.get_refusal(server.client.delete("/auth/anthropic")) == (404, "NotFoundError")
    for name, body in (
        ("x", {"type": "api", "key": ""}),
        ("x", {"type": "other"}),
        ("..", {"type": "api", "key": "k"}),
    ):
        # A client makes `/` of `/auth/..`, where the page is, and that can only be read.
        refused = 405 if name == ".." else 400
        assert server.client.put(f"/auth/{name}", json=body).status_code == refused
    authorize = server.client.post("/provider/openai/oauth/authorize", json={"method": 0})
    assert server.get_refusal(authorize) == (404, "NotFoundError")


# --- later and earlier clients ---


def test_clients_of_1_18_find_what_they_request_at_start(server: ProjectServer) -> None:
    assert server.get("/experimental/capabilities") == {"backgroundSubagents": False}
    assert server.get("/experimental/console") == {"consoleManagedProviders": [], "switchableOrgCount": 0}
    assert [
        server.get(f"/experimental/{name}") for name in ("workspace", "workspace/status", "worktree")
    ] == [[]] * 3
    location = server.get("/api/location")
    assert location["project"]["directory"] == str(server.project)
    for name in ("agent", "model", "provider", "integration", "reference", "command", "skill"):
        assert server.get(f"/api/{name}")["location"] == location
    assert server.get("/api/health") == {"healthy": True}
    made = [server.post("/session", {"title": f"s{number}"})["id"] for number in range(3)]
    page = server.get("/api/session?limit=2&order=asc")
    rest = server.get(f"/api/session?limit=2&order=asc&cursor={page['cursor']['next']}")
    assert sorted(each["id"] for each in (*page["data"], *rest["data"])) == sorted(made)
    assert rest["cursor"] == {}


def test_opencodes_python_package_finds_what_it_requests(server: ProjectServer) -> None:
    app = server.get("/app")
    assert (app["git"], app["path"]["cwd"], app["path"]["root"]) == (
        True,
        str(server.project),
        str(server.project),
    )
    assert server.post("/app/init") is True
    assert [mode["name"] for mode in server.get("/mode")] == ["build", "plan", "odd"]


def test_a_form_feed_ends_no_line_of_a_diff() -> None:
    patch = to_patch("a.c", "a\fb\x85\u2028\nc\n", "a\fb\x85\u2028\nd")
    assert patch is not None
    [hunk] = patch.hunks
    assert (hunk.old_start, hunk.old_lines, hunk.new_lines) == (1, 2, 2)
    assert hunk.lines == (" a\fb\x85\u2028", "-c", "+d")
