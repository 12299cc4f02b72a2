"""The undo matrix, end to end: real files, real git, the whole engine. The fate of each file, and that nothing of the person's is
lost. The rows are in `given/undo_cases.py`; `docs/reference/undo-cases.md` shows them.
"""

import hashlib
from pathlib import Path

import pytest

from given.snapshot_harness import git, read_tree
from given.undo_cases import CASES, Case, to_table, write_files
from given.undo_harness import open_undo_harness

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "undo-cases.md"
Files = dict[bytes, tuple[str, bytes]]


@pytest.mark.parametrize("row", CASES, ids=lambda row: row.name)
async def test_each_file_has_the_fate_of_the_table(row: Case, tmp_path: Path) -> None:
    root = tmp_path / "loom"
    write_files(root, row)
    before = read_tree(root)
    async with open_undo_harness(root, directory=root / row.below, config=row.config) as harness:
        prompt = await row.play(harness)
        changed, repository = read_tree(root), repository_of(root)

        assert await harness.undo(prompt) == row.undo
        assert contents(read_tree(root)) == with_changes(before, row.left | row.mine)
        assert repository_of(root) == repository

        assert await harness.redo() == row.redo
        assert read_tree(root) == changed
        assert repository_of(root) == repository

        assert await harness.undo(prompt) == row.undo
        await harness.run_turn()
        assert contents(read_tree(root)) == with_changes(before, row.left | row.mine)


def contents(files: Files) -> dict[bytes, bytes]:
    """Return names and contents, with unusual permissions, links and empty directories."""
    return {name: content + kind_of(kind) for name, (kind, content) in files.items()}


def kind_of(kind: str) -> bytes:
    return b"" if kind == "0o644" else f" ({kind})".encode()


def with_changes(before: Files, changes: dict[str, bytes | None]) -> dict[bytes, bytes]:
    found = contents(before)
    for name, content in changes.items():
        if content is None:
            found.pop(name.encode())
        else:
            found[name.encode()] = content
            for up in Path(name).parents[:-1]:
                found.setdefault(str(up).encode(), b" (directory)")
    return found


def repository_of(root: Path) -> tuple[str, ...]:
    """Return the state of the person's repository: its HEAD, its branches, the bytes of its index."""
    if not (root / ".git").exists():
        return ()
    index = hashlib.sha256((root / ".git/index").read_bytes()).hexdigest()
    return git(root, "rev-parse", "HEAD"), git(root, "for-each-ref"), index, git(root, "stash", "list")


def test_the_table_in_the_documentation_is_the_tested_one() -> None:
    assert to_table() in DOCS.read_text()
