"""`weft export` and `weft import`, from the command line."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from given.session_exports import export, session_id, with_text
from given.snapshot_harness import init_repository
from weft.transfer.document import to_document

KEY = "ghp_" + "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY1234"


def weft(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "weft", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with one session in its project; its prompt contains a key."""
    given = tmp_path / "given.json"
    given.write_bytes(to_document(with_text(export(), f"use {KEY} please")))
    imported = weft(tmp_path, "import", str(given))
    assert imported.stdout == f"Imported session: {session_id()}\nnew: 2 messages, 3 parts\n"
    assert (imported.returncode, imported.stderr) == (0, "")
    return tmp_path


def test_an_export_equals_what_was_imported(place: Path) -> None:
    exported = weft(place, "export", session_id())
    assert (exported.returncode, exported.stderr) == (0, "")
    assert exported.stdout.endswith("}\n")
    document: Any = json.loads(exported.stdout)
    given: Any = json.loads((place / "given.json").read_text())
    assert list(document) == ["info", "messages"]
    assert document["messages"][0] == given["messages"][0]
    assert weft(place, "export", "-o", "out.json").returncode == 0
    assert (place / "out.json").read_text() == exported.stdout
    assert (place / "out.json").stat().st_mode & 0o777 == 0o600


def test_without_an_id_the_last_used_session_is_exported(place: Path) -> None:
    exported = weft(place, "export")
    assert exported.stderr == f"exporting the session last worked on: {session_id()}\n"
    assert json.loads(exported.stdout)["info"]["id"] == session_id()


def test_secrets_are_listed_and_then_redacted(place: Path) -> None:
    preview = weft(place, "export", session_id(), "--redact", "--preview")
    assert KEY not in preview.stdout + preview.stderr
    assert "[redacted:github-token:1]  ghp_… (40 characters)" in preview.stdout
    covered = weft(place, "export", session_id(), "--redact")
    assert KEY not in covered.stdout
    assert (
        json.loads(covered.stdout)["messages"][0]["parts"][0]["text"]
        == "use [redacted:github-token:1] please"
    )
    weft(place, "export", session_id(), "--redact", "--bundle", "b.zip")
    with zipfile.ZipFile(place / "b.zip") as archive:
        assert all(KEY.encode() not in archive.read(name) for name in archive.namelist())
        assert json.loads(archive.read("manifest.json"))["redacted"]


def test_a_bundle_is_imported_into_another_store_and_reported_as_json(place: Path) -> None:
    made = weft(place, "export", "--all", "--bundle", "b.zip")
    assert made.stderr == "b.zip: 1 session, 2 messages, 0 attachments\n"
    looked = weft(place, "import", "b.zip", "--store", "other", "--dry-run", "--format", "json")
    taken = weft(place, "import", "b.zip", "--store", "other", "--format", "json")
    again = weft(place, "import", "b.zip", "--store", "other", "--format", "json")
    verdicts = [json.loads(each.stdout)["sessions"][0]["verdict"] for each in (looked, taken, again)]
    assert verdicts == ["new", "new", "same"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("export", "ses_00000000000000000000000000"), "there is no session"),
        (("export", "../../etc/passwd"), "is not one"),
        (("export", "--preview"), "--redact"),
        (("export", "--all"), "--bundle FILE"),
        (("import", "missing.json"), "missing.json: No such file or directory"),
        (("import", "."), "it is a directory"),
        (("import", "given.json", "--rebind", "here"), "OLD=NEW"),
        (("import", "--from", "claude", "nowhere"), "nowhere: it does not exist"),
    ],
)
def test_invalid_arguments_are_reported_in_one_sentence(
    place: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = weft(place, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_transcripts_of_other_programs_are_imported_once_and_updated_when_they_grow(tmp_path: Path) -> None:
    said = [
        {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "Mend the loom"}},
        {"type": "user", "uuid": "u2", "message": {"role": "user", "content": "And the shuttle"}},
    ]
    lines = [
        json.dumps({**line, "sessionId": "s1", "cwd": "/gone/loom", "timestamp": f"2026-02-03T04:05:0{at}Z"})
        for at, line in enumerate(said)
    ]
    transcripts = tmp_path / "projects" / "-gone-loom"
    transcripts.mkdir(parents=True)
    (transcripts / "bad.jsonl").write_text("no json\n")
    verdicts = []
    for length in (1, 1, 2):
        (transcripts / "s1.jsonl").write_text("\n".join(lines[:length]))
        done = weft(tmp_path, "import", "--from", "claude", "projects", "--format", "json")
        report = json.loads(done.stdout)
        verdicts += [(each["verdict"], each["after"]["messages"]) for each in report["sessions"]]
        assert done.returncode == 1
        assert [trouble["where"] for trouble in report["troubles"]] == ["projects/-gone-loom/bad.jsonl"]
        assert report["before"] == report["after"]
    assert verdicts == [("new", 1), ("same", 1), ("updated", 2)]
    listed = json.loads(weft(tmp_path, "session", "list", "--all", "--format", "json").stdout)
    assert [(each["title"], each["directory"], each["projectId"]) for each in listed] == [
        ("Mend the loom", "/gone/loom", "global")
    ]


@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_transcripts_of_a_known_project_are_imported_into_it(tmp_path: Path, kind: str) -> None:
    repository, plain = init_repository(tmp_path / "loom"), tmp_path / "plain"
    (repository / "deep").mkdir()
    plain.mkdir()
    for number, cwd in enumerate((repository, repository / "deep", repository / "gone", plain)):
        write_transcript(tmp_path / kind, kind, number, cwd)
    given = tmp_path / "given.json"
    given.write_bytes(to_document(export()))
    weft(plain, "import", str(given))  # so that there is a record of what is in no repository
    weft(repository, "import", str(given))
    done = weft(plain, "import", "--from", kind, str(tmp_path / kind), "--format", "json")
    here = json.loads(weft(repository, "session", "list", "--format", "json").stdout)
    assert done.returncode == 0, done.stderr
    assert sorted(each["directory"] for each in here if each["title"] == "Mend the loom") == [
        str(repository),
        str(repository / "deep"),
        str(repository / "gone"),
    ]
    listed = json.loads(weft(plain, "session", "list", "--all", "--format", "json").stdout)
    assert [each["projectId"] for each in listed if each["directory"] == str(plain)] == ["global", "global"]


def test_transcripts_imported_as_global_move_to_their_project_on_the_next_import(tmp_path: Path) -> None:
    repository = tmp_path / "loom"
    repository.mkdir()
    write_transcript(tmp_path / "claude", "claude", 1, repository)
    weft(tmp_path, "import", "--from", "claude", str(tmp_path / "claude"))
    init_repository(repository)
    again = weft(tmp_path, "import", "--from", "claude", str(tmp_path / "claude"), "--format", "json")
    (found,) = json.loads(weft(tmp_path, "session", "list", "--all", "--format", "json").stdout)
    root = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True, check=True
    )
    assert [each["verdict"] for each in json.loads(again.stdout)["sessions"]] == ["updated"]
    assert (found["directory"], found["projectId"]) == (str(repository), root.stdout.strip())


def write_transcript(where: Path, kind: str, number: int, cwd: Path) -> None:
    time = f"2026-02-03T04:05:0{number}Z"
    lines: list[dict[str, Any]]
    if kind == "claude":
        said = {"role": "user", "content": "Mend the loom"}
        lines = [{"type": "user", "uuid": f"u{number}", "message": said, "sessionId": f"s{number}"}]
        lines[0] |= {"cwd": str(cwd), "timestamp": time}
    else:
        meta = {"id": f"s{number}", "timestamp": time, "cwd": str(cwd)}
        said = {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Mend the loom"}],
        }
        lines = [
            {"timestamp": time, "type": "session_meta", "payload": meta},
            {"timestamp": time, "type": "response_item", "payload": said},
        ]
    where.mkdir(exist_ok=True)
    name = f"rollout-{number}.jsonl" if kind == "codex" else f"s{number}.jsonl"
    (where / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
