"""The ledger: which call a change belongs to when calls overlap, and how changes become patches."""

from pathlib import Path

from weft.model.ids import SessionID
from weft.snapshot.entry import FILE, FileEntry, TreeState
from weft.snapshot.ledger import (
    ChangeLedger,
    LedgerPage,
    OpenCall,
    RecordedChange,
    group_changes,
    join_changes,
    load_ledger,
    to_states,
)

ONE, TWO, THREE, FOUR = (FileEntry(FILE | 0o644, digit * 40) for digit in "1234")


def ledger(*links: RecordedChange) -> ChangeLedger:
    return ChangeLedger("", LedgerPage(session=SessionID("ses_a"), links=links))


def list_joined(book: ChangeLedger) -> list[tuple[bytes, FileEntry | None, FileEntry | None]]:
    return [(link.path, link.before, link.after) for link in join_changes(book.links)]


def test_consecutive_changes_are_joined() -> None:
    book = ledger(
        RecordedChange(b"a", None, ONE, 1),
        RecordedChange(b"a", ONE, TWO, 2),
        RecordedChange(b"b", ONE, TWO, 3),
    )
    assert list_joined(book) == [(b"a", None, TWO), (b"b", ONE, TWO)]


def test_an_undone_change_is_dropped() -> None:
    assert list_joined(ledger(RecordedChange(b"a", ONE, TWO, 1), RecordedChange(b"a", TWO, ONE, 2))) == []


def test_changes_stay_separate_if_the_user_changed_the_file_in_between() -> None:
    book = ledger(RecordedChange(b"a", ONE, TWO, 1), RecordedChange(b"a", THREE, FOUR, 2))
    assert list_joined(book) == [(b"a", ONE, TWO), (b"a", THREE, FOUR)]
    assert [len(each) for each in group_changes(list(join_changes(book.links)))] == [1, 1]


def test_a_change_announced_by_a_tool_during_a_command_counts_once() -> None:
    book = ledger(RecordedChange(b"a", ONE, TWO, 5))
    book.add(RecordedChange(b"a", ONE, TWO, 6), began=4)
    assert list_joined(book) == [(b"a", ONE, TWO)]


def test_changes_of_a_command_before_and_after_a_tool_are_its_own() -> None:
    book = ledger(RecordedChange(b"a", TWO, THREE, 5))
    book.add(RecordedChange(b"a", ONE, FOUR, 6), began=4)
    assert list_joined(book) == [(b"a", ONE, FOUR)]


def test_a_change_between_two_tools_during_a_command_belongs_to_neither() -> None:
    book = ledger(RecordedChange(b"a", ONE, TWO, 5), RecordedChange(b"a", THREE, FOUR, 6))
    book.add(RecordedChange(b"a", ONE, FOUR, 7), began=4)
    assert list_joined(book) == [(b"a", ONE, TWO), (b"a", THREE, FOUR)]


def test_paths_that_cannot_coexist_go_into_separate_groups() -> None:
    links = [
        RecordedChange(b"d", ONE, None, 1),
        RecordedChange(b"d/x", None, TWO, 2),
        RecordedChange(b"d/y", THREE, FOUR, 3),
    ]
    assert [[link.path for link in each] for each in group_changes(links)] == [[b"d", b"d/x"], [b"d/y"]]


def test_a_directory_that_a_change_created_did_not_exist_before() -> None:
    links = [
        RecordedChange(b"n/a", None, ONE, 1, (), (b"n",)),
        RecordedChange(b"n/b", None, TWO, 2, (b"n",), (b"n",)),
        RecordedChange(b"old/c", ONE, None, 3, (b"old",), ()),
    ]
    assert to_states(links) == (
        TreeState(files={b"old/c": ONE}, dirs=frozenset({b"old"})),
        TreeState(files={b"n/a": ONE, b"n/b": TWO}, dirs=frozenset({b"n"})),
    )


def test_a_ledger_is_read_back_from_its_file(tmp_path: Path) -> None:
    path = str(tmp_path / "ses_a.json")
    page = LedgerPage(
        session=SessionID("ses_a"),
        links=(RecordedChange(b"\xff\n", None, ONE, 1, (b"d",)),),
        opened=(
            OpenCall(began=2, files=None),
            OpenCall(began=3, files=(RecordedChange(b"x", ONE, None, 3),)),
        ),
        uncovered=((b"big", "too large"),),
    )
    ChangeLedger(path, page).save()
    found = load_ledger(path)
    assert found is not None
    assert (found.links, found.opened) == (list(page.links), {2: page.opened[0], 3: page.opened[1]})
    assert found.uncovered == {b"big": "too large"}
    Path(path).write_text("{ torn")
    assert load_ledger(path) is None
    assert load_ledger(f"{path}.not") is None
