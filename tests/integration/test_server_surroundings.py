"""What is around sessions, over real HTTP: configuration, models, project, files, tools; and no secret in any of it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from given.serving import Site, served
from weft.config.schema import default_keybinds

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
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("MINE_API_KEY", SECRET)
    with served(tmp_path, config=CONFIG) as site:
        yield site


def test_no_answer_holds_a_secret(site: Site) -> None:
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
        answer = site.client.get(path)
        assert (path, answer.status_code, SECRET in answer.text) == (path, 200, False)


def test_the_configuration_says_every_key_binding(site: Site) -> None:
    config = site.get("/config")
    assert config["keybinds"] == default_keybinds()
    assert config["model"] == "scripted/test"
    assert (config["mode"], config["plugin"]) == ({}, [])
    assert config["provider"]["mine"]["options"]["apiKey"] == "***"
    assert site.get("/global/config")["username"] == "Ada"


def test_providers_come_with_models_defaults_and_who_is_connected(site: Site) -> None:
    listed = site.get("/provider")
    assert set(listed) == {"all", "default", "connected"}
    assert {"scripted", "mine"} <= set(listed["connected"])
    assert "opencode" not in listed["connected"]
    configured = site.get("/config/providers")
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


def test_agents_tools_and_helpers_are_listed(site: Site) -> None:
    agents = site.get("/agent")
    assert agents[0]["name"] == "build"
    assert {"name", "mode", "permission", "options"} <= set(agents[0])
    ids = site.get("/experimental/tool/ids")
    assert {"bash", "read", "edit"} <= set(ids)
    tools = site.get("/experimental/tool?provider=scripted&model=test")
    assert {"id", "description", "parameters"} == set(tools[0])
    assert site.refused(site.client.get("/experimental/tool?provider=no&model=no"))[0] == 400
    assert {"name", "extensions", "enabled"} == set(site.get("/formatter")[0])
    assert [site.get(path) for path in ("/lsp", "/skill", "/experimental/resource")] == [[], [], {}]


def test_place_and_project_are_told(site: Site) -> None:
    path = site.get("/path")
    assert (path["directory"], path["worktree"]) == (str(site.project), str(site.project))
    assert path["home"] == os.environ["HOME"]
    assert site.get("/vcs") == {"branch": "main"}
    project = site.get("/project/current")
    assert (project["worktree"], project["vcs"]) == (str(site.project), "git")
    assert site.send("PATCH", f"/project/{project['id']}", {"name": "loom"})["name"] == "loom"
    assert site.get("/project/current")["name"] == "loom"
    assert [each["name"] for each in site.get("/project")] == ["loom"]
    assert site.get(f"/project/{project['id']}/directories") == [{"directory": str(site.project)}]
    assert site.refused(site.client.get("/project/none/directories")) == (404, "NotFoundError")
    assert site.refused(site.client.patch("/project/none", json={"name": "x"})) == (404, "NotFoundError")


# --- files ---


def test_links_that_lead_nowhere_are_shown_among_the_others(site: Site) -> None:
    (site.project / "circle").symlink_to("circle")
    (site.project / "gone").symlink_to("nowhere")
    nodes = {node["name"]: node["type"] for node in site.get("/file?path=")}
    assert (nodes["circle"], nodes["gone"], nodes["hello.txt"]) == ("file", "file", "file")
    assert site.refused(site.client.get("/file/content?path=circle"))[0] == 400


def test_directories_and_files_are_shown(site: Site) -> None:
    (site.project / "sub").mkdir()
    (site.project / "ignored").write_text("x")
    (site.project / "sub" / "deep.py").write_text("print(1)\n")
    (site.project / "picture.png").write_bytes(b"\x89PNG\0")
    nodes = {node["name"]: node for node in site.get("/file?path=.")}
    assert ".git" not in nodes
    assert list(nodes) == ["sub", ".gitignore", "hello.txt", "ignored", "picture.png"]
    assert nodes["sub"] == {
        "name": "sub",
        "path": "sub",
        "absolute": str(site.project / "sub"),
        "type": "directory",
        "ignored": False,
    }
    assert nodes["ignored"]["ignored"] is True
    assert [node["path"] for node in site.get("/file?path=sub")] == ["sub/deep.py"]
    assert site.get("/file/content?path=hello.txt") == {"type": "text", "content": "hello there\n"}
    picture = site.get("/file/content?path=picture.png")
    assert (picture["encoding"], picture["mimeType"]) == ("base64", "image/png")
    assert site.get("/file?path=hello.txt") == {"type": "raw", "content": "hello there\n"}


def test_what_changed_is_told(site: Site) -> None:
    (site.project / "hello.txt").write_text("hello there\nand here\n")
    (site.project / "new.txt").write_text("one\ntwo\n")
    assert site.get("/file/status") == [
        {"path": "hello.txt", "added": 1, "removed": 0, "status": "modified"},
        {"path": "new.txt", "added": 2, "removed": 0, "status": "added"},
    ]
    content = site.get("/file/content?path=hello.txt")
    assert content["patch"]["hunks"] == [
        {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 2, "lines": [" hello there", "+and here"]}
    ]
    assert "+and here" in content["diff"]
    (site.project / "hello.txt").unlink()
    assert site.get("/vcs/status")[0] == {
        "file": "hello.txt",
        "additions": 0,
        "deletions": 1,
        "status": "deleted",
    }


def test_no_way_leads_out_of_the_project(site: Site, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (site.project / "link").symlink_to(outside)
    (site.project / "file-link").symlink_to(outside / "secret.txt")
    for path in (
        "../outside/secret.txt",
        "link/secret.txt",
        "file-link",
        str(outside / "secret.txt"),
        "/etc/passwd",
    ):
        answer = site.client.get("/file/content", params={"path": path})
        assert site.refused(answer) == (403, "OutsideError")
    for path in ("..", "link", "/", str(outside)):
        assert site.refused(site.client.get("/file", params={"path": path})) == (403, "OutsideError")
    assert site.refused(site.client.get("/api/fs/list", params={"path": "link"})) == (403, "OutsideError")
    assert "secret" not in json.dumps(site.get("/find?pattern=secret"))


def test_what_cannot_be_shown_is_refused(site: Site) -> None:
    (site.project / "large.bin").write_bytes(b"x" * (8 << 20) + b"y")
    os.mkfifo(site.project / "pipe")
    for path, refusal in (
        ("large.bin", (400, "InvalidInputError")),
        ("pipe", (400, "InvalidInputError")),
        (".", (400, "InvalidInputError")),
        ("none.txt", (404, "NotFoundError")),
        ("a\0b", (400, "InvalidInputError")),
        ("x" * 5000, (400, "InvalidInputError")),
    ):
        assert site.refused(site.client.get("/file/content", params={"path": path})) == refusal


def test_files_and_text_are_found(site: Site) -> None:
    (site.project / "sub").mkdir()
    (site.project / "sub" / "deep_thought.py").write_text("answer = 42\n")
    assert site.get("/find/file?query=dpth") == ["sub/deep_thought.py"]
    assert site.get("/find/file?query=sub") == ["sub/", "sub/deep_thought.py"]
    assert site.get("/find/file?query=sub&type=directory") == ["sub/"]
    assert site.get("/find/file?query=sub&dirs=false") == ["sub/deep_thought.py"]
    assert site.get("/find/file?query=&limit=2") == ["sub/", ".gitignore"]
    (match,) = site.get("/find?pattern=answer.*42")
    assert match == {
        "path": {"text": "sub/deep_thought.py"},
        "lines": {"text": "answer = 42\n"},
        "line_number": 1,
        "absolute_offset": 0,
        "submatches": [{"match": {"text": "answer = 42"}, "start": 0, "end": 11}],
    }
    assert site.refused(site.client.get("/find", params={"pattern": "("})) == (400, "InvalidInputError")
    assert site.refused(site.client.get("/find")) == (400, "InvalidInputError")
    assert site.get("/find/symbol?query=x") == []
    found = site.get(f"/api/fs/find?query=deep&limit=20&location[directory]={site.project}")
    assert found["location"]["directory"] == str(site.project)
    assert found["data"] == [{"path": "sub/deep_thought.py", "type": "file"}]


def test_file_routes_can_be_left_out(tmp_path: Path) -> None:
    with served(tmp_path, routes={"files": False, "shell": False}) as site:
        for path in ("/file?path=.", "/find?pattern=x", "/api/fs/find?query=x", "/pty"):
            assert site.refused(site.client.get(path)) == (404, "NotFoundError")
        session = site.post("/session", {})["id"]
        assert site.client.post(f"/session/{session}/shell", json={"command": "true"}).status_code == 404
        assert "/pty" not in site.get("/doc")["paths"]


# --- credentials ---


def test_credentials_are_stored_for_the_owner_alone(site: Site) -> None:
    path = Path(os.environ["XDG_DATA_HOME"]) / "opencode" / "auth.json"
    assert site.send("PUT", "/auth/anthropic", {"type": "api", "key": "sk-abc"}) is True
    oauth = {"type": "oauth", "refresh": "r", "access": "a", "expires": 12, "accountId": "me"}
    assert site.send("PUT", "/auth/openai", oauth) is True
    assert json.loads(path.read_text()) == {"anthropic": {"type": "api", "key": "sk-abc"}, "openai": oauth}
    assert path.stat().st_mode & 0o777 == 0o600
    assert site.send("DELETE", "/auth/anthropic") is True
    assert site.refused(site.client.delete("/auth/anthropic")) == (404, "NotFoundError")
    for name, body in (
        ("x", {"type": "api", "key": ""}),
        ("x", {"type": "other"}),
        ("..", {"type": "api", "key": "k"}),
    ):
        assert site.client.put(f"/auth/{name}", json=body).status_code in (400, 404)
    authorize = site.client.post("/provider/openai/oauth/authorize", json={"method": 0})
    assert site.refused(authorize) == (404, "NotFoundError")


# --- later and earlier clients ---


def test_clients_of_1_18_find_what_they_ask_for_at_start(site: Site) -> None:
    assert site.get("/experimental/capabilities") == {"backgroundSubagents": False}
    assert site.get("/experimental/console") == {"consoleManagedProviders": [], "switchableOrgCount": 0}
    assert [site.get(f"/experimental/{name}") for name in ("workspace", "workspace/status", "worktree")] == [
        []
    ] * 3
    location = site.get("/api/location")
    assert location["project"]["directory"] == str(site.project)
    for name in ("agent", "model", "provider", "integration", "reference", "command", "skill"):
        assert site.get(f"/api/{name}")["location"] == location
    assert site.get("/api/health") == {"healthy": True}
    made = [site.post("/session", {"title": f"s{number}"})["id"] for number in range(3)]
    page = site.get("/api/session?limit=2&order=asc")
    rest = site.get(f"/api/session?limit=2&order=asc&cursor={page['cursor']['next']}")
    assert sorted(each["id"] for each in (*page["data"], *rest["data"])) == sorted(made)
    assert rest["cursor"] == {}


def test_the_python_package_finds_what_it_asks_for(site: Site) -> None:
    app = site.get("/app")
    assert (app["git"], app["path"]["cwd"], app["path"]["root"]) == (
        True,
        str(site.project),
        str(site.project),
    )
    assert site.post("/app/init") is True
    assert [mode["name"] for mode in site.get("/mode")] == ["build", "plan", "odd"]
