"""Worktrees: made from what is committed, merged all or nothing, discarded with care. With real git."""

import os
import subprocess
from pathlib import Path

import pytest

from weft.errors import ConflictError, DirectoryError, InvalidInputError, NotFoundError
from weft.host.paths import paths_from
from weft.local.worktrees import copy_trust, delete_worktree, discard_unused, enter_worktree, open_repository
from weft.trust.decision import get_trust
from weft.worktree.git import TreeMerge, WorktreeGit
from weft.worktree.merge import MergedPath, MergeResult, merge_worktree
from weft.worktree.repository import (
    Worktree,
    WorktreeRepository,
    create_worktree,
    get_worktree,
    list_worktrees,
    lock_worktree,
)
from weft.worktree.state import WorktreeState, list_hints, read_state


class Desk:
    """A repository with a few files, a person at work in it, and worktrees."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")
        self.write("a.txt", "one\ntwo\nthree\nfour\nfive\nsix\nseven\n")
        self.write("b.txt", "b\n")
        self.write("sub/c.txt", "c\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "A beginning")
        self.repository = open_repository(str(root), os.environ)

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
        """All that lies in the checkout."""
        return {
            path.relative_to(self.root).as_posix(): path.read_text()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and ".git" not in path.parts
        }

    def status(self) -> list[str]:
        return self.git("status", "--short", "--untracked-files=all").splitlines()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    root = tmp_path.resolve() / "repository"
    root.mkdir()
    return Desk(root)


def name_of(repository: WorktreeRepository) -> list[str]:
    return [each.name for each in list_worktrees(repository)]


# --- making one ---


def test_a_worktree_lies_where_opencode_has_its_own_on_a_branch_of_its_name(desk: Desk) -> None:
    worktree, directory = desk.make("Fix the Loom!")
    home = paths_from(os.environ).worktrees
    assert worktree == Worktree(
        name="fix-the-loom",
        branch="opencode/fix-the-loom",
        directory=os.path.join(home, desk.repository.project, "fix-the-loom"),
    )
    assert desk.git("rev-parse", "--abbrev-ref", "HEAD", at=directory) == "opencode/fix-the-loom\n"
    assert list_worktrees(desk.repository) == [worktree]


def test_it_is_of_the_same_project(desk: Desk) -> None:
    _, directory = desk.make("x")
    assert open_repository(str(directory), os.environ).project == desk.repository.project


def test_what_is_not_committed_stays_with_the_person(desk: Desk) -> None:
    desk.write("a.txt", "mine\n")
    desk.write("new.txt", "mine, too\n")
    before = desk.status()
    _, directory = desk.make("x")
    assert (directory / "a.txt").read_text().startswith("one\n")
    assert not (directory / "new.txt").exists()
    assert desk.status() == before


def test_a_name_that_is_taken_gets_another_beside_it(desk: Desk) -> None:
    desk.git("branch", "opencode/x")
    worktree, _ = desk.make("x")
    assert worktree.name.startswith("x-")


def test_one_of_that_name_is_entered_again(desk: Desk) -> None:
    first = enter_worktree(desk.repository, "x")
    again = enter_worktree(desk.repository, "x")
    assert (first.made, again.made) == (True, False)
    assert first.worktree == again.worktree


def test_work_goes_on_in_the_directory_below_that_one_stands_in(desk: Desk) -> None:
    entered = enter_worktree(open_repository(str(desk.root / "sub"), os.environ), None)
    assert entered.directory == os.path.join(entered.worktree.directory, "sub")


def test_nothing_can_be_made_without_git_or_without_a_commit(tmp_path: Path) -> None:
    with pytest.raises(DirectoryError, match="not in a git repository"):
        open_repository(str(tmp_path), os.environ)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    with pytest.raises(DirectoryError, match="no commit yet"):
        open_repository(str(tmp_path), os.environ)


def test_a_name_without_a_letter_names_nothing(desk: Desk) -> None:
    with pytest.raises(InvalidInputError):
        desk.make("!!!")


def test_one_that_was_made_for_nothing_is_taken_back(desk: Desk) -> None:
    entered = enter_worktree(desk.repository, "x")
    discard_unused(desk.repository, entered)
    assert list_worktrees(desk.repository) == []
    assert desk.git("branch", "--list", "opencode/*") == ""


def test_hooks_of_the_repository_do_not_run(desk: Desk) -> None:
    hook = desk.root / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {desk.root}/ran\n")
    hook.chmod(0o755)
    desk.make("x")
    assert not (desk.root / "ran").exists()


def test_what_does_not_come_along_is_said(desk: Desk) -> None:
    desk.write(".gitmodules", "")
    desk.write(".gitattributes", "*.bin filter=lfs\n")
    desk.git("add", "-A")
    desk.git("commit", "-q", "-m", "More")
    worktree, _ = desk.make("x")
    assert [hint.partition(" ")[0] for hint in list_hints(worktree)] == ["submodules", "large"]


# --- how it stands ---


def test_how_a_worktree_stands(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    assert read_state(desk.repository, worktree) == WorktreeState()
    (directory / "new.txt").write_text("new\n")
    assert read_state(desk.repository, worktree) == WorktreeState(changed=("new.txt",))
    desk.git("add", "-A", at=directory)
    desk.git("commit", "-q", "-m", "New", at=directory)
    assert read_state(desk.repository, worktree) == WorktreeState(ahead=1)
    desk.git("merge", "-q", "--ff-only", "opencode/x")
    assert read_state(desk.repository, worktree) == WorktreeState()


def test_one_is_found_by_name_or_because_it_is_the_only_one(desk: Desk) -> None:
    with pytest.raises(NotFoundError):
        get_worktree(desk.repository, None)
    first, directory = desk.make("first")
    assert get_worktree(desk.repository, None) == first
    second, _ = desk.make("second")
    assert get_worktree(desk.repository, "second") == second
    with pytest.raises(InvalidInputError, match="first, second"):
        get_worktree(desk.repository, None)
    assert get_worktree(open_repository(str(directory), os.environ), None) == first
    with pytest.raises(NotFoundError, match="third"):
        get_worktree(desk.repository, "third")


def test_who_works_in_it_has_it_alone(desk: Desk) -> None:
    worktree, _ = desk.make("x")
    with (
        lock_worktree(desk.repository, worktree),
        pytest.raises(ConflictError, match="in use"),
        lock_worktree(desk.repository, worktree),
    ):
        pass
    with lock_worktree(desk.repository, worktree):
        pass


# --- merging ---


def test_everything_that_was_done_comes_over_and_nothing_is_committed(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    (directory / "committed.txt").write_text("committed\n")
    desk.git("add", "-A", at=directory)
    desk.git("commit", "-q", "-m", "Some", at=directory)
    (directory / "a.txt").write_text("ONE\ntwo\nthree\nfour\nfive\nsix\nseven\n")
    (directory / "b.txt").unlink()
    (directory / "deep" / "er").mkdir(parents=True)
    (directory / "deep" / "er" / "ä b.txt").write_text("new\n")
    (directory / "run.sh").write_text("#!/bin/sh\n")
    (directory / "run.sh").chmod(0o755)
    (directory / "link").symlink_to("a.txt")
    (directory / "raw.bin").write_bytes(bytes(range(256)))
    head, index = desk.git("rev-parse", "HEAD"), (desk.root / ".git" / "index").read_bytes()

    outcome = desk.merge(worktree)

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
    assert (desk.root / "a.txt").read_text().startswith("ONE\n")
    assert not (desk.root / "b.txt").exists()
    assert (desk.root / "deep" / "er" / "ä b.txt").read_text() == "new\n"
    assert os.access(desk.root / "run.sh", os.X_OK)
    assert os.readlink(desk.root / "link") == "a.txt"
    assert (desk.root / "raw.bin").read_bytes() == bytes(range(256))
    assert desk.git("rev-parse", "HEAD") == head
    assert (desk.root / ".git" / "index").read_bytes() == index
    assert desk.git("stash", "list") == ""


def test_the_persons_own_changes_stay_in_the_same_file_too(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    (directory / "a.txt").write_text("ONE\ntwo\nthree\nfour\nfive\nsix\nseven\n")
    desk.write("a.txt", "one\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n")
    desk.write("mine.txt", "mine\n")
    desk.merge(worktree)
    assert (desk.root / "a.txt").read_text() == "ONE\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n"
    assert (desk.root / "mine.txt").read_text() == "mine\n"


def test_a_change_in_the_very_second_of_the_commit_is_seen(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    (directory / "a.txt").write_text("ONE\ntwo\nthree\nfour\nfive\nsix\nseven\n")
    second = 1_700_000_000
    desk.git("config", "core.trustctime", "false")
    os.utime(desk.root / "a.txt", (second, second))
    desk.git("update-index", "--refresh")
    desk.write("a.txt", "one\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n")
    for touched in (desk.root / "a.txt", desk.root / ".git" / "index"):
        os.utime(touched, (second, second))
    desk.merge(worktree)
    assert (desk.root / "a.txt").read_text() == "ONE\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n"


def test_a_conflict_changes_nothing_and_names_the_file(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    (directory / "a.txt").write_text("theirs\n")
    (directory / "new.txt").write_text("new\n")
    desk.write("a.txt", "mine\n")
    before, status = desk.files(), desk.status()
    with pytest.raises(ConflictError, match=r"conflicts with your checkout: a\.txt") as caught:
        desk.merge(worktree)
    assert (desk.files(), desk.status()) == (before, status)

    said, way = caught.value.hint.split("; commit your own changes, then run: git ")
    assert said == "nothing was changed"
    desk.git("commit", "-qam", "Mine")
    with pytest.raises(subprocess.CalledProcessError):
        desk.git(*way.split())
    assert "UU a.txt" in desk.status()
    assert desk.files()["new.txt"] == "new\n"


def test_a_file_that_git_does_not_know_is_never_overwritten(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    (directory / "new.txt").write_text("theirs\n")
    (directory / "other.txt").write_text("theirs\n")
    desk.write("new.txt", "mine\n")
    before = desk.files()
    with pytest.raises(ConflictError, match=r"untracked files: new\.txt") as caught:
        desk.merge(worktree)
    assert caught.value.hint == "nothing was changed; move them out of the way, and merge again"
    assert desk.files() == before


def test_an_ignored_file_is_not_overwritten_either(desk: Desk) -> None:
    desk.write(".git/info/exclude", "secret.txt\n")
    worktree, directory = desk.make("x")
    (directory / "secret.txt").write_text("theirs\n")
    desk.git("add", "-f", "secret.txt", at=directory)
    desk.write("secret.txt", "mine\n")
    with pytest.raises(ConflictError, match=r"secret\.txt"):
        desk.merge(worktree)
    assert (desk.root / "secret.txt").read_text() == "mine\n"


def test_the_same_file_on_both_sides_is_no_conflict(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    (directory / "new.txt").write_text("same\n")
    desk.write("new.txt", "same\n")
    assert desk.merge(worktree).brought == (MergedPath(path="new.txt", how="added"),)
    assert (desk.root / "new.txt").read_text() == "same\n"


def test_nothing_is_written_through_a_link(desk: Desk, tmp_path: Path) -> None:
    worktree, directory = desk.make("x")
    (directory / "out").mkdir()
    (directory / "out" / "new.txt").write_text("theirs\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (desk.root / "out").symlink_to(elsewhere)
    with pytest.raises(ConflictError, match="out/new"):
        desk.merge(worktree)
    assert os.listdir(elsewhere) == []


def test_a_file_may_become_a_directory_and_a_directory_a_file(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    (directory / "b.txt").unlink()
    (directory / "b.txt").mkdir()
    (directory / "b.txt" / "inner").write_text("inner\n")
    (directory / "sub" / "c.txt").unlink()
    (directory / "sub").rmdir()
    (directory / "sub").write_text("a file now\n")
    desk.merge(worktree)
    assert (desk.root / "b.txt" / "inner").read_text() == "inner\n"
    assert (desk.root / "sub").read_text() == "a file now\n"


def test_a_directory_with_files_of_the_persons_does_not_become_a_file(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    (directory / "sub" / "c.txt").unlink()
    (directory / "sub").rmdir()
    (directory / "sub").write_text("a file now\n")
    desk.write("sub/mine.txt", "mine\n")
    before = desk.files()
    with pytest.raises(ConflictError, match="sub"):
        desk.merge(worktree)
    assert desk.files() == before


def test_who_may_read_a_file_stays_as_it_was(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    (directory / "b.txt").write_text("changed\n")
    (desk.root / "b.txt").chmod(0o600)
    desk.merge(worktree)
    assert (desk.root / "b.txt").stat().st_mode & 0o777 == 0o600
    (directory / "b.txt").chmod(0o755)
    desk.merge(worktree)
    assert (desk.root / "b.txt").stat().st_mode & 0o777 == 0o700


def test_merging_again_brings_what_is_new(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    (directory / "a.txt").write_text("first\n")
    desk.merge(worktree)
    assert read_state(desk.repository, worktree).merged
    assert desk.merge(worktree) == MergeResult()
    # The same lines again: without what was merged before this would be a conflict.
    (directory / "a.txt").write_text("second\n")
    desk.git("add", "-A", at=directory)
    desk.git("commit", "-q", "-m", "All of it", at=directory)
    assert not read_state(desk.repository, worktree).merged
    assert desk.merge(worktree).brought == (MergedPath(path="a.txt", how="changed"),)
    assert (desk.root / "a.txt").read_text() == "second\n"


def test_what_was_merged_and_thrown_away_can_be_merged_again(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    (directory / "a.txt").write_text("theirs\n")
    desk.merge(worktree)
    desk.git("checkout", "-q", "--", "a.txt")
    assert desk.merge(worktree) == MergeResult()
    assert desk.merge(worktree, again=True).brought == (MergedPath(path="a.txt", how="changed"),)
    assert (desk.root / "a.txt").read_text() == "theirs\n"


def test_a_merge_that_was_interrupted_is_finished_by_doing_it_again(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    for number in range(5):
        (directory / f"new{number}.txt").write_text(f"{number}\n")
    (directory / "a.txt").write_text("theirs\n")
    (directory / "b.txt").unlink()
    # As if it had been killed when some files were in their places.
    desk.write("new0.txt", "0\n")
    desk.write("a.txt", "theirs\n")
    desk.merge(worktree)
    assert desk.files() == {
        "a.txt": "theirs\n",
        "sub/c.txt": "c\n",
        **{f"new{number}.txt": f"{number}\n" for number in range(5)},
    }


def test_a_commit_is_made_only_when_asked_for_and_of_nothing_else(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    (directory / "a.txt").write_text("theirs\n")
    (directory / "new.txt").write_text("new\n")
    (directory / "b.txt").unlink()
    desk.write("sub/c.txt", "mine\n")
    desk.write("staged.txt", "staged\n")
    desk.git("add", "staged.txt")
    outcome = desk.merge(worktree, message="What the agent did")
    assert outcome.commit == desk.git("rev-parse", "HEAD").strip()
    assert desk.git("log", "-1", "--format=%an %s", "--name-status").split("\n") == [
        "Ada Loom What the agent did",
        "",
        "M\ta.txt",
        "D\tb.txt",
        "A\tnew.txt",
        "",
    ]
    assert desk.status() == ["A  staged.txt", " M sub/c.txt"] or sorted(desk.status()) == [
        " M sub/c.txt",
        "A  staged.txt",
    ]


def test_changes_of_the_persons_are_not_committed_by_the_way(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    (directory / "a.txt").write_text("ONE\ntwo\nthree\nfour\nfive\nsix\nseven\n")
    desk.write("a.txt", "one\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n")
    before = desk.files()
    with pytest.raises(ConflictError, match="changes of your own") as caught:
        desk.merge(worktree, message="All")
    assert caught.value.hint == "nothing was changed; commit your own changes first, or omit --commit"
    assert desk.files() == before
    assert desk.git("log", "--oneline").count("\n") == 1


def test_a_submodule_is_left_out_and_named(desk: Desk, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    desk.git("init", "-q", at=inner)
    desk.git("commit", "-q", "--allow-empty", "-m", "Inner", at=inner)
    worktree, directory = desk.make("x")
    desk.git("clone", "-q", str(inner), "vendor", at=directory)
    (directory / "new.txt").write_text("new\n")
    assert desk.merge(worktree) == MergeResult(
        brought=(MergedPath(path="new.txt", how="added"),), left_out=("vendor",)
    )
    assert not (desk.root / "vendor").exists()


def test_one_cannot_be_merged_into_itself(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    with pytest.raises(ConflictError, match="where you are"):
        merge_worktree(open_repository(str(directory), os.environ), worktree)


def test_line_endings_stay_as_the_checkout_has_them(desk: Desk) -> None:
    desk.write(".gitattributes", "*.win text eol=crlf\n")
    desk.write("x.win", "one\ntwo\n")
    desk.git("add", "-A")
    desk.git("commit", "-q", "-m", "Endings")
    worktree, directory = desk.make("x")
    (directory / "x.win").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    desk.merge(worktree)
    assert (desk.root / "x.win").read_bytes() == b"one\r\ntwo\r\nthree\r\n"


def test_an_older_git_merges_file_by_file(desk: Desk) -> None:
    here = WorktreeGit(os.environ, str(desk.root))
    start = here.find_commit() or ""
    desk.write("a.txt", "mine\n")
    mine = here.commit_tree(here.capture(untracked=True), start, message="mine")
    desk.git("checkout", "-q", "--", "a.txt")
    (desk.root / "b.txt").unlink()
    desk.write("new.txt", "theirs\n")
    theirs = here.commit_tree(here.capture(untracked=True), start, message="theirs")
    merged = here.merge_by_file(mine, theirs)
    assert merged == here.merge(mine, theirs)
    assert [change.path for change in here.list_differences(mine, merged.tree)] == ["b.txt", "new.txt"]
    desk.write("a.txt", "theirs\n")
    clashing = here.commit_tree(here.capture(untracked=True), start, message="clashing")
    assert here.merge_by_file(mine, clashing) == TreeMerge(conflicts=("a.txt",))


# --- discarding ---


def test_discarding_takes_the_files_the_branch_and_what_was_remembered(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    (directory / "a.txt").write_text("theirs\n")
    desk.merge(worktree)
    delete_worktree(desk.repository, worktree)
    assert not directory.exists()
    assert name_of(desk.repository) == []
    assert desk.git("for-each-ref", "--format=%(refname)") == "refs/heads/main\n"
    assert (desk.root / "a.txt").read_text() == "theirs\n"


def test_what_is_discarded_unmerged_can_be_brought_back(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    (directory / "new.txt").write_text("precious\n")
    assert not read_state(desk.repository, worktree).is_safe
    kept = delete_worktree(desk.repository, worktree)
    assert desk.git("show", f"{kept}:new.txt") == "precious\n"


def test_one_whose_files_are_gone_can_be_discarded(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    for path in sorted(directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    directory.rmdir()
    assert read_state(desk.repository, worktree) == WorktreeState(missing=True)
    assert delete_worktree(desk.repository, worktree) == ""
    assert name_of(desk.repository) == []


def test_one_can_be_discarded_from_inside(desk: Desk) -> None:
    worktree, directory = desk.make("x")
    delete_worktree(open_repository(str(directory), os.environ), worktree)
    assert not directory.exists()


# --- trust ---


def test_a_worktree_with_the_files_that_were_vouched_for_is_trusted(desk: Desk) -> None:
    desk.write(".opencode/command/hello.md", "Say hello.\n")
    desk.git("add", "-A")
    desk.git("commit", "-q", "-m", "A command")
    get_trust(str(desk.root), os.environ).trust(1)
    entered = enter_worktree(desk.repository, "x")
    assert get_trust(entered.directory, os.environ).get_status().trusted
    delete_worktree(desk.repository, entered.worktree)
    assert get_trust(str(desk.root), os.environ).get_status().trusted


def test_one_with_other_files_is_not(desk: Desk) -> None:
    desk.write(".opencode/command/hello.md", "Say hello.\n")
    desk.git("add", "-A")
    desk.git("commit", "-q", "-m", "A command")
    desk.write(".opencode/command/hello.md", "Say goodbye.\n")
    get_trust(str(desk.root), os.environ).trust(1)
    entered = enter_worktree(desk.repository, "x")
    assert not get_trust(entered.directory, os.environ).get_status().trusted
    assert not copy_trust(desk.repository, entered.worktree)


def test_one_of_a_project_that_is_not_trusted_is_not_either(desk: Desk) -> None:
    entered = enter_worktree(desk.repository, "x")
    assert not get_trust(entered.directory, os.environ).get_status().trusted
