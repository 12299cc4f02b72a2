"""The session commands, with the installed command, on sessions that do not run."""

import asyncio
import json
import os
import pty
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from given.session_stress import CHILD, SOURCE, create_sessions
from weft.model.diff import FileDiff
from weft.model.event import SessionCreated, SessionDiffed, SessionUpdated, TodoUpdated
from weft.model.session import Todo
from weft.model.spending import Ledger, Spent
from weft.session.totals import with_ledger
from weft.store.url import open_store
from weft.testing.store_samples import NOW, session

WEFT = str(Path(sys.executable).with_name("weft"))
OTHER = "ses_2f20b972bffeAbCdEfGhIjKlMn"
MESSAGES = 6


class Shell:
    """A directory without a repository, its own home, and three sessions."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "work"
        self.directory.mkdir()
        self.storage = Path(os.environ["XDG_DATA_HOME"]) / "opencode" / "storage"
        asyncio.run(self._plant())

    async def _plant(self) -> None:
        async with open_store(f"file:{self.storage}") as store:
            await create_sessions(store, MESSAGES)
            await store.edit(SOURCE, lambda it: replace(it, title="Mend the loom"))
            other = session(OTHER, project="global", created=NOW + 9, title="Weave")
            diff = FileDiff(file="loom.py", additions=2, deletions=1)
            todo = Todo(content="oil it", status="in_progress", priority="high")
            await store.apply(
                SessionCreated(info=other),
                SessionUpdated(info=other),
                SessionDiffed(session_id=SOURCE, diff=(diff,)),
                TodoUpdated(session_id=SOURCE, todos=(todo,)),
            )

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [WEFT, "session", *arguments],
            cwd=self.directory,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def run_checked(self, *arguments: str) -> str:
        ran = self.run(*arguments)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run_checked(*arguments, "--format", "json"))

    def list_ids(self, *arguments: str) -> list[str]:
        return [row["id"] for row in self.json("list", "--all", *arguments)]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_totals_of_a_shown_session_include_titles_and_child_sessions(shell: Shell) -> None:
    async def spend() -> None:
        title, child = (
            Ledger(own=Spent(cost=Decimal(1), input=500), until=NOW),
            Spent(cost=Decimal(2), output=70),
        )
        async with open_store(f"file:{shell.storage}") as store:
            await store.edit(SOURCE, lambda it: with_ledger(it, title))
            await store.edit(CHILD, lambda it: with_ledger(it, Ledger(own=child, until=NOW)))

    asyncio.run(spend())

    own, tree = (shell.json("cost", SOURCE)[key] for key in ("own", "tree"))
    assert (float(own["cost"]), float(tree["cost"])) == (1, 3)
    assert shell.run_checked("show", SOURCE).splitlines()[-1] == (
        "6 messages · 500 tokens in, 70 out · $3.0000 with its child sessions"
    )


def test_a_list_can_be_filtered(shell: Shell) -> None:
    assert shell.list_ids() == [OTHER, SOURCE]
    assert sorted(shell.list_ids("--children")) == sorted([OTHER, SOURCE, CHILD])
    assert shell.list_ids("--search", "LOOM") == [SOURCE]
    shell.run_checked("pin", SOURCE)
    assert shell.list_ids() == [SOURCE, OTHER]
    assert "* Mend the loom" in shell.run_checked("list", "--all")
    shell.run_checked("tag", SOURCE, "blue", "urgent")
    assert shell.list_ids("--tag", "blue") == [SOURCE]
    shell.run_checked("tag", SOURCE, "blue", "--remove")
    assert shell.list_ids("--tag", "blue") == []
    shell.run_checked("archive", SOURCE)
    assert (shell.list_ids(), shell.list_ids("--archived")) == ([OTHER], [SOURCE])
    shell.run_checked("archive", SOURCE, "--off")
    shell.run_checked("pin", SOURCE, "--off")
    assert shell.list_ids() == [OTHER, SOURCE]


def test_a_session_is_selected_by_prefix_and_renamed_permanently(shell: Shell) -> None:
    assert shell.run_checked("rename", "1e10b972bffe", "A", "new", "name").endswith(
        "is now called A new name\n"
    )
    kept = shell.json("rename", SOURCE[:20], "Again")
    assert (kept["title"], kept["weft"]) == ("Again", {"titled": True})
    document = json.loads((shell.storage / "session" / "global" / f"{SOURCE}.json").read_bytes())
    assert document == kept
    assert "A new name" not in shell.run_checked("show", SOURCE)


def test_a_prefix_must_select_one_session(shell: Shell) -> None:
    ambiguous = shell.run("rename", "1e10b972b", "x")
    assert ambiguous.returncode == 2
    assert SOURCE in ambiguous.stderr
    assert CHILD in ambiguous.stderr
    close = shell.run("todo", SOURCE[:-1] + "X")
    assert (close.returncode, "did you mean" in close.stderr) == (2, True)
    for hostile in ("", "../../etc/passwd", "ses_\u202e", "x" * 5000):
        ran = shell.run("rm", hostile, "--yes")
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "Traceback" not in ran.stderr
    assert len(shell.list_ids("--children")) == 3


def test_a_fork_has_the_messages_before_a_point(shell: Shell) -> None:
    whole = shell.json("fork", SOURCE)
    assert whole["title"] == "Mend the loom (fork #1)"
    messages = shell.json("show", SOURCE)["messages"]
    at = messages[2]["info"]["id"]
    part = shell.json("fork", SOURCE, "--at", at)
    assert part["weft"]["forkedFrom"] == {"sessionID": SOURCE, "messageID": at}
    assert len(shell.json("show", part["id"])["messages"]) == 2
    assert len(shell.json("show", whole["id"])["messages"]) == MESSAGES
    nowhere = shell.run("fork", SOURCE, "--at", "msg_00000000000000000000000000")
    assert nowhere.returncode == 2
    assert len(shell.list_ids()) == 4


def test_a_tree_a_diff_and_todos_are_shown(shell: Shell) -> None:
    drawn = shell.run_checked("tree", SOURCE).splitlines()
    assert drawn[0].startswith(SOURCE)
    assert drawn[1].startswith(f"└── {CHILD}")
    assert [child["session"]["id"] for child in shell.json("tree", SOURCE)["children"]] == [CHILD]
    assert "loom.py" in shell.run_checked("diff", SOURCE)
    assert shell.json("diff", SOURCE)[0]["additions"] == 2
    assert shell.run_checked("todo", SOURCE) == "[>] oil it\n"
    assert shell.json("todo", OTHER) == []


def test_nothing_is_removed_without_confirmation(shell: Shell) -> None:
    refused = shell.run("rm", SOURCE)
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    assert answer_at_a_terminal(shell, b"n\n") == 0
    assert SOURCE in shell.list_ids()
    assert answer_at_a_terminal(shell, b"y\n") == 0
    assert shell.list_ids() == [OTHER]


@pytest.mark.parametrize(
    "line",
    [
        f"session rm {SOURCE}",
        f"undo {SOURCE}",
        "project merge global elsewhere",
        "storage prune --older-than 1s",
    ],
)
def test_ctrl_c_at_a_question_ends_the_command_and_changes_nothing(shell: Shell, line: str) -> None:
    before = documents(shell.storage)
    ours, theirs = pty.openpty()
    command = ["setsid", "--ctty", WEFT, *line.split()]  # so that Ctrl-C reaches it from this terminal
    with subprocess.Popen(
        command, cwd=shell.directory, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs
    ) as running:
        os.close(theirs)
        shown = b""
        while b"[y/N] " not in shown:
            shown += os.read(ours, 4096)
        os.write(ours, b"\x03")
        try:
            code = running.wait(timeout=60)
        finally:
            running.kill()
    os.close(ours)
    assert (code, documents(shell.storage)) == (130, before)


def test_a_removed_session_is_restored_byte_for_byte(shell: Shell) -> None:
    before = documents(shell.storage)
    assert [each["id"] for each in shell.json("rm", SOURCE, "--yes")] == [CHILD, SOURCE]
    assert shell.list_ids("--children") == [OTHER]
    assert [each["sessions"][0]["id"] for each in shell.json("trash")] == [SOURCE]
    assert SOURCE in shell.run_checked("trash")
    assert [each["id"] for each in shell.json("restore", SOURCE[:20])] == [SOURCE, CHILD]
    assert documents(shell.storage) == before
    assert shell.run("restore", SOURCE).returncode == 2
    shell.run_checked("rm", SOURCE, "--yes", "--no-trash")
    assert shell.json("trash") == []
    assert [name for name in documents(shell.storage) if SOURCE in name or CHILD in name] == []


def test_a_broken_configuration_does_not_prevent_removing_sessions(shell: Shell) -> None:
    (shell.directory / "opencode.json").write_text("{ broken")
    assert shell.run("rename", SOURCE, "x").returncode == 0
    assert shell.run("rm", OTHER, "--yes").returncode == 0
    assert shell.list_ids() == [SOURCE]


def documents(storage: Path) -> dict[str, bytes]:
    return {
        path.relative_to(storage).as_posix(): path.read_bytes()
        for path in storage.rglob("*.json")
        if path.is_file()
    }


def answer_at_a_terminal(shell: Shell, words: bytes) -> int:
    ours, theirs = pty.openpty()
    os.write(ours, words)
    ran = subprocess.run(
        [WEFT, "session", "rm", SOURCE],
        cwd=shell.directory,
        stdin=theirs,
        capture_output=True,
        timeout=60,
        check=False,
    )
    os.close(ours)
    os.close(theirs)
    assert b"Remove the session" in ran.stderr
    return ran.returncode


def test_notes_are_pinned_listed_and_removed(shell: Shell) -> None:
    shell.run_checked("note", SOURCE, "never", "touch", "main")
    assert "1. never touch main" in shell.run_checked("note", SOURCE)
    assert "has no notes" in shell.run_checked("note", SOURCE, "--remove", "1")
    refused = shell.run("note", SOURCE, "--remove", "1")
    assert refused.returncode != 0
    assert "there is no note 1" in refused.stderr
