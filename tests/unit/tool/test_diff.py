"""Unified diffs."""

import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from given.examples import examples
from weft.tool.changes import Diff, make_diff

HEAD = "Index: a.txt\n" + "=" * 67 + "\n--- a.txt\n+++ a.txt\n"


def test_a_changed_line_is_shown() -> None:
    before = "".join(f"{number}\n" for number in range(1, 13))
    assert make_diff("a.txt", before, before.replace("6\n", "six\n")) == Diff(
        text=HEAD + "@@ -2,9 +2,9 @@\n 2\n 3\n 4\n 5\n-6\n+six\n 7\n 8\n 9\n 10\n", additions=1, deletions=1
    )


def test_a_new_file_is_shown() -> None:
    assert make_diff("a.txt", "", "a\nb\n") == Diff(
        text=HEAD + "@@ -0,0 +1,2 @@\n+a\n+b\n", additions=2, deletions=0
    )


def test_a_missing_final_newline_is_marked() -> None:
    said = "@@ -1,1 +1,1 @@\n-a\n+a\n\\ No newline at end of file\n"
    assert make_diff("a.txt", "a\n", "a") == Diff(text=HEAD + said, additions=1, deletions=1)


def test_common_indentation_is_removed() -> None:
    assert make_diff("a.txt", "    a\n", "    b\n      c\n").text == HEAD + "@@ -1,1 +1,2 @@\n-a\n+b\n+  c\n"


def test_line_endings_are_not_a_difference() -> None:
    assert make_diff("a.txt", "a\r\nb\r\n", "a\nb\n") == Diff(text=HEAD, additions=0, deletions=0)


def test_distant_changes_are_separate_hunks_and_near_ones_share_one() -> None:
    before = [str(number) for number in range(40)]
    after = [
        "first" if line == "2" else "near" if line == "9" else "far" if line == "35" else line
        for line in before
    ]
    said = make_diff("a.txt", "\n".join(before), "\n".join(after)).text
    assert said.count("@@ -") == 2


def test_a_large_change_is_bounded() -> None:
    before = "".join(f"old {number}\n" for number in range(3000))
    after = "".join(f"new {number}\n" for number in range(3000))
    said = make_diff("a.txt", before, after)
    assert (said.additions, said.deletions) == (3000, 3000)


lines = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=15).map(
    lambda each: "".join(f"{x}\n" for x in each)
)


@examples(20)
@given(before=lines, after=lines)
def test_git_applies_the_diff(tmp_path_factory, before: str, after: str) -> None:  # type: ignore[no-untyped-def]
    directory: Path = tmp_path_factory.mktemp("apply")
    said = make_diff("a.txt", before, after)
    if before == after or not before or not after:
        return
    (directory / "a.txt").write_text(before)
    (directory / "p").write_text(said.text)
    subprocess.run(["git", "apply", "-p0", "--unidiff-zero", "p"], cwd=directory, check=True)
    assert (directory / "a.txt").read_text() == after
