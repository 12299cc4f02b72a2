"""A cluster: `weft serve` processes on one Postgres store, a model that plays scripts, and listeners to their events."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from given.http_server import connect, make_project, prompt
from given.model_server import ModelServer, Scripts, open_model_server
from given.postgres import get_server, make_url
from given.serve_process import ServeProcess, start_serve
from weft.model.event_wire import event_from_plain
from weft.model.transcript import Transcript
from weft.model.wire import encode

WRONG_CLOCK = Path(__file__).parent / "wrong_clock.py"
LEASE_SECONDS = 2.0
T = TypeVar("T")


def wait_until(found: Callable[[], T | None], what: str = "it", seconds: float = 60) -> T:
    """Return what `found` returns once that is true."""
    for _ in range(round(seconds * 50)):
        value = found()
        if value:
            return value
        threading.Event().wait(0.02)
    raise AssertionError(f"{what} never happened")


class EventListener:
    """Listens to a node in a thread, as a client does, and keeps each event with its id until it is stopped."""

    def __init__(
        self, url: str, *, after: str | None = None, path: str = "/event?deltas=1", token: str = ""
    ) -> None:
        self.events: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.retries: list[str] = []
        self.ended = threading.Event()
        self._url, self._path, self._after, self._token = url, path, after, token
        self._stopped = False
        self._connected = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        assert self._connected.wait(60)

    def _listen(self) -> None:
        headers = {} if self._after is None else {"last-event-id": self._after}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        try:
            with (
                connect(self._url, timeout=60) as client,
                client.stream("GET", self._path, headers=headers) as response,
            ):
                for line in response.iter_lines():
                    self._read_line(line)
                    if self._stopped and not line:  # between two frames
                        return
        except httpx2.TransportError:
            pass  # the node died
        finally:
            self.ended.set()

    def _read_line(self, line: str) -> None:
        kind, _, rest = line.partition(": ")
        match kind:
            case "id":
                self.ids.append(rest)
            case "retry":
                self.retries.append(rest)
            case "data":
                event = json.loads(rest)
                self.events.append(event.get("payload", event))
                self._connected.set()

    def stop(self) -> None:
        self._stopped = True

    def list_types(self, session: str) -> list[str]:
        return [event["type"] for event in self.of(session)]

    def of(self, session: str) -> list[dict[str, Any]]:
        return [event for event in list(self.events) if session in json.dumps(event)]

    def wait_for(self, kind: str, session: str = "", words: str = "") -> dict[str, Any]:
        def find() -> dict[str, Any] | None:
            for event in list(self.events):
                text = json.dumps(event)
                if event["type"] == kind and session in text and words in text:
                    return event
            return None

        return wait_until(find, f"{kind} {words}")


def fold(events: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the messages of a client that followed all these events."""
    transcript = Transcript()
    for event in events:
        transcript.feed(event_from_plain(event))
    return list(json.loads(encode(transcript.messages())))


class Node:
    """One node, and a client of it."""

    def __init__(self, process: ServeProcess) -> None:
        self.process = process
        self.url = process.url
        self.client = connect(process.url, timeout=120)

    @property
    def pid(self) -> int:
        return self.process.process.pid

    def get(self, path: str) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, **more: Any) -> Any:
        answer = self.client.post(path, json=body, **more)
        assert answer.status_code in (200, 204), answer.text
        return answer.json() if answer.content else None

    def make_session(self) -> str:
        return str(self.post("/session", {})["id"])

    def submit(self, session: str, words: str, **more: Any) -> Any:
        return self.post(f"/weft/session/{session}/submit", prompt(words, **more))

    def list_messages(self, session: str) -> list[Any]:
        return list(self.get(f"/session/{session}/message"))

    def read_texts(self, session: str) -> list[str]:
        """Return the texts, without our notes: around midnight a note tells the model the new date."""
        return [
            "".join(
                part["text"]
                for part in message["parts"]
                if part["type"] == "text" and not part.get("synthetic")
            )
            for message in self.list_messages(session)
        ]

    def kill(self) -> None:
        self.process.process.kill()
        self.process.process.wait()

    def signal(self, how: signal.Signals) -> None:
        self.process.process.send_signal(how)


class ClusterHarness:
    """Starts nodes on one store."""

    def __init__(self, stack: ExitStack, project: Path, model: ModelServer, url: str) -> None:
        self._stack = stack
        self.project = project
        self.model = model
        self.url = url

    def start(self, name: str, *arguments: str, clock: float = 0, url: str = "", **env: str) -> Node:
        under = (sys.executable, str(WRONG_CLOCK), str(clock)) if clock else ()
        process = self._stack.enter_context(
            start_serve(
                self.project, "--auth", "none", "--store", url or self.url, "--node-name", name, *arguments,
                under=under, HOSTNAME=name, **env,
            )
        )  # fmt: skip
        node = Node(process)
        self._stack.callback(node.client.close)
        return node

    def query(self, sql: str) -> list[str]:
        schema = re.search(r"schema=(\w+)", self.url)
        assert schema is not None
        return get_server().query(sql.replace("{schema}", schema[1]))

    def find_owner(self, session: str, *nodes: Node) -> Node:
        """Return the node that runs a session, once one does."""

        def find() -> Node | None:
            sql = f"SELECT convert_from(owner, 'UTF8') FROM {{schema}}.lease WHERE session = '{session}' AND till >= now()"
            owners = self.query(sql)
            return next((node for node in nodes if owners and f"process {node.pid} " in owners[0]), None)

        return wait_until(find, "a lease")

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of weft against the store."""
        command = [sys.executable, "-m", "weft", *arguments, "--store", self.url]
        return subprocess.run(command, cwd=self.project, capture_output=True, text=True, check=False)


@contextmanager
def open_cluster(
    tmp_path: Path,
    scripts: Scripts,
    *,
    permission: Any = "allow",
    lease: float = LEASE_SECONDS,
    pgbouncer: bool = False,
) -> Iterator[ClusterHarness]:
    """Open a cluster without nodes. With `pgbouncer` they reach the database through it, and hear no notifications."""
    project = make_project(tmp_path / "project")
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
    own.mkdir(parents=True, exist_ok=True)
    with open_model_server(scripts) as model, ExitStack() as stack:
        (own / "opencode.json").write_text(json.dumps({**model.config, "permission": permission}))
        base = "" if pgbouncer else get_server().get_url()
        url = f"{make_url(base, pgbouncer=pgbouncer)}&lease={lease:g}"
        yield ClusterHarness(stack, project, model, url)
