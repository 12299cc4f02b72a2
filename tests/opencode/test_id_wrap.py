"""A session from before 2026-08-14, when the numbers in ids wrapped: weft sorts it by time and continues it."""

import json
from typing import Any

import pytest

from opencode.comparison import texts
from opencode.engine import make_prompt, open_engine, open_sandbox_store
from opencode.fake_model import FakeModel, answer_text
from opencode.sandbox import Sandbox
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.provider.scripted import Say

pytestmark = pytest.mark.opencode

JANUARY = 1_769_126_400_000  # 2026-01-23, midnight in Greenwich
OLD = SessionID("ses_417d96fffffeJanuarySession")
ASKED = "msg_be8269000002JanuaryAskedxx"
ANSWERED = "msg_be82693e8001JanuaryAnswerx"
TOKENS = {"input": 10, "output": 2, "reasoning": 0, "cache": {"read": 0, "write": 0}}


def january(project: str, directory: str) -> dict[str, Any]:
    """Return the documents of a session by path, as OpenCode wrote them in January 2026."""
    model = {"providerID": "fake", "modelID": "fake-model"}

    def part(id: str, message: str, **fields: Any) -> dict[str, Any]:
        return {f"part/{message}/{id}": {"id": id, "sessionID": OLD, "messageID": message, **fields}}

    return {
        f"session/{project}/{OLD}": {
            "id": OLD,
            "slug": "quiet-loom",
            "version": "1.1.34",
            "projectID": project,
            "directory": directory,
            "title": "In January",
            "time": {"created": JANUARY, "updated": JANUARY + 2000},
        },
        f"message/{OLD}/{ASKED}": {
            "id": ASKED,
            "sessionID": OLD,
            "role": "user",
            "time": {"created": JANUARY},
            "agent": "build",
            "model": model,
        },
        f"message/{OLD}/{ANSWERED}": {
            "id": ANSWERED,
            "sessionID": OLD,
            "role": "assistant",
            "time": {"created": JANUARY + 1000, "completed": JANUARY + 2000},
            "parentID": ASKED,
            "modelID": "fake-model",
            "providerID": "fake",
            "mode": "build",
            "agent": "build",
            "path": {"cwd": directory, "root": directory},
            "cost": 0,
            "tokens": TOKENS,
            "finish": "stop",
        },
        **part("prt_be8269000003JanuaryAskedxx", ASKED, type="text", text="one?"),
        **part("prt_be82693e8002JanuaryAnswerx", ANSWERED, type="step-start"),
        **part("prt_be82693e8003JanuaryAnswerx", ANSWERED, type="text", text="One."),
        **part(
            "prt_be82693e8004JanuaryAnswerx",
            ANSWERED,
            type="step-finish",
            reason="stop",
            cost=0,
            tokens=TOKENS,
        ),
    }


def write_january(sandbox: Sandbox, project: str) -> None:
    for name, document in january(project, str(sandbox.project)).items():
        path = sandbox.storage / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2))


async def test_a_session_from_before_the_wrap_is_listed_in_order_and_continues(
    sandbox: Sandbox, model: FakeModel
) -> None:
    async with open_engine(sandbox, [Say(text="Two.")], [Say(text="Four.")]) as weft:
        write_january(sandbox, (await weft.api.current_project()).id)
        new = (await weft.api.create_session(SessionInput(title="Today"))).id
        assert [session.id for session in await weft.api.list_sessions()] == [new, OLD]
        assert texts(await weft.api.list_messages(OLD)) == ["one?", "One."]

        await weft.api.prompt(OLD, make_prompt("two?"))
        assert weft.list_conversations() == [[("user", "one?"), ("assistant", "One."), ("user", "two?")]]
        assert texts(await weft.api.list_messages(OLD)) == ["one?", "One.", "two?", "Two."]

        # OpenCode 1.1.34 takes January's answer for the newest message of all, and never asks the model.
        model.play(answer_text("never said"))
        sandbox.opencode("run", "--format", "json", "-s", OLD, "three?")
        assert model.requests == []

        # Its unanswered prompt is still in the right place, and the next one is answered.
        await weft.api.prompt(OLD, make_prompt("four?"))
        assert len(weft.provider.requests) == 2
    async with open_sandbox_store(sandbox) as store:
        assert texts(await store.list_messages(OLD)) == [
            "one?",
            "One.",
            "two?",
            "Two.",
            "three?\n",
            "four?",
            "Four.",
        ]
        assert [session.id for session in await store.list_sessions()] == [OLD, new]
        assert await store.damage() == []
