"""`weft session move` between two machines: real servers with homes and checkouts of their own."""

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from given.breaking_proxy import Break, open_breaking_proxy
from given.cluster import Node, wait_until
from given.http_server import prompt
from given.machines import Machine, open_machines
from weft.provider.scripted import Say, UseTool, Wait

pytestmark = pytest.mark.slow

COMMANDS = (
    "echo changed >> hello.txt; rm gone.txt; chmod 755 run.sh; ln -s hello.txt link; mkdir -p deep/er;"
    " printf '\\000\\001\\377' > deep/er/data.bin"
)
SCRIPTS = {
    "work": [
        [UseTool(tool="bash", input={"command": COMMANDS, "description": "Work"})],
        [UseTool(tool="write", input={"filePath": "ignored", "content": "secret\n"})],
        [
            UseTool(
                tool="task",
                input={"description": "Look", "prompt": "look around", "subagent_type": "general"},
            )
        ],
        [Say(text="Half of it is done."), Wait(seconds=0), Say(text="never said")],
    ],
    "go on": [
        [UseTool(tool="bash", input={"command": "echo more >> hello.txt", "description": "More"})],
        [Say(text="All of it is done.")],
    ],
}


# The requests of a move, in order, and whether they break off before or after the server has handled them.
BREAKS: tuple[tuple[str, Break], ...] = (
    ("POST /weft/move", "before"),
    ("POST /weft/move", "after"),
    ("/piece", "before"),
    ("/piece", "after"),
    ("/accept", "before"),
    ("/accept", "after"),
)


def begin_work(model: Any, source: Machine, node: Node) -> str:
    """Let a session work, and interrupt it in the middle of its task."""
    session = node.make_session()
    node.submit(session, "work")
    wait_until(lambda: "Half of it is done." in json.dumps(node.list_messages(session)), "half of the work")
    refused = source.run("session", "move", session, "--to", "http://127.0.0.1:9")
    assert (refused.returncode, "is busy" in refused.stderr) == (8, True), refused.stderr
    assert node.post(f"/session/{session}/abort") is True
    model.go_on.set()
    return session


def list_notes(message: dict[str, Any]) -> list[str]:
    return [part["text"] for part in message["parts"] if part.get("synthetic")]


def list_calls(messages: list[Any]) -> list[Any]:
    return [
        (part["tool"], part["state"]["status"], part["state"].get("output"))
        for message in messages
        for part in message["parts"]
        if part["type"] == "tool"
    ]


def test_a_session_moves_during_its_task_with_files_history_cost_and_undo(tmp_path: Path) -> None:
    with open_machines(tmp_path, SCRIPTS, "a", "b") as (model, a, b):
        source, target = a.serve(), b.serve()
        clean = b.read_files()
        session = begin_work(model, a, source)
        spent = source.get(f"/weft/session/{session}/spending")
        children = source.get(f"/session/{session}/children")
        assert len(children) == 1
        tried = a.run("session", "move", session, "--to", target.url, "--dry-run")
        assert (tried.returncode, "2 sessions" in tried.stdout) == (0, True), tried.stderr
        assert b.read_files() == clean
        moved = a.run("session", "move", session, "--to", target.url)
        assert moved.returncode == 0, moved.stderr
        assert f"weft attach {target.url} -s {session}" in moved.stdout
        # The same files, history and cost.
        assert b.read_files() == a.read_files() != clean
        assert list_calls(target.list_messages(session)) == list_calls(source.list_messages(session))
        assert target.get(f"/weft/session/{session}/spending") == spent
        assert [child["id"] for child in target.get(f"/session/{session}/children")] == [children[0]["id"]]
        info = target.get(f"/session/{session}")
        assert info["directory"] == str(b.project)
        assert str(a.project) not in json.dumps(
            [
                part
                for message in target.list_messages(session)
                for part in message["parts"]
                if part["type"] == "patch"
            ]
        )
        # The source no longer has the session.
        for path, body in (
            (f"/session/{session}/message", prompt("go on")),
            (
                f"/weft/session/{session}/revert",
                {"messageID": source.list_messages(session)[0]["info"]["id"]},
            ),
            (f"/session/{children[0]['id']}/message", prompt("go on")),
        ):
            refused = source.client.post(path, json=body)
            assert (refused.status_code, f"was moved to {target.url}" in refused.text) == (409, True)
        assert a.run("undo", session, "--yes").returncode == 2
        assert f"moved to {target.url}" in a.run("session", "list").stdout
        again = a.run("session", "move", session, "--to", target.url)
        assert (again.returncode, "was moved to" in again.stdout) == (0, True), again.stderr
        # The target goes on, and its model knows where it is.
        target.post(f"/session/{session}/message", prompt("go on"))
        messages = target.list_messages(session)
        asked = [message for message in messages if message["info"]["role"] == "user"][-1]
        notes = list_notes(asked)
        assert f"It worked in {a.project}" in notes[0]
        assert f"now works in {b.project}" in notes[0]
        assert f"Working directory: {b.project}" in notes[1]
        target.post(f"/session/{session}/message", prompt("go on"))
        assert list_notes(target.list_messages(session)[-3]) == []
        assert (b.project / "hello.txt").read_text() == "hello there\nchanged\nmore\nmore\n"
        assert target.get(f"/weft/session/{session}/spending") != spent
        # Undo reaches back to before the move.
        first = messages[0]["info"]["id"]
        target.post(f"/weft/session/{session}/revert", {"messageID": first})
        assert b.read_files() == clean
        target.post(f"/weft/session/{session}/unrevert", {})
        assert (b.project / "hello.txt").read_text() == "hello there\nchanged\nmore\nmore\n"


def try_to_move(source: Machine, session: str, url: str, *more: str, **env: str) -> str:
    """Return why a session is not moved."""
    refused = source.run("session", "move", session, "--to", url, *more, **env)
    assert refused.returncode != 0, refused.stdout
    return " ".join(refused.stderr.split())


def work_once(node: Node) -> str:
    session = node.make_session()
    node.post(f"/session/{session}/message", prompt("go on"))
    return session


def test_an_obstacle_at_the_target_is_explained_and_nothing_changes(tmp_path: Path) -> None:
    with open_machines(tmp_path, SCRIPTS, "a", "b") as (_, a, b):
        source, target = a.serve(), b.serve()
        session = work_once(source)
        (a.project / "big").write_bytes(bytes(5 << 20))
        (a.project / "ignored").write_text("mine\n")
        clean = b.read_files()

        def refuse(words: str, *more: str, url: str = target.url, **env: str) -> None:
            before = b.read_files()
            assert words in try_to_move(a, session, url, *more, **env)
            assert b.read_files() == before
            assert target.client.get(f"/session/{session}").status_code == 404

        (b.project / "mine").write_text("x")
        refuse("has uncommitted changes: mine")
        b.git("add", "mine")
        b.git("commit", "-qm", "elsewhere")
        refuse("is at another commit than")
        refuse("is in no project of this server", "--into", str(tmp_path / "b"))
        b.git("reset", "-q", "--hard", "HEAD~1")
        run_only = target.post(
            "/weft/token", {"name": "ada", "scope": "run", "directories": [str(b.project)]}
        )
        refuse("this needs a token with the scope admin", WEFT_TOKEN=run_only["secret"])
        refuse("127.0.0.1:9", url="http://127.0.0.1:9")
        limited = b.serve("--no-files")
        refuse("taking over a session on a server with weft", url=limited.url)
        small = b.serve(under=("bash", "-c", 'ulimit -f 3000; exec "$@"', "bash"))
        refuse("1 file could not be restored", url=small.url)
        tiny = b.serve(under=("bash", "-c", 'ulimit -f 4; exec "$@"', "bash"))
        refuse("cannot be written (File too large); nothing was changed", url=tiny.url)
        other = tmp_path / "other"
        other.mkdir()
        for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "unrelated"]):
            subprocess.run(["git", *command], cwd=other, check=True)
        b.project, home = other, b.project
        elsewhere = b.serve("--store", str(tmp_path / "elsewhere"))
        b.project = home
        refuse("there is no project", url=elsewhere.url)
        # The files that the session would bring along are committed where the target cannot see them.
        a.git("add", "-A")
        a.git("commit", "-qm", "not pushed")
        refuse("is not in")
        a.git("reset", "-q", "HEAD~1")
        # A copy of the session is there already.
        exported = tmp_path / "session.json"
        assert a.run("export", session, "-o", str(exported)).returncode == 0
        assert b.run("import", str(exported)).returncode == 0
        assert "is there already" in try_to_move(a, session, target.url)
        assert b.run("session", "rm", session, "--yes").returncode == 0
        assert b.read_files() == clean
        # The session stayed where it was throughout, and can still be moved.
        source.post(f"/session/{session}/message", prompt("go on"))
        moved = a.run("session", "move", session, "--to", target.url, "--format", "json")
        assert json.loads(moved.stdout)["directory"] == str(b.project), moved.stderr
        files = a.read_files()
        del files["ignored"]  # git ignores it, and the session did not touch it
        assert b.read_files() == files


def test_an_interrupted_move_leaves_the_session_on_one_side_and_can_be_repeated(
    tmp_path: Path,
) -> None:
    with open_machines(tmp_path, SCRIPTS, "a", "b") as (_, a, b):
        source, target = a.serve(), b.serve()
        session = work_once(source)
        with open_breaking_proxy(target.url) as proxy:

            def break_off(at: str, when: Break) -> int:
                """Kill the command at a request. Return the status of a prompt that is sent to the source afterwards."""
                moving = a.start("session", "move", session, "--to", proxy.url)
                proxy.break_at(at, when, moving.kill)
                moving.wait(60)
                return source.client.post(f"/session/{session}/message", json=prompt("hello")).status_code

            for at, when in BREAKS[:-2]:
                assert break_off(at, when) == 200
                assert target.client.get(f"/session/{session}").status_code == 404
            # Nobody knows whether the target has it: the source waits until somebody finds out.
            assert break_off("/accept", "before") == 409
            assert target.client.get(f"/session/{session}").status_code == 404
            assert "is being moved" in try_to_move(a, session, "http://127.0.0.1:9")
            assert a.run("session", "move", session, "--cancel").returncode == 0
            assert source.client.post(f"/session/{session}/message", json=prompt("hello")).status_code == 200
            assert break_off("/accept", "after") == 409
            assert target.client.get(f"/session/{session}").status_code == 200
            cancelled = a.run("session", "move", session, "--cancel")
            assert (cancelled.returncode, "has arrived" in cancelled.stderr) == (2, True)
            finished = a.run("session", "move", session, "--to", proxy.url)
            assert finished.returncode == 0, finished.stderr
        assert source.client.post(f"/session/{session}/message", json=prompt("hello")).status_code == 409
        target.post(f"/session/{session}/message", prompt("go on"))
        assert (b.project / "hello.txt").read_text() == "hello there\nmore\nmore\n"
        assert list_calls(target.list_messages(session))[:1] == list_calls(source.list_messages(session))


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.15])
def test_a_target_that_dies_while_accepting_has_all_or_nothing(tmp_path: Path, delay: float) -> None:
    with open_machines(tmp_path, SCRIPTS, "a", "b") as (_, a, b):
        source, target = a.serve(), b.serve()
        clean, session = b.read_files(), work_once(source)
        for number in range(200):
            (a.project / f"{number}.txt").write_text(f"{number}\n" * 100)
        with open_breaking_proxy(target.url) as proxy:
            timer = threading.Timer(delay, target.kill)
            moving = a.start("session", "move", session, "--to", proxy.url)
            wait_until(lambda: any("/accept" in line for line in proxy.seen), "accepting")
            timer.start()
            moving.wait(120)
            timer.join()
            assert source.client.post(f"/session/{session}/message", json=prompt("hello")).status_code == 409
            proxy.to = (again := b.serve()).url
            # Opening the directory settles what the dead process left.
            arrived = again.client.get(f"/session/{session}").status_code == 200
            assert b.read_files() == (a.read_files() if arrived else clean)
            finished = a.run("session", "move", session, "--to", proxy.url)
            assert finished.returncode == 0, finished.stderr
            assert b.read_files() == a.read_files()
            again.post(f"/session/{session}/message", prompt("go on"))


def test_a_session_can_be_moved_back(tmp_path: Path) -> None:
    with open_machines(tmp_path, SCRIPTS, "a", "b") as (_, a, b):
        source, target = a.serve(), b.serve()
        session = work_once(source)
        assert a.run("session", "move", session, "--to", target.url).returncode == 0
        target.post(f"/session/{session}/message", prompt("go on"))
        messages = target.list_messages(session)
        target.post(f"/weft/session/{session}/revert", {"messageID": messages[-3]["info"]["id"]})
        target.post(f"/session/{session}/message", prompt("go on"))
        a.git("stash", "-q", "-u")
        back = b.run("session", "move", session, "--to", source.url)
        assert back.returncode == 0, back.stderr
        assert a.read_files() == b.read_files()
        assert [each["info"]["id"] for each in source.list_messages(session)] == [
            each["info"]["id"] for each in target.list_messages(session)
        ]
        source.post(f"/session/{session}/message", prompt("go on"))
        assert (a.project / "hello.txt").read_text() == "hello there\nmore\nmore\nmore\n"
        assert target.client.post(f"/session/{session}/message", json=prompt("go on")).status_code == 409
