"""Where a browser comes back to after a login: a page on this machine, for as long as one is under way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import parse_qs, urlsplit

from weft.tool.mcp.auth.login import PendingLogin

HOST: Final = "127.0.0.1"
PORT: Final = 19876
PATH: Final = "/mcp/oauth/callback"
LONGEST_HEAD: Final = 16_384
SECONDS: Final = 10.0
MOST: Final = 16

DONE: Final = "You are logged in. This page can be closed."
REFUSED: Final = "The login failed. The terminal says why."
STRANGE: Final = "This is not an answer to a login that is under way here."


def redirect_uri(port: int = PORT) -> str:
    return f"http://{HOST}:{port}{PATH}"


@asynccontextmanager
async def open_callback(login: PendingLogin, port: int = PORT) -> AsyncIterator[None]:
    """Take what a browser brings for this login. Raises `OSError` if the port is somebody else's."""
    at_once = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal at_once
        at_once += 1
        try:
            if at_once <= MOST:
                async with asyncio.timeout(SECONDS):
                    await _answer(login, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever it was did not want an answer; a timeout is an OSError, too
        finally:
            at_once -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, HOST, port, limit=LONGEST_HEAD)
    try:
        yield
    finally:
        server.close()


async def _answer(login: PendingLogin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, _, rest = head.partition(" ")
    status, words = (
        _judge(login, rest.partition(" ")[0]) if method == "GET" else ("405 Method Not Allowed", "")
    )
    body = f"<!doctype html><meta charset=utf-8><title>weft</title><p>{words}</p>".encode()
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()


def _judge(login: PendingLogin, target: str) -> tuple[str, str]:
    """What is brought counts only with the word that the login was sent out with."""
    try:
        found = urlsplit(target)
    except ValueError:
        return "400 Bad Request", STRANGE
    if found.path != PATH:
        return "404 Not Found", STRANGE
    asked = {name: values[0] for name, values in parse_qs(found.query).items()}
    if not login.is_for(asked.get("state", "")):
        return "400 Bad Request", STRANGE
    if "code" not in asked:
        login.refuse(asked.get("error_description") or asked.get("error") or "no code came back")
        return "400 Bad Request", REFUSED
    login.take(asked["code"], asked.get("iss"))
    return "200 OK", DONE
