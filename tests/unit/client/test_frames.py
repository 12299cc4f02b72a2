"""Frames of a stream, however its bytes are cut; and the numbers that stand for their ids."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.client.events import PER_SERVER, Cursors, Frame, FrameReader
from weft.errors import CursorLostError

STREAM = 'id: boot.7\ndata: {"a":"\u2028\x0b"}\n\n: a comment\nevent: x\ndata: one\ndata: two\r\n\r\ndata: cut'.encode()


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_frames_are_the_same_however_their_bytes_are_cut(places: list[int]) -> None:
    reader, cuts = FrameReader(), [0, *sorted(places), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in pairwise(cuts)]
    frames = [frame for piece in pieces for frame in reader.feed(piece)]
    assert frames == [Frame("boot.7", '{"a":"\u2028\x0b"}'.encode()), Frame(None, b"one\ntwo")]


def test_an_id_and_its_number_stand_for_one_another() -> None:
    cursors = Cursors()
    first = cursors.number("one.5", 0)
    later = cursors.number("two.1", first)
    assert first < later
    assert (cursors.id(first), cursors.id(later)) == ("one.5", "two.1")
    assert cursors.number(None, later) == later
    with pytest.raises(CursorLostError):
        cursors.id(9 * PER_SERVER)


def test_what_has_no_ids_is_counted_and_cannot_be_gone_back_to() -> None:
    cursors = Cursors()
    assert cursors.number(None, cursors.number(None, 0)) == 2
    with pytest.raises(CursorLostError):
        cursors.id(2)
