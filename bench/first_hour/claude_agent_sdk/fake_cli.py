"""A stand-in for the program that the SDK starts: the SDK has no fake model, and its model loop is in that program."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
from claude_agent_sdk import Transport


def grow(text: str) -> dict[str, Any]:
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return {"type": "stream_event", "uuid": "1", "session_id": "1", "event": event}


def request(server: str, method: str, **message: Any) -> dict[str, Any]:
    content = {"jsonrpc": "2.0", "method": method, **message}
    asked = {"subtype": "mcp_message", "server_name": server, "message": content}
    return {"type": "control_request", "request_id": method, "request": asked}


def connect(server: str) -> list[dict[str, Any]]:
    client = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "fake", "version": "1"},
    }
    return [request(server, "initialize", id=0, params=client), request(server, "notifications/initialized")]


def call(server: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return request(server, "tools/call", id=1, params={"name": tool, "arguments": arguments})


def end(text: str, value: object = None) -> dict[str, Any]:
    counts = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1}
    ended = {"type": "result", "subtype": "success", "is_error": False, "session_id": "1", "result": text}
    return {**ended, **counts, "structured_output": value}


class FakeCli(Transport):
    """Answers the SDK's handshake, plays messages, and waits for the result of each call."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.prompts: list[str] = []
        self.results: list[dict[str, Any]] = []
        self._messages = messages
        self._send, self._receive = anyio.create_memory_object_stream[dict[str, Any]](100)

    async def connect(self) -> None:
        pass

    async def write(self, data: str) -> None:
        sent = json.loads(data)
        match sent["type"]:
            case "control_request":
                done = {"subtype": "success", "request_id": sent["request_id"], "response": {}}
                await self._send.send({"type": "control_response", "response": done})
            case "control_response":
                self.results.append(sent["response"]["response"]["mcp_response"]["result"])
                await self._send.send({"type": "go on"})
            case "user":
                self.prompts.append(sent["message"]["content"])
                await self._send.send({"type": "go on"})

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        left = list(self._messages)
        async for message in self._receive:
            if message["type"] != "go on":
                yield message
                continue
            while left:
                yield (played := left.pop(0))
                if played["type"] == "control_request":
                    break
            if not left:
                return

    async def close(self) -> None:
        self._send.close()
        self._receive.close()

    def is_ready(self) -> bool:
        return True

    async def end_input(self) -> None:
        pass
