"""Queries to the installed git, for facts that plain files do not contain."""

import os
import subprocess
from pathlib import Path

import pytest

from weft.errors import GitError
from weft.host.git import CODE_STOPPED, CODE_TIMEOUT, Git, Plumbing

AUTHOR = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def run(where: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", *args], cwd=where, env=os.environ | AUTHOR, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def git() -> Git:
    return Git(os.environ)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    where = tmp_path / "loom"
    where.mkdir()
    run(where, "init", "-q", "-b", "main")
    run(where, "commit", "-q", "--allow-empty", "-m", "one")
    return where


def test_roots_worktree_and_branch_of_a_repository_are_read(git: Git, repository: Path) -> None:
    deep = repository / "src"
    deep.mkdir()
    root = run(repository, "rev-parse", "HEAD")

    assert git.is_there()
    assert git.root_commits(str(repository)) == [root]
    assert git.top_level(str(deep)) == str(repository.resolve())
    assert git.common_dir(str(deep)) == str(repository.resolve() / ".git")
    assert git.find_branch(str(repository)) == "main"


def test_roots_of_all_branches_are_sorted(git: Git, repository: Path) -> None:
    run(repository, "checkout", "-q", "--orphan", "other")
    run(repository, "commit", "-q", "--allow-empty", "-m", "two")

    roots = run(repository, "rev-parse", "main", "other").split()

    assert git.root_commits(str(repository)) == sorted(roots)


def test_a_repository_without_commits_has_a_branch_and_no_roots(git: Git, tmp_path: Path) -> None:
    run(tmp_path, "init", "-q", "-b", "trunk")

    assert git.root_commits(str(tmp_path)) == []
    assert git.find_branch(str(tmp_path)) == "trunk"


def test_a_detached_head_is_on_no_branch(git: Git, repository: Path) -> None:
    run(repository, "checkout", "-q", "--detach")

    assert git.find_branch(str(repository)) is None


def test_outside_of_a_repository_git_refuses_with_the_reason(git: Git, tmp_path: Path) -> None:
    with pytest.raises(GitError, match="not a git repository"):
        git.root_commits(str(tmp_path))


def test_a_missing_git_is_an_error_with_a_hint(tmp_path: Path) -> None:
    git = Git({"PATH": str(tmp_path)})

    with pytest.raises(GitError) as caught:
        git.root_commits(str(tmp_path))

    assert not git.is_there()
    assert caught.value.hint == "install git, or put it on PATH"


def test_git_variables_of_a_hook_do_not_select_another_repository(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    run(other, "init", "-q")
    inherited = {"GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other), "GIT_INDEX_FILE": "index"}

    git = Git(os.environ | inherited)

    assert git.top_level(str(repository)) == str(repository.resolve())
    assert git.root_commits(str(repository)) == [run(repository, "rev-parse", "HEAD")]


def test_programs_configured_by_a_repository_are_not_run(git: Git, repository: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap.sh"
    sprung = tmp_path / "sprung"
    trap.write_text(f"#!/bin/sh\ntouch {sprung}\n")
    trap.chmod(0o755)
    for setting in ("core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "diff.external"):
        run(repository, "config", setting, str(trap))
    run(repository, "config", "core.hooksPath", str(tmp_path))

    git.root_commits(str(repository))
    git.top_level(str(repository))
    git.common_dir(str(repository))
    git.find_branch(str(repository))

    assert not sprung.exists()


def test_settings_and_object_format_of_a_repository_are_read(git: Git, repository: Path) -> None:
    assert git.find_setting(str(repository), "core.excludesFile") is None
    run(repository, "config", "core.excludesFile", "/ignored everywhere")
    assert git.find_setting(str(repository), "core.excludesFile") == "/ignored everywhere"
    assert git.object_format(str(repository)) == "sha1"


def test_ignored_names_are_found_whatever_their_letters(git: Git, repository: Path) -> None:
    (repository / ".gitignore").write_text("*.log\n")
    ignored = ['a"b.log', "a\\b.log", "a\tb.log", "a\nb.log", ":(x).log", "*.log", "é.log", " .log", "-x.log"]
    kept = ["a", ":(x)", ":/", "*", '"', "-x"]
    assert git.list_ignored(str(repository), [*ignored, *kept]) == set(ignored)
    assert git.list_ignored(str(repository), kept) == set()
    assert git.list_ignored(str(repository), []) == set()


def test_git_commands_have_a_time_limit_and_can_be_stopped(repository: Path, tmp_path: Path) -> None:
    run(tmp_path, "init", "-q", "--bare", "own: git")
    own = str(tmp_path / "own: git")
    misled = {**os.environ, "GIT_DIR": str(repository / ".git"), "GIT_CONFIG_COUNT": "not a number"}
    plumbing = Plumbing(misled, own, str(repository))

    assert plumbing.run(["rev-parse", "--absolute-git-dir"], seconds=10) == os.fsencode(f"{own}\n")
    head = run(repository, "rev-parse", "HEAD").encode()
    check = ["cat-file", "--batch-check=%(objecttype)"]
    assert plumbing.run(check, input=head, seconds=10) == head + b" missing\n"
    lent = str(repository / ".git" / "objects")
    assert plumbing.run(check, input=head, alternate=lent, seconds=10) == b"commit\n"
    plumbing.feed(["fast-import", "--quiet", "--done"], [b"blob\n", b"data 1\nx\n", b"done\n"], seconds=10)
    with pytest.raises(GitError) as slow:
        plumbing.run(["cat-file", "--batch"], seconds=0)
    assert slow.value.code == CODE_TIMEOUT
    with pytest.raises(GitError):
        plumbing.run(["no-such-command"], seconds=10)
    plumbing.stop()
    with pytest.raises(GitError) as stopped:
        plumbing.run(["version"], seconds=10)
    assert (stopped.value.code, plumbing.stopped) == (CODE_STOPPED, True)
