"""Invalid input on the pipe of `weft acp` does not end the conversation."""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from given.damage import IN_ONE_DIRECTORY, damaged_bytes, damaged_values, to_json
from given.editor import open_pipe
from given.http_server import make_project
from weft.acp.connection import LineTransport, parse_message
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
    b'{"jsonrpc": "2.0", "id": 0, "error": "no"}\n',
    b"[" * 100_000 + b"\n",
]
# Lines that nobody expects, but that need no answer: they are ignored. That the last names no session is noted.
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


async def test_invalid_lines_are_answered_with_an_error_and_skipped(tmp_path: Path) -> None:
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
    assert len(notes) == len(JUNK) + 1, "and one about the session to cancel"


async def test_invalid_parameters_and_unknown_methods_are_errors(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("capabilities", [-1.5, False, {"fs": 3}, {"elicitation": []}, {"terminal": "yes"}])
async def test_initialize_is_answered_whatever_capabilities_an_editor_sends(
    tmp_path: Path, capabilities: Any
) -> None:
    asked = {**INITIALIZE, "params": {"protocolVersion": 1, "clientCapabilities": capabilities}}
    async with open_pipe(tmp_path) as (reader, writer):
        writer.write(json.dumps(asked).encode() + b"\n")
        [welcome] = await answers(reader, 1)
        assert welcome["result"]["protocolVersion"] == 1


async def test_a_line_that_is_too_long_is_skipped() -> None:
    reader = asyncio.StreamReader(limit=64)
    reader.feed_data(b'{"a": "' + b"x" * 500 + b'"}\n' + b'{"id": 1}\n')
    reader.feed_eof()
    sent: list[bytes] = []
    lines = LineTransport(reader, _Sink(sent), lambda _: None)  # type: ignore[arg-type]
    assert await lines.receive() == {"id": 1}
    assert await lines.receive() is None
    assert b"longer than" in sent[0]


async def test_an_editor_that_resets_the_connection_has_ended_it() -> None:
    reader = asyncio.StreamReader()
    reader.set_exception(ConnectionResetError())  # it was closed before everything was read
    notes: list[str] = []
    lines = LineTransport(reader, _Sink([]), notes.append)  # type: ignore[arg-type]
    assert await lines.receive() is None
    assert notes == ["the editor has closed the connection"]


class _Sink:
    """A writer that records what is written."""

    def __init__(self, sent: list[bytes]) -> None:
        self._sent = sent

    def write(self, data: bytes) -> None:
        self._sent.append(data)

    async def drain(self) -> None:
        pass


async def test_an_editor_that_stops_reading_ends_the_connection_quietly(
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


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "acp", None)
    assert run_command(["acp"]) == 2
    assert "in weft's checkout: pip install '.[acp]'" in capsys.readouterr().err


class OddEditor:
    """An editor that sends whatever it is told to, and reads until everything that wants an answer has one."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.session = ""
        self.notes: list[str] = []
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._count = 0
        self._made: list[str] = []

    def connect(self, home: Path) -> None:
        pipe = open_pipe(home, [[Say(text="hi")]] * 100_000, notes=self.notes)
        self._reader, self._writer = self._runner.run(self._stack.enter_async_context(pipe))

    @contextmanager
    def open_session(self) -> Iterator[None]:
        """Open a session, and remove it afterwards with all that were made meanwhile.

        Otherwise histories and lists grow with each example, until answering takes longer than anybody waits.
        """
        self._made = []
        new = {"method": "session/new", "params": {"cwd": str(self.project), "mcpServers": []}}
        [made] = self.send(new)
        self.session = made["result"]["sessionId"]
        yield
        self.send(*({"method": "session/delete", "params": {"sessionId": id}} for id in self._made))

    def close(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()

    def send(self, *messages: Any, junk: bytes = b"") -> list[dict[str, Any]]:
        """Send messages, and bytes that may not be messages. Return the answers to all requests."""
        return self._runner.run(self._send([*map(self._to_line, messages), junk.replace(b"\n", b" ")]))

    def _to_line(self, message: Any) -> bytes:
        if not isinstance(message, dict):
            return to_json(message)
        self._count += 1
        return to_json({"jsonrpc": "2.0", **message, "id": f"id {self._count}"})

    async def _send(self, lines: list[bytes]) -> list[dict[str, Any]]:
        sent = [message for line in lines if (message := parse_message(line)[0]) is not None]
        awaited = {each["id"] for each in sent if "method" in each and each.get("id") is not None}
        self._writer.writelines(line + b"\n" for line in lines)
        found = []
        async with asyncio.timeout(60):
            while awaited:
                message = json.loads(await self._reader.readline())
                if message.get("id") in awaited:
                    awaited.remove(message["id"])
                    found.append(message)
        self._made += [
            each["result"]["sessionId"] for each in found if "sessionId" in (each.get("result") or {})
        ]
        return found


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[OddEditor]:
    make_project(tmp_path / "project")
    editor = OddEditor(tmp_path / "project")
    editor.connect(tmp_path)
    yield editor
    editor.close()


def list_requests(editor: OddEditor) -> list[dict[str, Any]]:
    session = {"sessionId": editor.session}
    blocks = [
        {"type": "text", "text": "hello"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource_link", "uri": f"file://{editor.project}/a.txt", "name": "a.txt"},
        {"type": "resource", "resource": {"uri": "file:///x", "text": "words", "mimeType": "text/plain"}},
    ]
    place = {"cwd": str(editor.project), "mcpServers": []}
    return [
        {"method": "initialize", "params": {"protocolVersion": 1, "clientCapabilities": {"fs": {}}}},
        {"method": "session/new", "params": place},
        {"method": "session/load", "params": {**session, **place}},
        {"method": "session/prompt", "params": {**session, "prompt": blocks}},
        {"method": "session/list", "params": {"cwd": str(editor.project), "cursor": None}},
        {"method": "session/set_mode", "params": {**session, "modeId": "plan"}},
        {"method": "session/cancel", "params": session},
        {"method": "authenticate", "params": {"methodId": "weft-auth-login"}},
    ]


INTERNAL_ERROR = -32603


@given(data=st.data())
@IN_ONE_DIRECTORY
def test_whatever_an_editor_sends_is_answered(editor: OddEditor, data: st.DataObject) -> None:
    with editor.open_session():
        chosen = data.draw(st.lists(st.sampled_from(list_requests(editor)), min_size=1, max_size=4))
        requests = data.draw(damaged_values(chosen))
        junk = data.draw(damaged_bytes(json.dumps(chosen[0]).encode())) if data.draw(st.booleans()) else b""
        answers = editor.send(*(requests if isinstance(requests, list) else [requests]), junk=junk)
        codes = {each["error"]["code"] for each in answers if "error" in each}
        assert INTERNAL_ERROR not in codes, answers
        [still] = editor.send({"method": "session/list", "params": {}})
        assert "result" in still
        assert all("Traceback" not in note for note in editor.notes)
