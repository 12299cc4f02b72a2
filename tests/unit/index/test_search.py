"""Queries: whatever is typed is a search, and none is an error."""

from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from given.conversation import SESSION, asked, text
from weft.model.session import Session, SessionTime
from weft.search.database import Database
from weft.search.index import UNSURE, Found, put_whole, to_entry
from weft.search.library import in_memory
from weft.search.query import MOST_WORDS, search, to_query

HOSTILE = [
    "",
    " ",
    '"',
    '""',
    "'",
    "a\0b",
    "NEAR(a b, 2)",
    "a AND",
    "OR",
    "NOT a",
    "said: loom",
    "-loom",
    "^loom",
    "loom*",
    "(((",
    '"loom',
    "\ud800",
    "\x02loom\x03",
    "--",
    "; DROP TABLE words",
    "x" * 1_000_000,
    "loom " * 200_000,
    '"' * 1_000_000,
    "\u202e🧵",
]


@pytest.fixture
def database() -> Generator[Database]:
    with in_memory("/") as made:
        session = Session(id=SESSION, title="The loom", time=SessionTime(created=1, updated=1))
        words = asked("msg_1", 1, text("msg_1", "mend the loom, and a\0b \ud800 or near to it"))
        put_whole(made, Found(session, UNSURE, [to_entry(words)]))
        yield made


@pytest.mark.parametrize("words", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_query_is_a_search_like_any_other(database: Database, words: str) -> None:
    search(database, words, limit=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    words=st.text(max_size=60)
    | st.lists(st.sampled_from(["loom", '"', "AND", "*", "(", "-", ":"])).map(" ".join)
)
def test_no_text_is_an_error(database: Database, words: str) -> None:
    for hit in search(database, words, limit=5):
        assert all(0 <= start < end <= len(hit.snippet) for start, end in hit.marks)


def test_operators_are_words(database: Database) -> None:
    assert len(search(database, "loom OR mend", limit=5)) == 1  # it says "or"
    assert search(database, "loom NOT mend", limit=5) == []
    assert search(database, "loom", limit=0) == []


def test_a_query_names_every_word_once_quoted() -> None:
    assert to_query('mend "the loom" a"b -- x') == '"mend"* "the loom" "a b"* "x"*'
    assert len(to_query("word " * 1000).split()) == MOST_WORDS
