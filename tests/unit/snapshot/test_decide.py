"""Deciding what to take back: three-way, file by file, over values."""

import pytest

from weft.snapshot.decide import (
    BETWEEN,
    BLOCKED,
    CHANGED,
    LAST,
    Side,
    Step,
    Unknown,
    Verdict,
    decide,
    emptied,
)
from weft.snapshot.entry import FILE, Entry, State

BEFORE, AFTER, THIRD, PERSON = (Entry(FILE | 0o644, digit * 40) for digit in "1234")


def side(before: dict[bytes, Entry], after: dict[bytes, Entry], *made: bytes) -> Side:
    return Side(before=State(files=before), after=State(files=after, dirs=frozenset(made)))


EDITED = side({b"a": BEFORE}, {b"a": AFTER})


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (AFTER, Verdict(path=b"a", fate="restored", step=Step(b"a", AFTER, BEFORE))),
        (BEFORE, Verdict(path=b"a", fate="unchanged")),
        (PERSON, Verdict(path=b"a", fate="kept", reason=CHANGED)),
        (None, Verdict(path=b"a", fate="kept", reason=CHANGED)),
        (Unknown(reason="too large"), Verdict(path=b"a", fate="kept", reason="too large")),
    ],
)
def test_an_edited_file_is_restored_only_if_it_is_as_the_agent_left_it(
    found: Entry | Unknown | None, verdict: Verdict
) -> None:
    assert decide([EDITED], {b"a": found}) == [verdict]


@pytest.mark.parametrize(
    ("found", "fate"), [(AFTER, "removed"), (PERSON, "kept"), (None, "unchanged"), (BEFORE, "kept")]
)
def test_a_file_the_agent_made_is_removed_only_if_it_is_as_the_agent_left_it(
    found: Entry | None, fate: str
) -> None:
    [verdict] = decide([side({}, {b"a": AFTER})], {b"a": found})
    assert verdict.fate == fate


@pytest.mark.parametrize(("found", "fate"), [(None, "restored"), (PERSON, "kept"), (BEFORE, "unchanged")])
def test_a_file_the_agent_removed_comes_back_only_if_nothing_is_there(found: Entry | None, fate: str) -> None:
    [verdict] = decide([side({b"a": BEFORE}, {})], {b"a": found})
    assert verdict.fate == fate


def test_changes_in_a_row_are_followed_back_to_the_first() -> None:
    again = side({b"a": AFTER}, {b"a": THIRD})
    assert decide([EDITED, again], {b"a": THIRD}) == [
        Verdict(path=b"a", fate="restored", step=Step(b"a", THIRD, BEFORE))
    ]


def test_following_back_ends_where_a_person_was_between() -> None:
    later = side({b"a": PERSON}, {b"a": THIRD})
    assert decide([EDITED, later], {b"a": THIRD}) == [
        Verdict(path=b"a", fate="restored", reason=BETWEEN, step=Step(b"a", THIRD, PERSON))
    ]


def test_a_change_that_was_taken_back_already_is_passed_over() -> None:
    again = side({b"a": AFTER}, {b"a": THIRD})
    [verdict] = decide([EDITED, again], {b"a": AFTER})
    assert verdict.step == Step(b"a", AFTER, BEFORE)


def test_permissions_stay_as_they_are_unless_the_agent_changed_them() -> None:
    private = Entry(FILE | 0o600, AFTER.oid)
    [verdict] = decide([EDITED], {b"a": private})
    assert verdict.step == Step(b"a", private, Entry(FILE | 0o600, BEFORE.oid))

    opened = side({b"a": Entry(FILE | 0o600, BEFORE.oid)}, {b"a": Entry(FILE | 0o755, BEFORE.oid)})
    [verdict] = decide([opened], {b"a": Entry(FILE | 0o755, BEFORE.oid)})
    assert verdict.step == Step(b"a", Entry(FILE | 0o755, BEFORE.oid), Entry(FILE | 0o600, BEFORE.oid))


def test_nothing_is_restored_over_what_stays() -> None:
    swapped = side({b"d/x": BEFORE}, {b"d": AFTER})
    assert [each.fate for each in decide([swapped], {b"d": AFTER, b"d/x": None})] == ["removed", "restored"]
    assert decide([swapped], {b"d": PERSON, b"d/x": None}) == [
        Verdict(path=b"d", fate="kept", reason=CHANGED),
        Verdict(path=b"d/x", fate="kept", reason=BLOCKED),
    ]


def test_nothing_is_restored_where_somebody_elses_files_are() -> None:
    removed = side({b"d": BEFORE}, {})
    assert decide([removed], {b"d": None}, {b"d/mine"}) == [Verdict(path=b"d", fate="kept", reason=BLOCKED)]
    assert decide([side({b"d/x": BEFORE}, {})], {b"d/x": None}, {b"d"}) == [
        Verdict(path=b"d/x", fate="kept", reason=BLOCKED)
    ]


def test_directories_the_agent_made_go_innermost_first() -> None:
    made = side({}, {b"n/m/x": AFTER, b"old/y": AFTER}, b"n", b"n/m")
    steps = [Step(b"n/m/x", AFTER, None), Step(b"old/y", AFTER, None)]
    assert emptied([made], steps) == [b"n/m", b"n"]


def test_a_renamed_file_is_removed_only_if_it_gets_its_name_back() -> None:
    renamed = side({b"a": BEFORE}, {b"b": BEFORE})
    assert [each.fate for each in decide([renamed], {b"a": None, b"b": BEFORE})] == ["restored", "removed"]
    assert decide([renamed], {b"a": PERSON, b"b": BEFORE}) == [
        Verdict(path=b"a", fate="kept", reason=CHANGED),
        Verdict(path=b"b", fate="kept", reason=LAST),
    ]
    assert decide([renamed], {b"b": BEFORE}) == [Verdict(path=b"b", fate="kept", reason=LAST)]


def test_what_the_agent_made_and_then_renamed_is_removed() -> None:
    made, renamed = side({}, {b"a": AFTER}), side({b"a": AFTER}, {b"b": AFTER})
    assert [each.fate for each in decide([made, renamed], {b"a": None, b"b": AFTER})] == [
        "unchanged",
        "removed",
    ]
    assert [each.fate for each in decide([made, renamed], {b"a": PERSON, b"b": AFTER})] == ["kept", "removed"]
