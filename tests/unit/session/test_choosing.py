"""Which session is meant, and who is below whom."""

import pytest
from msgspec.structs import replace

from weft.errors import AmbiguousError, InvalidIdError, NotFoundError
from weft.model.ids import ProjectID, SessionID
from weft.model.session import Session, SessionOwn, SessionQuery, SessionTime, SessionTree
from weft.session.tree import below, children_of, choose, choose_last, grow_tree, select


def made(id: str, *, created: int = 1, updated: int = 1, parent: str | None = None) -> Session:
    return Session(
        id=SessionID(id),
        title=id,
        parent_id=None if parent is None else SessionID(parent),
        time=SessionTime(created=created, updated=updated),
    )


ONE, TWO, OTHER = made("ses_abc1", updated=5), made("ses_abd2", updated=9), made("ses_abd3")
CHILD = made("ses_child", updated=99, parent="ses_abc1")


@pytest.mark.parametrize("given", ["ses_abc1", "ses_abc", "abc", "abc1"])
def test_a_session_is_meant_by_its_id_or_the_beginning_of_it(given: str) -> None:
    assert choose(given, [ONE, TWO], [ONE, TWO, OTHER]) == ONE


def test_whoever_works_in_a_project_means_a_session_of_it() -> None:
    assert choose("abd", [ONE, TWO], [ONE, TWO, OTHER]) == TWO
    assert choose("abd3", [ONE, TWO], [ONE, TWO, OTHER]) == OTHER


def test_last_is_the_root_last_worked_on_and_not_archived() -> None:
    archived = replace(made("ses_old"), time=SessionTime(created=1, updated=50, archived=60))
    assert choose_last([ONE, TWO, CHILD, archived], [], "/work") == TWO
    with pytest.raises(NotFoundError, match="last") as caught:
        choose_last(
            [archived], [archived, replace(ONE, directory="/other", project_id=ProjectID("p"))], "/work"
        )
    assert caught.value.hint == "none has worked in /work; the last of this project is ses_abc1, in /other"


def test_a_beginning_of_several_names_them() -> None:
    with pytest.raises(AmbiguousError) as caught:
        choose("ab", [ONE, TWO], [ONE, TWO])
    assert caught.value.candidates == ("ses_abc1", "ses_abd2")
    assert caught.value.hint == "say more of it: ses_abc1, ses_abd2"


@pytest.mark.parametrize("given", ["", " ", "../../etc/passwd", "ses_\0", "ses_é", "x" * 500])
def test_what_can_be_no_id_is_refused_as_such(given: str) -> None:
    with pytest.raises(InvalidIdError):
        choose(given, [ONE], [ONE, TWO])


@pytest.mark.parametrize("given", ["zzz", "ses_abcX"])
def test_what_is_like_no_session_is_not_found_and_what_is_close_is_named(given: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        choose(given, [], [ONE, TWO])
    assert caught.value.near == (("ses_abc1",) if given == "ses_abcX" else ())


def test_a_list_is_newest_first_by_what_is_asked() -> None:
    old, new = made("ses_o", created=1, updated=9), made("ses_n", created=2, updated=2)
    assert select([old, new], SessionQuery()) == [new, old]
    assert select([old, new], SessionQuery(order="updated")) == [old, new]
    assert select([old, new], SessionQuery(order="updated", limit=1, start=2)) == [old]


def test_words_of_a_title_are_found_in_any_case_and_tags_as_they_are() -> None:
    tagged = replace(made("STRASSE"), weft=SessionOwn(tags=("Blue",)))
    assert select([tagged], SessionQuery(search="straße")) == [tagged]
    assert select([tagged], SessionQuery(tag="blue")) == []


def test_a_circle_of_parents_ends() -> None:
    one, two = made("ses_1", parent="ses_2"), made("ses_2", parent="ses_1")
    self_made = made("ses_3", parent="ses_3")
    assert below([one, two, self_made], one.id) == [two]
    assert below([self_made], self_made.id) == []
    assert grow_tree([one, two], one) == SessionTree(session=one, children=(SessionTree(session=two),))


def test_a_chain_of_thousands_is_below_its_first() -> None:
    chain = [made(f"ses_{number}", created=number, parent=f"ses_{number - 1}") for number in range(3000)]
    assert below(chain, chain[0].id) == chain[1:]
    assert children_of(chain, chain[0].id) == [chain[1]]
