"""Applying many pieces of growth at once equals applying them one by one."""

from hypothesis import given
from hypothesis import strategies as st

from weft.model.part import AnyPart
from weft.model.transcript import grow_part
from weft.store.files.growth import GrowthPiece, apply_growth
from weft.testing.store_samples import growth, text

growths = st.lists(st.tuples(st.integers(0, 12), st.text(max_size=4)), max_size=12)


@given(start=st.text(max_size=5), pieces=growths)
def test_applying_all_pieces_equals_applying_one_by_one(start: str, pieces: list[tuple[int, str]]) -> None:
    part: AnyPart = text("prt_1", start)
    for offset, delta in pieces:
        part = grow_part(part, growth("prt_1", delta, offset))
    folded = apply_growth(
        text("prt_1", start), [GrowthPiece(offset=offset, delta=delta) for offset, delta in pieces]
    )
    assert folded == part
