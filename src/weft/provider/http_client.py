"""An HTTP client for one purpose: POST a body, and read the response as it arrives.

A general client takes a quarter of the CPU of a short `weft run` to import (decision 88).
"""

import asyncio
import errno
import os
import re
import ssl
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from weft.host.network import find_proxy
from weft.model.url import is_loopback_host
from weft.provider.http_connection import HttpConnection, Pulse

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
HAPPY_EYEBALLS_SECONDS: Final = 0.25  # after this time the next address of a host is tried, too
MAX_CONNECTIONS: Final = 100
MAX_IDLE_CONNECTIONS: Final = 20
SUCCESS: Final = range(200, 300)
URL_CHARACTERS: Final = "!#$%&'()*+,/:;=?@[]~"
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"([!-~]([\t -~]*[!-~])?)?")


class InvalidRequestError(ValueError):
    """The address or a header of a request cannot be sent. The message quotes neither: they may hold a key."""


class ConnectFailedError(OSError):
    """The server, or the proxy on the way to it, could not be reached."""


class ConnectTimeoutError(TimeoutError):
    """The connection took too long."""


class TooManyConnectionsError(TimeoutError):
    """No connection became free in time."""


class Origin(Struct, frozen=True):
    """Where a connection leads. `proxy` is the address of the proxy on the way, or ""."""

    scheme: str
    host: str
    port: int
    proxy: str = ""

    @property
    def authority(self) -> str:
        """The host as requests name it: with its port unless that is the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


class HttpClient:
    """Sends requests, and keeps connections open for the next ones.

    Requests to other machines go through the proxy that `environment` names, if it names one.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, *, max_connections: int = MAX_CONNECTIONS
    ) -> None:
        self._environment = environment or {}
        self._tls: ssl.SSLContext | None = None
        self._idle: dict[Origin, list[HttpConnection]] = {}
        self._slots = asyncio.Semaphore(max_connections)
        self._pulse = Pulse()

    @asynccontextmanager
    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, connect: float, write: float
    ) -> AsyncIterator[HttpConnection]:
        """Send a request, and yield the connection from which to read the response.

        `connect` and `write` are deadlines in seconds. Raise `InvalidRequestError`, `ConnectFailedError`,
        `ConnectTimeoutError`, `TooManyConnectionsError`, `TimeoutError` if the server does not read the request, and
        another `OSError` if the connection breaks off.
        """
        origin, head = self._encode_head(url, headers, len(body))
        try:
            async with asyncio.timeout(connect):
                await self._slots.acquire()
        except TimeoutError:
            raise TooManyConnectionsError from None
        connection: HttpConnection | None = None
        try:
            connection = self._find_idle(origin) or await self._connect(origin, connect)
            await connection.send(head, body, write)
            yield connection
        finally:
            self._slots.release()
            if connection is not None:
                self._keep(origin, connection)

    async def aclose(self) -> None:
        """Close all connections that nobody uses."""
        while self._idle:
            for connection in self._idle.popitem()[1]:
                connection.abort()

    def _encode_head(self, url: str, headers: Mapping[str, str], length: int) -> tuple[Origin, bytes]:
        """Return where a request with a body of this length goes, and its head. A user and a password in the URL become a header."""
        parts, origin = parse_origin(url)
        if not is_loopback_host(origin.host):
            origin = replace(origin, proxy=find_proxy(url, self._environment) or "")
        target = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=URL_CHARACTERS)
        sent = {"host": origin.authority, "connection": "keep-alive", **headers}
        if parts.username or parts.password:
            sent["authorization"] = _to_basic_login(parts.username, parts.password)
        if origin.proxy and origin.scheme == "http":
            target = f"http://{origin.authority}{target}"
            sent |= _to_proxy_login(origin.proxy)
        sent["content-length"] = str(length)
        return origin, encode_head(f"POST {target} HTTP/1.1", sent)

    def _find_idle(self, origin: Origin) -> HttpConnection | None:
        """Return a connection that is open already, the one that was used last."""
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.is_reusable():
                return connection
            connection.abort()
        return None

    def _keep(self, origin: Origin, connection: HttpConnection) -> None:
        """Keep a connection for the next request. Close it if it cannot be used again, or if enough others are kept."""
        connection.end_response()
        if connection.is_reusable() and sum(map(len, self._idle.values())) < MAX_IDLE_CONNECTIONS:
            self._idle.setdefault(origin, []).append(connection)
        else:
            connection.abort()

    async def _connect(self, origin: Origin, seconds: float) -> HttpConnection:
        try:
            async with asyncio.timeout(seconds):
                if origin.proxy:
                    return await self._connect_through_proxy(origin, seconds)
                return await self._open(origin.scheme, origin.host, origin.port)
        except TimeoutError:
            raise ConnectTimeoutError from None
        except (OSError, UnicodeError) as error:
            raise ConnectFailedError(str(error)) from _find_refusal(error)

    async def _open(self, scheme: str, host: str, port: int) -> HttpConnection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: HttpConnection(self._pulse),
            host,
            port,
            ssl=self._get_tls() if scheme == "https" else None,
            happy_eyeballs_delay=HAPPY_EYEBALLS_SECONDS,
        )
        return connection

    async def _connect_through_proxy(self, origin: Origin, seconds: float) -> HttpConnection:
        """Connect to the proxy. For HTTPS it makes a tunnel to the server, and cannot read what passes through."""
        try:
            _, proxy = parse_origin(origin.proxy if "://" in origin.proxy else f"http://{origin.proxy}")
        except InvalidRequestError:
            raise ConnectFailedError("the proxy that the environment names is not an HTTP server") from None
        connection = await self._open(proxy.scheme, proxy.host, proxy.port)
        if origin.scheme == "http":
            return connection
        try:
            host = f"[{origin.host}]" if ":" in origin.host else origin.host
            headers = {"host": f"{host}:{origin.port}", **_to_proxy_login(origin.proxy)}
            head = encode_head(f"CONNECT {host}:{origin.port} HTTP/1.1", headers)
            await connection.send(head, b"", seconds)
            await connection.receive_head()
            if connection.status not in SUCCESS:
                raise ConnectFailedError(f"the proxy answered with status {connection.status}")
            transport = await asyncio.get_running_loop().start_tls(
                connection.transport, connection, self._get_tls(), server_hostname=origin.host
            )
            if transport is None:
                raise ConnectFailedError("the server closed the connection")
            connection.connection_made(transport)
        except BaseException:
            connection.abort()
            raise
        return connection

    def _get_tls(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = make_tls_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


def parse_origin(url: str) -> tuple[SplitResult, Origin]:
    """Parse the address of an HTTP server. Raise `InvalidRequestError` if it is something else."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        host = host if host.isascii() else host.encode("idna").decode()
        port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        raise InvalidRequestError("the address is invalid") from None
    if not host or " " in host or parts.scheme not in DEFAULT_PORTS:
        raise InvalidRequestError("the address is not an HTTP address")
    return parts, Origin(parts.scheme, host, port)


def encode_head(first_line: str, headers: Mapping[str, str]) -> bytes:
    """Return the head of a request. Raise `InvalidRequestError` if a header cannot be sent."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise InvalidRequestError("a header is invalid")
    lines = [first_line, *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("ascii")


def _to_basic_login(user: str | None, password: str | None) -> str:
    login = f"{unquote(user or '')}:{unquote(password or '')}"
    return f"Basic {b64encode(login.encode()).decode()}"


def _to_proxy_login(proxy: str) -> dict[str, str]:
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if not parts.username and not parts.password:
        return {}
    return {"proxy-authorization": _to_basic_login(parts.username, parts.password)}


def _find_refusal(error: OSError | UnicodeError) -> OSError | UnicodeError:
    """Return the error, as `ConnectionRefusedError` if that is what it says.

    If a host has several addresses, Python 3.11 joins their errors into one text.
    """
    if f"[Errno {errno.ECONNREFUSED}]" in str(error):
        return ConnectionRefusedError(errno.ECONNREFUSED, str(error))
    return error


def make_tls_context() -> ssl.SSLContext:
    """Return a context that trusts the authorities of this machine, or those of `SSL_CERT_FILE` or `SSL_CERT_DIR`."""
    if cafile := os.environ.get("SSL_CERT_FILE"):
        return ssl.create_default_context(cafile=cafile)
    if capath := os.environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context(capath=capath)
    paths = ssl.get_default_verify_paths()
    if sys.platform in {"darwin", "win32"} or not os.path.isfile(paths.openssl_cafile):
        # The authorities are in a database of the system, or not where this Python looks for them.
        from httpx2 import create_ssl_context  # noqa: PLC0415  slow to import, and few machines need it

        return create_ssl_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(
        paths.openssl_cafile, paths.openssl_capath if os.path.isdir(paths.openssl_capath) else None
    )
    return context
