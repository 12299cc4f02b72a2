"""Invalid input on the pipe of `weft acp` does not end the conversation."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from given.editor import open_pipe
from given.http_server import make_project
from weft.acp.connection import LineTransport
from weft.cli.main import run_command
from weft.provider.scripted import Say

INITIALIZE = {"jsonrpc": "2.0", "id": "one", "method": "initialize", "params": {"protocolVersion": 1}}
JUNK = [
    b"not json\n",
    b"\xff\xfe\x00\n",
    b"42\n",
    b"[1, 2]\n",
    b"null\n",
    b'"text"\n',
    b'{"jsonrpc": "2.0", "id": [1], "result": null}\n',
    b'{"jsonrpc": "2.0", "id": {"a": 1}, "method": "initialize"}\n',
    b'{"jsonrpc": "2.0", "id": true, "method": "initialize"}\n',
    b'{"jsonrpc": "2.0", "id": 1, "method": ["initialize"]}\n',
    b"[" * 100_000 + b"\n",
]
# Messages that are none of ours: answered, or passed over.
ODD = [
    b"\n",
    b"   \n",
    b"{}\n",
    b'{"jsonrpc": "2.0", "id": 99, "result": {}}\n',
    b'{"jsonrpc": "2.0", "method": "session/dance", "params": {}}\n',
    b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "../x"}}\n',
]


async def answers(reader: asyncio.StreamReader, count: int) -> list[dict[str, Any]]:
    return [json.loads(await reader.readline()) for _ in range(count)]


async def test_junk_is_answered_as_such_and_read_past(tmp_path: Path) -> None:
    notes: list[str] = []
    async with open_pipe(tmp_path, notes=notes) as (reader, writer):
        writer.writelines([*JUNK, *ODD, json.dumps(INITIALIZE).encode() + b"\n"])
        *refused, welcome = await answers(reader, len(JUNK) + 1)
        assert [each["id"] for each in refused] == [None] * len(JUNK)
        assert {each["error"]["code"] for each in refused} == {-32700, -32600}
        assert (welcome["id"], welcome["result"]["protocolVersion"]) == ("one", 1)
        capable = welcome["result"]["agentCapabilities"]
        assert capable["loadSession"] is True
        assert capable["promptCapabilities"] == {"image": True, "audio": False, "embeddedContext": True}
        assert set(capable["sessionCapabilities"]) == {"list", "fork", "resume", "close", "delete"}
        [method] = welcome["result"]["authMethods"]
        assert "weft auth login" in method["description"]
    assert len(notes) == len(JUNK) + 1


async def test_wrong_parameters_and_unknown_methods_are_errors_of_their_own(tmp_path: Path) -> None:
    make_project(tmp_path / "project")
    wrong = [
        {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": 7}},
        {"jsonrpc": "2.0", "id": 2, "method": "session/dance", "params": {}},
        {"jsonrpc": "2.0", "id": 3, "method": "session/prompt"},
    ]
    async with open_pipe(tmp_path) as (reader, writer):
        writer.writelines(json.dumps(each).encode() + b"\n" for each in wrong)
        found = {each["id"]: each["error"]["code"] for each in await answers(reader, len(wrong))}
        assert found == {1: -32602, 2: -32601, 3: -32602}


async def test_a_line_that_is_too_long_is_read_past() -> None:
    reader = asyncio.StreamReader(limit=64)
    reader.feed_data(b'{"a": "' + b"x" * 500 + b'"}\n' + b'{"id": 1}\n')
    reader.feed_eof()
    sent: list[bytes] = []
    lines = LineTransport(reader, _Sink(sent), lambda _: None)  # type: ignore[arg-type]
    assert await lines.receive() == {"id": 1}
    assert await lines.receive() is None
    assert b"longer than" in sent[0]


class _Sink:
    """A writer that records what is written."""

    def __init__(self, sent: list[bytes]) -> None:
        self._sent = sent

    def write(self, data: bytes) -> None:
        self._sent.append(data)

    async def drain(self) -> None:
        pass


async def test_an_editor_that_stops_reading_in_the_middle_ends_the_conversation_quietly(
    tmp_path: Path,
) -> None:
    make_project(tmp_path / "project")
    notes: list[str] = []
    async with open_pipe(tmp_path, [[Say(text="word " * 5000)]], notes=notes) as (reader, writer):
        new = {"cwd": str(tmp_path / "project"), "mcpServers": []}
        writer.write(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": new}).encode() + b"\n"
        )
        session = (await answers(reader, 1))[0]["result"]["sessionId"]
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "talk"}]}
        writer.write(
            json.dumps({"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": prompt}).encode()
            + b"\n"
        )
        await reader.readline()
        writer.transport.abort()
    assert all("Traceback" not in note for note in notes)


def test_a_missing_package_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "acp", None)
    assert run_command(["acp"]) == 2
    assert "in weft's checkout: pip install '.[acp]'" in capsys.readouterr().err
