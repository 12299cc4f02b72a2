"""Messages of a language server, split and damaged anywhere."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from given.damage import damaged_bytes
from weft.tool.language_servers import to_uri
from weft.tool.lsp.connection import FrameError, LspFrameReader, Message, to_frame
from weft.tool.lsp.server import to_path

DIAGNOSTICS = {"uri": "file:///a.py", "diagnostics": [{"message": "\u4e94", "range": {"start": {"line": 1}}}]}
MESSAGES: list[Message] = [
    {"jsonrpc": "2.0", "id": 1, "result": {}},
    {"jsonrpc": "2.0", "method": "textDocument/publishDiagnostics", "params": DIAGNOSTICS},
]
RAW = b"".join(map(to_frame, MESSAGES))


def read(*pieces: bytes) -> list[Message] | None:
    """Return the messages, None if the bytes are not messages."""
    reader = LspFrameReader()
    try:
        return [message for piece in pieces for message in reader.feed(piece)]
    except FrameError:
        return None


@given(
    st.just(RAW) | damaged_bytes(RAW, [b"\r\n\r\n", b"Content-Length: 3", b"999999999999"]),
    st.lists(st.integers(0, 300)),
)
@example(b'Content-Length: 3\r\n\r\n"\xff"', [])
@example(b'Content-Length: 8\r\n\r\n"\\ud800"', [])
def test_whatever_a_language_server_sends_is_a_message_or_refused(raw: bytes, places: list[int]) -> None:
    cuts = [0, *sorted(min(place, len(raw)) for place in places), len(raw)]
    whole = read(raw)
    assert read(*(raw[start:end] for start, end in pairwise(cuts))) == whole
    assert raw != RAW or whole == MESSAGES


@given(st.one_of(st.none(), st.integers(), st.text(), st.text().map(lambda text: f"file://{text}")))
@example("file://[")
@example("file:///%00")
def test_any_uri_is_a_path_or_none(uri: object) -> None:
    assert isinstance(to_path(uri), str | None)


@pytest.mark.parametrize("path", ["/a b/#?%41.py", "/caf\xe9/\u540d.py", "/not-utf-8-\udce9.py"])
def test_a_path_survives_as_a_uri(path: str) -> None:
    assert to_path(to_uri(path)) == path
