"""`weft doctor`: names every broken document, loads the rest, and repairs what it can, with a backup."""

import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from given.small_tree import (
    CHILD,
    FIRST,
    OTHER,
    contents,
    documents,
    fill,
    list_readable,
    make_old,
    open_file_store,
    put_session,
)
from weft.host.now import now
from weft.host.paths import paths_from
from weft.maintenance.doctor import examine, examine_index, examine_store
from weft.maintenance.environment import DoctorInput
from weft.maintenance.repair import FindingRepairer
from weft.model.event import MessageUpdated, PartUpdated, ProjectUpdated, SessionCreated, SessionUpdated
from weft.model.health import DoctorFinding
from weft.model.ids import ProjectID, SessionID
from weft.model.project import Project, ProjectTime
from weft.store.files.index_database import index_path
from weft.store.files.maintenance import MANY_SESSIONS
from weft.store.reader import open_reader
from weft.store.url import open_store
from weft.testing.store_samples import NOW, SESSION, prompt, session, text

DOCUMENTS = [
    "project/p1.json",
    *(
        path
        for each in ("first", "child", "other")
        for path in (
            f"session/p1/ses_{each}.json",
            f"message/ses_{each}/msg_{each}_1.json",
            f"message/ses_{each}/msg_{each}_2.json",
            f"part/msg_{each}_1/prt_{each}_1_a.json",
            f"part/msg_{each}_1/prt_{each}_1_b.json",
            f"part/msg_{each}_2/prt_{each}_2_a.json",
            f"part/msg_{each}_2/prt_{each}_2_b.json",
            f"session_diff/ses_{each}.json",
            f"todo/ses_{each}.json",
        )
    ),
]
WAYS = {
    "truncated": lambda raw: raw[: len(raw) // 2],
    "emptied": lambda _: b"",
    "overwritten": lambda raw: b"\x00" * len(raw),
    "of another kind": lambda _: b'"text"',
}


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    root = tmp_path / "storage"
    await fill(await open_file_store(root))
    return root


def case(root: Path) -> DoctorInput:
    return DoctorInput(
        env=os.environ,
        paths=paths_from(os.environ),
        directory=str(root.parent),
        url=f"file:{root}",
        now=now() + 60_000,
    )


def examine_root(root: Path) -> list[DoctorFinding]:
    return examine_store(case(root), lambda _, __: None)


def list_places(findings: list[DoctorFinding], severity: str = "problem") -> set[str]:
    return {item.where for finding in findings if finding.severity == severity for item in finding.items}


def list_kinds(findings: list[DoctorFinding]) -> list[str]:
    return [finding.what for finding in findings]


def test_every_document_of_the_tree_is_tested(root: Path) -> None:
    assert sorted(DOCUMENTS) == documents(root)
    assert examine_root(root) == []


@pytest.mark.parametrize("how", WAYS)
async def test_each_damaged_document_is_named_and_everything_else_loads(root: Path, how: str) -> None:
    whole, before = await list_readable(root), contents(root)
    for path in DOCUMENTS:
        (root / path).write_bytes(WAYS[how](before[path]))
        make_old(root)
        assert list_places(examine_root(root)) == {f"{root}/{path}"}
        hidden = {each for each in whole if path.startswith("message/") and Path(path).stem in each}
        assert await list_readable(root) == whole - {path} - hidden
        (root / path).write_bytes(before[path])
    assert examine_root(root) == []


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("path", [DOCUMENTS[0], *DOCUMENTS[1:10]])
async def test_damage_is_repaired_and_the_originals_are_kept(root: Path, path: str, how: str) -> None:
    whole = await list_readable(root)
    spoilt = WAYS[how]((root / path).read_bytes())
    (root / path).write_bytes(spoilt)
    make_old(root)
    doctor = FindingRepairer(case(root))
    assert [each.failed for each in doctor.repair(examine_root(root))] == [""]
    assert (Path(doctor.backup) / path).read_bytes() == spoilt
    assert list_places(examine_root(root)) == set()
    taken = {each for each in whole if path.startswith("message/") and Path(path).stem in each} | {path}
    assert await list_readable(root) == (whole if path.startswith("session/") else whole - taken)


async def test_a_lost_session_is_named_and_rebuilt_from_its_messages(root: Path) -> None:
    whole, before = await list_readable(root), contents(root)
    (root / f"session/p1/{OTHER}.json").unlink()
    assert list_places(examine_root(root)) == {f"{root}/message/{OTHER}"}
    [cured] = FindingRepairer(case(root)).repair(examine_root(root))
    assert cured.done == "rebuilt from 2 messages"
    assert await list_readable(root) == whole
    found = await (await open_file_store(root)).get_session(SessionID(OTHER))
    assert (found.project_id, found.directory, found.title) == ("p1", "/work", "Recovered: a of msg_other_1")
    assert (found.time.created, found.time.updated) == (NOW + 2, NOW + 4)
    assert {
        path: raw for path, raw in contents(root).items() if path in before and "session/" not in path
    } == {path: raw for path, raw in before.items() if "session/" not in path}


@pytest.mark.parametrize(
    ("path", "what"),
    [
        (f"message/{FIRST}/msg_first_1.json", "parts, diffs and todos whose owner is gone: 1"),
        (f"message/{FIRST}/msg_first_2.json", "parts, diffs and todos whose owner is gone: 1"),
        (f"session/p1/{FIRST}.json", "sessions whose parent is gone: 1"),
        ("project/p1.json", "1 project has sessions and no record"),
    ],
)
async def test_a_missing_document_is_reported_through_those_that_need_it(
    root: Path, path: str, what: str
) -> None:
    whole = await list_readable(root)
    (root / path).unlink()
    assert what in list_kinds(examine_root(root))
    hidden = {each for each in whole if path.startswith("message/") and Path(path).stem in each}
    assert await list_readable(root) == whole - {path} - hidden


async def test_a_child_without_its_parent_becomes_a_session_of_its_own(root: Path) -> None:
    store = await open_file_store(root)
    await store.edit(SessionID(CHILD), lambda it: replace(it, parent_id=SessionID("ses_gone")))
    [finding] = examine_root(root)
    assert (finding.what, list_places([finding], "warning")) == ("sessions whose parent is gone: 1", {CHILD})
    doctor = FindingRepairer(case(root))
    doctor.repair([finding])
    assert examine_root(root) == []
    assert (await store.get_session(SessionID(CHILD))).parent_id is None
    assert b"ses_gone" in (Path(doctor.backup) / f"session/p1/{CHILD}.json").read_bytes()


async def test_a_session_in_two_projects_is_merged_into_the_last_changed_one(root: Path) -> None:
    raw = (root / f"session/p1/{OTHER}.json").read_bytes()
    (root / "session/p2").mkdir()
    (root / f"session/p2/{OTHER}.json").write_bytes(
        raw.replace(b'"p1"', b'"p2"').replace(b'"updated": 1', b'"updated": 2')
    )
    [finding] = [each for each in examine_root(root) if each.cure == "unite"]
    assert finding.what == "sessions recorded in two projects: 1"
    doctor = FindingRepairer(case(root))
    doctor.repair([finding])
    assert [
        path for path in documents(root) if path.endswith(f"/{OTHER}.json") and path.startswith("session/")
    ] == [f"session/p2/{OTHER}.json"]
    assert (Path(doctor.backup) / f"session/p1/{OTHER}.json").read_bytes() == raw


async def test_foreign_and_misplaced_files_are_named_and_left_alone(root: Path) -> None:
    (root / f"message/{FIRST}/msg_9.json.tmp").write_text("{")
    raw = (root / f"message/{FIRST}/msg_first_1.json").read_bytes()
    (root / f"message/{FIRST}/msg_copy.json").write_bytes(raw)
    before = contents(root)
    findings = examine_root(root)
    assert list_kinds(findings) == [
        "files among the documents that are not documents: 1",
        "documents whose content contradicts their path: 1",
    ]
    FindingRepairer(case(root)).repair(findings)
    assert contents(root) == before


def repository(path: Path) -> Path:
    path.mkdir()
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    return path


async def test_sessions_recorded_elsewhere_are_adopted(root: Path, tmp_path: Path) -> None:
    worktree = repository(tmp_path / "repository")
    store = await open_file_store(root)
    home = ProjectID("a" * 40)
    time = ProjectTime(created=NOW, updated=NOW)
    await store.apply(ProjectUpdated(info=Project(id=home, worktree=str(worktree), vcs="git", time=time)))
    for id, project, directory in (
        ("ses_global", "global", worktree),
        ("ses_drifted", "b" * 40, worktree),
        ("ses_elsewhere", "global", tmp_path),
    ):
        await store.apply(
            SessionCreated(info=replace(session(id, project=project), directory=str(directory)))
        )
    [finding] = [each for each in examine_root(root) if each.cure == "adopt"]
    assert list_places([finding], "warning") == {"ses_global", "ses_drifted"}
    FindingRepairer(case(root)).repair([finding])
    listed = {each.id: each.project_id for each in await store.list_sessions()}
    assert {id: listed[SessionID(id)] for id in ("ses_global", "ses_drifted", "ses_elsewhere")} == {
        "ses_global": home,
        "ses_drifted": home,
        "ses_elsewhere": "global",
    }
    assert [each for each in examine_root(root) if each.area == "projects"] == []


async def test_a_trash_bundle_without_its_label_is_reported(root: Path) -> None:
    store = await open_file_store(root)
    bundle = await store.discard([SessionID(OTHER)], at=NOW)
    assert examine_root(root) == []
    (root / f".weft/trash/{bundle.id}/bundle.json").unlink()
    [finding] = examine_root(root)
    assert list_places([finding], "warning") == {f"{root}/.weft/trash/{bundle.id}"}


async def test_an_unfinished_write_is_finished(root: Path) -> None:
    (root / ".weft/temp").mkdir(exist_ok=True)
    (root / ".weft/temp/session.ses_first~00.0").write_text("{}")
    later = replace(case(root), now=now() + 3_600_000)
    [finding] = examine_store(later, lambda _, __: None)
    assert finding.what == "writes that a process did not finish: 1"
    assert [each.done for each in FindingRepairer(later).repair([finding])] == ["finished or removed"]
    assert examine_store(later, lambda _, __: None) == []


# --- the machine, and a store that is beyond repair ---


def test_a_newer_format_is_a_finding_and_not_an_error(root: Path) -> None:
    (root / "migration").write_text("99")
    [finding] = [each for each in examine(case(root)) if each.area == "store"]
    assert finding.severity == "problem"
    assert "format 99" in finding.what


@pytest.mark.parametrize("wreck", ["a file", "nothing", "a shelf that is a file", "no way in"])
def test_no_store_is_too_damaged_to_examine(tmp_path: Path, wreck: str) -> None:
    root = tmp_path / "storage"
    if wreck == "a file":
        root.write_text("not a directory")
    if wreck in ("a shelf that is a file", "no way in"):
        root.mkdir()
        (root / "migration").write_text("2")
    if wreck == "a shelf that is a file":
        for shelf in ("session", "message", "part", "todo", ".weft"):
            (root / shelf).write_text("")
    if wreck == "no way in":
        (root / "session").mkdir(mode=0)
    assert examine(case(root)) != []
    FindingRepairer(case(root)).repair(examine(case(root)))


def test_files_that_others_can_read_are_made_private(tmp_path: Path) -> None:
    data = Path(os.environ["XDG_DATA_HOME"]) / "opencode"
    (data / "storage").mkdir(parents=True)
    (data / "auth.json").write_text("{}")
    data.chmod(0o755)
    (data / "auth.json").chmod(0o644)
    [finding] = [each for each in examine(case(data / "storage")) if each.cure == "lock-up"]
    assert {str(data), str(data / "auth.json")} <= list_places([finding], "warning")
    FindingRepairer(case(data / "storage")).repair([finding])
    assert (data.stat().st_mode & 0o777, (data / "auth.json").stat().st_mode & 0o777) == (0o700, 0o600)
    assert [each for each in examine(case(data / "storage")) if each.cure == "lock-up"] == []


def test_a_file_of_another_program_is_neither_changed_nor_moved(tmp_path: Path) -> None:
    notes, database = tmp_path / "notes.txt", tmp_path / "other.db"
    notes.write_text("notes of a person\n" * 20)
    with closing(sqlite3.connect(database)) as other:
        other.execute("CREATE TABLE t (x)")
    for path in (notes, database):
        path.chmod(0o644)
        before = path.read_bytes()
        target = replace(case(tmp_path), url=f"sqlite:{path}")
        FindingRepairer(target).repair(examine(target))
        assert (path.stat().st_mode & 0o777, path.read_bytes()) == (0o644, before)
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_file()) == ["notes.txt", "other.db"]


def test_a_broken_configuration_is_a_finding(root: Path) -> None:
    (root.parent / "opencode.json").write_text('{"model": 5}')
    [finding] = [each for each in examine(case(root)) if each.area == "configuration"]
    assert finding.severity == "problem"
    assert "model" in finding.what


def test_broken_json_configuration_says_that_nothing_runs_and_has_a_hint(root: Path) -> None:
    (root.parent / "opencode.json").write_text('{"model": ')
    [finding] = [each for each in examine(case(root)) if each.area == "configuration"]
    assert finding.what == f"{root.parent}/opencode.json:1:11: model: a value is expected here"
    assert finding.means == "no run starts here until this is corrected"
    assert finding.repair == "correct it at this line and column; weft doctor checks it again"


def test_a_directory_that_does_not_exist_has_a_hint(root: Path) -> None:
    target = replace(case(root), directory=f"{root}/nosuch")
    [finding] = [each for each in examine(target) if each.area == "configuration"]
    assert finding.what == f"{root}/nosuch: no such file or directory"
    assert finding.repair == "create it, or pass another directory"


def test_a_store_that_cannot_be_opened_is_reported_once(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("notes of a person\n" * 20)
    findings = examine(replace(case(tmp_path), url=f"sqlite:{notes}"))
    [finding] = [each for each in findings if str(notes) in each.what]
    assert finding.area == "store"
    assert finding.repair.startswith("choose another file for --store")
    assert not any("--fix" in each.repair for each in findings)


@pytest.mark.parametrize("table", ["message", "part", "project"])
async def test_a_database_with_a_damaged_table_is_reported_once_and_repaired(
    tmp_path: Path, table: str
) -> None:
    path = tmp_path / "sessions.db"
    async with open_store(f"sqlite:{path}") as store:
        await store.apply(
            SessionCreated(info=session()),
            MessageUpdated(info=prompt()),
            PartUpdated(part=text("prt_1", "words")),
        )
    with closing(apsw.Connection(str(path))) as database:
        [(page,)] = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchall()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    target = replace(case(tmp_path), url=f"sqlite:{path}")
    [finding] = [each for each in examine(target) if each.severity == "problem"]
    assert (finding.what, finding.items[0].where) == (f"{path} is damaged", str(path))
    [result] = FindingRepairer(target).repair([finding])
    aside = f"{path}.damaged-{target.now}"
    assert (
        result.done == f"moved to {aside}; what can still be read was copied into a new database: 1 session"
    )
    assert [each for each in examine(target) if each.severity == "problem"] == []
    with closing(open_reader(f"sqlite:{path}")) as reader:
        assert [each.id for each in reader.list_sessions()] == [SESSION]


async def test_a_database_of_which_nothing_can_be_read_is_said_to_be_replaced_by_an_empty_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sessions.db"
    async with open_store(f"sqlite:{path}") as store:
        await store.apply(SessionCreated(info=session()))
    with path.open("r+b") as file:
        file.write(b"\xff" * 100)
    target = replace(case(tmp_path), url=f"sqlite:{path}")
    [finding] = [each for each in examine(target) if each.severity == "problem"]
    [result] = FindingRepairer(target).repair([finding])
    aside = f"{path}.damaged-{target.now}"
    assert result.done == f"moved to {aside}; no session in it can be read, so the new database has none"


def test_the_doctor_names_the_version_of_sqlite_that_stores_use(root: Path) -> None:
    assert any(f"SQLite {apsw.sqlite_lib_version()}" in what for what in list_kinds(examine(case(root))))


def test_a_damaged_index_is_removed(root: Path) -> None:
    path = Path(index_path(paths_from(os.environ).cache, str(root)))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a database" * 100)
    findings = examine_index(case(root))
    assert list_places(findings, "warning") == {str(path)}
    FindingRepairer(case(root)).repair(findings)
    assert not path.exists()


async def test_examining_changes_nothing(root: Path) -> None:
    store = await open_file_store(root)
    await put_session(store, "ses_9")
    await store.apply(SessionUpdated(info=session("ses_9", project="p9")))
    (root / f"session/p1/{OTHER}.json").write_bytes(b"")
    before = stamps(root)
    examine(case(root))
    assert stamps(root) == before


def stamps(root: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")}


def test_a_database_is_suggested_from_three_thousand_sessions_on(tmp_path: Path) -> None:
    directory = tmp_path / "storage/session/p1"
    directory.mkdir(parents=True)
    for number in range(2_999):
        (directory / f"ses_{number}.json").write_bytes(b"{}")
    root, many = tmp_path / "storage", "the tree has 3,000 sessions"
    assert many not in list_kinds(examine_root(root))
    (directory / "ses_2999.json").write_bytes(b"{}")
    [found] = [each for each in examine_root(root) if each.what == many]
    assert (found.severity, found.repair) == (
        "note",
        f"weft storage migrate file:{root} sqlite:{tmp_path}/sessions.db",
    )


def test_the_suggestion_of_a_database_names_the_number_of_sessions_and_the_command(root: Path) -> None:
    assert not [each for each in examine_root(root) if "storage migrate" in each.repair]
    first = root / f"session/p1/{FIRST}.json"
    # Links take a fraction of the time of files. That their documents name another session does not matter here.
    for number in range(MANY_SESSIONS):
        os.link(first, root / f"session/p1/ses_many{number}.json")
    [found] = [each for each in examine_root(root) if "storage migrate" in each.repair]
    assert (found.severity, found.what, found.repair) == (
        "note",
        f"the tree has {MANY_SESSIONS + 3:,} sessions",
        f"weft storage migrate file:{root} sqlite:{root.parent}/sessions.db",
    )
