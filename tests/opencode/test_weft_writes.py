"""What weft wrote, OpenCode reads: it lists every session and exports exactly our documents."""

import json
from typing import Any

import pytest

from opencode.engine import open_engine, say
from opencode.reading import exported, shapes, strict
from opencode.sandbox import Sandbox
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.provider.scripted import Call, Fail, Say, Think

pytestmark = pytest.mark.opencode

TODO = {"content": "Say goodbye", "status": "completed", "priority": "high", "id": "1"}


async def work(sandbox: Sandbox) -> list[SessionID]:
    """Three sessions, oldest first; the first of them works once more when the others are there."""
    hello = str(sandbox.project / "hello.txt")
    async with open_engine(
        sandbox,
        [Think(text="Let me see."), Say(text="I shall look."), Call(tool="read", input={"filePath": hello})],
        [Call(tool="bash", input={"command": "echo said; exit 3", "description": "Says something and fails"})],
        [
            Call(
                tool="edit",
                input={"filePath": hello, "oldString": "hello", "newString": "goodbye – «ä» \U0001f9f6"},
            )
        ],
        [Call(tool="read", input={"filePath": str(sandbox.project / "missing.txt")})],
        [Call(tool="todowrite", input={"todos": [TODO]}), Call(tool="unheard-of")],
        [Say(text="It says goodbye now.")],
        [Fail(message="the model is out", status=400)],
        [Say(text="Here once more.")],
    ) as weft:
        first = await weft.api.create_session(SessionInput(title="The first"))
        await weft.api.prompt(first.id, say("Let the file say goodbye."))
        second = await weft.api.create_session(SessionInput(title="The second, which fails"))
        await weft.api.prompt(second.id, say("Go on."))
        third = await weft.api.create_session(SessionInput(title="The third, in which nothing is said"))
        await weft.api.prompt(first.id, say("Are you there?"))
    return [first.id, second.id, third.id]


async def test_opencode_lists_and_exports_what_weft_wrote(sandbox: Sandbox) -> None:
    first, second, third = await work(sandbox)
    async with open_engine(sandbox) as weft:
        ours = {id: await weft.store.get_session(id) for id in (first, second, third)}
        messages = {id: await weft.store.list_messages(id) for id in ours}
        assert [shapes(message) for message in messages[first]] == [
            ["text"],
            ["step-start", "reasoning", "text", "read completed", "step-finish"],
            ["step-start", "bash completed", "step-finish"],
            ["step-start", "edit completed", "step-finish"],
            ["step-start", "read error", "step-finish"],
            ["step-start", "todowrite completed", "invalid completed", "step-finish"],
            ["step-start", "text", "step-finish"],
            ["text"],
            ["step-start", "text", "step-finish"],
        ]
    listed = json.loads(sandbox.opencode("session", "list", "--format", "json"))
    # By the time they last changed: the first was prompted again when the others were there.
    assert listed == [row(ours[id]) for id in (first, third, second)]
    for id in ours:
        by_opencode = strict(sandbox.opencode("export", id))
        assert by_opencode == exported(ours[id], messages[id])


def row(session: Any) -> dict[str, Any]:
    return {
        "id": session.id,
        "title": session.title,
        "updated": session.time.updated,
        "created": session.time.created,
        "projectId": session.project_id,
        "directory": session.directory,
    }
