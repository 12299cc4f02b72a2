"""Two principals on two nodes: each has its own sessions on both, through the inbox and the log, and sees nothing of the other's."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from given.cluster import ClusterHarness, EventListener, Node, fold, open_cluster, wait_until
from given.http_server import make_project, prompt
from given.principal_requests import SECRET_WORDS, assert_nothing_leaks
from weft.provider.scripted import Say, UseTool, Wait

pytestmark = pytest.mark.slow

SCRIPTS = {
    "speak": [[Say(text=f"{SECRET_WORDS} " * 40), Wait(seconds=0), Say(text="and the end")]],
    "touch": [
        [UseTool(tool="write", input={"filePath": "touched", "content": "x"})],
        [Say(text="Touched.")],
    ],
}


class Member:
    """A principal with a token, and a client of each node."""

    def __init__(self, cluster: ClusterHarness, nodes: list[Node], name: str) -> None:
        self.directory = cluster.project.parent / name
        self.directory.mkdir()
        (self.directory / "name.txt").write_text(name)  # so that every project has an id of its own
        make_project(self.directory)
        wanted = {"name": name, "scope": "run", "directories": [str(self.directory)]}
        self.token = nodes[0].post("/weft/token", wanted)["secret"]
        login = {"authorization": f"Bearer {self.token}"}
        self.at = [httpx2.Client(base_url=node.url, timeout=120, headers=login) for node in nodes]

    def listen(self, node: Node, *, after: str | None = None) -> EventListener:
        return EventListener(node.url, path="/global/event", token=self.token, after=after)

    def close(self) -> None:
        for client in self.at:
            client.close()


@contextmanager
def open_team(tmp_path: Path) -> Iterator[tuple[ClusterHarness, list[Node], Member, Member]]:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        nodes = [cluster.start(name, "--share") for name in ("a", "b")]
        ada, ben = (Member(cluster, nodes, name) for name in ("ada", "ben"))
        try:
            yield cluster, nodes, ada, ben
        finally:
            ada.close()
            ben.close()


def get_json(client: httpx2.Client, path: str, **more: Any) -> Any:
    answer = client.get(path, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_principal_prompts_on_one_node_and_listens_aborts_and_resumes_on_another(tmp_path: Path) -> None:
    with open_team(tmp_path) as (cluster, (a, b), ada, ben):
        at_ada, at_ben, at_admin = ada.listen(b), ben.listen(b), EventListener(b.url, path="/global/event")
        first = ada.listen(a)
        session = ada.at[0].post("/session", json={}).json()["id"]
        message = f"msg_{1:012x}{'a' * 14}"
        sent = ada.at[0].post(f"/weft/session/{session}/submit", json=prompt("speak", messageID=message))
        assert sent.status_code == 200, sent.text
        for listener in (first, at_ada):
            listener.wait_for("message.part.updated", session, SECRET_WORDS)
        first.stop()  # with the next line
        # The session runs on one node, and both know it; nobody else does.
        for client in ada.at:
            assert get_json(client, "/session/status") == {session: {"type": "busy"}}
        assert [get_json(client, "/session/status") for client in ben.at] == [{}, {}]
        for client in ben.at:
            missing = client.post(f"/session/{session}/abort")
            assert missing.status_code == 404, missing.text
        # The same prompt, sent to the other node, is not another one.
        with ThreadPoolExecutor() as threads:
            again = threads.submit(
                ada.at[1].post, f"/weft/session/{session}/submit", json=prompt("speak", messageID=message)
            )
            assert again.result(60).json()["info"]["id"] == message
        assert ada.at[1].post(f"/session/{session}/abort").json() is True
        at_ada.wait_for("session.idle", session)
        stored = get_json(ada.at[0], f"/session/{session}/message")
        assert [each["info"]["role"] for each in stored] == ["user", "assistant"]
        assert stored[-1]["info"]["error"]["name"] == "MessageAbortedError"
        assert fold(at_ada.of(session)) == stored == get_json(ada.at[1], f"/session/{session}/message")
        # A listener that moves to the other node gets the rest; with the same id somebody else gets nothing of it.
        rest, spy = ada.listen(b, after=first.ids[-1]), ben.listen(b, after=first.ids[-1])
        rest.wait_for("session.idle", session)
        heard = [event for event in first.events + rest.events if event["type"] != "server.connected"]
        assert fold([event for event in heard if session in json.dumps(event)]) == stored
        # Positions reveal nothing about others: ben's next event comes right after his last one.
        theirs = ben.at[0].post("/session", json={}).json()["id"]
        at_ben.wait_for("session.created", theirs)
        spy.wait_for("session.created", theirs)
        at_admin.wait_for("session.created", a.make_session())
        for listener in (at_ben, spy, at_admin):
            assert listener.of(session) == []
            assert SECRET_WORDS not in json.dumps(listener.events)
        assert cluster.query(
            "SELECT count(*) FROM {schema}.event WHERE owner = 'ben' AND by_owner IS NOT TRUE"
        ) == ["0"]
        assert {id.partition("~")[0].rpartition(".")[2] for id in at_ben.ids} <= {str(n) for n in range(10)}


def test_another_node_settles_the_run_of_a_principal_and_answers_the_next_prompt(tmp_path: Path) -> None:
    with open_team(tmp_path) as (cluster, nodes, ada, _):
        session = ada.at[0].post("/session", json={}).json()["id"]
        ada.at[0].post(f"/weft/session/{session}/submit", json=prompt("speak"))
        owner = cluster.find_owner(session, *nodes)
        left = nodes.index(owner) ^ 1
        listener = ada.listen(nodes[left])
        wait_until(
            lambda: SECRET_WORDS in ada.at[left].get(f"/session/{session}/message").text, "the first words"
        )
        owner.kill()
        listener.wait_for("session.idle", session)
        answer = get_json(ada.at[left], f"/session/{session}/message")[-1]
        assert answer["info"]["error"]["name"] == "MessageAbortedError"
        assert SECRET_WORDS in json.dumps(answer["parts"])
        done = ada.at[left].post(f"/session/{session}/message", json=prompt("hello"))
        assert done.status_code == 200, done.text
        assert "You said: hello" in done.text


@pytest.mark.timeout(600)  # a thousand requests
def test_nothing_leaks_through_any_route_of_another_node(tmp_path: Path) -> None:
    with open_team(tmp_path) as (_, nodes, ada, ben):
        # A session of his runs on the first node meanwhile.
        running = ben.at[0].post("/session", json={"title": "runs"}).json()["id"]
        ben.at[0].post(f"/weft/session/{running}/submit", json=prompt("speak"))
        wait_until(
            lambda: SECRET_WORDS in ben.at[0].get(f"/session/{running}/message").text, "the first words"
        )
        assert_nothing_leaks(ben.at[0], ada.at[1])
        assert nodes[0].post(f"/session/{running}/abort") is True
