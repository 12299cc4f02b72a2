"""Changing the configuration over HTTP: it is validated, nothing is lost, and only effective settings are accepted."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from given.http_server import ProjectServer, serve_project

WRITTEN = """{
  // which model, and why
  "model": "scripted/test",
  "something-of-mine": 3, // not known to anybody
}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProjectServer]:
    with serve_project(tmp_path) as server:
        yield server


def test_a_change_is_merged_into_the_file_of_the_project_and_applies_at_once(server: ProjectServer) -> None:
    file = server.project / "opencode.json"
    changed = server.send("PATCH", "/config", {"username": "Grace", "agent": {"build": {"steps": 7}}})
    assert changed["username"] == "Grace"
    assert json.loads(file.read_text()) == {"username": "Grace", "agent": {"build": {"steps": 7}}}
    assert server.get("/config")["username"] == "Grace"
    server.send("PATCH", "/config", {"agent": {"build": {"temperature": 1}}, "username": None})
    assert json.loads(file.read_text()) == {"agent": {"build": {"steps": 7, "temperature": 1}}}
    assert next(agent for agent in server.get("/agent") if agent["name"] == "build")["steps"] == 7


def test_without_a_shell_no_setting_that_names_a_program_can_be_changed(tmp_path: Path) -> None:
    with serve_project(tmp_path, routes={"shell": False}) as server:
        for path in ("/config", "/global/config"):
            assert server.client.patch(path, json={"username": "Grace"}).status_code == 405
        assert server.get("/config").get("username") != "Grace"


def test_comments_and_unknown_keys_stay(server: ProjectServer) -> None:
    file = server.project / "opencode.jsonc"
    file.write_text(WRITTEN)
    file.chmod(0o640)
    server.send("PATCH", "/config", {"username": "Grace"})
    assert file.read_text() == WRITTEN.replace(
        "// not known to anybody\n", '// not known to anybody\n  "username": "Grace"\n'
    )
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "change",
    [
        {"modle": "a/b"},
        {"model": 3},
        {"provider": {"x": {"options": {"apiKey": "***"}}}},
        {"agent": {"build": {"steps": -1}}},
        {"permission": {"bash": "sometimes"}},
        [],
        "x",
        None,
    ],
)
def test_an_invalid_configuration_is_not_written(server: ProjectServer, change: object) -> None:
    answer = server.client.patch("/config", json=change)
    assert server.get_refusal(answer)[0] == 400
    assert "ignored" not in answer.json()["data"]["message"]
    assert not (server.project / "opencode.json").exists()


def test_an_unreadable_file_is_not_changed(server: ProjectServer) -> None:
    server.get("/config")
    file = server.project / "opencode.json"
    file.write_text('{"model": "scripted/test",, }')
    answer = server.client.patch("/config", json={"username": "Grace"})
    assert server.get_refusal(answer) == (422, "ConfigError")
    assert file.read_text() == '{"model": "scripted/test",, }'


def test_settings_without_effect_are_not_written_to_an_untrusted_project(
    server: ProjectServer,
) -> None:
    change = {"mcp": {"tool": {"type": "local", "command": ["true"]}}}
    answer = server.client.patch("/config", json=change)
    assert server.get_refusal(answer) == (403, "NotPermittedError")
    assert not (server.project / "opencode.json").exists()


def test_a_link_out_of_the_project_is_not_written_through(server: ProjectServer, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    (server.project / "opencode.json").symlink_to(outside)
    assert server.get_refusal(server.client.patch("/config", json={"username": "x"})) == (403, "OutsideError")
    assert outside.read_text() == "{}"


def test_the_persons_own_file_is_changed_separately(server: ProjectServer) -> None:
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode" / "opencode.json"
    server.send("PATCH", "/global/config", {"username": "Grace"})
    assert json.loads(own.read_text()) == {"model": "scripted/test", "username": "Grace"}
    assert server.get("/config")["username"] == "Grace"
    assert not (server.project / "opencode.json").exists()


def test_a_broken_configuration_is_reported_with_its_position(tmp_path: Path) -> None:
    with serve_project(tmp_path) as server:
        (server.project / "opencode.json").write_text('{"model": 3}')
        answer = server.client.get("/config")
        assert server.get_refusal(answer) == (422, "ConfigError")
        assert "opencode.json:1" in answer.json()["data"]["message"]
        (server.project / "opencode.json").unlink()
        assert server.get("/config")["model"] == "scripted/test"  # a failure is not remembered
