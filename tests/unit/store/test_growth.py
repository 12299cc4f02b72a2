"""Growth folded in one go is growth told piece by piece."""

from hypothesis import given
from hypothesis import strategies as st

from weft.model.part import AnyPart
from weft.model.transcript import grown
from weft.store.files.growth import Piece, fold
from weft.testing.store_values import growth, text

told = st.lists(st.tuples(st.integers(0, 12), st.text(max_size=4)), max_size=12)


@given(start=st.text(max_size=5), pieces=told)
def test_folding_is_growing_piece_by_piece(start: str, pieces: list[tuple[int, str]]) -> None:
    part: AnyPart = text("prt_1", start)
    for offset, delta in pieces:
        part = grown(part, growth("prt_1", delta, offset))
    folded = fold(text("prt_1", start), [Piece(offset=offset, delta=delta) for offset, delta in pieces])
    assert folded == part
