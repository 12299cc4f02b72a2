"""A dead run blocks nobody, in whichever state its session and the disk are."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from given.http_server import make_project, prompt, serve_project
from given.serve_process import start_serve
from weft.store.files.lock import RenameStep, WriteAheadNote, encode_note

WEFT = str(Path(sys.executable).with_name("weft"))
DIES_HOLDING_A_LEASE = """
import os, sys
from weft.host.files import Disk
from weft.store.files.layout import Layout
from weft.store.files.lock import Lease
Lease(Layout(sys.argv[1]), Disk(), sys.argv[2], "process 1 on elsewhere")
os._exit(1)
"""


# No file can grow: what a full disk is to whoever writes.
ON_A_FULL_DISK = ("sh", "-c", 'ulimit -f 0; exec "$@"', "sh")


def die_holding(root: Path, session: str) -> None:
    subprocess.run([sys.executable, "-c", DIES_HOLDING_A_LEASE, str(root), session], check=False, timeout=60)
    assert (root / ".weft/run" / session).exists()


def make_sessions(tmp_path: Path) -> tuple[Path, str, str]:
    """Make a store with two sessions of one prompt each. Return its root and their ids."""
    with serve_project(tmp_path) as server:
        ids = [server.post("/session", {"title": title})["id"] for title in ("Doomed", "Sound")]
        for id in ids:
            server.post(f"/session/{id}/message", prompt("Go."))
    return tmp_path / "storage", ids[0], ids[1]


def document_of(root: Path, session: str) -> Path:
    [found] = (root / "session").glob(f"*/{session}.json")
    return found


def delete_like_opencode(root: Path, session: str) -> None:
    """Remove documents one by one, without regard to our leases, as OpenCode does."""
    for message in (root / "message" / session).glob("*.json"):
        for part in (root / "part" / message.stem).glob("*.json"):
            part.unlink()
        message.unlink()
    document_of(root, session).unlink()


def doctor(root: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [WEFT, "doctor", "--store", str(root), "--format", "json", *arguments],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def list_run_findings(report: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [
        (each["what"], [item["where"] for item in each["items"]])
        for each in report["findings"]
        if "runs" in each["what"]
    ]


def check_other_session(tmp_path: Path, other_session: str) -> list[str]:
    """Check that other sessions can be listed, read and prompted. Return the listed titles."""
    with serve_project(tmp_path, project=tmp_path / "project") as server:
        titles = sorted(each["title"] for each in server.get("/session"))
        assert len(server.get(f"/session/{other_session}/message")) == 2
        answer = server.post(f"/session/{other_session}/message", prompt("Again."))
        assert answer["info"]["role"] == "assistant"
        assert "error" not in answer["info"]
    return titles


def test_a_session_deleted_under_a_dead_run_does_not_prevent_opening(tmp_path: Path) -> None:
    root, dead_session, other_session = make_sessions(tmp_path)
    delete_like_opencode(root, dead_session)
    die_holding(root, dead_session)

    assert check_other_session(tmp_path, other_session) == ["Sound"]
    assert os.listdir(root / ".weft/run") == []  # nothing of it is left


def test_a_truncated_session_document_does_not_prevent_opening_and_is_settled_once_rebuilt(
    tmp_path: Path,
) -> None:
    root, dead_session, other_session = make_sessions(tmp_path)
    [answer] = [
        path
        for path in (root / "message" / dead_session).glob("*.json")
        if json.loads(path.read_text())["role"] == "assistant"
    ]
    info = json.loads(answer.read_text())
    del info["time"]["completed"]
    answer.write_text(json.dumps(info))
    document_of(root, dead_session).write_text('{"id": "ses_')
    die_holding(root, dead_session)

    assert check_other_session(tmp_path, other_session) == ["Sound"]
    assert (root / ".weft/run" / dead_session).exists()  # it may come back, and has to be settled then
    doctor(root, "--fix")
    with serve_project(tmp_path, project=tmp_path / "project") as server:
        messages = server.get(f"/session/{dead_session}/message")
    assert messages[1]["info"]["time"]["completed"]
    assert os.listdir(root / ".weft/run") == []


def test_a_lease_without_a_session_does_not_prevent_opening(tmp_path: Path) -> None:
    root, _, other_session = make_sessions(tmp_path)
    for name in ("no session", ".hidden", "ses_" + "x" * 180):
        (root / ".weft/run").mkdir(exist_ok=True)
        (root / ".weft/run" / name).touch()
    (root / ".weft/run/ses_directory").mkdir()

    assert check_other_session(tmp_path, other_session) == ["Doomed", "Sound"]


def test_the_doctor_names_and_removes_a_dead_run_without_a_session(tmp_path: Path) -> None:
    root, dead_session, other_session = make_sessions(tmp_path)
    delete_like_opencode(root, dead_session)
    die_holding(root, dead_session)
    die_holding(root, other_session)
    lease = str(root / ".weft/run" / dead_session)

    assert list_run_findings(doctor(root)) == [
        ("runs that were interrupted: 1", [other_session]),
        ("interrupted runs of sessions that no longer exist: 1", [lease]),
    ]
    fixed = doctor(root, "--fix")
    assert [each for each in fixed["fixed"] if each["where"] == lease] == [
        {"where": lease, "done": "removed", "failed": ""}
    ]
    assert list_run_findings(fixed) == [("runs that were interrupted: 1", [other_session])]
    assert sorted(os.listdir(root / ".weft/run")) == [other_session, f"{other_session}.owner"]


@pytest.mark.parametrize("unknown_project", [False, True])
def test_after_a_dead_run_on_a_full_disk_reads_are_answered(tmp_path: Path, unknown_project: bool) -> None:
    root, dead_session, _ = make_sessions(tmp_path)
    [answer] = [
        path
        for path in (root / "message" / dead_session).glob("*.json")
        if json.loads(path.read_text())["role"] == "assistant"
    ]
    info = json.loads(answer.read_text())
    del info["time"]["completed"]
    answer.write_text(json.dumps(info))
    die_holding(root, dead_session)
    project = make_project(tmp_path / "other") if unknown_project else tmp_path / "project"

    with (
        start_serve(project, "--store", str(root), "--auth", "none", under=ON_A_FULL_DISK) as server,
        httpx2.Client(base_url=server.url, timeout=60) as client,
    ):
        got = {
            path: client.get(path).status_code
            for path in (
                "/session",
                f"/session/{dead_session}",
                f"/session/{dead_session}/message",
                "/project/current",
            )
        }
        refused = client.post("/session", json={})
        server.wait_for_note(f"the dead run of session {dead_session} is not settled yet")
    assert got == dict.fromkeys(got, 200)
    assert (refused.status_code, refused.json()["name"]) == (507, "StoreError")


def test_a_batch_that_cannot_be_finished_does_not_block_others(tmp_path: Path) -> None:
    root, dead_session, other_session = make_sessions(tmp_path)
    aside, target = root / ".weft/temp/session.x~1", root / "todo" / f"{other_session}.json"
    aside.parent.mkdir(exist_ok=True)
    aside.write_text("[]")
    step = RenameStep("in", str(aside.relative_to(root)), str(target.relative_to(root)))
    note = WriteAheadNote(locks=(f"session.{other_session}",), steps=(step,))
    (root / ".weft/redo" / f"session.{dead_session}").mkdir(parents=True)  # no note can be read there, ever
    (root / ".weft/redo" / f"session.{other_session}").write_bytes(encode_note(note))

    assert check_other_session(tmp_path, other_session) == ["Doomed", "Sound"]
    assert target.read_text() == "[]"
    assert os.listdir(root / ".weft/redo") == [f"session.{dead_session}"]
