"""Changes of files side by side."""

from hypothesis import given
from hypothesis import strategies as st

from weft.model.diff import FileDiff
from weft.tui.diff import SideBySideRow, compare, render_diffs
from weft.tui.text import measure

OLD, NEW = "a\nb\nc\n", "a\nB\nc\nd\n"


def test_changed_lines_are_side_by_side() -> None:
    assert compare(OLD, NEW) == [
        SideBySideRow(1, "a", 1, "a", changed=False),
        SideBySideRow(2, "b", 2, "B", changed=True),
        SideBySideRow(3, "c", 3, "c", changed=False),
        SideBySideRow(0, "", 4, "d", changed=True),
    ]
    diff = FileDiff(file="x.py", before=OLD, after=NEW, additions=2, deletions=1)
    lines = ["".join(text for _, text in line).rstrip() for line in render_diffs([diff], 80)]
    assert lines[0] == "x.py  +2 -1"
    assert lines[3] == "   2 - b                               │    2 + B"
    stacked = ["".join(text for _, text in line) for line in render_diffs([diff], 40)]
    assert stacked[2:] == ["   1   a", "   2 - b", "   2 + B", "   3   c", "   4 + d"]


def test_a_long_line_is_shown_to_its_end() -> None:
    long = "x" * 50
    diff = FileDiff(file="x.py", before="a\n", after=f"{long}\n", additions=1, deletions=1)
    lines = ["".join(text for _, text in line).rstrip() for line in render_diffs([diff], 80)]
    assert lines[2:] == [
        f"   1 - a                               │    1 + {'x' * 31}",
        f"{' ' * 39}│        {'x' * 19}",
    ]
    stacked = ["".join(text for _, text in line) for line in render_diffs([diff], 40)]
    assert stacked[2:] == ["   1 - a", f"   1 + {'x' * 33}", f"       {'x' * 17}"]
    endless = FileDiff(file="x.py", before="", after="y" * 100_000, additions=1, deletions=0)
    *_, last = render_diffs([endless], 40)
    assert "".join(text for _, text in last).endswith("y…")


def test_distant_unchanged_lines_are_omitted() -> None:
    before = "\n".join(str(number) for number in range(100))
    rows = compare(before, f"x\n{before}\ny")
    assert SideBySideRow(0, "", 0, "", changed=False) in rows
    assert len(rows) < 12


def test_a_diff_that_is_too_long_is_not_compared() -> None:
    assert compare("a\n" * 6000, "b") == [
        SideBySideRow(0, "6000 lines", 0, "1 lines, too many to compare", changed=False)
    ]


@given(st.text(max_size=200), st.text(max_size=200), st.integers(20, 160))
def test_no_line_is_wider_than_the_screen(before: str, after: str, width: int) -> None:
    diff = FileDiff(file="x", before=before, after=after, additions=0, deletions=0)
    for line in render_diffs([diff], width):
        assert sum(measure(text) for _, text in line) <= width
