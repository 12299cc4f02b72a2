"""Words of texts and queries for Postgres: what a tsvector contains, what a tsquery asks for, and snippets (pure).

Texts are split here and not by the parser of Postgres, which takes a path or an address for one word: `store` must be found in
`src/store.py`, as in the other stores.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from weft.store.search import MATCH_END, MATCH_START, parse_words

SNIPPET_WORDS = 20
# Limits of Postgres: a tsvector has at most 1 MB, a word at most 2 KB, and positions end at 16,383, 255 for each word.
MAX_VECTOR_BYTES = 1_000_000
MAX_WORD_LENGTH = 200
MAX_POSITION = 16_383
MAX_POSITIONS = 255
WORD_OVERHEAD = 6
POSITION_BYTES = 2
# A phrase must not begin in one text and end in the next.
GAP = 100

# Letters and digits with their accents. As in the other stores, an underscore ends a word.
_WORD = re.compile(r"[^\W_](?:[^\W_]|[\u0300-\u036f])*")


class WeightedText(NamedTuple):
    """A text, and the weight of its words: A, B, C or D."""

    weight: str
    text: str


class WordQuery(NamedTuple):
    """Words that must follow each other. With `prefix`, the last one may also be the beginning of a word."""

    words: tuple[str, ...]
    prefix: bool


def _fold(word: str) -> str:
    """Return a word without case and accents."""
    if word.isascii():
        return word.lower()[:MAX_WORD_LENGTH]
    plain = unicodedata.normalize("NFD", word.casefold())
    return "".join(char for char in plain if not unicodedata.combining(char))[:MAX_WORD_LENGTH]


def to_vector(texts: Iterable[WeightedText]) -> str:
    """Return texts as a tsvector. It is bounded: words of a very long text that come late may be missing."""
    positions: dict[str, list[str]] = {}
    size, position = 0, 0
    for weight, text in texts:
        for match in _WORD.finditer(text):
            word, position = _fold(match[0]), min(position + 1, MAX_POSITION)
            found = positions.get(word)
            if found is None and size < MAX_VECTOR_BYTES:
                found = positions[word] = []
                size += len(word.encode()) + WORD_OVERHEAD
            if found is not None and len(found) < MAX_POSITIONS and size < MAX_VECTOR_BYTES:
                found.append(f"{position}{weight}")
                size += POSITION_BYTES
        position = min(position + GAP, MAX_POSITION)
    return " ".join(
        f"'{word}':{','.join(found)}" if found else f"'{word}'" for word, found in positions.items()
    )


def parse_query(words: str) -> list[WordQuery]:
    """Return what typed words ask for: all of these must occur in one text."""
    found = [
        WordQuery(tuple(_fold(match[0]) for match in _WORD.finditer(term.text)), not term.quoted)
        for term in parse_words(words)
    ]
    return [query for query in found if query.words]


def to_tsquery(queries: Sequence[WordQuery]) -> str:
    """Return a tsquery for all of these. Words have only letters and digits, so that quotes are enough."""
    phrases = (" <-> ".join(f"'{word}'" for word in query.words) for query in queries)
    ends = (":*" if query.prefix else "" for query in queries)
    return " & ".join(f"({phrase}{end})" for phrase, end in zip(phrases, ends, strict=True))


def make_snippet(texts: Sequence[str], queries: Sequence[WordQuery]) -> str:
    """Return the words around the best match in any of the texts, with marks around the matches. Earlier texts come first."""
    found = [_find_window(text, queries) for text in texts]
    best = max(range(len(texts)), key=lambda index: (found[index][0], -index))
    return _mark(texts[best], *found[best][1:])


class _WordMatch(NamedTuple):
    """The words `first` to `last` of a text match the query of a number."""

    query: int
    first: int
    last: int


def _find_window(
    text: str, queries: Sequence[WordQuery]
) -> tuple[int, int, list[tuple[int, int]], list[_WordMatch]]:
    """Return how many queries match near each other, the first word there, and all words and matches of the text."""
    spans: list[tuple[int, int]] = []
    words: list[str] = []
    for match in _WORD.finditer(text):
        spans.append(match.span())
        words.append(_fold(match[0]))
    matches = sorted(_list_matches(words, queries), key=lambda match: match.first)
    best, start = 0, 0
    for index, first in enumerate(matches):
        near = [
            each for each in matches[index : index + SNIPPET_WORDS] if each.last < first.first + SNIPPET_WORDS
        ]
        matched = len({each.query for each in near})
        if matched > best:
            # The matches are in the middle of the window.
            length = near[-1].last + 1 - first.first
            best, start = matched, first.first - (SNIPPET_WORDS - length) // 2
        if best == len(queries):
            break
    return best, max(0, min(start, len(words) - SNIPPET_WORDS)), spans, matches


def _list_matches(words: Sequence[str], queries: Sequence[WordQuery]) -> Iterator[_WordMatch]:
    for number, query in enumerate(queries):
        *first, last = query.words
        for index in range(len(words) - len(first)):
            end = index + len(first)
            fits = words[end].startswith(last) if query.prefix else words[end] == last
            if fits and list(words[index:end]) == first:
                yield _WordMatch(number, index, end)


def _mark(text: str, start: int, spans: Sequence[tuple[int, int]], matches: Sequence[_WordMatch]) -> str:
    end = min(start + SNIPPET_WORDS, len(spans))
    begins = 0 if start == 0 else spans[start][0]
    ends = len(text) if end == len(spans) else spans[end - 1][1]
    pieces, at = ["" if start == 0 else "…"], begins
    for match in matches:
        left, right = spans[match.first][0], spans[match.last][1]
        if match.first >= start and match.last < end and right > at:
            pieces += (text[at : max(at, left)], MATCH_START, text[max(at, left) : right], MATCH_END)
            at = right
    return "".join((*pieces, text[at:ends], "" if end == len(spans) else "…"))
