"""Bytes in place of an HTTP response: the body is read, or one of the promised errors is raised, wherever the bytes are cut."""

import asyncio
import gzip
import zlib
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from given.damage import damaged_bytes
from weft.provider.http_connection import (
    MAX_UNREAD_BYTES,
    ConnectionBrokenError,
    HttpConnection,
    Pulse,
    UndecodableBodyError,
)


class RecordingTransport(asyncio.Transport):
    """A transport that records whether the connection still reads from it, and sends everything to nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reading_paused = self.is_aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: object) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False

    def abort(self) -> None:
        self.is_aborted = True


Answer = tuple[int, dict[str, str], list[bytes], str]


async def receive(*pieces: bytes) -> Answer:
    """Feed the pieces of a response. Return its status, headers and body, and the name of the error that ended it."""
    connection, transport = HttpConnection(Pulse()), RecordingTransport()
    connection.connection_made(transport)
    await connection.send(b"POST / HTTP/1.1\r\n\r\n", b"", 1)
    body, failure = list[bytes](), ""

    async def read() -> None:
        await connection.receive_head()
        while piece := await connection.read():
            body.append(piece)

    reading = asyncio.create_task(read())
    for piece in pieces:
        if piece and not transport.is_aborted:
            connection.data_received(piece)
            await asyncio.sleep(0)
    connection.connection_lost(None)
    try:
        async with asyncio.timeout(5):
            await reading
    except (ConnectionBrokenError, UndecodableBodyError) as error:
        failure = type(error).__name__
    connection.end_response()
    return connection.status, connection.headers, body, failure


GZIP = gzip.compress(b"data: {}\n\n" * 9, mtime=0)
RESPONSES = [
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 10\r\n\r\ndata: {}\n\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;x=y\r\ndata:\r\n5\r\n {}\n\n\r\n0\r\nx-after: 1\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\nHTTP/1.1 429 Too Many Requests\r\nretry-after: 3\r\n\r\nslow down",
    b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%s" % (len(GZIP), GZIP),
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n\x00\x01",
    b"HTTP/1.0 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
]
PIECES = [
    b"\r\n", b"\r", b"0\r\n\r\n", b"content-length: 99999999999999999999\r\n", b"content-length: -1\r\n",
    b"transfer-encoding: chunked\r\n", b"content-encoding: br\r\n", b"content-encoding: deflate\r\n", b"HTTP/1.1 200 OK\r\n\r\n",
    b"ffffffffffffffff\r\n", b": ", b" ", b"\x80", b"connection: upgrade\r\nupgrade: x\r\n",
]  # fmt: skip


@given(
    st.sampled_from(RESPONSES).flatmap(lambda raw: damaged_bytes(raw, PIECES)) | st.binary(max_size=40),
    st.lists(st.integers(0, 200), max_size=6),
)
@example(
    b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 33\r\n\r\n\x1f\x8b\x08\x00ent-encoding: gzip\r\n"
    b"content-length: 33\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03KI,I\xb4R\xa8\xae\xe5\xe2J\xa12\x0b"
    b"\x00\xc5\xb5H\xbfZ\x00\x00\x00",
    [75],
)
def test_whatever_a_server_sends_is_a_response_or_a_broken_connection(raw: bytes, places: list[int]) -> None:
    cuts = [0, *sorted(min(place, len(raw)) for place in places), len(raw)]
    whole = asyncio.run(receive(raw))
    status, headers, body, failure = asyncio.run(receive(*(raw[start:end] for start, end in pairwise(cuts))))
    assert (status, failure) == (whole[0], whole[3])
    if status:  # else the response broke off before its headers ended, and nobody reads them
        assert headers == whole[1]
    read = sorted((b"".join(body), b"".join(whole[2])), key=len)
    # How much of a damaged body is decoded before the damage is noticed depends on the pieces in which it arrives.
    assert read[1].startswith(read[0]) if failure == "UndecodableBodyError" else read[0] == read[1]


def test_fields_after_the_body_are_not_kept() -> None:
    _, headers, body, failure = asyncio.run(receive(RESPONSES[1]))
    assert (headers, b"".join(body), failure) == ({"transfer-encoding": "chunked"}, b"data: {}\n\n", "")


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_a_body_that_grows_a_thousandfold_is_read_in_bounded_pieces(compress: object) -> None:
    assert callable(compress)
    raw = compress(bytes(20 * MAX_UNREAD_BYTES))
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(raw)
    _, _, body, failure = asyncio.run(receive(head, raw))
    assert (sum(map(len, body)), failure) == (20 * MAX_UNREAD_BYTES, "")
    assert max(map(len, body)) <= MAX_UNREAD_BYTES
