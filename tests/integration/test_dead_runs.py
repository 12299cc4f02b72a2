"""What a dead run leaves behind keeps nobody from working, whatever became of its session or of the disk."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from given.serving import make_project, prompt, served
from given.weft_serve import serving
from weft.store.files.lock import RedoNote, RedoStep, encode_note

WEFT = str(Path(sys.executable).with_name("weft"))
DIES_HOLDING_A_LEASE = """
import os, sys
from weft.store.files.layout import Layout
from weft.store.files.lock import Lease
Lease(Layout(sys.argv[1]), sys.argv[2], "process 1 on elsewhere")
os._exit(1)
"""


# No file can grow: what a full disk is to whoever writes.
ON_A_FULL_DISK = ("sh", "-c", 'ulimit -f 0; exec "$@"', "sh")


def die_holding(root: Path, session: str) -> None:
    subprocess.run([sys.executable, "-c", DIES_HOLDING_A_LEASE, str(root), session], check=False, timeout=60)
    assert (root / ".weft/run" / session).exists()


def make_sessions(tmp_path: Path) -> tuple[Path, str, str]:
    """A store with two sessions that were each prompted once; gives its root and their ids."""
    with served(tmp_path) as site:
        ids = [site.post("/session", {"title": title})["id"] for title in ("Doomed", "Sound")]
        for id in ids:
            site.post(f"/session/{id}/message", prompt("Go."))
    return tmp_path / "storage", ids[0], ids[1]


def document_of(root: Path, session: str) -> Path:
    [found] = (root / "session").glob(f"*/{session}.json")
    return found


def delete_like_opencode(root: Path, session: str) -> None:
    """OpenCode removes documents one by one and knows nothing of our leases."""
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


def told_of_runs(report: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [
        (each["what"], [item["where"] for item in each["items"]])
        for each in report["findings"]
        if "runs" in each["what"]
    ]


def works(tmp_path: Path, sound: str) -> list[str]:
    """Other sessions are listed, read and prompted; gives the titles that are listed."""
    with served(tmp_path, project=tmp_path / "project") as site:
        titles = sorted(each["title"] for each in site.get("/session"))
        assert len(site.get(f"/session/{sound}/message")) == 2
        answer = site.post(f"/session/{sound}/message", prompt("Again."))
        assert answer["info"]["role"] == "assistant"
        assert "error" not in answer["info"]
    return titles


def test_a_session_that_was_deleted_under_a_dead_run_locks_nobody_out(tmp_path: Path) -> None:
    root, doomed, sound = make_sessions(tmp_path)
    delete_like_opencode(root, doomed)
    die_holding(root, doomed)

    assert works(tmp_path, sound) == ["Sound"]
    assert os.listdir(root / ".weft/run") == []  # nothing is left to trip over


def test_a_session_whose_document_was_cut_off_locks_nobody_out_and_is_settled_once_it_is_rebuilt(
    tmp_path: Path,
) -> None:
    root, doomed, sound = make_sessions(tmp_path)
    [answer] = [
        path
        for path in (root / "message" / doomed).glob("*.json")
        if json.loads(path.read_text())["role"] == "assistant"
    ]
    info = json.loads(answer.read_text())
    del info["time"]["completed"]
    answer.write_text(json.dumps(info))
    document_of(root, doomed).write_text('{"id": "ses_')
    die_holding(root, doomed)

    assert works(tmp_path, sound) == ["Sound"]
    assert (root / ".weft/run" / doomed).exists()  # it may come back, and has to be settled then
    doctor(root, "--fix")
    with served(tmp_path, project=tmp_path / "project") as site:
        messages = site.get(f"/session/{doomed}/message")
    assert messages[1]["info"]["time"]["completed"]
    assert os.listdir(root / ".weft/run") == []


def test_a_lease_of_no_session_at_all_locks_nobody_out(tmp_path: Path) -> None:
    root, _, sound = make_sessions(tmp_path)
    for name in ("no session", ".hidden", "ses_" + "x" * 180):
        (root / ".weft/run").mkdir(exist_ok=True)
        (root / ".weft/run" / name).touch()
    (root / ".weft/run/ses_directory").mkdir()

    assert works(tmp_path, sound) == ["Doomed", "Sound"]


def test_the_doctor_names_a_dead_run_whose_session_is_gone_and_removes_what_is_left(tmp_path: Path) -> None:
    root, doomed, sound = make_sessions(tmp_path)
    delete_like_opencode(root, doomed)
    die_holding(root, doomed)
    die_holding(root, sound)
    lease = str(root / ".weft/run" / doomed)

    assert told_of_runs(doctor(root)) == [
        ("runs that were interrupted: 1", [sound]),
        ("interrupted runs of sessions that no longer exist: 1", [lease]),
    ]
    fixed = doctor(root, "--fix")
    assert [each for each in fixed["fixed"] if each["where"] == lease] == [
        {"where": lease, "done": "removed", "failed": ""}
    ]
    assert told_of_runs(fixed) == [("runs that were interrupted: 1", [sound])]
    assert sorted(os.listdir(root / ".weft/run")) == [sound, f"{sound}.owner"]


@pytest.mark.parametrize("unknown_project", [False, True])
def test_after_a_dead_run_on_a_full_disk_reads_are_answered(tmp_path: Path, unknown_project: bool) -> None:
    root, doomed, _ = make_sessions(tmp_path)
    [answer] = [
        path
        for path in (root / "message" / doomed).glob("*.json")
        if json.loads(path.read_text())["role"] == "assistant"
    ]
    info = json.loads(answer.read_text())
    del info["time"]["completed"]
    answer.write_text(json.dumps(info))
    die_holding(root, doomed)
    project = make_project(tmp_path / "other") if unknown_project else tmp_path / "project"

    with (
        serving(project, "--store", str(root), "--auth", "none", under=ON_A_FULL_DISK) as server,
        httpx2.Client(base_url=server.url, timeout=60) as client,
    ):
        got = {
            path: client.get(path).status_code
            for path in ("/session", f"/session/{doomed}", f"/session/{doomed}/message", "/project/current")
        }
        refused = client.post("/session", json={})
        server.wait_for_note(f"the dead run of session {doomed} is not settled yet")
    assert got == dict.fromkeys(got, 200)
    assert (refused.status_code, refused.json()["name"]) == (507, "StoreError")


def test_a_batch_that_cannot_be_finished_holds_up_no_other(tmp_path: Path) -> None:
    root, doomed, sound = make_sessions(tmp_path)
    aside, target = root / ".weft/temp/session.x~1", root / "todo" / f"{sound}.json"
    aside.parent.mkdir(exist_ok=True)
    aside.write_text("[]")
    step = RedoStep("in", str(aside.relative_to(root)), str(target.relative_to(root)))
    note = RedoNote(locks=(f"session.{sound}",), steps=(step,))
    (root / ".weft/redo" / f"session.{doomed}").mkdir(parents=True)  # no note can be read there, ever
    (root / ".weft/redo" / f"session.{sound}").write_bytes(encode_note(note))

    assert works(tmp_path, sound) == ["Doomed", "Sound"]
    assert target.read_text() == "[]"
    assert os.listdir(root / ".weft/redo") == [f"session.{doomed}"]
