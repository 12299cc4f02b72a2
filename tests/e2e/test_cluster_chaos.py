"""A cluster under kill -9, SIGSTOP, restarts of Postgres and cut connections: nothing acknowledged is lost or done twice.

Short here; the long one by hand, which takes some minutes:

    WEFT_CHAOS="sessions=200 kills=30 stops=10 restarts=2 cuts=10" pytest -s tests/e2e/test_cluster_chaos.py
"""

import asyncio
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from given.cluster import ClusterHarness, EventListener, Node, fold, open_cluster, wait_until
from given.http_server import prompt
from given.postgres import get_server
from given.postgres_proxy import PostgresProxy, run_postgres_proxy
from weft.provider.scripted import Say, UseTool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if os.environ.get("WEFT_CHAOS") else 240)]

LEASE_SECONDS = 3.0
DEFAULTS = {"sessions": 6, "kills": 2, "stops": 1, "restarts": 1, "cuts": 2, "seed": 1}


def read_settings() -> dict[str, int]:
    given = dict(pair.split("=") for pair in os.environ.get("WEFT_CHAOS", "").split())
    return DEFAULTS | {name: int(value) for name, value in given.items()}


# Read at import: tests do not see this variable.
SETTINGS = read_settings()


def make_scripts(sessions: int) -> dict[str, Any]:
    """Each prompt runs one command that leaves a mark, then speaks."""
    return {
        f"work {number}": [
            [UseTool(tool="bash", input={"command": f"echo x >> mark-{number}; sleep 0.3", "description": "Mark"})],
            [Say(text=f"Done with {number}. " * 20)],
        ]
        for number in range(sessions)
    }  # fmt: skip


class Chaos:
    """Three nodes that are killed, paused and cut off while prompts are sent to them."""

    def __init__(
        self, cluster: ClusterHarness, proxy: PostgresProxy, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._cluster = cluster
        self._proxy = proxy
        self._loop = loop
        self._started = 0
        self.nodes = [self._start() for _ in range(3)]

    def _start(self) -> Node:
        self._started += 1
        return self._cluster.start(f"n{self._started}", url=self._proxy.url)

    def send(self, session: str, words: str, message: str, random_: random.Random) -> None:
        """Send a prompt to any node, to another one if that fails, until one has acknowledged it."""
        body = prompt(words, messageID=message)
        path = f"/weft/session/{session}/submit"

        def try_once() -> bool:
            node = random_.choice(self.nodes)
            try:
                return httpx2.post(f"{node.url}{path}", json=body, timeout=10).status_code == 200
            except httpx2.TransportError:
                return False

        wait_until(try_once, f"an acknowledgement of {words}", seconds=120)

    def act(self, action: str, random_: random.Random) -> None:
        node = random_.choice(self.nodes)
        match action:
            case "kill":
                node.kill()
                self.nodes[self.nodes.index(node)] = self._start()
            case "stop":
                node.signal(signal.SIGSTOP)
                timer = threading.Timer(LEASE_SECONDS * 1.7, lambda: node.signal(signal.SIGCONT))
                timer.daemon = True
                timer.start()
                timer.join()
            case "restart":
                get_server().stop()
                get_server().start()
            case _:
                asyncio.run_coroutine_threadsafe(self._proxy.cut_all(), self._loop).result(60)


def test_nothing_acknowledged_is_lost_or_done_twice(tmp_path: Path) -> None:
    settings, random_ = SETTINGS, random.Random(SETTINGS["seed"])
    with (
        open_cluster(tmp_path, make_scripts(settings["sessions"]), lease=LEASE_SECONDS) as cluster,
        run_postgres_proxy(cluster.url) as (proxy, loop),
    ):
        chaos = Chaos(cluster, proxy, loop)
        sessions = [chaos.nodes[0].make_session() for _ in range(settings["sessions"])]
        senders = [
            threading.Thread(
                target=chaos.send,
                args=(session, f"work {number}", f"msg_{number + 1:012x}{'a' * 14}", random.Random(number)),
            )
            for number, session in enumerate(sessions)
        ]
        names = {"kill": "kills", "stop": "stops", "restart": "restarts", "cut": "cuts"}
        actions = [action for action, setting in names.items() for _ in range(settings[setting])]
        random_.shuffle(actions)
        for number, action in enumerate(actions):
            # Some work begins before each action, so that each of them hits some.
            for sender in senders[number :: len(actions)]:
                sender.start()
            threading.Event().wait(random_.uniform(0.1, 0.6))
            chaos.act(action, random_)
        for sender in senders:
            sender.join(180)
            assert not sender.is_alive()
        wait_until(lambda: is_quiet(cluster), "quiet", seconds=120)
        check(chaos, cluster, sessions)


def is_quiet(cluster: ClusterHarness) -> bool:
    busy = "SELECT (SELECT count(*) FROM {schema}.delivery WHERE done IS NULL), (SELECT count(*) FROM {schema}.lease WHERE till IS NOT NULL)"
    return cluster.query(busy) == ["0|0"]


def check(chaos: Chaos, cluster: ClusterHarness, sessions: list[str]) -> None:
    interrupted = 0
    for number, session in enumerate(sessions):
        transcripts = [node.list_messages(session) for node in chaos.nodes]
        assert transcripts[1:] == transcripts[:-1]
        messages = transcripts[0]
        prompts = [message for message in messages if message["info"]["role"] == "user"]
        answers = [message for message in messages if message["info"]["role"] == "assistant"]
        assert len(prompts) == 1
        assert answers, f"prompt {number} was acknowledged and is not answered"
        # An answer is whole, or says that it was interrupted. The command ran once, or not at all and the session says so.
        assert all("completed" in answer["info"]["time"] for answer in answers)
        calls = [part for answer in answers for part in answer["parts"] if part["type"] == "tool"]
        marks = cluster.project / f"mark-{number}"
        ran = len(marks.read_text().split()) if marks.exists() else 0
        assert ran <= len(calls) <= 1
        whole = answers[-1]["info"].get("error") is None
        if whole:
            assert (ran, answers[-1]["parts"][-2]["text"]) == (1, (f"Done with {number}. " * 20).strip())
        else:
            interrupted += 1
            assert answers[-1]["info"]["error"]["name"] == "MessageAbortedError"
    # The log still has everything: its fold is what is stored.
    events = read_log(chaos.nodes[0], cluster)
    for session in sessions:
        told = [event for event in events if session in str(event)]
        assert fold(told) == chaos.nodes[0].list_messages(session)
    figures = f"{len(sessions)} prompts: {len(sessions) - interrupted} answered, {interrupted} interrupted; {len(events)} events"
    print(figures)  # noqa: T201  for the person who runs the long one


def read_log(node: Node, cluster: ClusterHarness) -> list[dict[str, Any]]:
    """Return all events of the log, as a listener gets them that resumes from its beginning."""
    (name,) = cluster.query("SELECT name FROM {schema}.event_log")
    listener = EventListener(node.url, after=f"{name}.0")
    listener.wait_for("session.created", node.make_session())  # the last one
    return listener.events
