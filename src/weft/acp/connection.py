"""The connection to one editor: JSON messages, line by line."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec
from acp.core import AgentSideConnection

from weft.acp.agent import Front, Setup

LONGEST_LINE: Final = 64 << 20
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600

Message = dict[str, Any]


class Lines:
    """A transport for the protocol's connection (it asks for `send`, `receive` and `close`).

    The SDK's own one passes on whatever is JSON, and a line that is a number ends its connection. Its lines have no limit.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[str], None]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._note = note
        self._gone = False

    async def receive(self) -> Message | None:
        """The next message; None when there will be no more."""
        while (line := await self._line()) is not None:
            if not line.strip():
                continue
            message, fault = to_message(line)
            if message is not None:
                return _routed(message)
            await self._refuse(fault)
        return None

    async def send(self, message: Message) -> None:
        """Written in the order of the calls. Once nobody reads any more, what is sent is for nobody."""
        if self._gone:
            return
        # Escapes stand for what is not ASCII: half a character, from a tool or a model, must not end the conversation.
        self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        try:
            await self._writer.drain()
        except ConnectionError:
            self._leave("the editor reads no more")

    async def close(self) -> None:
        self._gone = True
        self._writer.close()

    def _leave(self, why: str) -> None:
        if not self._gone:
            self._gone = True
            self._note(why)

    async def _refuse(self, fault: str) -> None:
        self._note(f"a line that is no message: {fault}")
        code = PARSE_ERROR if fault == NOT_JSON else INVALID_REQUEST
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": fault}})

    async def _line(self) -> bytes | None:
        """The next line. One that is too long is read past, and refused."""
        too_long = False
        while not self._gone:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                return end.partial if end.partial and not too_long else None
            except asyncio.LimitOverrunError as over:
                await self._reader.readexactly(over.consumed)
                too_long = True
                continue
            if not too_long:
                return line
            await self._refuse(TOO_LONG)
            too_long = False
        return None


def _routed(message: Message) -> Message:
    """The same message, under a name by which the SDK passes it on: it knows these methods and has no route for them."""
    method = message.get("method")
    return {**message, "method": f"_{method}"} if method in UNROUTED else message


UNROUTED: Final = frozenset({"session/delete"})
NOT_JSON: Final = "it is not JSON"
TOO_LONG: Final = f"it is longer than {LONGEST_LINE >> 20} MB"


def to_message(line: bytes) -> tuple[Message | None, str]:
    """A message of JSON-RPC, or what is wrong with it."""
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None, NOT_JSON
    if not isinstance(message, dict):
        return None, "it is not an object"
    id = message.get("id")
    if isinstance(id, bool) or not isinstance(id, str | int | None):
        return None, "its id is neither text nor a whole number"
    if not isinstance(message.get("method", ""), str):
        return None, "its method is not text"
    return message, ""


async def serve_editor(setup: Setup, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """When this returns, however that comes, every run is settled."""
    async with asyncio.TaskGroup() as tasks:
        front = Front(setup, tasks)
        # Resuming, forking and closing sessions are called unstable by the SDK; who is told of them may use them.
        connection = AgentSideConnection(
            cast(Any, front),  # the SDK calls what is there, and names parameters that we pass over
            Lines(reader, writer, setup.note),
            listening=False,
            use_unstable_protocol=True,
        )
        try:
            await connection.listen()
        finally:
            await front.close()
            await connection.close()
