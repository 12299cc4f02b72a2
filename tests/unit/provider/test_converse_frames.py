"""Amazon's event stream, split anywhere and damaged anywhere."""

import struct
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake.converse import frame
from weft.errors import ProviderError
from weft.provider.bedrock.stream import ConverseFrameReader, parse_headers
from weft.provider.sse import SseEvent

EVENTS = [
    SseEvent("messageStart", b'{"role":"assistant"}'),
    SseEvent("contentBlockDelta", b'{"delta":{"text":"\xe4\xba\x94"}}'),
    SseEvent("contentBlockDelta", b""),
    SseEvent("metadata", b"x" * 5000),
]
RAW = b"".join(frame(each.data, event_type=each.name, message_type="event") for each in EVENTS)


def read(reader: ConverseFrameReader, *pieces: bytes) -> list[SseEvent]:
    return [event for piece in pieces for event in reader.feed(piece)] + reader.end()


@given(st.lists(st.integers(1, len(RAW)), max_size=12))
def test_events_do_not_depend_on_how_their_bytes_are_split(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(RAW)]
    pieces = [RAW[start:end] for start, end in pairwise(places)]
    assert read(ConverseFrameReader(), *pieces) == EVENTS


@given(st.integers(0, len(RAW) - 1), st.integers(1, 255))
def test_any_damaged_byte_is_detected(place: int, change: int) -> None:
    damaged = bytearray(RAW)
    damaged[place] ^= change
    with pytest.raises(ProviderError) as caught:
        read(ConverseFrameReader(), bytes(damaged))
    assert caught.value.kind == "protocol"


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(ProviderError):
        assert read(ConverseFrameReader(limit=1000), data) == []


def test_an_exception_frame_has_its_type() -> None:
    raw = frame(b"{}", exception_type="throttlingException", message_type="exception")
    assert ConverseFrameReader().feed(raw) == [SseEvent("throttlingException", b"{}")]


def test_only_text_headers_are_read() -> None:
    values = {0: b"", 1: b"", 2: b"1", 3: b"12", 4: b"1234", 5: b"12345678", 8: b"12345678", 9: b"x" * 16}
    others = b"".join(b"\x01" + b"%d" % kind + bytes([kind]) + value for kind, value in values.items())
    held = b"\x01b\x06\x00\x03abc" + b"\x04name\x07" + struct.pack(">H", 5) + b"value"
    assert parse_headers(others + held) == {"name": "value"}
    with pytest.raises(ProviderError, match="headers"):
        parse_headers(b"\x09name")
