"""Entries and trees in git's format, with all permission bits."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given

from given.damage import damaged_bytes
from weft.snapshot.entry import (
    FILE,
    LINK,
    FileEntry,
    TreeState,
    blob_name,
    format_path,
    frame,
    from_tree,
    is_same,
    list_parents,
    object_name,
    to_trees,
)

EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def root_of(state: TreeState) -> str:
    return object_name(frame(b"tree", to_trees(state)[-1]))


def test_a_blob_has_the_hash_of_git() -> None:
    assert blob_name(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_a_tree_has_the_hash_of_git(tmp_path: Path) -> None:
    names = ["a", "a.b", "a-b", "ab/x", "a/x", "a0", "z/y/x", "ü"]
    names.remove("a")
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    for args in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *args], cwd=tmp_path, check=True)
    done = subprocess.run(["git", "write-tree"], cwd=tmp_path, check=True, capture_output=True, text=True)
    files = {name.encode(): FileEntry(FILE | 0o644, blob_name(name.encode())) for name in names}
    assert root_of(TreeState(files=files)) == done.stdout.strip()


def test_no_files_give_the_empty_tree_and_empty_directories_are_kept() -> None:
    assert root_of(TreeState(files={})) == EMPTY
    [inner, root] = to_trees(TreeState(files={}, dirs=frozenset({b"d"})))
    assert inner == b""
    assert [(name, entry.oid) for name, entry in from_tree(root)] == [(b"d", EMPTY)]


def test_a_tree_contains_all_permission_bits() -> None:
    entry = FileEntry(FILE | 0o600, "1" * 40)
    [content] = to_trees(TreeState(files={b"secret": entry}))
    assert list(from_tree(content)) == [(b"secret", entry)]
    with pytest.raises(ValueError, match="truncated"):
        list(from_tree(content[:-1]))


def test_entries_are_sorted_like_in_git() -> None:
    file, other = FileEntry(FILE | 0o644, "1" * 40), FileEntry(FILE | 0o644, "2" * 40)
    assert is_same(file, FileEntry(FILE | 0o600, "1" * 40))
    assert is_same(None, None)
    assert is_same(FileEntry(LINK, "1" * 40), FileEntry(LINK | 0o777, "1" * 40))
    assert not is_same(file, other)
    assert not is_same(file, None)
    assert not is_same(file, FileEntry(FILE | 0o755, "1" * 40))
    assert not is_same(file, FileEntry(LINK, "1" * 40))


def test_parents_are_listed_and_paths_are_formatted() -> None:
    assert list(list_parents(b"a/b/c")) == [b"a", b"a/b"]
    assert list(list_parents(b"a")) == []
    assert format_path(b"\xc3\xbc \xff") == "ü \\xff"


[TREE] = to_trees(
    TreeState(files={b"a": FileEntry(FILE | 0o644, "12" * 20), b"b c": FileEntry(LINK, "34" * 20)})
)


@given(damaged_bytes(TREE, [b"40000 x\0", b"-1 y\0", b" ", b"\0"]))
def test_a_damaged_tree_is_read_or_malformed(raw: bytes) -> None:
    try:
        entries = list(from_tree(raw))
    except ValueError:
        return
    assert all(entry.mode >= 0 and len(entry.oid) == 40 and b"\0" not in name for name, entry in entries)
