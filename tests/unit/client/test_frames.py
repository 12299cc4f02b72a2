"""Frames of an event stream, however its bytes are split and damaged; and the cursors made of their ids."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from given.damage import damaged_bytes, damaged_values, to_json
from weft.client.address import Address
from weft.client.events import (
    CURSORS_PER_SERVER,
    CursorMap,
    EventFrame,
    EventFrameReader,
    EventListener,
    ServerState,
    SessionTracker,
)
from weft.client.http import ConnectionOptions, ServerConnection
from weft.errors import CursorLostError, DocumentError, UnreachableError
from weft.model.event import PartUpdated, PublishedEvent, SessionCreated, SessionIdled
from weft.model.event_wire import encode_event
from weft.testing.store_samples import SESSION, growth, session, text

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


@pytest.mark.parametrize("piece", [b"data: x\n", b"data:\n", b"x"])
def test_a_frame_that_does_not_end_is_refused(piece: bytes) -> None:
    reader = EventFrameReader(limit=1000)
    with pytest.raises(DocumentError, match="larger than 1000 bytes"):
        deque((reader.feed(piece) for _ in range(2000)), maxlen=0)


class OneStream(ServerConnection):
    """A connection to a server that sends these bytes, and is gone after that."""

    def __init__(self) -> None:
        super().__init__(Address(url="http://127.0.0.1:1"), ConnectionOptions())
        self.pieces: list[bytes] = []

    @asynccontextmanager
    async def stream(self, *_args: Any, **_options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        async def iterate() -> AsyncIterator[bytes]:
            for piece in self.pieces:
                yield piece
            raise UnreachableError("gone")

        yield iterate()


@pytest.fixture(scope="module")
def server() -> OneStream:
    """One for all examples: making an HTTP client takes a while."""
    return OneStream()


async def gather_nothing(_: SessionTracker) -> ServerState:
    return ServerState(sessions={}, messages={}, status={})


async def listen(server: OneStream, *pieces: bytes) -> list[Any]:
    """Return everything that a listener puts into its queue while the server sends these bytes."""
    server.pieces = list(pieces)
    listener = EventListener(server, CursorMap(), gather_nothing, None)
    async with asyncio.timeout(30):
        await listener.run()
    return [listener.queue.get_nowait() for _ in range(listener.queue.qsize())]


EVENTS = [
    {"type": "server.connected", "properties": {}},
    *(
        json.loads(encode_event(event))
        for event in (
            SessionCreated(info=session()),
            PartUpdated(part=text("prt_a", "a"), delta="a"),
            growth("prt_a", "b", 1),
            SessionIdled(session_id=SESSION),
        )
    ),
    {"type": "server.resync", "properties": {"reason": "a gap"}},
    {
        "type": "message.part.delta",
        "properties": {"sessionID": "s", "messageID": "m", "partID": "p", "delta": "x"},
    },
]
LAST = SessionIdled(session_id=SESSION)


def to_frames(events: Any) -> bytes:
    listed = events if isinstance(events, list) else [events]
    return b"".join(
        b"id: boot.%d\ndata: %s\n\n" % (number, to_json(each)) for number, each in enumerate(listed)
    )


FRAMES = damaged_values(EVENTS).map(to_frames)


@given(raw=FRAMES | FRAMES.flatmap(lambda raw: damaged_bytes(raw, [b"\n\n", b"id: ", b"data: ", b"retry: "])))
@example(raw=b'data: {"type": []}\n\n')
@example(raw=b'data: {"type": "server.resync", "properties": [1]}\n\n')
@example(raw=b"id: boot.%s\ndata: {}\n\n" % (b"1" * 5000))
@example(raw=b'id: boot.%s\ndata: {"type": "x"}\n\n' % (b"1" * 5000))
def test_whatever_a_server_sends_the_next_event_arrives(server: OneStream, raw: bytes) -> None:
    *_, last, end = asyncio.run(listen(server, raw, b"\n\ndata: " + encode_event(LAST) + b"\n\n"))
    assert isinstance(last, PublishedEvent)
    assert last.event == LAST
    assert isinstance(end, UnreachableError)
