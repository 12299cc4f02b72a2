"""Entries and trees: what git would write, and more of permissions than git would say."""

import subprocess
from pathlib import Path

import pytest

from weft.snapshot.entry import (
    FILE,
    LINK,
    Entry,
    State,
    blob_name,
    frame,
    from_tree,
    is_same,
    name_of,
    parents,
    shown,
    to_trees,
)

EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def root_of(state: State) -> str:
    return name_of(frame(b"tree", to_trees(state)[-1]))


def test_a_blob_is_named_as_git_names_it() -> None:
    assert blob_name(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_a_tree_is_the_one_that_git_writes(tmp_path: Path) -> None:
    names = ["a", "a.b", "a-b", "ab/x", "a/x", "a0", "z/y/x", "ü"]
    names.remove("a")
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    for args in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *args], cwd=tmp_path, check=True)
    done = subprocess.run(["git", "write-tree"], cwd=tmp_path, check=True, capture_output=True, text=True)
    files = {name.encode(): Entry(FILE | 0o644, blob_name(name.encode())) for name in names}
    assert root_of(State(files=files)) == done.stdout.strip()


def test_nothing_is_the_empty_tree_and_empty_directories_are_held() -> None:
    assert root_of(State(files={})) == EMPTY
    [inner, root] = to_trees(State(files={}, dirs=frozenset({b"d"})))
    assert inner == b""
    assert [(name, entry.oid) for name, entry in from_tree(root)] == [(b"d", EMPTY)]


def test_a_tree_says_all_permissions() -> None:
    entry = Entry(FILE | 0o600, "1" * 40)
    [content] = to_trees(State(files={b"secret": entry}))
    assert list(from_tree(content)) == [(b"secret", entry)]
    with pytest.raises(ValueError, match="middle"):
        list(from_tree(content[:-1]))


def test_only_what_git_would_see_makes_a_difference() -> None:
    file, other = Entry(FILE | 0o644, "1" * 40), Entry(FILE | 0o644, "2" * 40)
    assert is_same(file, Entry(FILE | 0o600, "1" * 40))
    assert is_same(None, None)
    assert is_same(Entry(LINK, "1" * 40), Entry(LINK | 0o777, "1" * 40))
    assert not is_same(file, other)
    assert not is_same(file, None)
    assert not is_same(file, Entry(FILE | 0o755, "1" * 40))
    assert not is_same(file, Entry(LINK, "1" * 40))


def test_paths_are_walked_and_shown() -> None:
    assert list(parents(b"a/b/c")) == [b"a", b"a/b"]
    assert list(parents(b"a")) == []
    assert shown(b"\xc3\xbc \xff") == "ü \\xff"
