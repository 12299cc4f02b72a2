"""Parse server-sent events from bytes that are split anywhere."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from given.damage import damaged_bytes
from weft.errors import ProviderError
from weft.provider.sse import SseEvent, SseReader, decode_event


def read(*pieces: bytes, limit: int = 1000) -> list[SseEvent]:
    reader = SseReader(limit)
    return [*(event for piece in pieces for event in reader.feed(piece)), *reader.end()]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_event_has_a_name_and_data(end: bytes) -> None:
    raw = b"event: one\ndata: {}\n\ndata:two\n\n".replace(b"\n", end)
    assert read(raw) == [SseEvent("one", b"{}"), SseEvent("", b"two")]


def test_lines_of_data_are_joined() -> None:
    assert read(b"data: a\ndata\ndata:  b\n\n") == [SseEvent("", b"a\n\n b")]


def test_comments_and_unknown_fields_are_ignored() -> None:
    assert read(b"\xef\xbb\xbf: hello\nid: 7\nretry: 10\n\n\nevent: x\n\ndata: a\nnonsense\n\n") == [
        SseEvent("", b"a")
    ]


def test_a_name_without_data_is_not_that_of_the_next_event() -> None:
    assert read(b"event: x\n\ndata: a\n\n") == [SseEvent("", b"a")]


def test_the_last_event_needs_no_blank_line() -> None:
    assert read(b"data: a") == [SseEvent("", b"a")]
    assert read(b"data: a\n") == [SseEvent("", b"a")]
    assert read(b"data: a\r") == [SseEvent("", b"a")]
    assert read(b"") == []


RAW = "event: a\ndata: é五👩\ndata: b\n\n: c\ndata: {}\n\nevent: z\ndata: end\n\n".encode()


@given(st.lists(st.integers(0, len(RAW)), max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_events_do_not_depend_on_how_bytes_are_split(cuts: list[int], end: bytes) -> None:
    raw = RAW.replace(b"\n", end)
    places = sorted({0, *cuts, len(raw)})
    pieces = [raw[start:stop] for start, stop in pairwise(places)]
    assert read(*pieces) == read(RAW)


@given(
    st.lists(st.binary(max_size=20), max_size=20)
    | st.lists(damaged_bytes(RAW, [b"data", b"data:", b"event: ", b"\r\n\r\n", b"\xef\xbb\xbf"]), max_size=3)
)
def test_arbitrary_bytes_are_read_wherever_they_are_cut(pieces: list[bytes]) -> None:
    assert read(*pieces, limit=10**6) == read(b"".join(pieces), limit=10**6)


@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: ", *[b"x" * 100] * 20],
        [b"data: x\n" * 1, *[b"data: " + b"y" * 100 + b"\n"] * 20],
        [b": ", *[b"comment " * 20] * 20],
    ],
    ids=["a line", "many lines", "a comment"],
)
def test_an_event_that_does_not_end_is_refused(pieces: list[bytes]) -> None:
    with pytest.raises(ProviderError, match="more than 1000 bytes") as raised:
        read(*pieces)
    assert raised.value.kind == "protocol"


def test_a_long_line_in_many_pieces_is_read() -> None:
    assert read(b"data: ", *[b"x"] * 900, b"\n\n") == [SseEvent("", b"x" * 900)]


def test_an_event_of_many_lines_is_read_in_linear_time() -> None:
    lines = 100_000
    assert read(*[b"data: x\n"] * lines, limit=3 * lines) == [SseEvent("", b"\n".join([b"x"] * lines))]


class Word(Struct):
    text: str
    more: msgspec.Raw = msgspec.Raw(b"")


WORD = msgspec.json.Decoder(Word, strict=False)


def test_event_data_is_parsed_as_json() -> None:
    assert decode_event(b'{"text": "a", "unknown": 1}', WORD).text == "a"
    assert (
        decode_event(b'{"text": "half \\ud83d", "more": {"x": 0.1}}', WORD).text
        == "half \N{REPLACEMENT CHARACTER}"
    )


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"text": 1}', b"\xff", b"[" * 100_000, b"NaN", b"null"])
def test_unexpected_json_is_refused(data: bytes) -> None:
    with pytest.raises(ProviderError) as raised:
        decode_event(data, WORD)
    assert (raised.value.kind, raised.value.retryable) == ("protocol", False)
