"""What a stranger may send: a good value, good lines or good bytes, with damage in them."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from weft.errors import DocumentError, InvalidInputError, WeftError
from weft.importers.transcript import FoundSession
from weft.model.transfer import SessionExport
from weft.model.wire import decode, encode

# A test may use the same directory for all its examples, and writing a file for each takes a while.
IN_ONE_DIRECTORY = settings(
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ]
)
Place = tuple[str | int, ...]

# JSON that Python does not write by itself. `to_json` writes these texts in place of their names.
RARE_JSON = {
    "<a huge exponent>": "1e999999999",
    "<a tiny exponent>": "1e-999999999",
    "<beyond any float>": "1e400",
    "<beyond 64 bits>": "18446744073709551616",
    "<beyond all digits>": "1" * 5000,
    "<not a number>": "NaN",
    "<infinite>": "-Infinity",
    "<a lone surrogate>": '"\\ud800"',
    "<deep>": "[" * 600 + "]" * 600,
    "<too deep>": "[" * 20_000 + "]" * 20_000,
    "<half a list>": "[1,",
}
ODD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(
        ["", "{", '{"a":', "\x00", "../x", "/", [], {}, [[]], [None], {"type": "text"}, {"": {}}, -1, 2**70]
    ),
    st.sampled_from(sorted(RARE_JSON)),
)


def list_places(value: Any, place: Place = ()) -> list[Place]:
    """Return the path of every value inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [inner for key, each in items for inner in [(*place, key), *list_places(each, (*place, key))]]


def copy_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def to_json(value: Any) -> bytes:
    text = json.dumps(value)
    for name, rare in RARE_JSON.items():
        text = text.replace(json.dumps(name), rare)
    return text.encode()


@st.composite
def damaged_values(draw: st.DrawFn, value: Any, odd: st.SearchStrategy[Any] = ODD_VALUES) -> Any:
    """Return the value with up to four values in it replaced, removed, or put elsewhere."""
    whole = [copy_json(value)]
    for _ in range(draw(st.integers(0, 4))):
        places = [place for place in list_places(whole) if len(place) > 1] or [(0,)]
        *way, last = draw(st.sampled_from(places))
        at: Any = whole
        for key in way:
            at = at[key]
        match draw(st.sampled_from(["put", "put", "remove", "move"])):
            case "put":
                at[last] = copy_json(draw(odd))
            case "remove" if way:
                del at[last]
            case _:
                moved: Any = whole
                for key in draw(st.sampled_from(places)):
                    moved = moved[key]
                at[last] = copy_json(moved)
    return whole[0]


@st.composite
def damaged_lines(draw: st.DrawFn, lines: Sequence[Any]) -> bytes:
    """Return JSON lines in another order, some twice and some not at all, with odd values in them, and damaged bytes."""
    chosen = draw(st.just(list(lines)) | st.lists(st.sampled_from(lines), max_size=2 * len(lines)))
    damaged = draw(damaged_values(chosen))
    raw = b"".join(to_json(each) + b"\n" for each in (damaged if isinstance(damaged, list) else [damaged]))
    return draw(damaged_bytes(raw)) if draw(st.booleans()) else raw


@st.composite
def damaged_bytes(draw: st.DrawFn, raw: bytes, more_pieces: Sequence[bytes] = ()) -> bytes:
    """Return the bytes with pieces replaced, bits flipped or stretches repeated, and perhaps cut off.

    `more_pieces` are those with a meaning in the format of the bytes.
    """
    pieces = st.sampled_from([*PIECES, *more_pieces]) | st.binary(max_size=4)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(raw)))
        match draw(st.sampled_from(["put", "put", "flip", "repeat"])):
            case "flip" if at < len(raw):
                raw = raw[:at] + bytes([raw[at] ^ (1 << draw(st.integers(0, 7)))]) + raw[at + 1 :]
            case "repeat":
                stretch = raw[at : at + draw(st.integers(1, 60))]
                raw = raw[:at] + stretch * draw(st.sampled_from([1, 2, 50])) + raw[at:]
            case _:
                raw = raw[:at] + draw(pieces) + raw[at + draw(st.integers(0, 9)) :]
    return raw[: draw(st.integers(0, len(raw)))] if draw(st.booleans()) else raw


PIECES = [
    b"",
    b'"',
    b"\\",
    b"\\u",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\n",
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
]


@contextmanager
def allow_refusal(*errors: type[WeftError], naming: str = "") -> Iterator[None]:
    """Allow the block to raise one of these errors. Its message must then contain `naming`."""
    message = None
    try:
        yield
    except errors as error:
        message = str(error)
    assert message is None or naming in message, message


def check_import(found: FoundSession) -> None:
    """Check that a session is refused, or read so that the store reads the same from what it writes."""
    with allow_refusal(DocumentError, InvalidInputError):
        check_storable(found.read().export)


def check_storable(export: SessionExport) -> None:
    assert decode(encode(export), SessionExport) == export
