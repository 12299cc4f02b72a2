"""`make cluster` as a person uses it: real nginx before real nodes, one of which is killed and another one drained."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from websockets.exceptions import ConnectionClosedOK
from websockets.sync.client import connect

from given.cluster import EventListener, fold, wait_until
from given.http_server import make_project, prompt
from given.model_server import open_model_server
from given.postgres import find_program
from weft.provider.scripted import Say, UseTool, Wait

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "deploy" / "try_cluster.py"
UNTIL_TOLD = "echo x >> {0}; until [ -e {0}-go ]; do sleep 0.02; done"
SCRIPTS = {
    "speak": [[Say(text="word " * 40), Wait(seconds=0), Say(text="and the end")]],
    "steps": [
        [UseTool(tool="bash", input={"command": UNTIL_TOLD.format("stepped"), "description": "Step"})],
        [Say(text="Both steps.")],
    ],
}


class TriedCluster(NamedTuple):
    """The addresses that the script prints."""

    url: str
    nodes: dict[str, str]
    processes: dict[str, int]
    store: str
    logs: Path


def read_addresses(lines: Iterator[str]) -> TriedCluster:
    said = ""
    for line in lines:
        said += line
        if "Ctrl-C ends it" in line:
            break
    found = re.findall(r"^(node-\d+) +(\S+) +\(process (\d+)\)$", said, re.MULTILINE)
    (url, store, logs) = (
        re.findall(rf"^{name} +(\S+)", said, re.MULTILINE)
        for name in ("the cluster", "its store", "its logs")
    )
    assert (len(url), len(store), len(logs)) == (1, 1, 1), said
    nodes, processes = {name: url for name, url, _ in found}, {name: int(pid) for name, _, pid in found}
    return TriedCluster(url[0], nodes, processes, store[0], Path(logs[0]))


@contextmanager
def try_cluster(project: Path) -> Iterator[TriedCluster]:
    for program in ("initdb", "postgres", "nginx"):
        find_program(program)
    command = [
        sys.executable,
        str(SCRIPT),
        "--nodes",
        "3",
        "--port",
        "0",
        "--lease",
        "2",
        "--dir",
        str(project),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield (tried := read_addresses(process.stdout))
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not tried.logs.exists()


def open_terminal(client: httpx2.Client) -> str:
    return str(client.post("/pty", json={"command": "/bin/sh", "args": []}).json()["id"])


def type_into_terminal(tried: TriedCluster, id: str, words: str) -> str:
    """Return all that a terminal has shown when it ends."""
    shown = ""
    with connect(f"{tried.url.replace('http', 'ws')}/pty/{id}/connect", proxy=None) as socket:
        socket.send(words)
        try:
            while True:
                said = socket.recv(60)
                shown += said if isinstance(said, str) else said.decode()
        except ConnectionClosedOK:
            return shown


def find_node(tried: TriedCluster, client: httpx2.Client) -> str:
    """Return the node that nginx chooses for our requests: the one that has our terminal."""
    id = open_terminal(client)
    (name,) = [
        name
        for name, url in tried.nodes.items()
        if is_answered(url) and httpx2.get(f"{url}/pty/{id}", timeout=60).status_code == 200
    ]
    return name


def is_answered(url: str) -> bool:
    try:
        httpx2.get(f"{url}/global/health", timeout=60)
    except httpx2.TransportError:  # also while it ends
        return False
    return True


def test_clients_go_on_through_nginx_when_a_node_is_killed_and_another_one_drained(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
    own.mkdir(parents=True)
    with open_model_server(SCRIPTS) as model, ThreadPoolExecutor() as threads:
        (own / "opencode.json").write_text(json.dumps({**model.config, "permission": "allow"}))
        with (
            try_cluster(project) as tried,
            httpx2.Client(base_url=tried.url, timeout=120) as client,
        ):
            check_page_and_terminals(tried, client)
            session, shelled = make_session(client), make_session(client)
            try:
                check_kill(tried, client, session, shelled, project=project, threads=threads)
                check_drain(tried, client, session, project=project, threads=threads)
            finally:  # if a check fails, the processes that it left running are not waited for
                model.go_on.set()
                for name in ("shelled-go", "stepped-go"):
                    (project / name).touch()


def make_session(client: httpx2.Client) -> str:
    return str(client.post("/session", json={}).json()["id"])


def check_page_and_terminals(tried: TriedCluster, client: httpx2.Client) -> None:
    """Our own page may call, others may not. A terminal is found again. A request larger than nginx keeps in memory arrives."""
    for origin, status in ((tried.url, 200), ("http://127.0.0.1:1", 403)):
        assert client.post("/session", json={}, headers={"origin": origin}).status_code == status
    assert "\nweave" in type_into_terminal(tried, open_terminal(client), "echo wea''ve; exit\r")
    large = prompt("x" * 1_000_000, noReply=True)
    assert client.post(f"/session/{make_session(client)}/message", json=large).status_code == 200


def check_kill(
    tried: TriedCluster,
    client: httpx2.Client,
    session: str,
    shelled: str,
    *,
    project: Path,
    threads: ThreadPoolExecutor,
) -> None:
    """A prompt that was interrupted is sent to another node, and stays one prompt. A command line is not, because nobody knows how far it got."""
    heard = EventListener(tried.url)
    line = {"agent": "build", "command": UNTIL_TOLD.format("shelled")}
    answered = threads.submit(client.post, f"/session/{session}/message", json=prompt("speak"))
    ran = threads.submit(client.post, f"/session/{shelled}/shell", json=line)
    heard.wait_for("message.part.delta", session, "word")
    wait_until((project / "shelled").exists)
    os.kill(tried.processes[find_node(tried, client)], signal.SIGKILL)
    assert ran.result(60).status_code == 502
    assert heard.ended.wait(60)
    again = EventListener(tried.url, after=heard.ids[-1])
    again.wait_for("session.idle", session)
    assert answered.result(60).status_code == 200
    messages = client.get(f"/session/{session}/message").json()
    assert [message["info"]["role"] for message in messages].count("user") == 1
    assert fold([*heard.of(session), *again.of(session)]) == messages
    (project / "shelled-go").touch()
    wait_until(lambda: client.get("/session/status").json() == {}, "the end of everything")
    assert (project / "shelled").read_text() == "x\n"
    again.stop()


def check_drain(
    tried: TriedCluster, client: httpx2.Client, session: str, *, project: Path, threads: ThreadPoolExecutor
) -> None:
    """While a node drains, reads and prompts do not fail, and its runs continue on another node."""
    answered = threads.submit(client.post, f"/session/{session}/message", json=prompt("steps"))
    wait_until((project / "stepped").exists)
    name = find_node(tried, client)
    command = [shutil.which("weft", path=Path(sys.executable).parent) or "weft", "cluster", "drain", name]
    subprocess.run([*command, "--store", tried.store], check=True, capture_output=True, cwd=project)
    statuses: set[int] = set()
    other = make_session(client)

    def try_everything() -> bool:
        silent = prompt("hello", noReply=True)
        sent: list[tuple[str, str, Any]] = [
            ("POST", f"/session/{other}/message", silent),
            ("GET", "/session/status", None),
        ]
        statuses.update(client.request(method, path, json=body).status_code for method, path, body in sent)
        return not is_answered(tried.nodes[name])

    try_everything()
    (project / "stepped-go").touch()
    wait_until(try_everything, "the end of the node")
    assert statuses == {200}
    assert answered.result(60).json()["info"]["finish"] == "stop"
    texts = [part.get("text") for part in client.get(f"/session/{session}/message").json()[-1]["parts"]]
    assert "Both steps." in texts
    assert (project / "stepped").read_text() == "x\n"
