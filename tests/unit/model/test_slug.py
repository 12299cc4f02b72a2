"""Slugs: two plain words, always from the lists."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from weft.model.session import SLUG_ADJECTIVES, SLUG_NOUNS, make_slug


@given(st.binary(min_size=4, max_size=4))
def test_a_slug_is_one_word_of_each_list(random: bytes) -> None:
    first, _, second = make_slug(lambda _: random).partition("-")
    assert first in SLUG_ADJECTIVES
    assert second in SLUG_NOUNS


def test_every_word_is_used() -> None:
    dice = Random(1).randbytes
    made = {make_slug(dice) for _ in range(20_000)}
    assert {slug.partition("-")[0] for slug in made} == set(SLUG_ADJECTIVES)
    assert {slug.partition("-")[2] for slug in made} == set(SLUG_NOUNS)


def test_the_words_are_plain_and_unique() -> None:
    for words in (SLUG_ADJECTIVES, SLUG_NOUNS):
        assert len(set(words)) == len(words)
        assert all(word.isalpha() and word.islower() and word.isascii() for word in words)
