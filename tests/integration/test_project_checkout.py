"""Inspect checkouts on a real disk: made by git, and made by an attacker."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from given.damage import IN_ONE_DIRECTORY, damaged_bytes
from weft.errors import DirectoryError, InvalidIdError, InvalidInputError
from weft.model.ids import ProjectID
from weft.project.checkout import (
    find_checkout,
    find_inode,
    inspect_last_location,
    read_core_worktree,
    read_id,
    write_id,
)
from weft.project.facts import Checkout, IdFile, Inode, LastLocation, LastSeen

ROOT = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def run(where: Path, *args: str) -> None:
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    name = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *name, *args], cwd=where, env=os.environ | quiet, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    where = tmp_path / "loom"
    where.mkdir()
    run(where, "init", "-q", "-b", "main")
    run(where, "commit", "-q", "--allow-empty", "-m", "one")
    return where


def test_a_plain_directory_is_not_in_a_checkout(tmp_path: Path) -> None:
    assert find_checkout(f"{tmp_path}/") == Checkout(directory=str(tmp_path))
    assert find_checkout(str(tmp_path), fake_vcs="git") == Checkout(directory=str(tmp_path), fake_vcs="git")


def test_a_directory_in_a_checkout_finds_its_top(repository: Path) -> None:
    deep = repository / "src" / "deep"
    deep.mkdir(parents=True)
    (repository / ".git" / "opencode").write_text(f" {ROOT}\n")

    assert find_checkout(str(deep)) == Checkout(
        directory=str(deep),
        top=str(repository),
        main=str(repository),
        common_dir=str(repository / ".git"),
        is_valid=True,
        id=ROOT,
        inode=find_inode(str(repository)),
    )


def test_a_linked_worktree_finds_the_main_checkout_and_its_id(repository: Path, tmp_path: Path) -> None:
    run(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    (repository / ".git" / "opencode").write_text(ROOT)

    assert find_checkout(str(tmp_path / "linked")) == Checkout(
        directory=str(tmp_path / "linked"),
        top=str(tmp_path / "linked"),
        main=str(repository),
        common_dir=str(repository / ".git"),
        is_valid=True,
        git_file=True,
        id=ROOT,
        inode=find_inode(str(repository)),
    )


def test_a_linked_worktree_of_a_submodule_finds_the_submodule(repository: Path, tmp_path: Path) -> None:
    run(tmp_path, "init", "-q", "outer")
    run(tmp_path / "outer", "submodule", "add", "-q", str(repository), "sub")
    run(tmp_path / "outer" / "sub", "worktree", "add", "-q", str(tmp_path / "linked"))

    at = find_checkout(str(tmp_path / "linked"))

    assert at.main == str(tmp_path / "outer" / "sub")
    assert at.common_dir == str(tmp_path / "outer" / ".git" / "modules" / "sub")


def test_a_repositorys_configuration_may_name_its_checkout() -> None:
    assert read_core_worktree("[core]\n\tbare = false\n\tWorkTree = ../../../sub\n") == "../../../sub"
    assert read_core_worktree("[other]\n\tworktree = x\n[core]\n\tbare = true\n") == ""
    assert read_core_worktree("\n" * 60_000) == ""


def test_a_shallow_clone_is_recognised(repository: Path, tmp_path: Path) -> None:
    run(repository, "commit", "-q", "--allow-empty", "-m", "two")
    run(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", "shallow")

    assert find_checkout(str(tmp_path / "shallow")).shallow
    assert not find_checkout(str(repository)).shallow


@pytest.mark.parametrize(
    "content",
    [
        "",
        "gitdir: ",
        "gitdir: /nowhere/at/all",
        "\0\1\2",
        "gitdir: a\nb",
        "gitdir: a\0b",
        "gitdir:" + " " * 99_999 + "x",
        "x" * 100_000,
    ],
)
def test_a_git_file_with_a_missing_target_is_invalid(tmp_path: Path, content: str) -> None:
    (tmp_path / ".git").write_text(content)

    at = find_checkout(str(tmp_path))

    assert (at.top, at.is_valid, at.id) == (str(tmp_path), False, "")


def test_a_pipe_named_git_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")

    assert not find_checkout(str(tmp_path)).is_valid


def test_an_invalid_directory_is_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    for name in ("missing", "file", "file/below", "loop", "nul\0"):
        with pytest.raises(DirectoryError) as caught:
            find_checkout(f"{tmp_path}/{name}")
        assert caught.value.hint
    with pytest.raises(DirectoryError, match="no directory was named"):
        find_checkout("")


def test_a_faked_vcs_other_than_git_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="OPENCODE_FAKE_VCS"):
        find_checkout(str(tmp_path), fake_vcs="svn")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"  \n",
        b"../../etc/passwd",
        b"..",
        b"a/b",
        b"a\\b",
        b"global",
        b"\xff\xfe\0",
        b"two words",
        b"f" * 1_000_000,
    ],
)
def test_an_invalid_id_file_is_ignored(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "opencode").write_bytes(content)

    assert read_id(str(tmp_path)) == ""


def test_an_id_file_that_is_not_a_regular_file_is_ignored(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(ROOT)
    for name in ("link", "pipe", "directory"):
        (tmp_path / name).mkdir()
    (tmp_path / "link" / "opencode").symlink_to(secret)
    os.mkfifo(tmp_path / "pipe" / "opencode")
    (tmp_path / "directory" / "opencode").mkdir()

    assert [read_id(str(tmp_path / name)) for name in ("link", "pipe", "directory")] == ["", "", ""]


def test_writing_an_id_replaces_a_link_and_not_its_target(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "opencode").symlink_to(target)

    write_id(IdFile(common_dir=str(tmp_path), id=ProjectID(ROOT)))

    assert target.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["opencode", "target"]
    assert read_id(str(tmp_path)) == ROOT


def test_an_id_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "opencode" / "full").mkdir(parents=True)

    write_id(IdFile(common_dir=str(tmp_path), id=ProjectID(ROOT)))
    write_id(IdFile(common_dir=str(tmp_path / "missing"), id=ProjectID(ROOT)))

    assert [path.name for path in tmp_path.iterdir()] == ["opencode"]


def test_an_id_that_is_a_path_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidIdError):
        write_id(IdFile(common_dir=str(tmp_path), id=ProjectID("../x")))

    assert list(tmp_path.iterdir()) == []


def test_the_last_location_of_a_project_is_inspected(repository: Path, tmp_path: Path) -> None:
    (repository / ".git" / "opencode").write_text(ROOT)
    (tmp_path / "plain").mkdir()
    seen = LastSeen(worktree=str(repository), common_dir=str(repository / ".git"))
    found = LastLocation(
        exists=True, common_dir=str(repository / ".git"), id=ROOT, inode=find_inode(str(repository))
    )

    assert (
        inspect_last_location(str(repository), seen) == inspect_last_location(str(repository), None) == found
    )
    assert inspect_last_location(str(tmp_path / "plain"), None) == LastLocation(
        exists=True, inode=find_inode(str(tmp_path / "plain"))
    )
    assert inspect_last_location(str(tmp_path / "gone"), seen) == LastLocation()
    assert find_inode(str(tmp_path / "gone")) == Inode()


REPOSITORY_FILES = {
    "loom/.git": b"gitdir: ../main/.git/worktrees/loom\n",
    "main/.git/worktrees/loom/commondir": b"../..\n",
    "main/.git/config": b"[core]\n\tbare = false\n\tworktree = ../../loom\n",
    "main/.git/HEAD": b"ref: refs/heads/main\n",
    "main/.git/opencode": ROOT.encode(),
}


@given(data=st.data())
@IN_ONE_DIRECTORY
def test_whatever_the_files_of_a_repository_contain_its_checkout_is_found(
    tmp_path: Path, data: st.DataObject
) -> None:
    for name, raw in REPOSITORY_FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            data.draw(damaged_bytes(raw, [b"../", b"a" * 5000])) if data.draw(st.booleans()) else raw
        )
    found = find_checkout(str(tmp_path / "loom"))
    assert found.top == str(tmp_path / "loom")
    assert inspect_last_location(str(tmp_path / "loom"), None).exists
