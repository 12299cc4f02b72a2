"""A server that sends the answers a test gives it, also ones that our own never sends. It claims to be OpenCode 1.1.34."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any


class CannedServer:
    """`answers` maps paths to answers; `stream` lists the events for listeners. A `silent` server never answers."""

    def __init__(self) -> None:
        self.url = ""
        self.silent = False
        self.asked: list[str] = []
        self.stream: list[dict[str, Any]] = []
        self.answers: dict[str, Any] = {
            "/global/health": {"healthy": True, "version": "1.1.34"},
            "/path": {"directory": "/nowhere", "worktree": "/"},
        }
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(
            lambda _: writer.transport.abort()
        )  # also if it is cancelled before it has begun

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ")[1].decode().partition("?")[0]
                self.asked.append(path)
                if self.silent:
                    await asyncio.Event().wait()
                await self._answer(path, writer)

    async def _answer(self, path: str, writer: asyncio.StreamWriter) -> None:
        if path == "/event":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            for event in self.stream:
                writer.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            await writer.drain()
            await asyncio.Event().wait()
        found = path in self.answers
        body = json.dumps(
            self.answers.get(path, {"name": "NotFoundError", "data": {"message": "none"}})
        ).encode()
        status = b"200 OK" if found else b"404 Not Found"
        writer.write(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n" % status)
        writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()


@asynccontextmanager
async def open_canned_server() -> AsyncIterator[CannedServer]:
    canned = CannedServer()
    server = await asyncio.start_server(canned.begin, "127.0.0.1", 0)
    canned.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield canned
    finally:
        server.close()
        await canned.close()
