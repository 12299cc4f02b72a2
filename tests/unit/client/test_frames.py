"""Frames of an event stream, however its bytes are split; and the cursors made of their ids."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.client.events import CURSORS_PER_SERVER, CursorMap, EventFrame, EventFrameReader
from weft.errors import CursorLostError

STREAM = 'id: boot.7\ndata: {"a":"\u2028\x0b"}\n\n: a comment\nevent: x\ndata: one\ndata: two\r\n\r\ndata: cut'.encode()


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_frames_do_not_depend_on_how_their_bytes_are_split(places: list[int]) -> None:
    reader, cuts = EventFrameReader(), [0, *sorted(places), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in pairwise(cuts)]
    frames = [frame for piece in pieces for frame in reader.feed(piece)]
    assert frames == [EventFrame("boot.7", '{"a":"\u2028\x0b"}'.encode()), EventFrame(None, b"one\ntwo")]


def test_an_id_is_converted_to_a_cursor_and_back() -> None:
    cursors = CursorMap()
    first = cursors.to_cursor("one.5", 0)
    later = cursors.to_cursor("two.1", first)
    assert first < later
    assert (cursors.to_id(first), cursors.to_id(later)) == ("one.5", "two.1")
    assert cursors.to_cursor(None, later) == later
    with pytest.raises(CursorLostError):
        cursors.to_id(9 * CURSORS_PER_SERVER)


def test_events_without_ids_get_cursors_that_cannot_be_resumed() -> None:
    cursors = CursorMap()
    assert cursors.to_cursor(None, cursors.to_cursor(None, 0)) == 2
    with pytest.raises(CursorLostError):
        cursors.to_id(2)
