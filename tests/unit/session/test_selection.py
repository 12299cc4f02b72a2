"""Choosing sessions, and the tree that they form."""

import pytest
from msgspec.structs import replace

from weft.errors import AmbiguousError, InvalidIdError, NotFoundError
from weft.model.ids import GLOBAL_PROJECT, ProjectID, SessionID
from weft.model.session import SessionInfo, SessionTime, SessionTree, WeftSessionData
from weft.model.session_query import SessionQuery, select_sessions
from weft.session.selection import FamilySearch, build_tree, choose_session, to_no_last_session


def make_session(id: str, *, created: int = 1, updated: int = 1, parent: str | None = None) -> SessionInfo:
    return SessionInfo(
        id=SessionID(id),
        title=id,
        parent_id=None if parent is None else SessionID(parent),
        time=SessionTime(created=created, updated=updated),
    )


ONE, TWO, OTHER = (
    make_session("ses_abc1", updated=5),
    make_session("ses_abd2", updated=9),
    make_session("ses_abd3"),
)


@pytest.mark.parametrize("given", ["ses_abc1", "ses_abc", "abc", "abc1"])
def test_a_session_is_found_by_id_or_prefix(given: str) -> None:
    assert choose_session(given, [ONE, TWO], [ONE, TWO, OTHER]) == ONE


def test_an_abbreviated_id_prefers_sessions_of_the_current_project() -> None:
    assert choose_session("abd", [ONE, TWO], [ONE, TWO, OTHER]) == TWO
    assert choose_session("abd3", [ONE, TWO], [ONE, TWO, OTHER]) == OTHER


def test_a_directory_without_sessions_names_the_last_one_of_the_repository() -> None:
    elsewhere = replace(ONE, directory="/other", project_id=ProjectID("p"))
    loose = replace(elsewhere, project_id=GLOBAL_PROJECT)
    assert [
        to_no_last_session(other, "/work", hint="start one").hint for other in (elsewhere, loose, None)
    ] == [
        "none has worked in /work or all are archived; the last of this project is ses_abc1, in /other",
        "none has worked in /work or all are archived; start one",
        "none has worked in /work or all are archived; start one",
    ]


def test_an_ambiguous_prefix_lists_its_sessions() -> None:
    with pytest.raises(AmbiguousError) as caught:
        choose_session("ab", [ONE, TWO], [ONE, TWO])
    assert caught.value.candidates == ("ses_abc1", "ses_abd2")
    assert caught.value.hint == "give more of the id: ses_abc1, ses_abd2"


@pytest.mark.parametrize("given", ["", " ", "../../etc/passwd", "ses_\0", "ses_é", "x" * 500])
def test_an_invalid_id_is_refused(given: str) -> None:
    with pytest.raises(InvalidIdError):
        choose_session(given, [ONE], [ONE, TWO])


@pytest.mark.parametrize(
    ("given", "near"), [("zzz", ()), ("ses_abcX", ("ses_abc1",)), ("lats", ("last",)), ("latest", ("last",))]
)
def test_an_unknown_session_is_not_found_and_similar_ones_are_named(
    given: str, near: tuple[str, ...]
) -> None:
    with pytest.raises(NotFoundError) as caught:
        choose_session(given, [], [ONE, TWO])
    assert caught.value.near == near
    with pytest.raises(NotFoundError) as caught:
        choose_session(given, [], [ONE, TWO], hint="weft session trash lists them")
    assert caught.value.near == tuple(each for each in near if each != "last")


def test_a_list_is_newest_first_by_creation_or_update() -> None:
    old, new = make_session("ses_o", created=1, updated=9), make_session("ses_n", created=2, updated=2)
    assert select_sessions([old, new], SessionQuery()) == [new, old]
    assert select_sessions([old, new], SessionQuery(order="updated")) == [old, new]
    assert select_sessions([old, new], SessionQuery(order="updated", limit=1, start=2)) == [old]


def test_titles_are_searched_case_insensitively_and_tags_exactly() -> None:
    tagged = replace(make_session("STRASSE"), weft=WeftSessionData(tags=("Blue",)))
    assert select_sessions([tagged], SessionQuery(search="straße")) == [tagged]
    assert select_sessions([tagged], SessionQuery(tags=("blue",))) == []


def descendants(sessions: list[SessionInfo], root: SessionID) -> list[SessionInfo]:
    """Return what a search finds in these sessions."""
    search = FamilySearch(root)
    while (query := search.next_query()) is not None:
        search.add(select_sessions(sessions, query))
    return search.descendants


def test_a_cycle_of_parents_ends() -> None:
    one, two = make_session("ses_1", parent="ses_2"), make_session("ses_2", parent="ses_1")
    self_made = make_session("ses_3", parent="ses_3")
    assert descendants([one, two, self_made], one.id) == [two]
    assert descendants([self_made], self_made.id) == []
    assert build_tree([one, two], one) == SessionTree(session=one, children=(SessionTree(session=two),))


def test_a_chain_of_hundreds_of_sessions_is_below_its_first() -> None:
    chain = [
        make_session(f"ses_{number}", created=number, parent=f"ses_{number - 1}") for number in range(300)
    ]
    assert descendants(chain, chain[0].id) == chain[1:]
