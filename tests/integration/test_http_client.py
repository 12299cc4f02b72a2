"""The HTTP client for model APIs against servers that speak HTTP in every way that is allowed, and in some that are not."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from weft.provider.http_client import (
    ConnectFailedError,
    ConnectTimeoutError,
    HttpClient,
    InvalidRequestError,
    TooManyConnectionsError,
)
from weft.provider.http_connection import MAX_JOINED_BYTES, ConnectionBrokenError, UndecodableBodyError

CERTIFICATE = Path(__file__).parent.parent / "given" / "tls" / "localhost.pem"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[object, object, None]]


class RawServer:
    """A server that records what it received, and sends prepared bytes for each request."""

    def __init__(self, *answers: bytes, close: bool) -> None:
        self.received: list[str] = []
        self.connections = 0
        self._answers = list(answers)
        self._close = close

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self._answers:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().partition("content-length: ")[2].split("\r\n")[0] or 0)
                self.received.append(head + (await reader.readexactly(length)).decode())
                writer.write(self._answers.pop(0))
                await writer.drain()
                if self._close:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        writer.close()


@asynccontextmanager
async def open_port(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve on a port of this machine. Leaving ends all connections."""
    serving: list[asyncio.Task[None]] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.create_task(serve(reader, writer)))
        serving[-1].add_done_callback(lambda _: writer.transport.abort())

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def fetch(client: HttpClient, url: str, *, body: bytes = b"{}", **headers: str) -> bytes:
    """Return the whole body of an answer."""
    async with client.post(url, headers, body, connect=5, write=5) as response:
        response.silence = 5
        await response.receive_head()
        return b"".join([piece async for piece in iterate(response.read)])


async def iterate(read: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    while piece := await read():
        yield piece


async def exchange(answer: bytes, *, close: bool = True) -> bytes:
    async with (
        open_port(RawServer(answer, close=close).serve) as port,
        aclosing(HttpClient()) as client,
        asyncio.timeout(60),
    ):
        return await fetch(client, f"http://127.0.0.1:{port}/")


# --- what a server may send ---


@pytest.mark.parametrize(
    "answer",
    [
        OK,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\n\r\nok",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 103 Early Hints\r\ncontent-encoding: br\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + gzip.compress(b"ok", mtime=0),
    ],
    ids=["length", "chunks", "end of the connection", "HTTP/1.0", "continue", "early hints", "gzip"],
)
async def test_a_body_is_read_completely(answer: bytes) -> None:
    assert await exchange(answer) == b"ok"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nok\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 200_000,
    ],
    ids=["nothing", "half a head", "too short", "no last chunk", "no chunk", "no HTTP", "endless head"],
)
async def test_an_incomplete_body_is_an_error(answer: bytes) -> None:
    with pytest.raises(ConnectionBrokenError):
        await exchange(answer)


@pytest.mark.parametrize("encoding", ["gzip", "br"])
async def test_a_body_that_cannot_be_decompressed_is_an_error(encoding: str) -> None:
    with pytest.raises(UndecodableBodyError):
        await exchange(
            f"HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ncontent-length: 2\r\n\r\nok".encode()
        )


async def test_a_body_larger_than_the_buffer_waits_until_it_is_read() -> None:
    size = 3_000_000
    assert len(await exchange(b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * size)) == size


async def test_a_server_may_answer_before_it_has_read_the_request() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        await writer.drain()
        await asyncio.sleep(600)

    async with open_port(refuse) as port, aclosing(HttpClient()) as client, asyncio.timeout(60):
        assert await fetch(client, f"http://127.0.0.1:{port}/", body=b"a" * 20_000_000) == b"big"


async def test_a_silent_answer_times_out_and_a_slow_one_does_not() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(12):
            await asyncio.sleep(0.25)
            writer.write(b"a")
        await asyncio.sleep(600)

    async with (
        open_port(answer) as port,
        aclosing(HttpClient()) as client,
        client.post(f"http://127.0.0.1:{port}/", {}, b"", connect=5, write=5) as response,
        asyncio.timeout(60),
    ):
        await response.receive_head()
        response.silence = 2.5  # less than the twelve take together, and much more than one
        received = b""
        while len(received) < 12:
            received += await response.read()
        assert received == b"a" * 12
        with pytest.raises(TimeoutError):
            await response.read()


# --- connections ---


async def test_a_connection_is_reused_unless_it_was_closed() -> None:
    for close, connections in ((False, 1), (True, 3)):
        server = RawServer(OK, OK, OK, close=close)
        async with open_port(server.serve) as port, aclosing(HttpClient()) as client:
            for _ in range(3):
                assert await fetch(client, f"http://127.0.0.1:{port}/") == b"ok"
        assert server.connections == connections


async def test_a_connection_that_the_server_closed_between_two_requests_is_not_used() -> None:
    may_close, closed = asyncio.Event(), asyncio.Event()
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await reader.read(1000)
        writer.write(OK)
        await writer.drain()
        await may_close.wait()
        writer.close()
        closed.set()

    async with open_port(serve) as port, aclosing(HttpClient()) as client:
        assert await fetch(client, f"http://127.0.0.1:{port}/") == b"ok"
        may_close.set()
        await closed.wait()
        await asyncio.sleep(0)  # let the connection close, which the client has not seen
        assert await fetch(client, f"http://127.0.0.1:{port}/") == b"ok"
    assert len(connections) == 2


async def test_a_connection_with_an_unread_answer_is_closed() -> None:
    server = RawServer(OK, OK, close=False)
    async with open_port(server.serve) as port, aclosing(HttpClient()) as client:
        async with client.post(f"http://127.0.0.1:{port}/", {}, b"", connect=5, write=5) as response:
            await response.receive_head()
        assert await fetch(client, f"http://127.0.0.1:{port}/") == b"ok"
    assert server.connections == 2


async def test_an_unsolicited_answer_is_not_taken_for_the_next_one() -> None:
    server = RawServer(OK + OK.replace(b"ok", b"no"), OK, close=False)
    async with open_port(server.serve) as port, aclosing(HttpClient()) as client:
        assert [await fetch(client, f"http://127.0.0.1:{port}/") for _ in range(2)] == [b"ok", b"ok"]
    assert server.connections == 2


async def test_connecting_has_a_deadline() -> None:
    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # it never begins with TLS
        writer.close()

    async with open_port(never_answer) as port, aclosing(HttpClient()) as client:
        with pytest.raises(ConnectTimeoutError):
            async with client.post(f"https://127.0.0.1:{port}/", {}, b"", connect=0.2, write=5):
                pass


async def test_a_request_waits_for_a_free_connection() -> None:
    client = HttpClient(max_connections=1)
    async with open_port(RawServer(OK, OK, close=False).serve) as port, aclosing(client):
        url = f"http://127.0.0.1:{port}/"
        async with client.post(url, {}, b"", connect=5, write=5):
            with pytest.raises(TooManyConnectionsError):
                async with client.post(url, {}, b"", connect=0.05, write=5):
                    pass


# --- requests ---


async def test_the_request_is_encoded() -> None:
    server = RawServer(OK, close=False)
    async with open_port(server.serve) as port, aclosing(HttpClient()) as client:
        url = f"http://me:se%20cret@127.0.0.1:{port}/a b/ü?x=1&y=%20#part"
        await fetch(client, url, body=b"{}", **{"x-key": "k"})
    expected = (
        "POST /a%20b/%C3%BC?x=1&y=%20 HTTP/1.1\r\n"
        f"host: 127.0.0.1:{port}\r\n"
        "connection: keep-alive\r\n"
        "x-key: k\r\n"
        "authorization: Basic bWU6c2UgY3JldA==\r\n"
        "content-length: 2\r\n\r\n{}"
    )
    assert server.received == [expected]


@pytest.mark.parametrize("length", [MAX_JOINED_BYTES, MAX_JOINED_BYTES + 1, 3_000_000])
async def test_the_server_receives_a_body_of_any_length(length: int) -> None:
    server = RawServer(OK, close=False)
    body = bytes(number % 64 + 64 for number in range(length))
    async with open_port(server.serve) as port, aclosing(HttpClient()) as client, asyncio.timeout(60):
        assert await fetch(client, f"http://127.0.0.1:{port}/", body=body) == b"ok"
    [received] = server.received
    head, _, received_body = received.partition("\r\n\r\n")
    assert f"content-length: {length}" in head
    assert received_body.encode() == body


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("ftp://example.com", {}),
        ("https://", {}),
        ("https://[::1", {}),
        ("http://example.com:99999", {}),
        ("nonsense", {}),
        ("http://example.com", {"x-key": "sk\r\nhost: elsewhere"}),
        ("http://example.com", {"x-key": "sk\n"}),
        ("http://example.com", {"x-key": "schlüssel"}),
        ("http://example.com", {"x key": "sk"}),
    ],
)
async def test_an_invalid_address_or_header_is_refused(url: str, headers: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError):
        await fetch(HttpClient(), url, **headers)


# --- proxies and TLS ---


async def test_a_proxy_gets_the_complete_address() -> None:
    server = RawServer(OK, close=False)
    async with open_port(server.serve) as port:
        client = HttpClient({"HTTP_PROXY": f"http://me:secret@127.0.0.1:{port}"})
        assert await fetch(client, "http://api.example.com/v1") == b"ok"
        await client.aclose()
    assert server.received[0].startswith(
        "POST http://api.example.com/v1 HTTP/1.1\r\nhost: api.example.com\r\n"
    )
    assert "proxy-authorization: Basic bWU6c2VjcmV0\r\n" in server.received[0]


async def test_a_proxy_that_refuses_a_tunnel_is_an_error() -> None:
    server = RawServer(b"HTTP/1.1 407 Login\r\ncontent-length: 0\r\n\r\n", close=False)
    async with (
        open_port(server.serve) as port,
        aclosing(HttpClient({"https_proxy": f"127.0.0.1:{port}"})) as client,
    ):
        with pytest.raises(ConnectFailedError, match="status 407"):
            await fetch(client, "https://api.example.com/v1", authorization="Bearer sk-1")
    assert server.received == ["CONNECT api.example.com:443 HTTP/1.1\r\nhost: api.example.com:443\r\n\r\n"]


async def test_a_server_is_reached_with_tls_and_through_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(CERTIFICATE)
    server = RawServer(OK, OK, OK, close=False)
    async with open_port(server.serve, tls) as port, open_port(make_tunnel(port)) as tunnel:
        async with aclosing(HttpClient()) as client:
            for _ in range(2):
                assert await fetch(client, f"https://localhost:{port}/") == b"ok"
        assert server.connections == 1
        async with aclosing(HttpClient({"HTTPS_PROXY": f"http://127.0.0.1:{tunnel}"})) as client:
            assert await fetch(client, f"https://api.example.com:{port}/") == b"ok"
            with pytest.raises(ConnectFailedError, match="certificate"):
                await fetch(client, f"https://other.example.com:{port}/")
        assert server.connections == 2


async def test_an_untrusted_certificate_is_refused() -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(CERTIFICATE)
    server = RawServer(OK, close=False)
    async with open_port(server.serve, tls) as port, aclosing(HttpClient()) as client:
        with pytest.raises(ConnectFailedError, match="certificate"):
            await fetch(client, f"https://localhost:{port}/")
    assert server.received == []


def make_tunnel(port: int) -> Serve:
    """Return a proxy that leads to a port of this machine, whatever it is asked for."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        there, back = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(copy(reader, back), copy(there, writer))
        finally:
            back.transport.abort()

    return serve


async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    except ConnectionError:
        pass
    sink.close()
