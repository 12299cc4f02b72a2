"""Several nodes on one Postgres, as real processes: each of them accepts a prompt, shows it, and can continue it."""

import asyncio
import json
import os
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from given.cluster import EventListener, Node, fold, open_cluster, wait_until
from given.http_server import prompt
from weft.cluster.operation import decode_outcome
from weft.errors import NotFoundError
from weft.model.ids import SessionID
from weft.provider.scripted import Say, UseTool, Wait
from weft.store.cluster import NewDelivery
from weft.store.postgres.store import open_postgres_store
from weft.version import VERSION

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "cluster.md"
LONG = "word " * 40
UNTIL_TOLD = "until [ -e go ]; do sleep 0.02; done"
COLOURS = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
}
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
    "choose": [[UseTool(tool="question", input={"questions": [COLOURS]})], [Say(text="Chosen.")]],
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


def test_a_prompt_on_one_node_is_streamed_on_another_and_aborted_from_a_third(tmp_path: Path) -> None:
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
        # A prompt that is sent to two nodes, with the same id or key, is one prompt.
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
        session, removed = a.make_session(), a.make_session()
        a.post(f"/session/{session}/message", prompt("touch"))
        a.kill()
        # The remaining node has another checkout of the same repository, and cannot see that of the session.
        home.rename(away)
        cluster.project = elsewhere
        b = cluster.start("b")
        heard = EventListener(b.url, path="/global/event")
        path, status = f"/weft/session/{session}/submit", f"/weft/session/{session}/status"
        waiting = {"type": "busy", "waits": f"a node that serves {home}"}
        ids = [f"msg_{number:012x}{'a' * 14}" for number in (1, 2, 3)]
        withdraw = [("POST", f"/session/{session}/abort"), ("DELETE", f"/session/{session}/message/{ids[1]}")]
        with ThreadPoolExecutor() as threads:
            sent = (threads.submit(b.client.post, path, json=prompt("touch", messageID=id)) for id in ids)
            for told, (method, other) in enumerate(withdraw, 1):
                waits = next(sent)
                wait_until(lambda: b.get(status) == waiting, "waiting")
                wait_until(lambda: count_waits(heard, session) == told, "an event that tells so")  # noqa: B023
                assert b.client.request(method, other).json() is True
                assert waits.result(60).status_code == 409
                wait_until(lambda: heard.list_types(session).count("session.idle") == told, "its end")  # noqa: B023
                assert b.get(status) == {"type": "idle"}
            # Removing a session also removes the deliveries that wait for it.
            lost = threads.submit(b.client.post, f"/session/{removed}/message", json=prompt("touch"))
            wait_until(lambda: b.get(f"/weft/session/{removed}/status") == waiting, "waiting")
            assert b.client.delete(f"/session/{removed}").json() is True
            assert (lost.result(60).status_code, "was removed" in lost.result(60).text) == (409, True)
            submitted = next(sent)
            wait_until(lambda: b.get(status) == waiting, "waiting")
            wait_until(lambda: count_waits(heard, session) == len(ids), "an event that tells so")
            assert b.get("/session/status") == {}
            away.rename(home)
            cluster.project = home
            c = cluster.start("c")
            assert submitted.result(60).json()["info"]["id"] == ids[2]
        wait_until(lambda: c.read_texts(session).count("Touched.") == 2, "the second answer")
        wait_until(lambda: b.get(f"/weft/session/{session}/status") == {"type": "idle"}, "the end")
        wait_until(lambda: heard.list_types(session).count("session.idle") >= len(ids), "the last end")
        assert heard.list_types(session).count("session.idle") == len(ids)
        assert count_waits(heard, session) == len(ids)
        assert (home / "touched").read_text() == "x\nx\n"
        assert not (elsewhere / "touched").exists()


def count_waits(listener: EventListener, session: str) -> int:
    """Return how often a listener was told that a session waits for a node."""
    statuses = [event for event in listener.of(session) if event["type"] == "session.status"]
    return sum("waits" in event["properties"]["status"] for event in statuses)


def test_a_prompt_to_a_session_that_is_being_removed_is_refused_and_does_not_wait_forever(
    tmp_path: Path,
) -> None:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        node = cluster.start("a")
        session = SessionID(node.make_session())
        assert node.client.delete(f"/session/{session}").json() is True
        # A caller on another node found the session before, and stores its prompt after all deliveries were withdrawn. No node has the directory.
        state = asyncio.run(deliver_and_wait(cluster.url, session, str(tmp_path / "nowhere")))
        with pytest.raises(NotFoundError):
            decode_outcome("prompt", state)


async def deliver_and_wait(url: str, session: SessionID, directory: str) -> bytes:
    key = f"{session}/prompt/late"
    async with open_postgres_store(url) as store:
        await store.inbox.put(NewDelivery(key, session, directory, "prompt", True, b"{}"))
        while (state := await store.inbox.find_state(key)) is None or state.outcome is None:
            pass
        return state.outcome


def test_a_principal_on_a_node_receives_only_its_own_events(tmp_path: Path) -> None:
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


def test_a_listener_that_moves_to_another_node_misses_nothing_and_receives_nothing_twice(
    tmp_path: Path,
) -> None:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        a, b = cluster.start("a"), cluster.start("b")
        session = a.make_session()
        whole, first = EventListener(b.url), EventListener(a.url)
        a.submit(session, "speak")
        first.wait_for("message.part.delta", session, "word")
        first.stop()  # at the end of the next frame
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
        # A cursor that never existed, and one that is too old: the log no longer has the events after it.
        assert int(*cluster.query("SELECT {schema}.trim_events(0, 0)")) > 0
        for cursor in ("other.17", first.ids[0]):
            lost = EventListener(b.url, after=cursor)
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


def test_every_operation_reaches_a_session_through_a_node_that_does_not_run_it(tmp_path: Path) -> None:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        commands = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode" / "command"
        commands.mkdir(parents=True)
        (commands / "greet.md").write_text("hello $ARGUMENTS")
        one, two = cluster.start("one"), cluster.start("two")
        heard = EventListener(one.url)
        session = one.make_session()

        def find_other() -> Node:
            return two if cluster.find_owner(session, one, two) is one else one

        one.submit(session, "choose")
        asked = heard.wait_for("question.asked", session)["properties"]
        other = find_other()
        assert [question["id"] for question in other.get("/question")] == [asked["id"]]
        assert other.post(f"/question/{asked['id']}/reply", {"answers": [["Red"]]}) is True
        wait_until(lambda: one.read_texts(session)[-1] == "Chosen.", "an answer")
        (answer,) = [
            part
            for message in two.list_messages(session)
            for part in message["parts"]
            if part["type"] == "tool"
        ]
        assert "Red" in answer["state"]["output"]
        # A prompt sent during a run is answered by that run.
        wait_until(lambda: one.get("/session/status") == {}, "the end")
        one.submit(session, "steps")
        wait_until((cluster.project / "stepped").exists)
        other = find_other()
        other.submit(session, "turn left")
        (cluster.project / "go").touch()
        wait_until(lambda: "turn left" in cluster.model.prompts[-1], "a request with it")
        wait_until(lambda: one.get("/session/status") == two.get("/session/status") == {}, "the end")
        wait_until(lambda: heard.list_types(session).count("session.idle") >= 2, "the second end")
        assert heard.list_types(session).count("session.idle") == 2
        # A command and a command line are done by whichever node takes them.
        for number, node in enumerate((one, two), 1):
            node.post(f"/session/{session}/shell", {"agent": "build", "command": "echo x >> shelled"})
            assert (cluster.project / "shelled").read_text() == "x\n" * number
            node.post(f"/session/{session}/command", {"command": "greet", "arguments": str(number)})
            assert one.read_texts(session)[-1] == f"You said: hello {number}"
        messages = one.list_messages(session)
        (last,) = [each["info"]["id"] for each in messages if each["info"]["role"] == "user"][-1:]
        assert two.post(f"/session/{session}/revert", {"messageID": last})["revert"]["messageID"] == last
        assert one.get(f"/session/{session}")["revert"]["messageID"] == last
        assert "revert" not in one.post(f"/session/{session}/unrevert")
        assert one.list_messages(session) == two.list_messages(session) == messages


def test_when_a_node_is_killed_another_settles_its_session_and_continues(tmp_path: Path) -> None:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        a = cluster.start("a")
        hanging, waiting = a.make_session(), a.make_session()
        a.submit(hanging, "hang")
        a.submit(waiting, "stay")
        wait_until(lambda: is_written(cluster.project / "hanging"))
        wait_until(lambda: "stay" in cluster.model.prompts)
        b = cluster.start("b")  # not before: any node may take a delivery that was sent to another one
        at_b = EventListener(b.url)
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


def test_a_node_paused_for_longer_than_its_lease_writes_nothing_and_ends_its_tools(tmp_path: Path) -> None:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        one, two = cluster.start("one"), cluster.start("two")
        listeners = {node: EventListener(node.url) for node in (one, two)}
        session = one.make_session()
        one.submit(session, "hang")
        wait_until(lambda: is_written(cluster.project / "hanging"))
        a = cluster.find_owner(session, one, two)
        b = two if a is one else one
        at_b = listeners[b]
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


def read_metrics(node: Node) -> dict[str, float]:
    lines = node.client.get("/weft/metrics").text.splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[:1] != "#")}


def test_an_operator_sees_nodes_queue_leases_and_lag_and_finds_a_session_in_the_log(tmp_path: Path) -> None:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        one, two = [cluster.start(name, "--log-format", "json", "--access-log") for name in ("one", "two")]
        # A busy machine may be late with a heartbeat.
        ready = [{"ready": True, "reasons": []}] * 2
        wait_until(lambda: [node.client.get("/weft/ready").json() for node in (one, two)] == ready)
        heard = EventListener(two.url)
        session = one.make_session()
        one.submit(session, "hang")
        heard.wait_for("message.part.updated", session, "running")
        figures = read_metrics(one)
        assert (figures["weft_cluster_nodes"], figures["weft_cluster_sessions"]) == (2, 1)
        assert figures["weft_cluster_lease_age_seconds"] > 0
        assert (figures["weft_inbox_length"], figures["weft_inbox_age_seconds"]) == (0, 0)
        assert figures["weft_outbox_events"] > 0
        assert {"weft_outbox_lag_seconds", "weft_outbox_unplaced"} <= set(figures)
        of_cluster = [name for name in figures if re.match("weft_(cluster|inbox|outbox|fanout)_", name)]
        assert [name for name in of_cluster if f"`{name}`" not in GUIDE.read_text()] == []
        # One of them received the events of the other.
        assert max(figures["weft_fanout_delay_seconds"], read_metrics(two)["weft_fanout_delay_seconds"]) > 0
        status = json.loads(cluster.run("cluster", "status", "--format", "json").stdout)
        assert [node["name"] for node in status["nodes"]] == ["one", "two"]
        assert [lease["session"] for lease in status["leases"]] == [session]
        shown = cluster.run("cluster", "status").stdout
        for node, name in ((one, "one"), (two, "two")):
            assert re.search(
                rf"^{name} +\w+ +[01] +\S+ s ago +{VERSION} +{node.url} +{cluster.project}$",
                shown,
                re.MULTILINE,
            )
        assert re.search(
            rf"^queue +0 deliveries$.*^log +\d+ events.*^leases +1.*{session}",
            shown,
            re.MULTILINE | re.DOTALL,
        )
        one.post(f"/session/{session}/abort")
        heard.wait_for("session.idle", session)
        logged = [json.loads(line) for line in one.process.noted]
        assert {line["node"] for line in logged if session in str(line)} == {"one"}
        assert session in {line.get("session") for line in logged}


@pytest.mark.parametrize("how", ["command", "signal"])
def test_a_draining_node_hands_its_session_over_between_two_steps(how: str, tmp_path: Path) -> None:
    with open_cluster(tmp_path, SCRIPTS) as cluster:
        names = {cluster.start(name, "--grace", "60"): name for name in ("one", "two")}
        listeners = {node: EventListener(node.url) for node in names}
        one, two = names
        session = one.make_session()
        one.submit(session, "steps")
        wait_until((cluster.project / "stepped").exists)
        a = cluster.find_owner(session, one, two)
        b = two if a is one else one
        at_a, at_b = listeners[a], listeners[b]
        if how == "signal":
            a.signal(signal.SIGTERM)
        else:
            drained = cluster.run("cluster", "drain", names[a])
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
        assert [(node["name"], node["alive"]) for node in listed["nodes"]] == [(names[b], True)]
