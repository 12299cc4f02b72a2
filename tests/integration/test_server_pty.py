"""Terminals over real HTTP and a real WebSocket: input, output and end."""

import asyncio
import base64
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Event, RejectConnection, Request, TextMessage

from given.http_server import ProjectServer, serve_project
from given.principals import TeamServer, serve_team
from weft.server.access import AccessPolicy

SHELL = {"command": "/bin/sh", "args": [], "title": "mine"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProjectServer]:
    with serve_project(tmp_path) as server:
        yield server


class Socket:
    """A minimal WebSocket client."""

    def __init__(self, url: str, path: str, headers: dict[str, str]) -> None:
        parts = urlsplit(url)
        self._wire = WSConnection(ConnectionType.CLIENT)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=60)
        extra = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._socket.sendall(self._wire.send(Request(host=parts.netloc, target=path, extra_headers=extra)))
        self._heard: list[Event] = []

    def close(self) -> None:
        self._socket.close()

    def next(self) -> Event | None:
        while not self._heard:
            raw = self._socket.recv(65536)
            if not raw:
                return None
            self._wire.receive_data(raw)
            self._heard += self._wire.events()
        return self._heard.pop(0)

    def type(self, words: str) -> None:
        self._socket.sendall(self._wire.send(TextMessage(data=words)))

    def read_until(self, words: str) -> str:
        said = ""
        while words not in said:
            event = self.next()
            assert isinstance(event, TextMessage), (event, said)
            said += event.data
        return said


@contextmanager
def open_socket(server: ProjectServer | TeamServer, path: str, **headers: str) -> Iterator[Socket]:
    client = Socket(server.url, path, headers)
    try:
        assert isinstance(client.next(), AcceptConnection)
        yield client
    finally:
        client.close()


def status_of(server: ProjectServer, path: str, **headers: str) -> int | None:
    """Return the status that a connection is refused with, or None."""
    client = Socket(server.url, path, headers)
    try:
        event = client.next()
        return event.status_code if isinstance(event, RejectConnection) else None
    finally:
        client.close()


def test_a_terminal_is_opened_listed_changed_and_closed(server: ProjectServer) -> None:
    made = server.post("/pty", SHELL)
    assert {"title": "mine", "command": "/bin/sh", "args": [], "status": "running"}.items() <= made.items()
    assert made["cwd"] == str(server.project)
    assert server.get("/pty") == [made] == [server.get(f"/pty/{made['id']}")]
    changed = server.send("PUT", f"/pty/{made['id']}", {"title": "other", "size": {"rows": 30, "cols": 100}})
    assert changed["title"] == "other"
    assert server.send("DELETE", f"/pty/{made['id']}") is True
    assert server.get_refusal(server.client.get(f"/pty/{made['id']}")) == (404, "NotFoundError")
    assert not _is_alive(made["pid"])


def test_a_terminal_is_typed_into_and_read(server: ProjectServer) -> None:
    made = server.post("/pty", SHELL)
    with open_socket(server, f"/pty/{made['id']}/connect") as one:
        one.type("stty size; echo $((40 + 2)) grüße; tty >/dev/null && echo re''al\r")
        said = one.read_until("real\r\n")
        assert "24 80" in said
        assert "42 grüße" in said
        server.send("PUT", f"/pty/{made['id']}", {"size": {"rows": 30, "cols": 100}})
        one.type("stty size\r")
        one.read_until("30 100")
        with open_socket(server, f"/pty/{made['id']}/connect") as other:
            other.read_until("42 grüße")  # earlier output is sent first
            other.type("exit 3\r")
            while not isinstance(other.next(), CloseConnection | None):
                pass
    ended = server.get(f"/pty/{made['id']}")
    assert (ended["status"], ended["exitCode"]) == ("exited", 3)


def test_a_terminal_gets_no_secret_of_the_server(
    server: ProjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = server.post("/pty", {**SHELL, "env": {"MINE": "here"}})
    with open_socket(server, f"/pty/{made['id']}/connect") as one:
        one.type('echo "[$MINE|$OPENCODE_SERVER_PASSWORD|$ANTHROPIC_API_KEY|$TERM]"\r')
        one.read_until("[here|||xterm-256color]")


def test_no_process_of_a_terminal_survives_it(server: ProjectServer) -> None:
    made = server.post("/pty", SHELL)
    with open_socket(server, f"/pty/{made['id']}/connect") as one:
        one.type('sleep 1000 & echo start""ed:$!:\r')  # the input is echoed, too
        said = one.read_until("started:")
        said += "" if ":\r\n" in said.rsplit("started:", 1)[1] else one.read_until(":\r\n")
        child = int(said.rsplit("started:", 1)[1].split(":")[0])
    assert _is_alive(child)
    server.send("DELETE", f"/pty/{made['id']}")
    assert not _is_alive(child)


def test_terminals_end_with_the_server(tmp_path: Path) -> None:
    with serve_project(tmp_path) as server:
        pid = server.post("/pty", SHELL)["pid"]
        assert _is_alive(pid)
    assert not _is_alive(pid)


def test_the_scrollback_is_bounded(server: ProjectServer) -> None:
    words = "import sys; [sys.stdout.write('x' * 999 + '\\n') for _ in range(5000)]; print('the', 'end')"
    made = server.post("/pty", {"command": "python3", "args": ["-c", words]})
    _wait(lambda: server.get(f"/pty/{made['id']}")["status"] == "exited")
    with open_socket(server, f"/pty/{made['id']}/connect") as one:
        said = one.read_until("the end")
    assert len(said) < 3 << 20


@pytest.mark.parametrize(
    "body",
    [
        {"cwd": "/nowhere/at/all"},
        {"cwd": "a\0b"},
        {"command": "a\0b"},
        {"command": "/nowhere/at/all"},
        {"command": "no-such-program-at-all"},
        {"command": "./hello.txt"},
        {"env": {"a=b": "x"}},
        {"env": {"": "x"}},
        {"args": ["x"] * 2000},
        {"args": "x"},
        {"command": 3},
    ],
)
def test_a_terminal_that_cannot_be_opened_is_refused(server: ProjectServer, body: dict[str, object]) -> None:
    assert server.get_refusal(server.client.post("/pty", json=body))[0] == 400
    assert server.get("/pty") == []


def test_the_number_of_terminals_is_limited(server: ProjectServer) -> None:
    for _ in range(32):
        server.post("/pty", {"command": "cat", "args": []})
    assert server.get_refusal(server.client.post("/pty", json={"command": "cat"})) == (409, "ConflictError")


def test_a_socket_needs_the_password_or_a_ticket(tmp_path: Path) -> None:
    login = "Basic " + base64.b64encode(b"opencode:s3cret").decode()
    with serve_project(tmp_path, access=AccessPolicy(password="s3cret")) as server:
        server.client.headers["authorization"] = login
        path = f"/pty/{server.post('/pty', SHELL)['id']}/connect"
        assert status_of(server, path) == 401
        assert status_of(server, path, authorization="Basic bm8=") == 401
        assert status_of(server, path, authorization=login, origin="https://evil.example") == 403
        assert status_of(server, path, authorization=login) is None

        ticket = server.post(f"{path}-token")
        assert ticket["expires_in"] == 60
        assert status_of(server, f"{path}?ticket={ticket['ticket']}x") == 401
        assert status_of(server, f"{path}x?ticket={ticket['ticket']}") == 401  # and it is used up
        assert status_of(server, f"{path}?ticket={ticket['ticket']}") == 401
        again = server.post(f"{path}-token")["ticket"]
        assert status_of(server, f"{path}?ticket={again}", origin="https://evil.example") == 403
        assert status_of(server, f"{path}?ticket={again}") is None
        assert status_of(server, f"{path}?ticket={again}") == 401


def test_a_socket_ends_with_its_token_even_if_a_ticket_opened_it(tmp_path: Path) -> None:
    with serve_team(tmp_path, f"file:{tmp_path}/storage") as team:
        secret = team.admit("root", "admin")
        login = f"Bearer {secret}"
        with team.connect(secret) as admin:
            path = f"/pty/{admin.post('/pty', json=SHELL).json()['id']}/connect"
            ticket = admin.post(f"{path}-token").json()["ticket"]
        with (
            open_socket(team, path, authorization=login) as one,
            open_socket(team, f"{path}?ticket={ticket}") as other,
        ):
            other.type("echo still $((40 + 2))\n")
            assert "still 42" in one.read_until("still 42")
            assert "still 42" in other.read_until("still 42")
            asyncio.run(team.tokens.revoke("root", force=True))
            for client in (one, other):
                event = client.next()
                while isinstance(event, TextMessage):
                    event = client.next()
                assert isinstance(event, CloseConnection)
                assert (event.code, event.reason) == (1008, "the token has ended")


def test_the_socket_of_an_unknown_terminal_is_closed_with_the_reason(server: ProjectServer) -> None:
    for id in ("pty_000000000000000000000000zz", "nonsense"):
        with open_socket(server, f"/pty/{id}/connect") as one:
            event = one.next()
            assert isinstance(event, CloseConnection)
            assert event.code in (4404, 4400)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait(look: object) -> None:
    assert callable(look)
    for _ in range(6000):
        if look():
            return
        time.sleep(0.005)
    raise AssertionError("it did not come to be")
