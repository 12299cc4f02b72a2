"""The ledger: whose change it was when calls overlap, and how changes become patches."""

from pathlib import Path

from weft.model.ids import SessionID
from weft.snapshot.entry import FILE, Entry, State
from weft.snapshot.ledger import Ledger, Link, Opened, Page, group, join, load, to_states

ONE, TWO, THREE, FOUR = (Entry(FILE | 0o644, digit * 40) for digit in "1234")


def ledger(*links: Link) -> Ledger:
    return Ledger("", Page(session=SessionID("ses_a"), links=links))


def joined(book: Ledger) -> list[tuple[bytes, Entry | None, Entry | None]]:
    return [(link.path, link.before, link.after) for link in join(book.links)]


def test_changes_in_a_row_are_one() -> None:
    book = ledger(Link(b"a", None, ONE, 1), Link(b"a", ONE, TWO, 2), Link(b"b", ONE, TWO, 3))
    assert joined(book) == [(b"a", None, TWO), (b"b", ONE, TWO)]


def test_a_change_that_was_taken_back_is_none() -> None:
    assert joined(ledger(Link(b"a", ONE, TWO, 1), Link(b"a", TWO, ONE, 2))) == []


def test_what_a_person_did_between_keeps_changes_apart() -> None:
    book = ledger(Link(b"a", ONE, TWO, 1), Link(b"a", THREE, FOUR, 2))
    assert joined(book) == [(b"a", ONE, TWO), (b"a", THREE, FOUR)]
    assert [len(each) for each in group(list(join(book.links)))] == [1, 1]


def test_what_a_tool_said_it_did_during_a_command_is_counted_once() -> None:
    book = ledger(Link(b"a", ONE, TWO, 5))
    book.add(Link(b"a", ONE, TWO, 6), began=4)
    assert joined(book) == [(b"a", ONE, TWO)]


def test_what_a_command_did_before_and_after_a_tool_is_its_own() -> None:
    book = ledger(Link(b"a", TWO, THREE, 5))
    book.add(Link(b"a", ONE, FOUR, 6), began=4)
    assert joined(book) == [(b"a", ONE, FOUR)]


def test_what_lies_between_two_tools_during_a_command_stays_nobodys() -> None:
    book = ledger(Link(b"a", ONE, TWO, 5), Link(b"a", THREE, FOUR, 6))
    book.add(Link(b"a", ONE, FOUR, 7), began=4)
    assert joined(book) == [(b"a", ONE, TWO), (b"a", THREE, FOUR)]


def test_what_cannot_stand_side_by_side_comes_apart() -> None:
    links = [Link(b"d", ONE, None, 1), Link(b"d/x", None, TWO, 2), Link(b"d/y", THREE, FOUR, 3)]
    assert [[link.path for link in each] for each in group(links)] == [[b"d", b"d/x"], [b"d/y"]]


def test_a_directory_that_one_change_made_was_not_there() -> None:
    links = [
        Link(b"n/a", None, ONE, 1, (), (b"n",)),
        Link(b"n/b", None, TWO, 2, (b"n",), (b"n",)),
        Link(b"old/c", ONE, None, 3, (b"old",), ()),
    ]
    assert to_states(links) == (
        State(files={b"old/c": ONE}, dirs=frozenset({b"old"})),
        State(files={b"n/a": ONE, b"n/b": TWO}, dirs=frozenset({b"n"})),
    )


def test_a_ledger_comes_back_from_its_file(tmp_path: Path) -> None:
    path = str(tmp_path / "ses_a.json")
    page = Page(
        session=SessionID("ses_a"),
        links=(Link(b"\xff\n", None, ONE, 1, (b"d",)),),
        opened=(Opened(began=2, files=None), Opened(began=3, files=(Link(b"x", ONE, None, 3),))),
        uncovered=((b"big", "too large"),),
    )
    Ledger(path, page).save()
    found = load(path)
    assert found is not None
    assert (found.links, found.opened) == (list(page.links), {2: page.opened[0], 3: page.opened[1]})
    assert found.uncovered == {b"big": "too large"}
    Path(path).write_text("{ torn")
    assert load(path) is None
    assert load(f"{path}.not") is None
