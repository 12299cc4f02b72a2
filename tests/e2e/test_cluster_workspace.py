"""Git workspaces: real nodes on one Postgres, each on a machine of its own, continue with exactly the files that another one had.

The machines have the same path for checkouts, so one at a time has its disk there.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from given.cluster import EventListener, Node, wait_until
from given.http_server import prompt
from given.machines import Machine, open_machines, read_files
from given.postgres import get_server, make_url
from weft.provider.scripted import Say, UseTool

pytestmark = pytest.mark.slow

WORK = (
    "echo changed >> hello.txt; rm gone.txt; chmod 755 run.sh; ln -s hello.txt link; mkdir -p deep/er;"
    " printf '\\000\\001\\377' > deep/er/data.bin; git add hello.txt; git -c user.name=a -c user.email=a@b commit -qm mine hello.txt"
)
LOSE = "echo lost > lost.txt; echo $$ > ignored; exec sleep 600"
SCRIPTS = {
    "work": [
        [UseTool(tool="bash", input={"command": WORK, "description": "Work"})],
        [UseTool(tool="write", input={"filePath": "new.txt", "content": "new\n"})],
        [UseTool(tool="bash", input={"command": LOSE, "description": "Hang"})],
        [Say(text="Never said.")],
    ],
    "commit": [
        [UseTool(tool="bash", input={"command": WORK, "description": "Work"})],
        [UseTool(tool="write", input={"filePath": "new.txt", "content": "new\n"})],
        [Say(text="Done.")],
    ],
    "spy": [[UseTool(tool="bash", input={"command": "make -s", "description": "Spy"})], [Say(text="Hm.")]],
    "go on": [
        [UseTool(tool="bash", input={"command": "echo more >> hello.txt", "description": "More"})],
        [Say(text="More is done.")],
    ],
}


class RemovableDisks:
    """The place of the checkouts, and the disks that are not there at the moment."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "checkouts"
        self._away = tmp_path / "away"
        self._away.mkdir()

    def take_out(self, name: str) -> None:
        self.root.rename(self._away / name)

    def put_back(self, name: str) -> None:
        (self._away / name).rename(self.root)


@contextmanager
def open_workspace(tmp_path: Path) -> Iterator[tuple[Machine, Machine, RemovableDisks, list[str]]]:
    """Open two machines, and the options that make each a node with the workspace `loom`."""
    with open_machines(tmp_path, SCRIPTS, "a", "b") as (_, a, b):
        repository, disks = tmp_path / "loom.git", RemovableDisks(tmp_path)
        subprocess.run(["git", "clone", "-q", "--bare", str(a.project), str(repository)], check=True)
        url = f"{make_url(get_server().get_url())}&lease=2"
        options = ["--store", url, "--workspace", f"loom={repository}", "--workspace-root", str(disks.root)]
        yield a, b, disks, options


def create(node: Node) -> tuple[str, Path]:
    session = node.post("/session", {"workspace": "loom"})
    return session["id"], Path(session["directory"])


def list_notes(node: Node, session: str) -> list[str]:
    """Return the notes in the last prompt."""
    asked = [message for message in node.list_messages(session) if message["info"]["role"] == "user"][-1]
    return [part["text"] for part in asked["parts"] if part.get("synthetic")]


def revert(node: Node, session: str) -> None:
    first = node.list_messages(session)[0]["info"]["id"]
    node.post(f"/weft/session/{session}/revert", {"messageID": first})


def git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout


def test_when_a_node_is_killed_another_machine_continues_with_exactly_its_files(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as (a, b, disks, options):
        node = a.serve(*options, "--node-name", "a")
        session, directory = create(node)
        clean = read_files(directory)
        node.submit(session, "work")
        wait_until(lambda: (directory / "ignored").exists() and (directory / "ignored").read_text())
        tool = int((directory / "ignored").read_text())
        worked = {
            name: file for name, file in read_files(directory).items() if name not in ("lost.txt", "ignored")
        }
        commit = git(directory, "rev-parse", "HEAD")
        node.kill()
        os.kill(tool, signal.SIGKILL)
        disks.take_out("a")
        # The other machine has nothing but the store and the repository.
        node = b.serve(*options, "--node-name", "b")
        wait_until(lambda: is_settled(node, session), "the end of the interrupted call")
        assert read_files(directory) == worked
        assert worked["link"] == ("link", b"hello.txt")
        assert worked["deep/er/data.bin"][1] == b"\x00\x01\xff"
        assert worked["run.sh"][0] == "0o755"
        assert "gone.txt" not in worked
        assert git(directory, "rev-parse", "HEAD") == commit != git(directory, "rev-parse", "HEAD~")
        node.post(f"/session/{session}/message", prompt("go on"))
        (note,) = list_notes(node, session)
        assert "was interrupted on the machine a" in note
        node.post(f"/session/{session}/message", prompt("go on"))
        assert list_notes(node, session) == []
        assert (directory / "hello.txt").read_text() == "hello there\nchanged\nmore\nmore\n"
        node.kill()
        disks.take_out("b")
        # The first machine comes back with what the other one did. What it had alone is set aside.
        disks.put_back("a")
        node = a.serve(*options, "--node-name", "a")
        listener = EventListener(node.url, path="/global/event")
        node.post(f"/session/{session}/message", prompt("go on"))
        warned = listener.wait_for("session.warning", session, "set aside")["properties"]["message"]
        assert git(directory, "show", f"{warned.split()[-1]}:lost.txt") == "lost\n"
        assert not (directory / "lost.txt").exists()
        assert (directory / "hello.txt").read_text() == "hello there\nchanged\nmore\nmore\nmore\n"
        # Undo reaches back over both machines, also what only the other one did.
        revert(node, session)
        assert omit(read_files(directory), "ignored") == clean
        node.post(f"/weft/session/{session}/unrevert", {})
        assert (directory / "hello.txt").read_text() == "hello there\nchanged\nmore\nmore\nmore\n"


def test_a_principal_and_a_fork_have_checkouts_of_their_own_that_another_machine_continues(
    tmp_path: Path,
) -> None:
    with open_workspace(tmp_path) as (a, b, disks, options):
        node = a.serve(*options, "--node-name", "a")
        (tmp_path / "ada").mkdir()
        (tmp_path / "ben").mkdir()
        ada, ben = (
            {"authorization": f"Bearer {node.post('/weft/token', {'name': name, **more})['secret']}"}
            for name, more in (
                ("ada", {"directories": [str(tmp_path / "ada")], "workspaces": ["loom"]}),
                ("ben", {"directories": [str(tmp_path / "ben")]}),
            )
        )
        ours, _ = create(node)
        session = node.post("/session", {"workspace": "loom"}, headers=ada)
        directory = Path(session["directory"])
        assert directory == disks.root / "loom" / "principal" / "ada" / session["id"]
        node.post(f"/session/{session['id']}/message", prompt("commit"), headers=ada)
        assert git(directory, "log", "-1", "--format=%s").strip() == "mine"
        # Rules do not know what a program does, and the sandbox shows it no other checkout.
        (directory / "Makefile").write_text("spy:\n\tls ../../.. ../../../* > deep/seen\n")
        node.post(f"/session/{session['id']}/message", prompt("spy"), headers=ada)
        seen = (directory / "deep" / "seen").read_text()
        assert ("principal" in seen, ours in seen) == (True, False)
        assert ours in os.listdir(disks.root / "loom")
        # Nobody else learns anything of it, or may use the workspace.
        refused = node.client.post("/session", json={"workspace": "loom"}, headers=ben)
        assert (refused.status_code, "ask the administrator" in refused.text) == (404, True)
        for known, missing in ((directory, directory.parent / "ses_0"), (directory.parent, disks.root)):
            answers = [
                node.client.get("/session", params={"directory": str(each)}, headers=ben)
                for each in (known, missing)
            ]
            assert [answer.status_code for answer in answers] == [403, 403]
        # The fork has the same files in another place, and both go on apart from each other.
        fork = node.post(f"/session/{session['id']}/fork", {}, headers=ada)
        forked = Path(fork["directory"])
        assert forked == directory.parent / fork["id"]
        assert read_files(forked) == read_files(directory)
        assert str(directory) not in json.dumps(
            node.client.get(f"/session/{fork['id']}/message", headers=ada).json()
        )
        node.post(f"/session/{fork['id']}/message", prompt("go on"), headers=ada)
        assert (forked / "hello.txt").read_text() == "hello there\nchanged\nmore\n"
        assert (directory / "hello.txt").read_text() == "hello there\nchanged\n"
        worked = read_files(forked)
        node.kill()
        disks.take_out("a")
        node = b.serve(*options, "--node-name", "b")
        node.post(f"/session/{fork['id']}/message", prompt("go on"), headers=ada)
        assert read_files(forked) == {**worked, "hello.txt": ("0o644", b"hello there\nchanged\nmore\nmore\n")}
        # Undo reaches what the original did, as far as the fork has copied it.
        first = node.client.get(f"/session/{fork['id']}/message", headers=ada).json()[0]["info"]["id"]
        node.post(f"/weft/session/{fork['id']}/revert", {"messageID": first}, headers=ada)
        assert (forked / "hello.txt").read_text() == "hello there\n"
        assert node.client.delete(f"/session/{fork['id']}", headers=ada).json() is True
        assert not forked.exists()


def is_settled(node: Node, session: str) -> bool:
    calls = [part for part in node.list_messages(session)[-1]["parts"] if part["type"] == "tool"]
    idle = node.get(f"/weft/session/{session}/status") == {"type": "idle"}
    return idle and [call["state"]["status"] for call in calls] == ["error"]


def omit(files: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: file for name, file in files.items() if name not in names}
