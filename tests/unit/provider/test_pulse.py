"""Readers of many connections are woken together. The time is simulated."""

import asyncio

from given.simulated_time import simulate
from weft.provider.http_connection import PULSE_SECONDS, HttpConnection, Pulse

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PIECE = b"2\r\nhi\r\n"
END = b"0\r\n\r\n"


class QuietTransport(asyncio.Transport):
    """A transport that sends everything at once, to nobody."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: object) -> None:
        pass


class WokenConnection(HttpConnection):
    """Counts how often its reader would have been woken."""

    def __init__(self, pulse: Pulse) -> None:
        super().__init__(pulse)
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


async def send_request() -> WokenConnection:
    """Return a connection that waits for a response, just after the reader of another one was woken."""
    pulse = Pulse()
    connection = WokenConnection(pulse)
    connection.connection_made(QuietTransport())
    await connection.send(b"POST / HTTP/1.1\r\n\r\n", b"", 1)
    pulse.wake(WokenConnection(pulse))
    return connection


def test_the_first_piece_wakes_its_reader_at_once_and_later_ones_wake_all_readers_together() -> None:
    async def wake_two() -> None:
        pulse = Pulse()
        first, second = WokenConnection(pulse), WokenConnection(pulse)
        pulse.wake(first)
        assert first.woken == 1
        for connection in (first, second, second):
            pulse.wake(connection)
        assert (first.woken, second.woken) == (1, 0)
        await asyncio.sleep(PULSE_SECONDS * 2)
        assert (first.woken, second.woken) == (2, 1)

    simulate(wake_two())


def test_a_piece_after_a_pause_wakes_its_reader_at_once() -> None:
    async def wake_twice() -> None:
        pulse = Pulse()
        connection = WokenConnection(pulse)
        pulse.wake(connection)
        await asyncio.sleep(PULSE_SECONDS * 2)
        pulse.wake(connection)
        assert connection.woken == 2

    simulate(wake_twice())


def test_the_head_of_a_response_wakes_its_reader_at_once() -> None:
    async def receive() -> list[int]:
        counts = []
        for data in (HEAD, HEAD + PIECE):
            connection = await send_request()
            connection.data_received(data)
            counts.append(connection.woken)
        return counts

    assert simulate(receive()) == [1, 1]


def test_the_end_of_a_response_wakes_its_reader_at_once_and_other_pieces_wait() -> None:
    async def receive() -> list[int]:
        connection = await send_request()
        counts = []
        for data in (HEAD, PIECE, PIECE, END):
            connection.data_received(data)
            counts.append(connection.woken)
        return counts

    assert simulate(receive()) == [1, 1, 1, 2]
