"""Undo in both programs: OpenCode does no harm with what weft wrote, and weft undoes no change of which only OpenCode has a snapshot."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from msgspec.structs import replace

from given.snapshot_harness import read_tree, write
from opencode.engine import make_prompt, open_engine
from opencode.fake_model import Answer, FakeModel, ModelCall, answer_slow_call, answer_text
from opencode.sandbox import PATIENCE, Sandbox
from weft.errors import SnapshotMissingError
from weft.model.diff import FileFate
from weft.model.ids import MessageID, SessionID
from weft.model.input import SessionInput
from weft.model.part import PatchPart
from weft.provider.scripted import Say, UseTool
from weft.session.revert_point import ONLY_OPENCODE_SNAPSHOT

pytestmark = pytest.mark.opencode


@pytest.fixture(scope="module")
def server(sandbox: Sandbox) -> Iterator[str]:
    with sandbox.run_opencode("serve", "--hostname", "127.0.0.1", "--port", "0") as opencode:
        assert opencode.stdout is not None
        lines = iter(opencode.stdout.readline, "")
        yield next(found[1] for line in lines if (found := re.search(r"listening on (http://\S+)", line)))


def ask(server: str, path: str, body: object = None) -> Any:
    raw = None if body is None else json.dumps(body).encode()
    request = Request(server + path, data=raw, headers={"Content-Type": "application/json"})
    with build_opener(ProxyHandler({})).open(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read())


async def run_session(sandbox: Sandbox) -> tuple[SessionID, MessageID]:
    """Run a session of weft that changes, creates and removes files."""
    hello = str(sandbox.project / "hello.txt")
    write(sandbox.project / "hello.txt", "hello\n")
    command = "echo made > made.txt; echo more >> also.txt"
    async with open_engine(
        sandbox,
        [UseTool(tool="read", input={"filePath": hello})],
        [UseTool(tool="edit", input={"filePath": hello, "oldString": "hello", "newString": "goodbye"})],
        [UseTool(tool="bash", input={"command": command, "description": "Makes files"})],
        [Say(text="Done.")],
    ) as weft:
        session = (await weft.api.create_session(SessionInput(title="Changes"))).id
        await weft.api.prompt(session, make_prompt("Change it."))
        history = await weft.api.list_messages(session)
        patches = [part for each in history for part in each.parts if isinstance(part, PatchPart)]
        assert [part.files for part in patches] == [(), ()]
        return session, history[0].info.id


async def test_opencode_undoes_messages_of_weft_and_deletes_no_file(sandbox: Sandbox, server: str) -> None:
    (sandbox.project / "also.txt").write_text("mine\n")
    session, prompt = await run_session(sandbox)
    changed = read_tree(sandbox.project)

    reverted = ask(server, f"/session/{session}/revert", {"messageID": prompt})

    assert reverted["revert"]["messageID"] == prompt
    assert read_tree(sandbox.project) == changed
    assert "revert" not in ask(server, f"/session/{session}/unrevert", {})
    assert read_tree(sandbox.project) == changed


async def test_opencode_deletes_what_is_listed_under_a_snapshot_it_does_not_have(
    sandbox: Sandbox, server: str
) -> None:
    """This is why our parts list no files. If it no longer holds, they may."""
    listed = sandbox.project / "listed.txt"
    write(listed, "precious\n")
    session, prompt = await run_session(sandbox)
    async with open_engine(sandbox) as weft:
        history = await weft.api.list_messages(session)
        (part, *_) = [part for each in history for part in each.parts if isinstance(part, PatchPart)]
        await weft.api.update_part(replace(part, files=(str(listed),)))

        ask(server, f"/session/{session}/revert", {"messageID": prompt})

        assert b"listed.txt" not in read_tree(sandbox.project)


async def test_opencode_leaves_an_undo_of_weft_unchanged(sandbox: Sandbox, server: str) -> None:
    session, prompt = await run_session(sandbox)
    async with open_engine(sandbox) as weft:
        await weft.api.revert(session, prompt)
        taken_back = read_tree(sandbox.project)

        ask(server, f"/session/{session}/unrevert", {})

        assert read_tree(sandbox.project) == taken_back
        assert (await weft.api.get_session(session)).revert is None


async def test_opencode_reports_its_own_changes_after_a_step_of_weft_that_only_created_files(
    sandbox: Sandbox, server: str, model: FakeModel
) -> None:
    """OpenCode compares the first `snapshot` of a session with the last. Every repository has the empty tree: if a step
    of ours began with it, OpenCode would report every file that it changes as new."""
    hello = sandbox.project / "hello.txt"
    write(hello, "hello\nthere\n")
    session = SessionID(ask(server, "/session", {"title": "Both"})["id"])
    made = str(sandbox.project / "made-by-weft.txt")
    async with open_engine(
        sandbox, [UseTool(tool="write", input={"filePath": made, "content": "1\n"})], [Say(text="Done.")]
    ) as weft:
        await weft.api.prompt(session, make_prompt("Make a file."))
    model.play(
        answer_slow_call("read", filePath=str(hello)),
        answer_slow_call("write", filePath=str(hello), content="hello\nall\n"),
        answer_text("Done."),
    )
    ask(server, f"/session/{session}/message", {"parts": [{"type": "text", "text": "Change it."}]})

    (file_diff,) = wait_for_diff(server, session)
    assert file_diff == {
        "file": "hello.txt",
        "before": "hello\nthere\n",
        "after": "hello\nall\n",
        "additions": 1,
        "deletions": 1,
    }


def wait_for_diff(server: str, session: SessionID) -> list[dict[str, Any]]:
    """Wait for the diff that OpenCode computes some time after the answer, and return it."""
    for _ in range(20):
        if found := ask(server, f"/session/{session}/diff"):
            return list(found)
        time.sleep(0.1)
    return []


async def test_weft_leaves_changes_of_opencode_alone_and_says_so(sandbox: Sandbox, model: FakeModel) -> None:
    made = str(sandbox.project / "by-opencode.txt")
    write = ModelCall("write", {"filePath": made, "content": "opencode\n"})
    # OpenCode's snapshot would race a call that comes at once.
    model.play(Answer(words=("Let me ", "see ", "first."), calls=(write,), pause=0.5), answer_text("Done."))
    [first, *_] = sandbox.opencode("run", "--format", "json", "Make a file.").splitlines()
    session = SessionID(json.loads(first)["sessionID"])
    changed = read_tree(sandbox.project)
    async with open_engine(sandbox) as weft:
        history = await weft.api.list_messages(session)
        assert any(isinstance(part, PatchPart) for each in history for part in each.parts)

        done = await weft.api.revert(session, history[0].info.id)

        assert done.files == (FileFate(file=made, fate="uncovered", reason=ONLY_OPENCODE_SNAPSHOT),)
        assert read_tree(sandbox.project) == changed


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "gone"])
async def test_weft_redoes_an_undo_of_opencode_or_leaves_it_to_opencode(
    sandbox: Sandbox, server: str, model: FakeModel, kept: bool
) -> None:
    made = sandbox.project / f"taken-back-{kept}.txt"
    writing = ModelCall("write", {"filePath": str(made), "content": "opencode\n"})
    model.play(Answer(words=("Let me ", "see ", "first."), calls=(writing,), pause=0.5), answer_text("Done."))
    [first, *_] = sandbox.opencode("run", "--format", "json", "Make a file.").splitlines()
    session = json.loads(first)["sessionID"]
    prompt = ask(server, f"/session/{session}/message")[0]["info"]["id"]
    reverted = ask(server, f"/session/{session}/revert", {"messageID": prompt})
    assert (reverted["revert"]["messageID"], made.exists()) == (prompt, False)
    snapshots, aside = sandbox.storage.parent / "snapshot", sandbox.root / "aside"
    async with open_engine(sandbox) as weft:
        if kept:
            await weft.api.unrevert(session)
            assert (made.read_text(), "revert" in ask(server, f"/session/{session}")) == ("opencode\n", False)
            return
        snapshots.rename(aside)
        with pytest.raises(SnapshotMissingError):
            await weft.api.unrevert(session)
    aside.rename(snapshots)
    ask(server, f"/session/{session}/unrevert", {})
    assert made.read_text() == "opencode\n"
