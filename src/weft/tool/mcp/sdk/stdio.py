"""The streams of a local server: a process of `host`, which ends with all that it started, whatever it ignores.

The library would start the process itself, outside of our care.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

from weft.errors import McpError
from weft.host.process import Command
from weft.host.talk import Talk, open_talk
from weft.host.tasks import open_tasks
from weft.tool.mcp.entry import LocalEntry
from weft.tool.mcp.link import News
from weft.tool.mcp.naming import legible
from weft.tool.mcp.sdk.lines import Lines, LineTooLongError

# Lines that are no messages are passed over, as the library does; of one that has nothing else to say, not for ever.
MOST_JUNK: Final = 1000
# After so many messages without a pause, others have their turn.
AT_ONCE: Final = 256
PAUSE_SECONDS: Final = 0.005
ERROR_BYTES: Final = 2000
LAST_WORDS_SECONDS: Final = 0.3

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class _Ear:
    """Hears what the process says: messages on its output, complaints on its errors, of which the last are kept."""

    def __init__(self, incoming: Incoming, news: News) -> None:
        self._incoming = incoming
        self._news = news
        self._lines = Lines()
        self._junk = 0
        self._count = 0
        self._complaints = bytearray()

    async def hear(self, piece: bytes) -> None:
        if self._news.lost:
            return
        try:
            for line in self._lines.feed(piece):
                await self._take(line)
        except LineTooLongError:
            self.lose("it sent a message that has no end")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.lose("nobody listens to it any more")

    async def _take(self, line: bytes) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError:
            self._junk += 1
            if self._junk > MOST_JUNK:
                self.lose(f"it writes what is not MCP to its standard output: {_legible(line[:200])}")
            return
        if not self._news.lost:
            await self._incoming.send(SessionMessage(message))
        self._count += 1
        if self._count % AT_ONCE == 0:
            await asyncio.sleep(PAUSE_SECONDS)

    async def hear_errors(self, piece: bytes) -> None:
        self._complaints += piece
        del self._complaints[:-ERROR_BYTES]

    def lose(self, reason: str) -> None:
        said = _legible(bytes(self._complaints))
        self._news.lose(f"{reason}; it said: {said}" if said else reason)
        self._incoming.close()


def _legible(raw: bytes) -> str:
    return legible(raw.decode(errors="replace"), ERROR_BYTES)


@asynccontextmanager
async def open_stdio(entry: LocalEntry, news: News) -> AsyncIterator[Streams]:
    """Start a server and talk with it. Leaving ends it, and everything it started."""
    if entry.refusal:
        raise McpError(entry.refusal)
    if not await asyncio.to_thread(_can_be_run, entry):
        raise McpError(f"{entry.argv[0]} cannot be run: there is no such program")
    hearing, heard = anyio.create_memory_object_stream[SessionMessage | Exception](AT_ONCE)
    saying, said = anyio.create_memory_object_stream[SessionMessage](0)
    ear = _Ear(hearing, news)
    command = Command(argv=entry.argv, directory=entry.directory, environment=entry.environment)
    with hearing, heard, saying, said:
        try:
            async with open_talk(command, ear.hear, ear.hear_errors) as talk, open_tasks() as tasks:
                at_work = [
                    tasks.create_task(_pass_on(said, talk)),
                    tasks.create_task(_wait(talk, ear, entry)),
                ]
                try:
                    yield heard, saying
                finally:
                    for task in at_work:
                        task.cancel()
        except OSError as error:
            raise McpError(f"{entry.argv[0]} cannot be run: {error.strerror or error}") from error


def _can_be_run(entry: LocalEntry) -> bool:
    program = entry.argv[0]
    named = os.path.join(entry.directory, program) if "/" in program else program
    return shutil.which(named, path=entry.environment.get("PATH", os.defpath)) is not None


async def _pass_on(said: MemoryObjectReceiveStream[SessionMessage], talk: Talk) -> None:
    async for each in said:
        line = each.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            talk.say(line.encode() + b"\n")
        except OSError:
            return  # it has ended, or does not listen: whoever waits for an answer has a deadline


async def _wait(talk: Talk, ear: _Ear, entry: LocalEntry) -> None:
    await talk.over()
    await talk.heard_out(LAST_WORDS_SECONDS)
    ear.lose(f"{os.path.basename(entry.argv[0])} has ended")
