"""Decisions of a restore: three-way, per file."""

import pytest

from weft.snapshot.decide import (
    CHANGED_BETWEEN,
    CHANGED_SINCE,
    LAST_COPY,
    PATH_BLOCKED,
    FileDecision,
    PatchSides,
    RestoreStep,
    UnknownState,
    decide_restore,
    list_emptied,
)
from weft.snapshot.entry import FILE, FileEntry, TreeState

BEFORE, AFTER, THIRD, PERSON = (FileEntry(FILE | 0o644, digit * 40) for digit in "1234")


def sides(before: dict[bytes, FileEntry], after: dict[bytes, FileEntry], *made: bytes) -> PatchSides:
    return PatchSides(before=TreeState(files=before), after=TreeState(files=after, dirs=frozenset(made)))


EDITED = sides({b"a": BEFORE}, {b"a": AFTER})


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (AFTER, FileDecision(path=b"a", fate="restored", step=RestoreStep(b"a", AFTER, BEFORE))),
        (BEFORE, FileDecision(path=b"a", fate="unchanged")),
        (PERSON, FileDecision(path=b"a", fate="kept", reason=CHANGED_SINCE)),
        (None, FileDecision(path=b"a", fate="kept", reason=CHANGED_SINCE)),
        (UnknownState(reason="too large"), FileDecision(path=b"a", fate="kept", reason="too large")),
    ],
)
def test_an_edited_file_is_restored_only_if_it_is_as_the_agent_left_it(
    found: FileEntry | UnknownState | None, verdict: FileDecision
) -> None:
    assert decide_restore([EDITED], {b"a": found}) == [verdict]


@pytest.mark.parametrize(
    ("found", "fate"), [(AFTER, "removed"), (PERSON, "kept"), (None, "unchanged"), (BEFORE, "kept")]
)
def test_a_file_the_agent_made_is_removed_only_if_it_is_as_the_agent_left_it(
    found: FileEntry | None, fate: str
) -> None:
    [verdict] = decide_restore([sides({}, {b"a": AFTER})], {b"a": found})
    assert verdict.fate == fate


@pytest.mark.parametrize(("found", "fate"), [(None, "restored"), (PERSON, "kept"), (BEFORE, "unchanged")])
def test_a_removed_file_is_restored_only_if_nothing_is_in_its_place(
    found: FileEntry | None, fate: str
) -> None:
    [verdict] = decide_restore([sides({b"a": BEFORE}, {})], {b"a": found})
    assert verdict.fate == fate


def test_consecutive_changes_are_undone_to_the_first() -> None:
    again = sides({b"a": AFTER}, {b"a": THIRD})
    assert decide_restore([EDITED, again], {b"a": THIRD}) == [
        FileDecision(path=b"a", fate="restored", step=RestoreStep(b"a", THIRD, BEFORE))
    ]


def test_undoing_stops_at_a_change_by_the_user() -> None:
    later = sides({b"a": PERSON}, {b"a": THIRD})
    assert decide_restore([EDITED, later], {b"a": THIRD}) == [
        FileDecision(
            path=b"a", fate="restored", reason=CHANGED_BETWEEN, step=RestoreStep(b"a", THIRD, PERSON)
        )
    ]


def test_a_change_that_was_already_undone_is_skipped() -> None:
    again = sides({b"a": AFTER}, {b"a": THIRD})
    [verdict] = decide_restore([EDITED, again], {b"a": AFTER})
    assert verdict.step == RestoreStep(b"a", AFTER, BEFORE)


def test_permissions_stay_as_they_are_unless_the_agent_changed_them() -> None:
    private = FileEntry(FILE | 0o600, AFTER.oid)
    [verdict] = decide_restore([EDITED], {b"a": private})
    assert verdict.step == RestoreStep(b"a", private, FileEntry(FILE | 0o600, BEFORE.oid))

    opened = sides({b"a": FileEntry(FILE | 0o600, BEFORE.oid)}, {b"a": FileEntry(FILE | 0o755, BEFORE.oid)})
    [verdict] = decide_restore([opened], {b"a": FileEntry(FILE | 0o755, BEFORE.oid)})
    assert verdict.step == RestoreStep(
        b"a", FileEntry(FILE | 0o755, BEFORE.oid), FileEntry(FILE | 0o600, BEFORE.oid)
    )


def test_nothing_is_restored_over_a_file_that_stays() -> None:
    swapped = sides({b"d/x": BEFORE}, {b"d": AFTER})
    assert [each.fate for each in decide_restore([swapped], {b"d": AFTER, b"d/x": None})] == [
        "removed",
        "restored",
    ]
    assert decide_restore([swapped], {b"d": PERSON, b"d/x": None}) == [
        FileDecision(path=b"d", fate="kept", reason=CHANGED_SINCE),
        FileDecision(path=b"d/x", fate="kept", reason=PATH_BLOCKED),
    ]


def test_nothing_is_restored_where_other_files_are() -> None:
    removed = sides({b"d": BEFORE}, {})
    assert decide_restore([removed], {b"d": None}, {b"d/mine"}) == [
        FileDecision(path=b"d", fate="kept", reason=PATH_BLOCKED)
    ]
    assert decide_restore([sides({b"d/x": BEFORE}, {})], {b"d/x": None}, {b"d"}) == [
        FileDecision(path=b"d/x", fate="kept", reason=PATH_BLOCKED)
    ]


def test_directories_created_by_the_agent_are_removed_innermost_first() -> None:
    made = sides({}, {b"n/m/x": AFTER, b"old/y": AFTER}, b"n", b"n/m")
    steps = [RestoreStep(b"n/m/x", AFTER, None), RestoreStep(b"old/y", AFTER, None)]
    assert list_emptied([made], steps) == [b"n/m", b"n"]


def test_a_renamed_file_is_removed_only_if_its_old_name_is_restored() -> None:
    renamed = sides({b"a": BEFORE}, {b"b": BEFORE})
    assert [each.fate for each in decide_restore([renamed], {b"a": None, b"b": BEFORE})] == [
        "restored",
        "removed",
    ]
    assert decide_restore([renamed], {b"a": PERSON, b"b": BEFORE}) == [
        FileDecision(path=b"a", fate="kept", reason=CHANGED_SINCE),
        FileDecision(path=b"b", fate="kept", reason=LAST_COPY),
    ]
    assert decide_restore([renamed], {b"b": BEFORE}) == [
        FileDecision(path=b"b", fate="kept", reason=LAST_COPY)
    ]


def test_a_file_that_the_agent_made_and_renamed_is_removed() -> None:
    made, renamed = sides({}, {b"a": AFTER}), sides({b"a": AFTER}, {b"b": AFTER})
    assert [each.fate for each in decide_restore([made, renamed], {b"a": None, b"b": AFTER})] == [
        "unchanged",
        "removed",
    ]
    assert [each.fate for each in decide_restore([made, renamed], {b"a": PERSON, b"b": AFTER})] == [
        "kept",
        "removed",
    ]
