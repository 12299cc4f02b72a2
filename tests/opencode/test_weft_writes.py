"""OpenCode reads what weft wrote: it lists every session, exports exactly our documents, and accepts them as its own."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from opencode.comparison import list_shapes, parse_strictly, to_export
from opencode.engine import UNPRICED, make_prompt, open_engine, open_sandbox_store
from opencode.sandbox import PATIENCE, Sandbox
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.session import SessionInfo
from weft.provider.scripted import Fail, Say, Think, UseTool

pytestmark = pytest.mark.opencode

TODO = {"content": "Say goodbye", "status": "completed", "priority": "high", "id": "1"}
IDS = {"id", "sessionID", "messageID", "parentID"}
# Fields that OpenCode does not know, and omits when it writes a message or part again.
OURS = {"priced", "weft"}


async def run_sessions(sandbox: Sandbox) -> list[SessionID]:
    """Run four sessions, oldest first; the first runs once more after the others."""
    hello = str(sandbox.project / "hello.txt")
    async with open_engine(
        sandbox,
        [
            Think(text="Let me see."),
            Say(text="I shall look."),
            UseTool(tool="read", input={"filePath": hello}),
        ],
        [
            UseTool(
                tool="bash", input={"command": "echo said; exit 3", "description": "Says something and fails"}
            )
        ],
        [
            UseTool(
                tool="edit",
                input={"filePath": hello, "oldString": "hello", "newString": "goodbye – «ä» \U0001f9f6"},
            )
        ],
        [UseTool(tool="read", input={"filePath": str(sandbox.project / "missing.txt")})],
        [UseTool(tool="todowrite", input={"todos": [TODO]}), UseTool(tool="unheard-of")],
        [Say(text="It says goodbye now.")],
        [Fail(message="the model is out", status=400)],
        [Say(text="Nobody knows what this cost.")],
        [Say(text="Here once more.")],
    ) as weft:
        first = await weft.api.create_session(SessionInput(title="The first"))
        await weft.api.prompt(first.id, make_prompt("Let the file say goodbye."))
        second = await weft.api.create_session(SessionInput(title="The second, which fails"))
        await weft.api.prompt(second.id, make_prompt("Go on."))
        third = await weft.api.create_session(SessionInput(title="The third, by a model without a price"))
        await weft.api.prompt(third.id, make_prompt("What is it worth?", model=UNPRICED))
        fourth = await weft.api.create_session(SessionInput(title="The fourth, in which nothing is said"))
        await weft.api.prompt(first.id, make_prompt("Are you there?"))
    return [first.id, second.id, third.id, fourth.id]


@pytest.fixture(scope="module")
def sessions(sandbox: Sandbox) -> list[SessionID]:
    return asyncio.run(run_sessions(sandbox))


@pytest.fixture(scope="module")
def server(sandbox: Sandbox, sessions: list[SessionID]) -> Iterator[str]:
    """The URL of a real OpenCode server over the same files."""
    with sandbox.run_opencode("serve", "--hostname", "127.0.0.1", "--port", "0") as opencode:
        assert opencode.stdout is not None
        lines = iter(opencode.stdout.readline, "")
        yield next(found[1] for line in lines if (found := re.search(r"listening on (http://\S+)", line)))


def ask(server: str, path: str, method: str = "GET") -> Any:
    body = b"{}" if method == "POST" else None
    request = Request(server + path, data=body, method=method, headers={"Content-Type": "application/json"})
    with build_opener(ProxyHandler({})).open(request, timeout=PATIENCE) as answer:
        return parse_strictly(answer.read())


async def export_session(sandbox: Sandbox, id: SessionID) -> Any:
    """Return a session of weft in the shape of an export."""
    async with open_sandbox_store(sandbox) as store:
        return to_export(await store.get_session(id), await store.list_messages(id))


async def test_every_kind_of_part_is_written(sandbox: Sandbox, sessions: list[SessionID]) -> None:
    async with open_sandbox_store(sandbox) as store:
        messages = {id: await store.list_messages(id) for id in sessions}
    answered = ["step-start", "text", "step-finish"]
    assert [[list_shapes(message) for message in messages[id]] for id in sessions] == [
        [
            ["text"],
            ["step-start", "reasoning", "text", "read completed", "step-finish"],
            ["step-start", "bash completed", "step-finish"],
            ["step-start", "edit completed", "patch", "step-finish"],
            ["step-start", "read error", "step-finish"],
            ["step-start", "todowrite completed", "invalid completed", "step-finish"],
            answered,
            ["text"],
            answered,
        ],
        [["text"], ["step-start"]],
        [["text"], answered],
        [],
    ]


async def test_opencode_lists_what_weft_wrote(sandbox: Sandbox, sessions: list[SessionID]) -> None:
    async with open_sandbox_store(sandbox) as store:
        first, second, third, fourth = [await store.get_session(id) for id in sessions]
    command = ("session", "list", "--format", "json")
    by_opencode = parse_strictly(sandbox.opencode(*command))
    # The one that changed last comes first, and the first was prompted again when the others were there.
    assert by_opencode == [to_row(session) for session in (first, fourth, third, second)]
    assert by_opencode == parse_strictly(sandbox.weft(*command))


async def test_opencode_exports_our_documents_unchanged(sandbox: Sandbox, sessions: list[SessionID]) -> None:
    by_opencode = parse_strictly(sandbox.opencode("export", sessions[0]))
    assert by_opencode == await export_session(sandbox, sessions[0])
    assert by_opencode == parse_strictly(sandbox.weft("session", "show", sessions[0], "--format", "json"))


async def test_an_opencode_server_returns_our_documents_unchanged(
    sandbox: Sandbox, sessions: list[SessionID], server: str
) -> None:
    for id in sessions:
        served = {"info": ask(server, f"/session/{id}"), "messages": ask(server, f"/session/{id}/message")}
        assert served == await export_session(sandbox, id)
    assert ask(server, f"/session/{sessions[0]}/todo") == [TODO]
    assert {session["id"] for session in ask(server, "/session")} == set(sessions)


async def test_opencode_accepts_our_documents_as_its_own(
    sandbox: Sandbox, sessions: list[SessionID], server: str
) -> None:
    """A fork writes every message and part again, and OpenCode writes only valid documents."""
    for id in sessions:
        fork = ask(server, f"/session/{id}/fork", "POST")["id"]
        ours, copied = await export_session(sandbox, id), await export_session(sandbox, fork)
        assert omit(copied["messages"], IDS) == omit(ours["messages"], IDS | OURS)
        assert ask(server, f"/session/{fork}", "DELETE") is True


async def test_a_session_deleted_by_opencode_is_gone_for_weft(
    sandbox: Sandbox, sessions: list[SessionID], server: str
) -> None:
    async with open_engine(sandbox, [Say(text="Soon gone.")]) as weft:
        removed = (await weft.api.create_session(SessionInput(title="Doomed"))).id
        await weft.api.prompt(removed, make_prompt("Still there?"))
        assert ask(server, f"/session/{removed}", "DELETE") is True
        assert removed not in {session.id for session in await weft.api.list_sessions()}
        assert await weft.store.list_messages(removed) == []
        assert await weft.store.damage() == []


def omit(value: Any, names: set[str]) -> Any:
    """Return a plain value without the fields of these names, at any depth."""
    if isinstance(value, dict):
        return {name: omit(item, names) for name, item in value.items() if name not in names}
    return [omit(item, names) for item in value] if isinstance(value, list) else value


def to_row(session: SessionInfo) -> dict[str, str | int]:
    return {
        "id": session.id,
        "title": session.title,
        "updated": session.time.updated,
        "created": session.time.created,
        "projectId": session.project_id,
        "directory": session.directory,
    }
