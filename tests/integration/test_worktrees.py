"""Worktrees: created from a commit, merged completely or not at all, discarded without data loss. With real git."""

import os
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from weft.cli.main import run_command
from weft.cli.worktree import explain_empty_merge, open_run_directory
from weft.errors import ConflictError, DirectoryError, InvalidInputError, NotFoundError
from weft.host.paths import paths_from
from weft.host.processes import describe_process
from weft.local.worktrees import (
    copy_trust,
    delete_worktree,
    discard_unused,
    enter_worktree,
    open_worktree,
    read_repository,
)
from weft.trust.decision import get_trust
from weft.worktree.git import TreeMerge, WorktreeGit
from weft.worktree.merge import MergedPath, MergeResult, WorktreePick, merge_picks, merge_worktree, undo_merge
from weft.worktree.repository import (
    Worktree,
    WorktreeRepository,
    WorktreeState,
    create_worktree,
    get_worktree,
    list_hints,
    list_worktrees,
    lock_worktree,
    plan_worktree,
    read_state,
)


class WorktreeHarness:
    """A repository with a few files, and its worktrees."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")
        self.write("a.txt", "one\ntwo\nthree\nfour\nfive\nsix\nseven\n")
        self.write("b.txt", "b\n")
        self.write("sub/c.txt", "c\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "A beginning")
        self.repository = read_repository(str(root), os.environ)

    def git(self, *words: str, at: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *words], cwd=at or self.root, check=True, capture_output=True, text=True
        )
        return done.stdout

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def make(self, name: str | None = None) -> tuple[Worktree, Path]:
        worktree = create_worktree(self.repository, name, os.urandom)
        return worktree, Path(worktree.directory)

    def merge(self, worktree: Worktree, **how: str | bool) -> MergeResult:
        return merge_worktree(self.repository, worktree, **how)  # type: ignore[arg-type]

    def files(self) -> dict[str, str]:
        """Return all files of the checkout."""
        return {
            path.relative_to(self.root).as_posix(): path.read_text()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and ".git" not in path.parts
        }

    def status(self) -> list[str]:
        return self.git("status", "--short", "--untracked-files=all").splitlines()


@pytest.fixture
def harness(tmp_path: Path) -> WorktreeHarness:
    root = tmp_path.resolve() / "repository"
    root.mkdir()
    return WorktreeHarness(root)


def name_of(repository: WorktreeRepository) -> list[str]:
    return [each.name for each in list_worktrees(repository)]


# --- making one ---


def test_a_worktree_is_where_opencode_puts_its_own_on_a_branch_of_its_name(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("Fix the Loom!")
    home = paths_from(os.environ).worktrees
    assert worktree == Worktree(
        name="fix-the-loom",
        branch="opencode/fix-the-loom",
        directory=os.path.join(home, harness.repository.project, "fix-the-loom"),
    )
    assert harness.git("rev-parse", "--abbrev-ref", "HEAD", at=directory) == "opencode/fix-the-loom\n"
    assert list_worktrees(harness.repository) == [worktree]


def test_a_worktree_belongs_to_the_project_of_its_repository(harness: WorktreeHarness) -> None:
    _, directory = harness.make("x")
    assert read_repository(str(directory), os.environ).project == harness.repository.project


def test_uncommitted_changes_stay_with_the_person(harness: WorktreeHarness) -> None:
    harness.write("a.txt", "mine\n")
    harness.write("new.txt", "mine, too\n")
    before = harness.status()
    _, directory = harness.make("x")
    assert (directory / "a.txt").read_text().startswith("one\n")
    assert not (directory / "new.txt").exists()
    assert harness.status() == before


def test_a_name_in_use_gets_a_suffix(harness: WorktreeHarness) -> None:
    harness.git("branch", "opencode/x")
    worktree, _ = harness.make("x")
    assert worktree.name.startswith("x-")


def test_an_existing_worktree_of_that_name_is_reused(harness: WorktreeHarness) -> None:
    first = enter_worktree(harness.repository, "x")
    again = enter_worktree(harness.repository, "x")
    assert (first.made, again.made) == (True, False)
    assert first.worktree == again.worktree


def test_a_worktree_is_entered_in_the_same_subdirectory(harness: WorktreeHarness) -> None:
    entered = enter_worktree(read_repository(str(harness.root / "sub"), os.environ), None)
    assert entered.directory == os.path.join(entered.worktree.directory, "sub")


def test_a_worktree_requires_git_and_a_commit(tmp_path: Path) -> None:
    with pytest.raises(DirectoryError, match="not in a git repository"):
        read_repository(str(tmp_path), os.environ)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    with pytest.raises(DirectoryError, match="no commit yet"):
        read_repository(str(tmp_path), os.environ)


def test_a_name_without_letters_is_refused(harness: WorktreeHarness) -> None:
    with pytest.raises(InvalidInputError):
        harness.make("!!!")


def test_an_unused_new_worktree_is_removed(harness: WorktreeHarness) -> None:
    entered = enter_worktree(harness.repository, "x")
    discard_unused(harness.repository, entered)
    assert list_worktrees(harness.repository) == []
    assert harness.git("branch", "--list", "opencode/*") == ""


def test_hooks_of_the_repository_do_not_run(harness: WorktreeHarness) -> None:
    hook = harness.root / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {harness.root}/ran\n")
    hook.chmod(0o755)
    harness.make("x")
    assert not (harness.root / "ran").exists()


def test_omitted_submodules_and_large_files_are_reported(harness: WorktreeHarness) -> None:
    harness.write(".gitmodules", "")
    harness.write(".gitattributes", "*.bin filter=lfs\n")
    harness.git("add", "-A")
    harness.git("commit", "-q", "-m", "More")
    worktree, _ = harness.make("x")
    assert [hint.partition(" ")[0] for hint in list_hints(worktree)] == ["submodules", "large"]


# --- the state of a worktree ---


def test_the_state_of_a_worktree_is_read(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    assert read_state(harness.repository, worktree) == WorktreeState()
    (directory / "new.txt").write_text("new\n")
    assert read_state(harness.repository, worktree) == WorktreeState(changed=("new.txt",))
    harness.git("add", "-A", at=directory)
    harness.git("commit", "-q", "-m", "New", at=directory)
    assert read_state(harness.repository, worktree) == WorktreeState(ahead=1)
    harness.git("merge", "-q", "--ff-only", "opencode/x")
    assert read_state(harness.repository, worktree) == WorktreeState()


def test_a_worktree_is_found_by_name_or_as_the_only_one(harness: WorktreeHarness) -> None:
    with pytest.raises(InvalidInputError, match="there are no worktrees"):
        get_worktree(harness.repository, None)
    first, directory = harness.make("first")
    assert get_worktree(harness.repository, None) == first
    second, _ = harness.make("second")
    assert get_worktree(harness.repository, "second") == second
    with pytest.raises(InvalidInputError, match="there are 2 worktrees") as refused:
        get_worktree(harness.repository, None)
    assert refused.value.hint == "name one: first, second"
    assert get_worktree(read_repository(str(directory), os.environ), None) == first
    with pytest.raises(NotFoundError, match="third"):
        get_worktree(harness.repository, "third")


def test_a_worktree_is_used_by_one_session(harness: WorktreeHarness) -> None:
    worktree, _ = harness.make("x")
    with (
        lock_worktree(harness.repository, worktree),
        pytest.raises(ConflictError, match="in use") as refused,
        lock_worktree(harness.repository, worktree),
    ):
        pass
    assert describe_process() in refused.value.hint
    with lock_worktree(harness.repository, worktree):
        pass


WATCHING_GIT = """#!{python}
import fcntl, os, sys
words = " ".join(sys.argv)
verb = next((each for each in ("add", "remove") if f"worktree {{each}}" in words), None)
if verb:
    with open({lock!r}, "a") as lock, open({notes!r}, "a") as notes:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            print(verb, "while it is free", file=notes)
        except BlockingIOError:
            print(verb, "while it is locked", file=notes)
os.execv({git!r}, ["git", *sys.argv[1:]])
"""


def test_a_new_worktree_is_locked_from_before_it_exists_until_it_is_gone(
    harness: WorktreeHarness, tmp_path: Path
) -> None:
    directory = Path(paths_from(os.environ).data) / "weft" / "worktree" / harness.repository.project
    directory.mkdir(parents=True)
    git, notes = tmp_path / "bin" / "git", tmp_path / "notes"
    git.parent.mkdir()
    watching = {"lock": str(directory / "x.lock"), "notes": str(notes), "git": shutil.which("git")}
    git.write_text(WATCHING_GIT.format(python=sys.executable, **watching))
    git.chmod(0o755)
    env = {**os.environ, "PATH": f"{git.parent}:{os.environ['PATH']}"}
    args = Namespace(worktree="x", dir=str(harness.root), store=None, session=None, continue_last=False)
    with pytest.raises(ConflictError, match="cannot start"), open_run_directory(args, env):
        raise ConflictError("session", "", "cannot start")
    assert notes.read_text().splitlines() == ["add while it is locked", "remove while it is locked"]
    assert list_worktrees(harness.repository) == []


def test_a_new_worktree_is_not_found_by_another_run_before_the_first_one_has_it(
    harness: WorktreeHarness,
) -> None:
    with open_worktree(harness.repository, "x") as first:
        with pytest.raises(ConflictError, match="in use"), open_worktree(harness.repository, "x"):
            pass
        assert name_of(harness.repository) == ["x"]
        assert first.made
    making = plan_worktree(harness.repository, "y")
    with (
        lock_worktree(harness.repository, making),
        pytest.raises(ConflictError, match="in use"),
        open_worktree(harness.repository, "y"),
    ):
        pass
    with open_worktree(harness.repository, "x") as again:
        assert (again.made, again.worktree) == (False, first.worktree)


def test_a_worktree_that_is_removed_while_a_run_enters_it_is_not_used(harness: WorktreeHarness) -> None:
    worktree, _ = harness.make("x")

    def remove(found: Worktree) -> None:
        assert found == worktree
        delete_worktree(harness.repository, worktree)

    with (
        pytest.raises(ConflictError, match="was removed a moment ago"),
        open_worktree(harness.repository, "x", find_session=remove),
    ):
        pass
    assert list_worktrees(harness.repository) == []


# --- merging ---


def test_merging_brings_all_work_and_commits_nothing(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "committed.txt").write_text("committed\n")
    harness.git("add", "-A", at=directory)
    harness.git("commit", "-q", "-m", "Some", at=directory)
    (directory / "a.txt").write_text("ONE\ntwo\nthree\nfour\nfive\nsix\nseven\n")
    (directory / "b.txt").unlink()
    (directory / "deep" / "er").mkdir(parents=True)
    (directory / "deep" / "er" / "ä b.txt").write_text("new\n")
    (directory / "run.sh").write_text("#!/bin/sh\n")
    (directory / "run.sh").chmod(0o755)
    (directory / "link").symlink_to("a.txt")
    (directory / "raw.bin").write_bytes(bytes(range(256)))
    head, index = harness.git("rev-parse", "HEAD"), (harness.root / ".git" / "index").read_bytes()

    outcome = harness.merge(worktree)

    assert outcome == MergeResult(
        brought=(
            MergedPath(path="a.txt", how="changed"),
            MergedPath(path="b.txt", how="deleted"),
            MergedPath(path="committed.txt", how="added"),
            MergedPath(path="deep/er/ä b.txt", how="added"),
            MergedPath(path="link", how="added"),
            MergedPath(path="raw.bin", how="added"),
            MergedPath(path="run.sh", how="added"),
        )
    )
    assert (harness.root / "a.txt").read_text().startswith("ONE\n")
    assert not (harness.root / "b.txt").exists()
    assert (harness.root / "deep" / "er" / "ä b.txt").read_text() == "new\n"
    assert os.access(harness.root / "run.sh", os.X_OK)
    assert os.readlink(harness.root / "link") == "a.txt"
    assert (harness.root / "raw.bin").read_bytes() == bytes(range(256))
    assert harness.git("rev-parse", "HEAD") == head
    assert (harness.root / ".git" / "index").read_bytes() == index
    assert harness.git("stash", "list") == ""


def test_the_persons_own_changes_are_kept_even_in_the_same_file(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "a.txt").write_text("ONE\ntwo\nthree\nfour\nfive\nsix\nseven\n")
    harness.write("a.txt", "one\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n")
    harness.write("mine.txt", "mine\n")
    harness.merge(worktree)
    assert (harness.root / "a.txt").read_text() == "ONE\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n"
    assert (harness.root / "mine.txt").read_text() == "mine\n"


def test_a_change_made_in_the_same_second_as_the_commit_is_seen(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "a.txt").write_text("ONE\ntwo\nthree\nfour\nfive\nsix\nseven\n")
    second = 1_700_000_000
    harness.git("config", "core.trustctime", "false")
    os.utime(harness.root / "a.txt", (second, second))
    harness.git("update-index", "--refresh")
    harness.write("a.txt", "one\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n")
    for touched in (harness.root / "a.txt", harness.root / ".git" / "index"):
        os.utime(touched, (second, second))
    harness.merge(worktree)
    assert (harness.root / "a.txt").read_text() == "ONE\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n"


def test_a_conflict_changes_nothing_and_names_the_file(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "a.txt").write_text("theirs\n")
    (directory / "new.txt").write_text("new\n")
    harness.write("a.txt", "mine\n")
    before, status = harness.files(), harness.status()
    with pytest.raises(ConflictError, match=r"conflicts with your checkout: a\.txt") as caught:
        harness.merge(worktree)
    assert (harness.files(), harness.status()) == (before, status)

    said, way = caught.value.hint.split("; commit your own changes, then run: git ")
    assert said == "nothing was changed"
    harness.git("commit", "-qam", "Mine")
    with pytest.raises(subprocess.CalledProcessError):
        harness.git(*way.split())
    assert "UU a.txt" in harness.status()
    assert harness.files()["new.txt"] == "new\n"


def test_an_untracked_file_is_never_overwritten(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "new.txt").write_text("theirs\n")
    (directory / "other.txt").write_text("theirs\n")
    harness.write("new.txt", "mine\n")
    before = harness.files()
    with pytest.raises(ConflictError, match=r"untracked files: new\.txt") as caught:
        harness.merge(worktree)
    assert caught.value.hint == "nothing was changed; move them out of the way, and merge again"
    assert harness.files() == before


def test_an_ignored_file_is_never_overwritten(harness: WorktreeHarness) -> None:
    harness.write(".git/info/exclude", "secret.txt\n")
    worktree, directory = harness.make("x")
    (directory / "secret.txt").write_text("theirs\n")
    harness.git("add", "-f", "secret.txt", at=directory)
    harness.write("secret.txt", "mine\n")
    with pytest.raises(ConflictError, match=r"secret\.txt"):
        harness.merge(worktree)
    assert (harness.root / "secret.txt").read_text() == "mine\n"


def test_equal_files_on_both_sides_do_not_conflict(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "new.txt").write_text("same\n")
    harness.write("new.txt", "same\n")
    assert harness.merge(worktree).brought == (MergedPath(path="new.txt", how="added"),)
    assert (harness.root / "new.txt").read_text() == "same\n"


def test_nothing_is_written_through_a_link(harness: WorktreeHarness, tmp_path: Path) -> None:
    worktree, directory = harness.make("x")
    (directory / "out").mkdir()
    (directory / "out" / "new.txt").write_text("theirs\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (harness.root / "out").symlink_to(elsewhere)
    with pytest.raises(ConflictError, match="out/new"):
        harness.merge(worktree)
    assert os.listdir(elsewhere) == []


def test_a_file_may_become_a_directory_and_a_directory_a_file(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "b.txt").unlink()
    (directory / "b.txt").mkdir()
    (directory / "b.txt" / "inner").write_text("inner\n")
    (directory / "sub" / "c.txt").unlink()
    (directory / "sub").rmdir()
    (directory / "sub").write_text("a file now\n")
    harness.merge(worktree)
    assert (harness.root / "b.txt" / "inner").read_text() == "inner\n"
    assert (harness.root / "sub").read_text() == "a file now\n"


def test_a_directory_with_files_of_the_person_does_not_become_a_file(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "sub" / "c.txt").unlink()
    (directory / "sub").rmdir()
    (directory / "sub").write_text("a file now\n")
    harness.write("sub/mine.txt", "mine\n")
    before = harness.files()
    with pytest.raises(ConflictError, match="sub"):
        harness.merge(worktree)
    assert harness.files() == before


def test_a_directory_with_a_link_of_the_person_does_not_become_a_file(
    harness: WorktreeHarness, tmp_path: Path
) -> None:
    worktree, directory = harness.make("x")
    (directory / "sub" / "c.txt").unlink()
    (directory / "sub").rmdir()
    (directory / "sub").write_text("a file now\n")
    (harness.root / "sub" / "mine").symlink_to(tmp_path)
    with pytest.raises(ConflictError, match="sub"):
        harness.merge(worktree)
    assert (harness.root / "sub" / "mine").is_symlink()


def test_merging_keeps_the_permissions_of_files(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "b.txt").write_text("changed\n")
    (harness.root / "b.txt").chmod(0o600)
    harness.merge(worktree)
    assert (harness.root / "b.txt").stat().st_mode & 0o777 == 0o600
    (directory / "b.txt").chmod(0o755)
    harness.merge(worktree)
    assert (harness.root / "b.txt").stat().st_mode & 0o777 == 0o700


def test_merging_again_brings_new_work(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "a.txt").write_text("first\n")
    harness.merge(worktree)
    assert read_state(harness.repository, worktree).merged
    assert harness.merge(worktree) == MergeResult()
    # The same lines again: without a record of the earlier merge this would conflict.
    (directory / "a.txt").write_text("second\n")
    harness.git("add", "-A", at=directory)
    harness.git("commit", "-q", "-m", "All of it", at=directory)
    assert not read_state(harness.repository, worktree).merged
    assert harness.merge(worktree).brought == (MergedPath(path="a.txt", how="changed"),)
    assert (harness.root / "a.txt").read_text() == "second\n"


def test_a_merge_without_changes_says_why(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")

    def explain() -> str:
        return explain_empty_merge(read_state(harness.repository, worktree))

    assert explain() == "nothing was done in it"
    (directory / "a.txt").write_text("agent\n")
    harness.write("a.txt", "agent\n")
    assert explain() == "your checkout already has its changes"
    assert harness.merge(worktree) == MergeResult()
    assert explain() == "all of it was merged before; --again merges it once more"


def test_discarded_changes_can_be_merged_again(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "a.txt").write_text("theirs\n")
    harness.merge(worktree)
    harness.git("checkout", "-q", "--", "a.txt")
    assert harness.merge(worktree) == MergeResult()
    assert harness.merge(worktree, again=True).brought == (MergedPath(path="a.txt", how="changed"),)
    assert (harness.root / "a.txt").read_text() == "theirs\n"


def test_a_first_merge_that_was_undone_counts_as_not_merged(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "a.txt").write_text("theirs\n")
    before = harness.files()
    merged = merge_picks(harness.repository, (WorktreePick(worktree=worktree),))
    assert undo_merge(harness.repository).brought == merged.brought
    assert harness.files() == before
    assert not read_state(harness.repository, worktree).merged
    assert harness.merge(worktree) == merged


def test_an_interrupted_merge_is_finished_by_repeating_it(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    for number in range(5):
        (directory / f"new{number}.txt").write_text(f"{number}\n")
    (directory / "a.txt").write_text("theirs\n")
    (directory / "b.txt").unlink()
    # As if it had been killed when some files were in their places.
    harness.write("new0.txt", "0\n")
    harness.write("a.txt", "theirs\n")
    harness.merge(worktree)
    assert harness.files() == {
        "a.txt": "theirs\n",
        "sub/c.txt": "c\n",
        **{f"new{number}.txt": f"{number}\n" for number in range(5)},
    }


def test_a_commit_is_made_only_on_request_and_contains_nothing_else(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "a.txt").write_text("theirs\n")
    (directory / "new.txt").write_text("new\n")
    (directory / "b.txt").unlink()
    harness.write("sub/c.txt", "mine\n")
    harness.write("staged.txt", "staged\n")
    harness.git("add", "staged.txt")
    outcome = harness.merge(worktree, message="What the agent did")
    assert outcome.commit == harness.git("rev-parse", "HEAD").strip()
    assert harness.git("log", "-1", "--format=%an %s", "--name-status").split("\n") == [
        "Ada Loom What the agent did",
        "",
        "M\ta.txt",
        "D\tb.txt",
        "A\tnew.txt",
        "",
    ]
    assert harness.status() == ["A  staged.txt", " M sub/c.txt"] or sorted(harness.status()) == [
        " M sub/c.txt",
        "A  staged.txt",
    ]


def test_changes_of_the_person_are_not_committed(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "a.txt").write_text("ONE\ntwo\nthree\nfour\nfive\nsix\nseven\n")
    harness.write("a.txt", "one\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n")
    before = harness.files()
    with pytest.raises(ConflictError, match="changes of your own") as caught:
        harness.merge(worktree, message="All")
    assert caught.value.hint == "nothing was changed; commit your own changes first, or omit --commit"
    assert harness.files() == before
    assert harness.git("log", "--oneline").count("\n") == 1


def test_a_submodule_is_omitted_and_named(harness: WorktreeHarness, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    harness.git("init", "-q", at=inner)
    harness.git("commit", "-q", "--allow-empty", "-m", "Inner", at=inner)
    worktree, directory = harness.make("x")
    harness.git("clone", "-q", str(inner), "vendor", at=directory)
    (directory / "new.txt").write_text("new\n")
    assert harness.merge(worktree) == MergeResult(
        brought=(MergedPath(path="new.txt", how="added"),), left_out=("vendor",)
    )
    assert not (harness.root / "vendor").exists()


def test_a_worktree_of_which_something_was_left_out_is_kept_and_says_so(
    harness: WorktreeHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    _, directory = harness.make("x")
    harness.git("clone", "-q", str(harness.root), "vendor", at=directory)
    assert run_command(["worktree", "merge", "x", "--discard", "--dir", str(harness.root)]) == 0
    assert "not discarded, because of what was left out" in capsys.readouterr().err
    assert directory.is_dir()
    assert run_command(["worktree", "discard", "x", "--force", "--yes", "--dir", str(harness.root)]) == 0
    assert not directory.exists()


def test_a_worktree_cannot_be_merged_into_itself(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    with pytest.raises(ConflictError, match="where you are"):
        merge_worktree(read_repository(str(directory), os.environ), worktree)


def test_line_endings_of_the_checkout_are_kept(harness: WorktreeHarness) -> None:
    harness.write(".gitattributes", "*.win text eol=crlf\n")
    harness.write("x.win", "one\ntwo\n")
    harness.git("add", "-A")
    harness.git("commit", "-q", "-m", "Endings")
    worktree, directory = harness.make("x")
    (directory / "x.win").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    harness.merge(worktree)
    assert (harness.root / "x.win").read_bytes() == b"one\r\ntwo\r\nthree\r\n"


def test_an_older_git_merges_file_by_file(harness: WorktreeHarness) -> None:
    here = WorktreeGit(os.environ, str(harness.root))
    start = here.find_commit() or ""
    harness.write("a.txt", "mine\n")
    mine = here.commit_tree(here.capture(untracked=True), start, message="mine")
    harness.git("checkout", "-q", "--", "a.txt")
    (harness.root / "b.txt").unlink()
    harness.write("new.txt", "theirs\n")
    theirs = here.commit_tree(here.capture(untracked=True), start, message="theirs")
    merged = here.merge_by_file(mine, theirs)
    assert merged == here.merge(mine, theirs)
    assert [change.path for change in here.list_differences(mine, merged.tree)] == ["b.txt", "new.txt"]
    harness.write("a.txt", "theirs\n")
    clashing = here.commit_tree(here.capture(untracked=True), start, message="clashing")
    assert here.merge_by_file(mine, clashing) == TreeMerge(conflicts=("a.txt",))


# --- discarding ---


def test_discarding_removes_the_files_the_branch_and_the_record(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "a.txt").write_text("theirs\n")
    harness.merge(worktree)
    delete_worktree(harness.repository, worktree)
    assert not directory.exists()
    assert name_of(harness.repository) == []
    assert harness.git("for-each-ref", "--format=%(refname)") == "refs/heads/main\n"
    assert (harness.root / "a.txt").read_text() == "theirs\n"


def test_discarded_unmerged_work_can_be_recovered(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    (directory / "new.txt").write_text("precious\n")
    assert not read_state(harness.repository, worktree).is_safe
    kept = delete_worktree(harness.repository, worktree)
    assert harness.git("show", f"{kept}:new.txt") == "precious\n"


def test_a_worktree_without_files_can_be_discarded(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    for path in sorted(directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    directory.rmdir()
    assert read_state(harness.repository, worktree) == WorktreeState(missing=True)
    assert delete_worktree(harness.repository, worktree) == ""
    assert name_of(harness.repository) == []


def test_a_worktree_can_be_discarded_from_inside(harness: WorktreeHarness) -> None:
    worktree, directory = harness.make("x")
    delete_worktree(read_repository(str(directory), os.environ), worktree)
    assert not directory.exists()


# --- trust ---


def test_a_worktree_with_the_trusted_files_is_trusted(harness: WorktreeHarness) -> None:
    harness.write(".opencode/command/hello.md", "Say hello.\n")
    harness.git("add", "-A")
    harness.git("commit", "-q", "-m", "A command")
    get_trust(str(harness.root), os.environ).trust(1)
    entered = enter_worktree(harness.repository, "x")
    assert get_trust(entered.directory, os.environ).get_status().trusted
    delete_worktree(harness.repository, entered.worktree)
    assert get_trust(str(harness.root), os.environ).get_status().trusted


def test_a_worktree_with_other_files_is_not_trusted(harness: WorktreeHarness) -> None:
    harness.write(".opencode/command/hello.md", "Say hello.\n")
    harness.git("add", "-A")
    harness.git("commit", "-q", "-m", "A command")
    harness.write(".opencode/command/hello.md", "Say goodbye.\n")
    get_trust(str(harness.root), os.environ).trust(1)
    entered = enter_worktree(harness.repository, "x")
    assert not get_trust(entered.directory, os.environ).get_status().trusted
    assert not copy_trust(harness.repository, entered.worktree)


def test_a_worktree_of_an_untrusted_project_is_not_trusted(harness: WorktreeHarness) -> None:
    entered = enter_worktree(harness.repository, "x")
    assert not get_trust(entered.directory, os.environ).get_status().trusted
