"""`weft undo`, `weft redo`, `weft session diff` and the report of `doctor` and `gc` on snapshots."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from given.snapshot_harness import git, init_repository, write
from given.undo_harness import call_bash, open_undo_harness
from weft.cli.main import run_command
from weft.host.paths import paths_from
from weft.local.offline import open_offline_sessions
from weft.model.event import SessionUpdated
from weft.model.ids import MessageID, SessionID
from weft.model.part import ErrorState, ToolPart
from weft.snapshot.location import SnapshotLocation, get_default_base, list_locations

Out = pytest.CaptureFixture[str]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "loom"
    write(root / "a.txt", "one\n")
    write(root / "b.txt", "b\n")
    init_repository(root)
    monkeypatch.chdir(root)
    return root


def run_two_turns(root: Path) -> tuple[SessionID, list[MessageID]]:
    """Run two turns."""

    async def weave() -> tuple[SessionID, list[MessageID]]:
        async with open_undo_harness(root) as harness:
            first = await harness.run_step(call_bash("echo two > a.txt"))
            second = await harness.run_step(call_bash("echo two > b.txt; echo new > n.txt"))
            return harness.session, [first, second]

    return asyncio.run(weave())


def run_text(capsys: Out, *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert run_command(words) == code
    return capsys.readouterr().out


def run_json(capsys: Out, *words: str, code: int = 0) -> Any:
    return json.loads(run_text(capsys, *words, "--format", "json", code=code))


def texts(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(root.glob("*.txt"))}


def find_location() -> SnapshotLocation:
    (found,) = list_locations(get_default_base(paths_from(os.environ).data))
    return found


CHANGED = {"a.txt": "two\n", "b.txt": "two\n", "n.txt": "new\n"}


def test_undo_reverts_the_last_prompt_and_reports_the_fate_of_each_file(root: Path, capsys: Out) -> None:
    session, _ = run_two_turns(root)
    write(root / "b.txt", "me\n")

    assert run_text(capsys, "undo", "--yes").splitlines() == [
        "not touched  b.txt  you changed it since",
        "removed      n.txt",
        "note: undo does not cover what commands, MCP servers and plugins changed in ignored files, in nested repositories and outside the project",
        f"{session} was taken back to before “Weave.”. Your next prompt deletes those 3 messages; until then weft redo brings them back",
    ]
    assert texts(root) == {"a.txt": "two\n", "b.txt": "me\n"}
    assert "3 messages were undone" in run_text(capsys, "session", "show", session)


def test_each_undo_goes_one_prompt_further_back_and_redo_restores_all(root: Path, capsys: Out) -> None:
    session, prompts = run_two_turns(root)
    assert run_json(capsys, "undo", "--yes")["revert"]["messageID"] == prompts[1]
    assert texts(root) == {"a.txt": "two\n", "b.txt": "b\n"}
    assert run_json(capsys, "undo", "--yes")["revert"]["messageID"] == prompts[0]
    assert texts(root) == {"a.txt": "one\n", "b.txt": "b\n"}
    assert run_command(["undo", "--yes"]) == 2
    assert "there is nothing to undo" in capsys.readouterr().err

    assert run_text(capsys, "redo", session[:12], "--yes").splitlines() == [
        "restored     a.txt",
        "restored     b.txt",
        "restored     n.txt",
        f"{session} is complete again",
    ]
    assert texts(root) == CHANGED
    assert run_command(["redo", "--yes"]) == 2
    assert "nothing to redo" in capsys.readouterr().err


def test_a_dry_run_says_what_would_happen(root: Path, capsys: Out) -> None:
    run_two_turns(root)
    write(root / "b.txt", "me\n")

    assert run_text(capsys, "undo", "--dry-run").splitlines() == [
        "would keep     b.txt  you changed it since",
        "would remove   n.txt",
        "note: undo does not cover what commands, MCP servers and plugins changed in ignored files, in nested repositories and outside the project",
    ]


def test_if_the_only_command_was_refused_no_file_would_change(root: Path, capsys: Out) -> None:
    rules = {"bash": {"*": "allow", "rm *": "deny"}}

    async def weave() -> list[type]:
        async with open_undo_harness(root, config={"permission": rules}) as harness:
            await harness.run_step(call_bash("rm a.txt"))
            parts = [part for message in await harness.history() for part in message.parts]
            return [type(part.state) for part in parts if isinstance(part, ToolPart)]

    assert asyncio.run(weave()) == [ErrorState]

    assert run_text(capsys, "undo", "--dry-run") == "no file would change\n"


def test_a_dry_run_reports_the_same_as_the_undo_and_changes_nothing(root: Path, capsys: Out) -> None:
    session, prompts = run_two_turns(root)
    planned = run_json(capsys, "undo", "--to", prompts[0], "--dry-run")
    assert texts(root) == CHANGED
    done = run_json(capsys, "undo", session, "--to", prompts[0], "--yes")
    assert planned["files"] == done["files"]
    assert (planned["dryRun"], planned["revert"], done["dryRun"]) == (True, None, False)
    assert [(Path(each["file"]).name, each["fate"]) for each in done["files"]] == [
        ("a.txt", "restored"),
        ("b.txt", "restored"),
        ("n.txt", "removed"),
    ]
    assert run_json(capsys, "redo", "--dry-run")["files"] == [
        {"file": str(root / name), "fate": "restored"} for name in ("a.txt", "b.txt", "n.txt")
    ]
    assert texts(root) == {"a.txt": "one\n", "b.txt": "b\n"}


def test_undo_settles_what_a_dead_run_left_open(root: Path, capsys: Out) -> None:
    session, _ = run_two_turns(root)
    storage = Path(paths_from(os.environ).storage)
    answer = max((storage / "message" / session).glob("*.json"))
    document = json.loads(answer.read_text())
    del document["time"]["completed"]
    answer.write_text(json.dumps(document))
    lease = storage / ".weft" / "run" / session
    lease.parent.mkdir(parents=True, exist_ok=True)
    lease.touch()  # nobody holds it: the process that ran the session died

    run_text(capsys, "undo", "--dry-run")

    assert not lease.exists()
    assert "completed" in json.loads(answer.read_text())["time"]


def test_without_a_terminal_undo_needs_the_option_yes(root: Path, capsys: Out) -> None:
    run_two_turns(root)
    assert run_command(["undo"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert texts(root) == CHANGED


def test_undo_can_be_limited_to_single_files_or_to_none(root: Path, capsys: Out) -> None:
    _, prompts = run_two_turns(root)
    run_text(capsys, "undo", "--to", prompts[0], "--file", "a.txt", "--yes")
    assert texts(root) == {**CHANGED, "a.txt": "one\n"}
    run_text(capsys, "redo", "--yes")
    run_text(capsys, "undo", "--no-files", "--yes")
    assert texts(root) == CHANGED


def test_undoing_an_unchanged_file_is_refused_and_changes_nothing(root: Path, capsys: Out) -> None:
    session, _ = run_two_turns(root)
    assert run_text(capsys, "undo", "--file", "typo.txt", "--yes", code=2) == ""
    assert texts(root) == CHANGED
    assert "revert" not in run_json(capsys, "session", "show", session)["info"]


def test_from_another_directory_undo_works_where_the_session_worked(
    root: Path, tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = run_two_turns(root)
    monkeypatch.chdir(tmp_path)
    assert "loom/n.txt" in run_text(capsys, "undo", session, "--yes")
    assert texts(root) == {"a.txt": "two\n", "b.txt": "b\n"}


def test_without_a_repository_the_last_session_is_that_of_the_directory(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for directory in (mine, other / "below"):
        write(directory / "a.txt", "one\n")
    run_two_turns(mine)
    monkeypatch.chdir(other)
    run_text(capsys, "undo", "--yes", code=2)
    assert texts(mine)["n.txt"] == "new\n"
    run_two_turns(other)
    monkeypatch.chdir(mine)
    run_text(capsys, "undo", "--yes")
    assert ("n.txt" in texts(mine), "n.txt" in texts(other)) == (False, True)
    monkeypatch.chdir(other / "below")
    run_text(capsys, "undo", "--yes", code=2)
    assert "n.txt" in texts(other)


def test_in_a_git_worktree_the_last_session_is_that_of_this_checkout(
    root: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, within = root.parent / "beside", root / "within"
    git(root, "worktree", "add", "-q", str(beside))
    git(root, "worktree", "add", "-q", str(within))
    in_main, _ = run_two_turns(root)
    in_beside, _ = run_two_turns(beside)
    in_within, _ = run_two_turns(within)
    expected = {root: in_main, beside: in_beside, within: in_within}
    found = {}
    for checkout in expected:
        (checkout / "below").mkdir()
        monkeypatch.chdir(checkout / "below")
        found[checkout] = run_json(capsys, "session", "show", "last")["info"]["id"]
    assert found == expected
    monkeypatch.chdir(beside)
    run_text(capsys, "undo", "--yes")
    assert (texts(root), texts(beside), texts(within)) == (
        CHANGED,
        {"a.txt": "two\n", "b.txt": "b\n"},
        CHANGED,
    )


def test_in_an_unused_directory_there_is_no_last_session_and_a_hint_names_others(
    root: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = root.parent / "beside"
    git(root, "worktree", "add", "-q", str(beside))
    session, _ = run_two_turns(root)
    monkeypatch.chdir(beside)
    capsys.readouterr()
    codes = [run_command(words) for words in (["undo", "--yes"], ["session", "rm", "last", "--yes"])]
    err = capsys.readouterr().err
    assert (codes, texts(root)) == ([2, 2], CHANGED)
    assert (
        err.count(
            f"none has worked in {beside} or all are archived; the last of this project is {session}, in {root}"
        )
        == 2
    )


def test_restore_last_means_the_last_session_removed_in_this_checkout(
    root: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = root.parent / "beside"
    git(root, "worktree", "add", "-q", str(beside))
    mine, _ = run_two_turns(root)
    other, _ = run_two_turns(beside)
    run_text(capsys, "session", "rm", mine, "--yes")
    run_text(capsys, "session", "rm", other, "--yes")
    assert [each["id"] for each in run_json(capsys, "session", "restore", "last")] == [mine]


def test_a_session_without_its_worktree_is_undone_where_it_continued(root: Path, capsys: Out) -> None:
    session, _ = run_two_turns(root)

    async def move_session_elsewhere() -> None:
        async with open_offline_sessions(".", os.environ) as offline:
            found = await offline.store.get_session(session)
            gone = replace(found, directory=str(root.parent / "discarded"))
            await offline.journal.commit(SessionUpdated(info=gone))

    asyncio.run(move_session_elsewhere())
    assert "removed      n.txt" in run_text(capsys, "undo", session, "--yes")
    assert texts(root) == {"a.txt": "two\n", "b.txt": "b\n"}


def test_a_broken_configuration_does_not_prevent_undo(root: Path, capsys: Out) -> None:
    run_two_turns(root)
    write(root / "opencode.json", '{"model": ')
    run_text(capsys, "undo", "--yes")
    assert texts(root) == {"a.txt": "two\n", "b.txt": "b\n"}


def test_a_missing_snapshot_refuses_the_undo_with_exit_code_1(root: Path, capsys: Out) -> None:
    session, _ = run_two_turns(root)
    for path in Path(find_location().objects).rglob("*"):
        if path.is_file():
            path.unlink()
    out = run_text(capsys, "undo", "--yes", code=1)
    assert "missing        b.txt" in out
    assert "nothing can be undone" in out
    assert texts(root) == CHANGED
    findings = run_json(capsys, "doctor")["findings"]
    (found,) = [each for each in findings if each["area"] == "undo"]
    assert found["what"] == "snapshots that sessions need for undo are missing or damaged"
    assert [each["where"] for each in found["items"]] == [session]


def test_doctor_reports_an_interrupted_undo(root: Path, capsys: Out) -> None:
    run_two_turns(root)
    assert not [each for each in run_json(capsys, "doctor")["findings"] if each["area"] == "undo"]
    write(Path(find_location().intent), "{}")
    (found,) = [each for each in run_json(capsys, "doctor", code=1)["findings"] if each["area"] == "undo"]
    assert (found["severity"], found["what"]) == ("problem", "a restore of files was interrupted")


def test_gc_releases_what_removed_sessions_needed(root: Path, capsys: Out) -> None:
    session, _ = run_two_turns(root)
    run_text(capsys, "session", "rm", session, "--yes")
    assert run_json(capsys, "storage", "gc")["snapshots"][0]["released"] == []
    run_text(capsys, "session", "restore", session)
    run_text(capsys, "session", "rm", session, "--yes", "--no-trash")
    (swept,) = run_json(capsys, "storage", "gc")["snapshots"]
    assert swept["released"] == [{"session": session, "reason": "it is gone"}]


def test_the_diff_of_a_session_or_a_message_is_printed_as_a_patch(root: Path, capsys: Out) -> None:
    session, prompts = run_two_turns(root)
    rows = [line.split() for line in run_text(capsys, "session", "diff", session).splitlines()]
    assert rows[1:] == [["+1", "-1", "a.txt"], ["+1", "-1", "b.txt"], ["+1", "-0", "n.txt"]]
    assert [
        each["file"] for each in run_json(capsys, "session", "diff", session, "--message", prompts[0])
    ] == ["a.txt"]
    patch = run_text(capsys, "session", "diff", session, "--format", "patch")
    assert "-one\n+two\n" in patch
    second = run_text(capsys, "session", "diff", session, "--message", prompts[1], "--format", "patch")
    assert "a.txt" not in second
    # It is one: git takes it.
    write(root / "all.patch", patch)
    git(root, "apply", "-R", "all.patch")
    assert texts(root) == {"a.txt": "one\n", "b.txt": "b\n"}


def test_without_snapshots_the_patch_is_made_of_the_stored_diff(root: Path, capsys: Out) -> None:
    session, _ = run_two_turns(root)
    for path in Path(find_location().objects).rglob("*"):
        if path.is_file():
            path.unlink()
    write(root / "all.patch", run_text(capsys, "session", "diff", session, "--format", "patch"))
    git(root, "apply", "-R", "all.patch")
    assert texts(root) == {"a.txt": "one\n", "b.txt": "b\n"}


def test_undone_changes_are_not_in_the_diff(root: Path, capsys: Out) -> None:
    session, _ = run_two_turns(root)
    run_text(capsys, "undo", "--yes")
    patch = run_text(capsys, "session", "diff", session, "--format", "patch")
    assert "a.txt" in patch
    assert "b.txt" not in patch
    assert [each["file"] for each in run_json(capsys, "session", "diff", session)] == ["a.txt"]


def test_a_manual_fork_can_be_undone(root: Path, capsys: Out) -> None:
    session, _ = run_two_turns(root)
    fork = run_json(capsys, "session", "fork", session)["id"]
    run_text(capsys, "session", "rm", session, "--yes", "--no-trash")
    run_text(capsys, "storage", "gc")
    run_text(capsys, "undo", fork, "--yes")
    assert texts(root) == {"a.txt": "two\n", "b.txt": "b\n"}
