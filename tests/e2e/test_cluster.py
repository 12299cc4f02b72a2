"""Several nodes on one Postgres, as real processes: any of them takes a prompt, any shows it, another one goes on."""

import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from given.cluster import EventListener, Node, fold, open_cluster, wait_until
from given.http_server import prompt
from weft.provider.scripted import Say, UseTool, Wait

pytestmark = pytest.mark.slow

LONG = "word " * 40
UNTIL_TOLD = "until [ -e go ]; do sleep 0.02; done"
SCRIPTS = {
    "speak": [[Say(text=LONG), Wait(seconds=0), Say(text="and the end")]],
    "touch": [
        [UseTool(tool="bash", input={"command": "echo x >> touched", "description": "Touch"})],
        [Say(text="Touched.")],
    ],
    "hang": [
        [UseTool(tool="bash", input={"command": "echo $$ > hanging; exec sleep 600", "description": "Hang"})],
        [Say(text="Over.")],
    ],
    "stay": [[Wait(seconds=0), Say(text="Still here.")]],
    "steps": [
        [UseTool(tool="bash", input={"command": f"echo x >> stepped; {UNTIL_TOLD}", "description": "Step"})],
        [Say(text="Both steps.")],
    ],
}


def assert_same_everywhere(session: str, listeners: list[EventListener], nodes: list[Node]) -> None:
    """Check that every node has the transcript that every listener can fold from its events."""
    stored = nodes[0].list_messages(session)
    for node in nodes[1:]:
        assert node.list_messages(session) == stored
    for listener in listeners:
        assert fold(listener.of(session)) == stored


def join_growth(events: list[dict[str, Any]]) -> str:
    """Return the text that grew, and check that each piece begins where the one before it ended."""
    text = ""
    for event in events:
        properties = event["properties"]
        if event["type"] == "message.part.delta":
            assert properties["offset"] == len(text)
            text += properties["delta"]
        elif event["type"] == "message.part.updated" and properties["part"]["type"] == "text":
            text = properties["part"]["text"]
    return text


def test_prompt_on_one_node_stream_on_another_abort_from_a_third(tmp_path: Path) -> None:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        a, b, c = (cluster.start(name, clock=clock) for name, clock in (("a", 0), ("b", 600), ("c", -600)))
        at_a, at_b = EventListener(a.url), EventListener(b.url)
        everywhere = EventListener(c.url, path="/global/event")
        session = a.make_session()
        a.submit(session, "speak")
        at_b.wait_for("message.part.delta", session, "word")
        assert b.get("/session/status") == c.get("/session/status") == {session: {"type": "busy"}}
        assert c.post(f"/session/{session}/abort") is True
        for listener in (at_a, at_b, everywhere):
            listener.wait_for("session.idle", session)
        assert_same_everywhere(session, [at_a, at_b, everywhere], [a, b, c])
        assert a.list_messages(session)[-1]["info"]["error"]["name"] == "MessageAbortedError"
        assert at_a.list_types(session)[-2:] == at_b.list_types(session)[-2:]
        # What is sent twice, to two nodes, is one prompt: by its id, and by its key.
        sent = [
            node.post(f"/session/{session}/message", prompt("hello"), headers={"idempotency-key": "k"})
            for node in (b, c)
        ]
        assert sent[0] == sent[1]
        texts = a.read_texts(session)
        assert texts[-2:] == ["hello", "You said: hello"]
        assert texts.count("hello") == 1
        assert_same_everywhere(session, [at_a, at_b, everywhere], [a, b, c])


def test_a_prompt_waits_for_a_node_that_has_the_directory_and_the_status_says_so(tmp_path: Path) -> None:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        home, elsewhere, away = cluster.project, tmp_path / "elsewhere", tmp_path / "away"
        subprocess.run(["git", "clone", "-q", str(home), str(elsewhere)], check=True)
        a = cluster.start("a")
        session = a.make_session()
        a.post(f"/session/{session}/message", prompt("touch"))
        a.kill()
        # The node that is left has another checkout of the same repository, and cannot see that of the session.
        home.rename(away)
        cluster.project = elsewhere
        b = cluster.start("b")
        with ThreadPoolExecutor() as threads:
            submitted = threads.submit(b.submit, session, "touch")
            waiting = {"type": "busy", "waits": f"a node that serves {home}"}
            wait_until(lambda: b.get(f"/weft/session/{session}/status") == waiting, "waiting")
            assert b.get("/session/status") == {}
            away.rename(home)
            cluster.project = home
            c = cluster.start("c")
            assert submitted.result(60)["info"]["role"] == "user"
        wait_until(lambda: c.read_texts(session).count("Touched.") == 2, "the second answer")
        wait_until(lambda: b.get(f"/weft/session/{session}/status") == {"type": "idle"}, "the end")
        assert (home / "touched").read_text() == "x\nx\n"
        assert not (elsewhere / "touched").exists()


def test_a_principal_on_a_node_hears_its_own_events_and_nobody_elses(tmp_path: Path) -> None:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        node = cluster.start("a")
        theirs = {"name": "ada", "scope": "run", "directories": [str(cluster.project)]}
        token = node.post("/weft/token", theirs)["secret"]
        at_ada = EventListener(node.url, path="/global/event", token=token)
        at_admin = EventListener(node.url, path="/global/event")
        ours = node.make_session()
        bearer = {"authorization": f"Bearer {token}"}
        hers = node.post("/session", {}, headers=bearer)["id"]
        at_admin.wait_for("session.created", ours)
        at_ada.wait_for("session.created", hers)
        node.post(f"/session/{ours}/message", prompt("hello"))
        node.post(f"/session/{hers}/message", prompt("hello"), headers=bearer)
        at_admin.wait_for("session.idle", ours)
        at_ada.wait_for("session.idle", hers)
        assert at_ada.of(ours) == []
        assert fold(at_ada.of(hers)) == node.client.get(f"/session/{hers}/message", headers=bearer).json()
        assert_same_everywhere(ours, [at_admin], [node])


def test_a_listener_that_moves_to_another_node_misses_nothing_and_hears_nothing_twice(tmp_path: Path) -> None:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        a, b = cluster.start("a"), cluster.start("b")
        session = a.make_session()
        whole, first = EventListener(b.url), EventListener(a.url)
        a.submit(session, "speak")
        first.wait_for("message.part.delta", session, "word")
        first.stop()  # with the next line
        cluster.model.go_on.set()
        whole.wait_for("session.idle", session)
        first.ended.wait(60)
        second = EventListener(b.url, after=first.ids[-1])
        second.wait_for("session.idle", session)
        heard = [*first.of(session), *second.of(session)]
        assert fold(heard) == a.list_messages(session)
        once = [event for event in heard if event["type"] != "message.part.delta"]
        assert once == [event for event in whole.of(session) if event["type"] != "message.part.delta"]
        assert join_growth(heard) == LONG + "and the end"
        # A cursor of nobody, and one that is too old.
        lost = EventListener(b.url, after="other.17")
        assert lost.wait_for("server.resync")["properties"] == {"reason": "too old"}


def test_a_permission_asked_on_one_node_is_answered_through_another(tmp_path: Path) -> None:
    with open_cluster(tmp_path, SCRIPTS, permission={"bash": "ask"}) as cluster:
        a, b = cluster.start("a"), cluster.start("b")
        at_b = EventListener(b.url)
        session = a.make_session()
        a.submit(session, "touch")
        asked = at_b.wait_for("permission.asked", session)["properties"]
        assert [request["id"] for request in b.get("/permission")] == [asked["id"]]
        assert b.post(f"/permission/{asked['id']}/reply", {"reply": "once"}) is True
        at_b.wait_for("session.idle", session)
        assert (cluster.project / "touched").read_text() == "x\n"
        assert a.read_texts(session)[-1] == "Touched."
        assert at_b.list_types(session).count("permission.replied") == 1
        assert_same_everywhere(session, [at_b], [a, b])


def test_when_a_node_is_killed_another_one_settles_its_session_and_goes_on(tmp_path: Path) -> None:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        a, b = cluster.start("a"), cluster.start("b")
        at_b = EventListener(b.url)
        hanging, waiting = a.make_session(), a.make_session()
        a.submit(hanging, "hang")
        a.submit(waiting, "stay")
        wait_until(lambda: is_written(cluster.project / "hanging"))
        wait_until(lambda: "stay" in cluster.model.prompts)
        a.kill()
        os.kill(int((cluster.project / "hanging").read_text()), signal.SIGKILL)  # nobody else ends it now
        at_b.wait_for("session.idle", hanging)
        at_b.wait_for("session.idle", waiting)
        interrupted = b.list_messages(hanging)[-1]
        (call,) = [part for part in interrupted["parts"] if part["type"] == "tool"]
        assert call["state"]["status"] == "error"
        # Both nodes are on one machine, so the other one can look at the files and at the process.
        assert "It was running when weft died" in call["state"]["error"]
        assert sorted(cluster.model.prompts) == ["hang", "stay"]
        assert b.post(f"/session/{hanging}/message", prompt("hello"))["info"]["finish"] == "stop"
        assert b.read_texts(hanging)[-1] == "You said: hello"
        assert b.get("/session/status") == {}


def test_a_node_that_slept_longer_than_its_lease_writes_nothing_and_ends_its_tools(tmp_path: Path) -> None:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        a, b = cluster.start("a"), cluster.start("b")
        at_b = EventListener(b.url)
        session = a.make_session()
        a.submit(session, "hang")
        wait_until(lambda: is_written(cluster.project / "hanging"))
        tool = int((cluster.project / "hanging").read_text())
        a.signal(signal.SIGSTOP)
        at_b.wait_for("session.idle", session)
        b.post(f"/session/{session}/message", prompt("hello"))
        settled = b.list_messages(session)
        a.signal(signal.SIGCONT)
        wait_until(lambda: not _is_alive(tool), "the end of the tool")
        wait_until(lambda: a.get("/session/status") == {})
        assert a.list_messages(session) == b.list_messages(session) == settled
        assert_same_everywhere(session, [at_b], [a, b])
        # It is a node like any other again.
        assert a.post(f"/session/{session}/message", prompt("again"))["info"]["finish"] == "stop"


def is_written(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]


def test_a_node_that_drains_hands_its_session_over_between_two_steps(tmp_path: Path) -> None:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        a, b = cluster.start("a", "--grace", "60"), cluster.start("b")
        at_a, at_b = EventListener(a.url), EventListener(b.url)
        session = a.make_session()
        a.submit(session, "steps")
        wait_until((cluster.project / "stepped").exists)
        drained = cluster.run("cluster", "drain", "a")
        assert drained.returncode == 0, drained.stderr
        a.process.wait_for_note("ending")
        (cluster.project / "go").touch()  # the step may end
        at_b.wait_for("session.idle", session)
        assert a.process.process.wait(60) == 0
        assert b.read_texts(session)[-1] == "Both steps."
        assert (cluster.project / "stepped").read_text() == "x\n"
        assert at_b.list_types(session).count("session.idle") == 1
        at_a.ended.wait(60)
        assert at_a.retries == ["200"]
        assert_same_everywhere(session, [at_b], [b])
        listed = json.loads(cluster.run("cluster", "status", "--format", "json").stdout)
        assert [(node["name"], node["alive"]) for node in listed["nodes"]] == [("b", True)]
