"""`weft storage` and `weft project`, from the command line: output, changes and exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from contract.test_store import make_store_url
from given.small_tree import CHILD, FIRST, OTHER, contents, documents, fill, open_file_store
from weft.cli.arguments import parse_age, parse_size
from weft.cli.main import run_command
from weft.cli.output import format_size
from weft.host.paths import paths_from
from weft.maintenance.anchor import check_anchors
from weft.model.event import ProjectUpdated, SessionCreated
from weft.model.ids import ProjectID, SessionID
from weft.model.project import Project, ProjectTime
from weft.model.session import WeftSessionData
from weft.snapshot.git import open_snapshots
from weft.snapshot.location import SnapshotSite, get_default_base
from weft.store.postgres.migration import get_newest_version
from weft.store.sqlite.database import list_migrations
from weft.testing.store_samples import NOW, session

Out = pytest.CaptureFixture[str]


@pytest.fixture
async def root() -> Path:
    root = Path(paths_from(os.environ).storage)
    await fill(await open_file_store(root))
    return root


def run_text(capsys: Out, *words: str, code: int = 0) -> str:
    assert run_command(words) == code
    return capsys.readouterr().out


def run_json(capsys: Out, *words: str, code: int = 0) -> Any:
    return json.loads(run_text(capsys, *words, "--format", "json", code=code))


@pytest.mark.parametrize("kind", ["file", "sqlite", "postgres"])
def test_init_shows_on_a_terminal_how_far_it_is(
    kind: str, tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run_command(["storage", "init", "--store", make_store_url(kind, tmp_path)]) == 0
    shown = capsys.readouterr().err.split("\r\x1b[K")
    steps = {"file": 0, "sqlite": len(list_migrations()), "postgres": get_newest_version()}[kind]
    assert shown == (
        ["", *(f"preparing the store … {step} of {steps}" for step in range(1, steps + 1)), ""]
        if steps
        else [""]
    )


def test_a_store_in_memory_cannot_be_prepared(capsys: Out) -> None:
    assert run_command(["storage", "init", "--store", "memory:"]) == 2
    assert "a store in memory ends with the command" in capsys.readouterr().err


def test_du_adds_up(root: Path, capsys: Out) -> None:
    files = [path for path in root.rglob("*") if path.is_file()]
    for by in ("kind", "project", "session"):
        report = run_json(capsys, "storage", "du", "--by", by)
        assert report["total"] == {"bytes": sum(path.stat().st_size for path in files), "files": len(files)}
        assert sum(row["bytes"] for row in report["rows"]) == report["total"]["bytes"]
    assert "total" in run_text(capsys, "storage", "du")


def test_gc_shows_what_it_would_do_before_doing_it(root: Path, capsys: Out) -> None:
    (root / f"session/p1/{OTHER}.json").unlink()
    before = contents(root)
    planned = run_json(capsys, "storage", "gc", "--dry-run", "--age", "0")
    assert contents(root) == before
    done = run_json(capsys, "storage", "gc", "--age", "0")
    assert [each["path"] for each in done["removed"]] == [each["path"] for each in planned["found"]]
    assert not [path for path in documents(root) if OTHER[4:] in path]
    assert run_text(capsys, "storage", "gc", "--age", "0") == "nothing to remove\n"


async def test_gc_releases_snapshots_of_removed_sessions(root: Path, capsys: Out, tmp_path: Path) -> None:
    base = get_default_base(paths_from(os.environ).data)
    site = SnapshotSite(root=str(tmp_path), project=ProjectID("prj"), base=base)
    gone = SessionID("ses_gone")
    async with open_snapshots(site, os.environ) as snapshots:
        for whose in (FIRST, gone):
            async with snapshots.watch(whose, [str(tmp_path / whose)]):
                (tmp_path / whose).write_text(whose)
            await snapshots.take(whose)
            await snapshots.mark_stored(whose)

    [observed] = run_json(capsys, "storage", "gc", "--dry-run")["snapshots"]
    assert observed["released"] == [{"session": gone, "reason": "it is gone"}]
    assert "it is gone" in run_text(capsys, "storage", "gc")
    assert [each["released"] for each in run_json(capsys, "storage", "gc")["snapshots"]] == [[]]
    assert [row["kind"] for row in run_json(capsys, "storage", "du")["rows"]].count("undo") == 1


def test_gc_leaves_recent_files(root: Path, capsys: Out) -> None:
    (root / f"session/p1/{OTHER}.json").unlink()
    assert run_json(capsys, "storage", "gc")["found"] == []


def test_verify_exits_with_1_if_anything_is_wrong(root: Path, capsys: Out) -> None:
    report = run_json(capsys, "storage", "verify")
    assert report["totals"] == {"sessions": 3, "messages": 6, "parts": 12, "problems": 0}
    (root / "todo/ses_first.json").write_bytes(b"")
    report = run_json(capsys, "storage", "verify", code=1)
    assert [each["where"] for each in report["problems"]] == [f"{root}/todo/ses_first.json"]
    assert "problem:" in run_text(capsys, "storage", "verify", code=1)


def test_migrate_prints_a_table_and_refuses_invalid_arguments(
    root: Path, tmp_path: Path, capsys: Out
) -> None:
    words = ("storage", "migrate", str(root), str(tmp_path / "new"))
    assert run_json(capsys, *words, "--dry-run")["complete"]
    assert not (tmp_path / "new").exists()
    table = run_text(capsys, *words)
    assert [line.split()[:3] for line in table.splitlines()[1:4]] == [
        [FIRST, "2/4", "2/4"],
        [CHILD, "2/4", "2/4"],
        [OTHER, "2/4", "2/4"],
    ]
    hashes = {each["session"]: each["hash"] for each in run_json(capsys, "storage", "verify")["sessions"]}
    there = run_json(capsys, "storage", "verify", "--store", str(tmp_path / "new"))["sessions"]
    assert {each["session"]: each["hash"] for each in there} == hashes
    run_text(capsys, "storage", "migrate", str(root), str(root), code=2)
    for source, target in ((str(root), "memory:"), ("memory:", str(tmp_path / "other"))):
        assert run_command(["storage", "migrate", source, target]) == 2
        assert "a store in memory ends with the command" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
    run_text(capsys, "storage", "migrate", "--from", str(tmp_path / "none"), "--to", str(root), code=2)


async def pin(root: Path, id: str) -> None:
    store = await open_file_store(root)
    await store.edit(SessionID(id), lambda it: replace(it, weft=WeftSessionData(pinned=True)))


@pytest.fixture
async def pinned_root(root: Path) -> Path:
    await pin(root, OTHER)
    return root


def test_migrate_does_not_show_the_password_of_a_missing_store(tmp_path: Path, capsys: Out) -> None:
    source = make_store_url("postgres", tmp_path).replace("weft@", "weft:s3cr3t@")
    assert run_command(["storage", "migrate", source, str(tmp_path / "new")]) == 2
    reported = capsys.readouterr().err
    assert "FROM: there is no store at postgres://" in reported
    assert "s3cr3t" not in reported


def test_prune_needs_a_policy_and_a_confirmation(pinned_root: Path, capsys: Out) -> None:
    before = contents(pinned_root)
    run_text(capsys, "storage", "prune", code=2)
    planned = run_json(capsys, "storage", "prune", "--older-than", "1d", "--dry-run")
    assert [(each["id"], sorted(each["sessions"])) for each in planned["chosen"]] == [(FIRST, [CHILD, FIRST])]
    assert [(each["id"], each["reason"]) for each in planned["spared"]] == [(OTHER, "pinned")]
    assert contents(pinned_root) == before


def test_prune_moves_to_the_trash_and_empties_it_on_request(pinned_root: Path, capsys: Out) -> None:
    done = run_json(capsys, "storage", "prune", "--older-than", "1d", "--yes")
    assert [path for path in documents(pinned_root) if path.startswith("session/")] == [
        f"session/p1/{OTHER}.json"
    ]
    [bundle] = [each["bundle"] for each in done["chosen"]]
    assert run_json(capsys, "storage", "prune", "--empty-trash", "1d", "--yes")["emptied"] == []
    kinds = {row["kind"] for row in run_json(capsys, "storage", "du")["rows"]}
    assert "trash" in kinds
    assert (pinned_root / ".weft/trash" / bundle).is_dir()


def test_without_a_terminal_prune_does_nothing(pinned_root: Path, capsys: Out) -> None:
    before = contents(pinned_root)
    assert run_command(["storage", "prune", "--older-than", "1d"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert contents(pinned_root) == before


def test_doctor_exits_with_1_until_it_has_repaired_everything(root: Path, capsys: Out) -> None:
    assert run_json(capsys, "doctor")["fine"]
    (root / f"session/p1/{FIRST}.json").write_bytes(b"")
    os.utime(root / f"session/p1/{FIRST}.json", (1, 1))
    report = run_json(capsys, "doctor", code=1)
    [finding] = [each for each in report["findings"] if each["severity"] == "problem"]
    assert (finding["items"][0]["where"], finding["repair"]) == (
        f"{root}/session/p1/{FIRST}.json",
        "weft doctor --fix",
    )
    fixed = run_json(capsys, "doctor", "--fix")
    assert fixed["fine"]
    assert [each["done"] for each in fixed["fixed"]] == [
        f"moved to {fixed['backup']}; rebuilt from 2 messages"
    ]
    assert (Path(fixed["backup"]) / f"session/p1/{FIRST}.json").read_bytes() == b""
    assert "all is well" in run_text(capsys, "doctor")


async def repository(root: Path, path: Path) -> ProjectID:
    """A project with a checkout, one of its sessions under `global`, and one under an outdated id."""
    store = await open_file_store(root)
    home = ProjectID("a" * 40)
    time = ProjectTime(created=NOW, updated=NOW)
    await store.apply(ProjectUpdated(info=Project(id=home, worktree=str(path), vcs="git", time=time)))
    for id, project in (("ses_" + "g" * 26, "global"), ("ses_" + "d" * 26, "b" * 40)):
        await store.apply(SessionCreated(info=replace(session(id, project=project), directory=str(path))))
    return home


@pytest.fixture
async def home(root: Path, tmp_path: Path) -> ProjectID:
    return await repository(root, checkout(tmp_path / "work"))


def checkout(path: Path) -> Path:
    path.mkdir()
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    return path


def counts(capsys: Out) -> dict[str, int]:
    return {row["id"]: row["sessions"] for row in run_json(capsys, "project", "list")}


def test_adopt_moves_all_misplaced_sessions_to_their_projects(home: ProjectID, capsys: Out) -> None:
    assert counts(capsys) == {"p1": 3, home: 0, "b" * 40: 1}
    assert len(run_json(capsys, "session", "adopt", "--all", "--dry-run")) == 2
    assert counts(capsys)[home] == 0
    assert {row["project"] for row in run_json(capsys, "session", "adopt", "--all")} == {home}
    assert counts(capsys) == {"p1": 3, home: 2}
    assert run_text(capsys, "session", "adopt", "--all") == "nothing to adopt\n"


def test_adopt_moves_named_sessions_to_the_project_of_a_directory(
    home: ProjectID, tmp_path: Path, capsys: Out
) -> None:
    drifted = "ses_" + "d" * 26
    other = checkout(tmp_path / "other")
    [row] = run_json(capsys, "session", "adopt", drifted, "--dir", str(other))
    assert (row["id"], row["directory"]) == (drifted, str(tmp_path / "work"))
    assert row["project"] not in (home, "b" * 40)
    run_text(capsys, "session", "adopt", "ses_" + "n" * 26, code=2)
    run_text(capsys, "session", "adopt", code=2)


def test_merge_moves_every_session(home: ProjectID, capsys: Out) -> None:
    run_text(capsys, "project", "merge", "b" * 40, home, "--yes")
    assert counts(capsys) == {"p1": 3, home: 1}
    run_text(capsys, "project", "merge", "p1", "nowhere", "--yes", code=2)
    assert "here" in run_text(capsys, "project", "list")


@pytest.mark.parametrize(
    ("text", "ms"), [("90d", 90 * 86_400_000), ("12h", 43_200_000), ("0", 0), ("2w", 14 * 86_400_000)]
)
def test_an_age_is_a_number_with_a_unit(text: str, ms: int) -> None:
    assert parse_age(text) == ms


def test_sizes_are_parsed_and_formatted() -> None:
    assert [parse_size(text) for text in ("2G", "1.5k", "10", "3MiB")] == [2 << 30, 1536, 10, 3 << 20]
    assert [format_size(count) for count in (0, 1023, 1536, 20 << 20, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 kB",
        "20 MB",
        "3.0 TB",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("--older-than", "30"),
        ("--larger-than", "much"),
        ("--larger-than", "9" * 400),
        ("--empty-trash", "-1d"),
    ],
)
def test_an_invalid_amount_is_refused(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["storage", "prune", *words]) == 2
    assert words[0] in capsys.readouterr().err


# --- verify and anchor ---


def make_key(folder: Path, name: str) -> Path:
    key = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)], check=True)
    return key


def allow_signer(key: Path, name: str) -> Path:
    allowed = key.with_suffix(".allowed")
    allowed.write_text(f"{name} {key.with_suffix('.pub').read_text()}")
    return allowed


def test_signed_heads_are_verified_with_the_key_of_the_signer(
    root: Path, capsys: Out, tmp_path: Path
) -> None:
    ada, bob, place = make_key(tmp_path, "ada"), make_key(tmp_path, "bob"), str(tmp_path / "heads")
    assert "signed" in run_text(capsys, "storage", "anchor", place, "--sign", str(ada))
    signed_by_ada = ("--anchor", place, "--signed-by", str(allow_signer(ada, "Ada")))
    report = run_json(capsys, "storage", "verify", *signed_by_ada)
    assert (report["sound"], report["anchored"]["signers"]) == (True, ["Ada"])
    assert "signed by Ada" in run_text(capsys, "storage", "verify", *signed_by_ada)

    printed = run_text(
        capsys, "storage", "verify", "--anchor", place, "--signed-by", str(allow_signer(bob, "Bob")), code=1
    )
    assert "line 1" in printed
    assert printed.splitlines()[-1].endswith("1 problem")
    # Whoever changes a head after it was signed breaks the signature.
    lines = json.loads(Path(place).read_text())
    lines["heads"][0]["entries"] += 1
    Path(place).write_text(json.dumps(lines) + "\n")
    assert not run_json(capsys, "storage", "verify", *signed_by_ada, code=1)["sound"]


def test_a_forged_cost_is_found_and_a_lost_session_is_reported(
    root: Path, capsys: Out, tmp_path: Path
) -> None:
    place = str(tmp_path / "heads")
    run_text(capsys, "storage", "anchor", place)
    assert run_json(capsys, "storage", "verify", "--anchor", place)["sound"]
    for path in (root / ".weft" / "chain").iterdir():
        if path.name.startswith(OTHER):
            path.unlink()
    report = run_json(capsys, "storage", "verify", "--anchor", place, code=1)
    assert {proof["session"] for proof in report["proofs"] if proof["verdict"] == "faulty"} == {OTHER}


@pytest.mark.parametrize("before", [b'{"time": 1, "he', b"\xff\xfe\n", b"\xff"])
def test_heads_are_added_after_whatever_a_file_ends_with(
    root: Path, capsys: Out, tmp_path: Path, before: bytes
) -> None:
    place = tmp_path / "heads"
    place.write_bytes(before)
    run_text(capsys, "storage", "anchor", str(place))
    assert place.read_bytes().startswith(before)
    found = check_anchors(str(place), environ=os.environ)
    assert [problem.partition(" of ")[0] for problem in found.problems] == ["line 1"]
    assert {head.session for head in found.heads} >= {FIRST, OTHER}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["verify", "--signed-by", "keys"], "add --anchor"),
        (["verify", "--anchor", "nowhere"], "nowhere cannot be read"),
        (["verify", "--anchor", "empty"], "empty has no heads"),
        (["verify", "--anchor", "heads", "--signed-by", "nokey"], "there is no file nokey"),
        (["verify", "--anchor", "heads", "--signed-by", "key.pub"], "without the name of its signer"),
        (["verify", "ses_none"], "no session"),
        (["anchor", "more", "--sign", "nokey"], "nokey cannot sign"),
        (["anchor", "more", "--session", OTHER], f"{OTHER} has no chain yet"),
    ],
)
def test_a_mistake_with_anchors_has_a_hint(
    root: Path, capsys: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make_key(tmp_path, "key")
    (tmp_path / "empty").write_text("")
    run_text(capsys, "storage", "anchor", "heads")
    for path in (root / ".weft" / "chain").glob(f"{OTHER}*"):
        path.unlink()
    assert run_command(["storage", *words]) == 2
    assert expected in capsys.readouterr().err
