"""Diffs are capped in size, stay readable, and keep correct counts."""

from hypothesis import given
from hypothesis import strategies as st

from weft.model.diff import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_TOTAL_BYTES,
    TRUNCATED,
    FileDiff,
    cap_diffs,
    count_bytes,
    is_capped,
    trim_unchanged,
)
from weft.model.wire import decode, encode


def diff(file: str, before: str, after: str, additions: int = 1, deletions: int = 1) -> FileDiff:
    return FileDiff(file=file, before=before, after=after, additions=additions, deletions=deletions)


def test_a_small_diff_is_unchanged() -> None:
    small = (diff("a", "one\n", "two\n"), diff("b", "", "new\n"))
    assert cap_diffs(small) == small
    assert is_capped(small)


def test_a_large_file_with_a_small_change_keeps_the_surrounding_lines() -> None:
    lines = [f"line {number}\n" for number in range(100_000)]
    changed = [*lines[:50_000], "woven\n", *lines[50_001:]]
    [capped] = cap_diffs([diff("log", "".join(lines), "".join(changed))])
    near = [f"line {number}\n" for number in range(49_997, 50_004)]
    assert capped == FileDiff(
        file="log",
        before="".join(near),
        after="".join([*near[:3], "woven\n", *near[4:]]),
        additions=1,
        deletions=1,
        extra_={TRUNCATED: True},
    )


def test_a_large_change_is_cut_at_a_line_with_a_notice() -> None:
    [capped] = cap_diffs(
        [diff("log", "", "x" * 99 + "\n" * 1 + ("y" * 99 + "\n") * 10_000, additions=10_001)]
    )
    assert count_bytes(capped) <= MAX_FILE_BYTES
    assert capped.after.endswith("\n")
    assert (capped.additions, capped.extra_) == (10_001, {TRUNCATED: True})


def test_files_share_the_limit_and_those_beyond_the_last_are_summed_up() -> None:
    many = [diff(f"f{number}", "", "z" * 1000 + "\n", additions=2) for number in range(MAX_FILES + 500)]
    capped = cap_diffs(many)
    assert len(capped) == MAX_FILES
    assert sum(count_bytes(each) for each in capped) <= MAX_TOTAL_BYTES
    assert sum(each.additions for each in capped) == sum(each.additions for each in many)
    assert capped[-1].file == "501 and more files"


def test_the_capped_diff_shows_the_same_change() -> None:
    assert trim_unchanged("a\nb\n", "a\nc\n") == ("a\nb\n", "a\nc\n")
    same = "".join(f"{number}\n" for number in range(9))
    assert trim_unchanged(f"{same}old\n{same}", f"{same}{same}") == (
        "6\n7\n8\nold\n0\n1\n2\n",
        "6\n7\n8\n0\n1\n2\n",
    )
    assert trim_unchanged("", "x") == ("", "x")


texts = st.text(alphabet="ab\né\ud800", max_size=60)


@given(
    st.lists(st.builds(diff, st.just("f"), texts, texts, st.integers(0, 9), st.integers(0, 9)), max_size=12),
    st.integers(0, 80),
    st.integers(0, 200),
    st.integers(1, 8),
)
def test_capping_keeps_the_limits_and_is_idempotent(
    diffs: list[FileDiff], per_file: int, in_all: int, files: int
) -> None:
    capped = cap_diffs(diffs, per_file=per_file, total=in_all, files=files)
    assert len(capped) <= files
    assert all(count_bytes(each) <= per_file for each in capped)
    assert sum(count_bytes(each) for each in capped) <= in_all
    assert sum(each.additions for each in capped) == sum(each.additions for each in diffs)
    assert sum(each.deletions for each in capped) == sum(each.deletions for each in diffs)
    assert cap_diffs(capped, per_file=per_file, total=in_all, files=files) == capped
    assert decode(encode(capped), tuple[FileDiff, ...]) == capped
