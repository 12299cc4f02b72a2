"""Listeners of a server on SQLite resume after it was restarted, however it ended."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import apsw
import pytest

from given.cluster import EventListener, Node, fold, wait_until
from given.http_server import make_project
from given.model_server import ModelServer, open_model_server
from given.serve_process import start_serve
from weft.provider.scripted import Say, Wait

LONG = "word " * 500
SCRIPTS = {"speak": [[Say(text=LONG), Wait(seconds=0), Say(text="the end")]]}
PATHS = ("/event?deltas=1", "/event", "/global/event")
ENDS = (signal.SIGTERM, signal.SIGKILL)


class Restarted:
    """Starts one server after the other on a SQLite store."""

    def __init__(self, stack: ExitStack, tmp_path: Path, model: ModelServer) -> None:
        self._stack = stack
        self.project = make_project(tmp_path / "project")
        self.database = tmp_path / "sessions.db"
        self.model = model

    def start(self) -> Node:
        store = f"sqlite:{self.database}"
        serving = start_serve(self.project, "--auth", "none", "--grace", "0", "--store", store)
        node = Node(self._stack.enter_context(serving))
        self._stack.callback(node.client.close)
        return node

    def answer(self, node: Node, session: str, words: str) -> None:
        """Prompt a session, and wait until it is answered."""
        heard = EventListener(node.url)
        node.submit(session, words)
        heard.wait_for("session.idle", session)
        heard.stop()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Restarted]:
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
    own.mkdir(parents=True, exist_ok=True)
    with open_model_server(SCRIPTS) as model, ExitStack() as stack:
        (own / "opencode.json").write_text(json.dumps({**model.config, "permission": "allow"}))
        yield Restarted(stack, tmp_path, model)


@contextmanager
def leaving(node: Node, path: str) -> Iterator[EventListener]:
    """Listen until the end of the block."""
    heard = EventListener(node.url, path=path)
    yield heard
    heard.stop()
    node.make_session()  # something is sent, so that the listener notices
    assert heard.ended.wait(60)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("how", ENDS)
def test_a_listener_that_was_away_when_the_server_was_restarted_has_what_is_stored(
    servers: Restarted, how: signal.Signals, path: str
) -> None:
    first = servers.start()
    session, removed = first.make_session(), first.make_session()
    with leaving(first, path) as before:
        first.submit(session, "one")
        before.wait_for("session.idle", session)
    servers.answer(first, session, "two")
    assert first.client.delete(f"/session/{removed}").status_code == 200
    first.process.end(how)
    second = servers.start()
    servers.answer(second, session, "three")
    after = EventListener(second.url, path=path, after=before.ids[-1])
    after.wait_for("session.deleted", removed)
    servers.answer(second, session, "four")
    after.wait_for("session.idle", session)
    after.wait_for("message.part.updated", session, "You said: four")

    heard = [*before.of(session), *after.of(session)]
    assert fold(heard) == second.list_messages(session)
    assert "server.resync" not in [event["type"] for event in after.events]
    # What the listener had before is not sent again.
    assert not [event for event in after.of(session) if "You said: one" in json.dumps(event)]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("how", ENDS)
def test_a_listener_hears_how_an_answer_ended_with_its_server(
    servers: Restarted, how: signal.Signals, path: str
) -> None:
    first = servers.start()
    session = first.make_session()
    before = EventListener(first.url, path=path)
    first.submit(session, "speak")
    before.wait_for("message.part.updated" if path == "/event" else "message.part.delta", session, "word")
    first.process.end(how)
    assert before.ended.wait(60)
    second = servers.start()
    after = EventListener(second.url, path=path, after=before.ids[-1])
    if how == signal.SIGKILL:
        after.wait_for("session.idle", session)
    servers.answer(second, session, "go on")
    after.wait_for("message.part.updated", session, "You said: go on")
    # The run that died may have told that it is idle, so that is no sign of the second one's end.
    wait_until(
        lambda: fold([*before.of(session), *after.of(session)]) == second.list_messages(session),
        "the same messages",
    )
    assert "server.resync" not in [event["type"] for event in after.events]


def test_a_listener_is_told_what_runs_now(servers: Restarted) -> None:
    first = servers.start()
    session = first.make_session()
    with leaving(first, "/event?deltas=1") as before:
        pass
    first.process.end(signal.SIGTERM)
    second = servers.start()
    heard = EventListener(second.url)
    second.submit(session, "speak")
    heard.wait_for("message.part.delta", session, "word")
    after = EventListener(second.url, after=before.ids[-1])
    busy = after.wait_for("session.status", session)
    assert busy["properties"]["status"]["type"] == "busy"
    servers.model.go_on.set()
    after.wait_for("session.idle", session)
    assert fold([*before.of(session), *after.of(session)]) == second.list_messages(session)


def test_a_listener_that_the_log_does_not_know_is_told_to_read_everything_again(servers: Restarted) -> None:
    first = servers.start()
    session = first.make_session()
    with leaving(first, "/event") as before:
        first.submit(session, "one")
        before.wait_for("session.idle", session)
    servers.answer(first, session, "two")
    servers.answer(first, session, "three")
    first.process.end(signal.SIGTERM)
    second = servers.start()
    known, number = before.ids[-1].split(".")
    foreign = (
        "ffffffff.1",
        f"ffffffff.{number}",
        f"{known}.{int(number) * 1000}",
        f"{known}.{'9' * 30}",
        known,
        "",
    )
    for cursor in foreign:
        lost = EventListener(second.url, after=cursor or "x")
        assert lost.wait_for("server.resync")["properties"] == {"reason": "too old"}
    found = EventListener(second.url, after=before.ids[-1])
    found.wait_for("message.part.updated", session, "You said: three")
    # The log was trimmed to less than what was missed.
    connection = apsw.Connection(str(servers.database))
    connection.execute("DELETE FROM event WHERE position < (SELECT max(position) FROM event)")
    connection.close()
    lost = EventListener(second.url, after=before.ids[-1])
    assert lost.wait_for("server.resync")["properties"] == {"reason": "too old"}
