"""Words for the search in Postgres: vectors, queries and snippets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.store.postgres.words import (
    MAX_VECTOR_BYTES,
    WeightedText,
    WordQuery,
    make_snippet,
    parse_query,
    to_tsquery,
    to_vector,
)
from weft.store.search import MATCH_END, MATCH_START


def show(snippet: str) -> str:
    return snippet.replace(MATCH_START, "[").replace(MATCH_END, "]")


def test_words_have_positions_and_weights_and_are_folded() -> None:
    texts = [WeightedText("B", "Über src/store.py, the Store_x"), WeightedText("C", "store")]
    assert to_vector(texts) == "'uber':1B 'src':2B 'store':3B,6B,108C 'py':4B 'the':5B 'x':7B"


def test_a_vector_stays_below_the_limit_of_postgres() -> None:
    many = WeightedText("B", " ".join(f"wörd{number}" for number in range(300_000)))
    assert len(to_vector([many]).encode()) < 2 * MAX_VECTOR_BYTES
    again = to_vector([WeightedText("B", "again " * 100_000)])
    assert again.count(",") == 254
    assert to_vector([WeightedText("B", "x" * 10_000)]) == f"'{'x' * 200}':1B"


@pytest.mark.parametrize(
    ("words", "queries", "tsquery"),
    [
        ("Loom", [WordQuery(("loom",), True)], "('loom':*)"),
        ("store.py", [WordQuery(("store", "py"), True)], "('store' <-> 'py':*)"),
        (
            '"Warp and" weft',
            [WordQuery(("warp", "and"), False), WordQuery(("weft",), True)],
            "('warp' <-> 'and') & ('weft':*)",
        ),
        ("' \\ & | ! :* ()", [], ""),
        ("a'b", [WordQuery(("a", "b"), True)], "('a' <-> 'b':*)"),
    ],
)
def test_a_typed_query_becomes_a_postgres_query(words: str, queries: list[WordQuery], tsquery: str) -> None:
    assert parse_query(words) == queries
    assert to_tsquery(queries) == tsquery


@pytest.mark.parametrize(
    ("words", "texts", "snippet"),
    [
        ("loom", ["The Loom's looms"], "The [Loom]'s [looms]"),
        ('"the loom"', ["The loom, the LOOM"], "[The loom], [the LOOM]"),
        ("loom the", ["the loom"], "[the] [loom]"),
        ("two", ["one", "two"], "[two]"),
        ("one two", ["one", "one two", "two one"], "[one] [two]"),
        (
            "here",
            [" ".join(["before"] * 30 + ["here"] + ["after"] * 30)],
            f"…{'before ' * 9}[here]{' after' * 10}…",
        ),
        ("here", [" ".join(["here"] + ["after"] * 30)], f"[here]{' after' * 19}…"),
        ("here", [" ".join(["before"] * 30 + ["here!"])], f"…{'before ' * 19}[here]!"),
    ],
)
def test_a_snippet_is_the_best_window_with_its_matches_marked(
    words: str, texts: list[str], snippet: str
) -> None:
    assert show(make_snippet(texts, parse_query(words))) == snippet


@given(st.text(max_size=300), st.text(max_size=30))
def test_a_snippet_is_a_part_of_its_text_whatever_the_text_is(text: str, words: str) -> None:
    snippet = make_snippet([text], parse_query(words))
    plain = snippet.replace(MATCH_START, "").replace(MATCH_END, "")
    assert plain.removeprefix("…").removesuffix("…") in text.replace(MATCH_START, "").replace(MATCH_END, "")
    assert snippet.count(MATCH_START) - text.count(MATCH_START) == snippet.count(MATCH_END) - text.count(
        MATCH_END
    )
