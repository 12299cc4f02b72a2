"""Queries: any input is a valid search."""

from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from given.conversation import SESSION, text, user_message
from weft.model.session import SessionInfo, SessionTime
from weft.store.files.index import UNKNOWN_STAMP, StampedSession, replace_session
from weft.store.files.index_database import IndexDatabase, open_in_memory
from weft.store.files.index_query import search_index
from weft.store.search import MAX_WORDS, to_entry, to_match_query

# What each of them finds in "mend the loom, and a\0b \ud800 or near to it".
HOSTILE = {
    "": 0,
    " ": 0,
    '"': 0,
    '""': 0,
    "'": 0,
    "a\0b": 1,
    "NEAR(a b, 2)": 0,
    "a AND": 1,
    "OR": 1,
    "NOT a": 0,
    "said: loom": 0,
    "-loom": 1,
    "^loom": 1,
    "loom*": 1,
    "(((": 0,
    '"loom': 1,
    "\ud800": 0,
    "\x02loom\x03": 1,
    "--": 0,
    "; DROP TABLE words": 0,
    "x" * 1_000_000: 0,
    "loom " * 200_000: 1,
    '"' * 1_000_000: 0,
    "\u202e🧵": 0,
}


@pytest.fixture
def database() -> Generator[IndexDatabase]:
    with open_in_memory("/") as made:
        session = SessionInfo(id=SESSION, title="The loom", time=SessionTime(created=1, updated=1))
        words = user_message("msg_1", 1, text("msg_1", "mend the loom, and a\0b \ud800 or near to it"))
        replace_session(made, StampedSession(session, UNKNOWN_STAMP, [to_entry(words)]))
        yield made


@pytest.mark.parametrize(("words", "count"), HOSTILE.items(), ids=range(len(HOSTILE)))
def test_a_hostile_query_is_an_ordinary_search(database: IndexDatabase, words: str, count: int) -> None:
    assert len(search_index(database, words, limit=5)) == count
    assert len(search_index(database, "loom", limit=5)) == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    words=st.text(max_size=60)
    | st.lists(st.sampled_from(["loom", '"', "AND", "*", "(", "-", ":"])).map(" ".join)
)
def test_no_query_text_is_an_error(database: IndexDatabase, words: str) -> None:
    for hit in search_index(database, words, limit=5):
        assert all(0 <= start < end <= len(hit.snippet) for start, end in hit.marks)


def test_search_operators_are_treated_as_words(database: IndexDatabase) -> None:
    assert len(search_index(database, "loom OR mend", limit=5)) == 1  # it says "or"
    assert search_index(database, "loom NOT mend", limit=5) == []
    assert search_index(database, "loom", limit=0) == []


def test_a_query_quotes_every_word_once() -> None:
    assert to_match_query('mend "the loom" a"b -- x') == '"mend"* "the loom" "a b"* "x"*'
    assert len(to_match_query("word " * 1000).split()) == MAX_WORDS
