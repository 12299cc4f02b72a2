"""The connection to one editor: one JSON message per line."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final, cast

from acp.core import AgentSideConnection

from weft.acp.agent import AcpAgent, AgentSetup
from weft.errors import DocumentError
from weft.model.wire import parse

MAX_LINE_BYTES: Final = 64 << 20
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
UNROUTED_METHODS: Final = frozenset({"session/delete"})
NOT_JSON: Final = "it is not JSON"
TOO_LONG: Final = f"it is longer than {MAX_LINE_BYTES >> 20} MB"

Message = dict[str, Any]


class LineTransport:
    """The transport of the protocol's connection, with the methods `send`, `receive` and `close` that the SDK needs.

    The SDK's own transport accepts any JSON, so that a line with only a number ends the connection, and does not limit
    the length of lines. Here the limit is that of the `reader`: open it with `limit=MAX_LINE_BYTES`.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[str], None]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._note = note
        self._disconnected = False

    async def receive(self) -> Message | None:
        """Return the next message, None if there will be no more."""
        while (line := await self._read_line()) is not None:
            if not line.strip():
                continue
            message, problem = parse_message(line)
            if message is not None:
                return _make_routable(message)
            await self._refuse(problem)
        return None

    async def send(self, message: Message) -> None:
        """Write a message; messages are written in the order of the calls. After the editor has disconnected, do nothing."""
        if self._disconnected:
            return
        # Non-ASCII is escaped: half a surrogate pair, from a tool or a model, must not end the conversation.
        self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        try:
            await self._writer.drain()
        except ConnectionError:
            self._disconnect("the editor has closed its input")

    async def close(self) -> None:
        self._disconnected = True
        self._writer.close()

    def _disconnect(self, reason: str) -> None:
        if not self._disconnected:
            self._disconnected = True
            self._note(reason)

    async def _refuse(self, problem: str) -> None:
        self._note(f"a line that is not a message: {problem}")
        code = PARSE_ERROR if problem == NOT_JSON else INVALID_REQUEST
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": problem}})

    async def _read_line(self) -> bytes | None:
        """Return the next line. One that is too long is skipped and refused."""
        too_long = False
        while not self._disconnected:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                return end.partial if end.partial and not too_long else None
            except asyncio.LimitOverrunError as error:
                await self._reader.readexactly(error.consumed)
                too_long = True
                continue
            except ConnectionError:
                self._disconnect("the editor has closed the connection")
                return None
            if not too_long:
                return line
            await self._refuse(TOO_LONG)
            too_long = False
        return None


def _make_routable(message: Message) -> Message:
    """Return a message whose method the SDK passes on. It knows the unrouted methods but calls nothing for them."""
    method = message.get("method")
    return {**message, "method": f"_{method}"} if method in UNROUTED_METHODS else message


def parse_message(line: bytes) -> tuple[Message | None, str]:
    """Return a JSON-RPC message, or what is wrong with it."""
    try:
        message = parse(line)
    except DocumentError:
        return None, NOT_JSON
    if not isinstance(message, dict):
        return None, "it is not an object"
    id = message.get("id")
    if isinstance(id, bool) or not isinstance(id, str | int | None):
        return None, "its id is neither text nor a whole number"
    if not isinstance(message.get("method", ""), str):
        return None, "its method is not text"
    if not isinstance(message.get("error"), dict | None):
        return None, "its error is not an object"
    return message, ""


async def serve_editor(setup: AgentSetup, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one editor until it disconnects. When this returns every run has settled."""
    async with asyncio.TaskGroup() as tasks:
        agent = AcpAgent(setup, tasks)
        # The SDK calls resuming, forking and closing sessions unstable; editors that learn of them may use them.
        connection = AgentSideConnection(
            cast(Any, agent),  # the SDK passes parameters that we ignore
            LineTransport(reader, writer, setup.note),
            listening=False,
            use_unstable_protocol=True,
        )
        try:
            await connection.listen()
        finally:
            await agent.close()
            await connection.close()
