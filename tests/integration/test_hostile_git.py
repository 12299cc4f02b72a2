"""An untrusted repository: weft asks git about it, and none of the programs in its configuration runs."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from given.hostile_git import PERSON, VECTORS, HostileGit
from given.undo_harness import ToolUse, call_bash, call_read, open_undo_harness
from weft.errors import GitError
from weft.host.git import Git
from weft.worktree.git import WorktreeGit


@pytest.fixture(params=VECTORS, ids=str)
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> HostileGit:
    return HostileGit(tmp_path, VECTORS[request.param])


def test_the_hostile_repository_runs_its_program_without_our_protection(hostile: HostileGit) -> None:
    hostile.run_unguarded()
    assert hostile.ran()


def test_reading_from_git_does_not_run_the_program(hostile: HostileGit) -> None:
    git, root = Git(os.environ), str(hostile.root)
    asked: list[Callable[[], object]] = [
        lambda: git.root_commits(root),
        lambda: git.top_level(root),
        lambda: git.find_branch(root),
        lambda: git.list_ignored(root, ["a.txt"]),
        lambda: git.list_changes(root),
        lambda: git.list_untracked(root),
        lambda: git.find_committed(root, "a.txt"),
        lambda: git.find_committed(root, "lost.bin"),
        lambda: git.object_format(root),
    ]
    for ask in asked:
        hostile.rewrite_files()
        with suppress(GitError):  # a file that would have to be fetched is not available
            ask()
    assert not hostile.ran()


def test_working_on_checkouts_does_not_run_the_program(hostile: HostileGit, tmp_path: Path) -> None:
    here, aside = WorktreeGit({**os.environ, **PERSON}, str(hostile.root)), tmp_path / "worktree"
    there = WorktreeGit({**os.environ, **PERSON}, str(aside))
    done: list[Callable[[], object]] = [
        here.list_all,
        here.find_commit,
        here.list_changed,
        lambda: here.capture(untracked=True),
        lambda: here.capture(untracked=False),
        lambda: here.merge("ours", "theirs"),
        lambda: here.merge_by_file("ours", "theirs"),
        lambda: here.export("ours", ["a.txt"], str(tmp_path / "exported")),
        lambda: here.list_differences("ours", "theirs"),
        lambda: here.add(str(aside), "new", "ours"),
        there.list_changed,
        lambda: there.capture(untracked=True),
        lambda: there.restore("theirs"),
        lambda: here.commit(["new.txt"], "Add it"),
        lambda: here.restore("ours"),
        lambda: here.put_ref("refs/weft/x", hostile.git("rev-parse", "ours")),
        lambda: here.remove(str(aside)),
    ]
    for do in done:
        hostile.rewrite_files()
        with suppress(GitError):  # a commit that has to be signed, a file that has to be fetched first
            do()
        assert not hostile.ran(), do


SEEN = (
    "clean",
    "smudge",
    "process",
    "config.worktree",
    "textconv",
    "fsmonitor",
    "hooks",
    "a submodule's filter",
)


@pytest.mark.parametrize("name", SEEN)
async def test_listing_searching_changing_and_undoing_files_do_not_run_the_program(
    name: str, tmp_path: Path
) -> None:
    hostile = HostileGit(tmp_path, VECTORS[name])
    async with open_undo_harness(hostile.root) as harness:
        hostile.rewrite_files()
        await harness.api.files.list_changed()
        await harness.api.files.find_files("a")
        await harness.api.workspace.get_vcs()
        prompt = await harness.run_turn(
            [call_bash("echo more >> a.txt")],
            [ToolUse(tool="glob", input={"pattern": "**/*.txt"})],
            [call_read("b.txt")],
        )
        hostile.rewrite_files()
        await harness.undo(prompt)
    assert not hostile.ran()


def test_a_directory_that_looks_like_a_repository_is_not_one(tmp_path: Path) -> None:
    hostile = HostileGit(tmp_path, VECTORS["clean"])
    inner = hostile.root / "inner.git"
    hostile.git("init", "--quiet", "--bare", str(inner))
    for key, value in (("core.bare", "false"), ("core.worktree", "."), ("core.askPass", "x")):
        hostile.git("config", key, value, at=inner)
    with pytest.raises(GitError, match="cannot use bare repository"):
        Git(os.environ).find_branch(str(inner))


def test_a_repository_cannot_name_another_directory_as_its_checkout(tmp_path: Path) -> None:
    hostile, victim = HostileGit(tmp_path, VECTORS["diff.external"]), tmp_path / "victim"
    victim.mkdir()
    (victim / "a.txt").write_text("of the person\n")
    (victim / "diary").write_text("private\n")
    hostile.git("config", "core.worktree", str(victim))
    git, root = Git(os.environ), str(hostile.root)
    here = WorktreeGit({**os.environ, **PERSON}, root)

    assert git.list_changes(root) == [("b.txt", 1, 1)]
    assert git.list_untracked(root) == ["new.txt"]
    assert here.list_changed() == ["b.txt", "new.txt"]
    here.restore("ours")
    assert sorted((path.name, path.read_text()) for path in victim.iterdir()) == [
        ("a.txt", "of the person\n"),
        ("diary", "private\n"),
    ]
    assert (hostile.root / "a.txt").read_text() == "one\nours\nthree\n"
    assert not (hostile.root / "new.txt").exists()


def test_files_with_a_driver_are_merged_as_git_does_without_it(tmp_path: Path) -> None:
    hostile = HostileGit(tmp_path, VECTORS["merge driver"])
    here = WorktreeGit({**os.environ, **PERSON}, str(hostile.root))
    hostile.git("checkout", "--quiet", "--force", "-b", "apart", "main")
    (hostile.root / "a.txt").write_text("one\ntwo\nthree\nfour\n")
    hostile.git("commit", "--quiet", "--all", "--message=x")

    assert here.merge("ours", "theirs").conflicts == ("a.txt",)
    merged = here.merge("ours", "apart")
    assert hostile.git("cat-file", "blob", f"{merged.tree}:a.txt") == "one\nours\nthree\nfour"
    assert not hostile.ran()


def test_work_within_a_submodule_is_still_seen(tmp_path: Path) -> None:
    hostile = HostileGit(tmp_path, VECTORS["a submodule's filter"])
    here = WorktreeGit({**os.environ, **PERSON}, str(hostile.root))
    assert here.list_changed() == ["b.txt", "new.txt"]
    (hostile.root / "inner" / "a.txt").write_text("changed\n")
    assert here.list_changed() == ["b.txt", "new.txt", "inner"]
    hostile.git(
        "-c", "filter.evil.clean=", "commit", "--quiet", "--all", "--message=x", at=hostile.root / "inner"
    )
    commit = hostile.git("rev-parse", "HEAD", at=hostile.root / "inner")
    tree = here.capture(untracked=False)
    assert hostile.git("ls-tree", tree, "inner") == f"160000 commit {commit}\tinner"


def test_settings_of_the_person_are_respected(tmp_path: Path) -> None:
    hostile = HostileGit(tmp_path, VECTORS["clean"])
    own = tmp_path / "own"
    own.write_text('[filter "evil"]\n\tclean = "tr a-z A-Z"\n')
    here = WorktreeGit({**os.environ, **PERSON, "GIT_CONFIG_GLOBAL": str(own)}, str(hostile.root))
    tree = here.capture(untracked=True)
    assert hostile.git("cat-file", "blob", f"{tree}:new.txt") == "NEW"
    assert not hostile.ran()
