"""Configuration is changed over HTTP: checked, nothing lost, and only where it will be in force."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from given.serving import Site, served

WRITTEN = """{
  // which model, and why
  "model": "scripted/test",
  "something-of-mine": 3, // not known to anybody
}
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with served(tmp_path) as site:
        yield site


def test_a_change_is_merged_into_the_projects_file_and_holds_at_once(site: Site) -> None:
    file = site.project / "opencode.json"
    changed = site.send("PATCH", "/config", {"username": "Grace", "agent": {"build": {"steps": 7}}})
    assert changed["username"] == "Grace"
    assert json.loads(file.read_text()) == {"username": "Grace", "agent": {"build": {"steps": 7}}}
    assert site.get("/config")["username"] == "Grace"
    site.send("PATCH", "/config", {"agent": {"build": {"temperature": 1}}, "username": None})
    assert json.loads(file.read_text()) == {"agent": {"build": {"steps": 7, "temperature": 1}}}
    assert next(agent for agent in site.get("/agent") if agent["name"] == "build")["steps"] == 7


def test_without_a_shell_nothing_is_changed_that_could_name_a_program(tmp_path: Path) -> None:
    with served(tmp_path, routes={"shell": False}) as site:
        for path in ("/config", "/global/config"):
            assert site.client.patch(path, json={"username": "Grace"}).status_code == 405
        assert site.get("/config").get("username") != "Grace"


def test_comments_and_unknown_keys_stay(site: Site) -> None:
    file = site.project / "opencode.jsonc"
    file.write_text(WRITTEN)
    file.chmod(0o640)
    site.send("PATCH", "/config", {"username": "Grace"})
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
def test_what_cannot_be_meant_is_not_written(site: Site, change: object) -> None:
    answer = site.client.patch("/config", json=change)
    assert site.refused(answer)[0] == 400
    assert "ignored" not in answer.json()["data"]["message"]
    assert not (site.project / "opencode.json").exists()


def test_a_file_that_cannot_be_read_is_left_alone(site: Site) -> None:
    site.get("/config")
    file = site.project / "opencode.json"
    file.write_text('{"model": "scripted/test",, }')
    answer = site.client.patch("/config", json={"username": "Grace"})
    assert site.refused(answer) == (422, "ConfigError")
    assert file.read_text() == '{"model": "scripted/test",, }'


def test_a_project_that_nobody_vouched_for_gets_nothing_that_would_not_be_in_force(site: Site) -> None:
    change = {"mcp": {"tool": {"type": "local", "command": ["true"]}}}
    answer = site.client.patch("/config", json=change)
    assert site.refused(answer) == (403, "NotPermittedError")
    assert not (site.project / "opencode.json").exists()


def test_a_link_out_of_the_project_is_not_written_through(site: Site, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    (site.project / "opencode.json").symlink_to(outside)
    assert site.refused(site.client.patch("/config", json={"username": "x"})) == (403, "OutsideError")
    assert outside.read_text() == "{}"


def test_a_persons_own_file_is_changed_by_itself(site: Site) -> None:
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode" / "opencode.json"
    site.send("PATCH", "/global/config", {"username": "Grace"})
    assert json.loads(own.read_text()) == {"model": "scripted/test", "username": "Grace"}
    assert site.get("/config")["username"] == "Grace"
    assert not (site.project / "opencode.json").exists()


def test_a_broken_configuration_is_told_with_its_place(tmp_path: Path) -> None:
    with served(tmp_path) as site:
        (site.project / "opencode.json").write_text('{"model": 3}')
        answer = site.client.get("/config")
        assert site.refused(answer) == (422, "ConfigError")
        assert "opencode.json:1" in answer.json()["data"]["message"]
        (site.project / "opencode.json").unlink()
        assert site.get("/config")["model"] == "scripted/test"  # a failure is not remembered
