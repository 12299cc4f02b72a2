"""What the settings of the page show and change over HTTP: trust, storage, findings of the doctor, and the context."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from given.http_server import ProjectServer, make_project, prompt, serve_project
from weft.client.api import connect
from weft.errors import ConflictError

CONFIG = {"mcp": {"loom": {"type": "local", "command": ["./loom-server", "--weave"]}}}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProjectServer]:
    project = make_project(tmp_path / "project")
    (project / "opencode.json").write_text(json.dumps(CONFIG))
    with serve_project(tmp_path, project=project) as server:
        yield server


def test_a_project_is_trusted_as_shown_until_trust_is_revoked(
    server: ProjectServer,
) -> None:
    shown = server.get("/weft/trust")
    assert (shown["trusted"], shown["why"]) == (False, "unknown")
    assert [(each["kind"], each["name"]) for each in shown["held"]] == [("mcp", "loom")]
    assert "./loom-server --weave" in shown["held"][0]["does"]
    assert "loom" not in server.get("/config").get("mcp", {})
    given = server.post("/weft/trust", {"fingerprint": shown["fingerprint"]})
    assert (given["trusted"], given["why"]) == (True, "given")
    assert "loom" in server.get("/config")["mcp"]
    revoked = server.send("DELETE", "/weft/trust")
    assert (revoked["trusted"], revoked["why"]) == (False, "unknown")
    assert "loom" not in server.get("/config").get("mcp", {})


def test_a_project_that_changed_since_it_was_shown_is_not_trusted(server: ProjectServer) -> None:
    shown = server.get("/weft/trust")
    changed = {"mcp": {"loom": {"type": "local", "command": ["rm", "-rf", "~"]}}}
    (server.project / "opencode.json").write_text(json.dumps(changed))
    server.post("/weft/trust", {"fingerprint": shown["fingerprint"]}, status=409)
    assert server.get("/weft/trust")["trusted"] is False


def test_without_a_shell_a_project_is_shown_but_cannot_be_trusted(tmp_path: Path) -> None:
    with serve_project(tmp_path, routes={"shell": False}) as server:
        shown = server.get("/weft/trust")
        assert server.client.post("/weft/trust", json={"fingerprint": shown["fingerprint"]}).status_code in (
            404,
            405,
        )


def test_disk_usage_is_reported_by_kind_project_and_session(server: ProjectServer) -> None:
    id = server.post("/session", {"title": "Bulky"})["id"]
    server.post(f"/session/{id}/message", prompt("hello " * 2000))
    report = server.get("/weft/storage")
    assert report["bytes"] == sum(each["bytes"] for each in report["kinds"])
    assert {"session", "message", "part"} <= {each["name"] for each in report["kinds"]}
    assert [(each["name"], each["title"]) for each in report["sessions"]] == [(id, "Bulky")]
    assert str(server.project) in {each["title"] for each in report["projects"]}


def test_the_doctor_names_what_cannot_be_read_and_how_to_repair_it(
    server: ProjectServer, tmp_path: Path
) -> None:
    id = server.post("/session", {"title": "Torn"})["id"]
    server.post(f"/session/{id}/message", prompt("hello"))
    assert [each for each in server.get("/weft/doctor") if each["severity"] == "problem"] == []
    part = next((tmp_path / "storage" / "part").rglob("*.json"))
    part.write_text("{ torn")
    (found,) = [each for each in server.get("/weft/doctor") if each["severity"] == "problem"]
    assert found["repair"] == "weft doctor --fix"
    assert str(part) in found["items"][0]["where"] or part.stem in found["items"][0]["where"]


def test_the_parts_of_the_next_request_are_listed(server: ProjectServer) -> None:
    id = server.post("/session", {})["id"]
    server.post(f"/session/{id}/message", prompt("weave " * 400))
    report = server.get(f"/weft/session/{id}/context")
    parts = {(each["section"], each["name"]): each["tokens"] for each in report["parts"]}
    assert parts["user", "text"] > 300
    assert parts["tools", "all"] > 300
    assert {section for section, _ in parts} == {"system", "tools", "user", "assistant"}
    assert report["tokens"] == sum(parts.values())
    assert (report["agent"], report["placeholder"]) == ("build", True)
    assert len(server.get(f"/session/{id}/message")) == 2
    server.get("/weft/session/ses_00000000000000000000000000/context", status=404)


async def test_a_client_reads_trust_findings_and_storage_and_changes_trust(server: ProjectServer) -> None:
    async with connect(server.url, directory=str(server.project)) as api:
        shown = await api.workspace.get_trust()
        assert shown.held[0].name == "loom"
        with pytest.raises(ConflictError):
            await api.workspace.trust("of another state")
        assert (await api.workspace.trust(shown.fingerprint)).trusted
        assert not (await api.workspace.revoke_trust()).trusted
        assert {each.area for each in await api.workspace.list_findings()} >= {"environment"}
        assert (await api.workspace.measure_storage()).files > 0
