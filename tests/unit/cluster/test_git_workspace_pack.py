"""The files of a session as they are stored for other nodes: pieces that can be checked, and a limit."""

import zlib
from itertools import islice

import pytest

from weft.cluster.git_workspace_pack import (
    MAX_PACK_BYTES,
    PIECE_BYTES,
    StoredFiles,
    check_piece,
    check_size,
    decode_objects,
    describe_piece,
    encode_objects,
    group_objects,
)
from weft.errors import BundleError, ConflictError
from weft.snapshot.contract import PackedObject

OBJECTS = [
    PackedObject("blob", "1" * 40, b"\x00\n blob 3\n\xff"),
    PackedObject("tree", "2" * 40, b""),
    PackedObject("blob", "3" * 40, b"words"),
]


def test_objects_survive_packing() -> None:
    assert list(decode_objects(encode_objects(OBJECTS), "pack")) == OBJECTS


@pytest.mark.parametrize("cut", [0, 1, -3], ids=["empty", "shifted", "truncated"])
def test_a_damaged_piece_is_refused(cut: int) -> None:
    raw = encode_objects(OBJECTS)
    damaged = raw[:cut] if cut <= 0 else raw[cut:]
    with pytest.raises(BundleError, match=r"pack: it is (damaged|truncated)"):
        list(decode_objects(damaged, "pack"))


def test_an_object_of_negative_length_is_refused() -> None:
    with pytest.raises(BundleError, match="truncated"):
        list(islice(decode_objects(zlib.compress(b"blob 1 -11\nwords"), "pack"), 1000))


def test_a_missing_or_changed_piece_is_named_with_a_hint() -> None:
    piece = describe_piece("p", b"content", OBJECTS)
    assert check_piece(piece, b"content", "pack", hint="") == b"content"
    for raw, reason in ((None, "missing"), (b"Content", "damaged")):
        with pytest.raises(BundleError, match=reason) as raised:
            check_piece(piece, raw, "pack", hint="start a again")
        assert raised.value.hint == "start a again"


def test_objects_are_grouped_by_size_and_a_large_one_is_alone() -> None:
    large = PackedObject("blob", "4" * 40, bytes(PIECE_BYTES + 1))
    groups = list(group_objects([OBJECTS[0], large, *OBJECTS[1:]]))
    assert groups == [[OBJECTS[0]], [large], OBJECTS[1:]]
    assert list(group_objects([])) == []


def test_stored_objects_are_known_by_their_pieces() -> None:
    pieces = (describe_piece("a", b"12", OBJECTS[:1]), describe_piece("b", b"345", OBJECTS[1:]))
    stored = StoredFiles(
        workspace="loom", base="b", head="h", state="s", host="n", time=1, pieces=pieces,
        commits=describe_piece("c", b"6"),
    )  # fmt: skip
    assert stored.known == {each.oid for each in OBJECTS}
    assert (stored.size, stored.names) == (6, {"a", "b", "c"})


def test_a_session_has_a_size_limit() -> None:
    check_size("loom", MAX_PACK_BYTES)
    with pytest.raises(ConflictError, match=r"at most 128 MB .* and there are 300 MB") as raised:
        check_size("loom", 300 << 20)
    assert ".gitignore" in raised.value.hint
