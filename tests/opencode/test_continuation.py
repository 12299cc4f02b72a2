"""Each program continues a session that the other one began, and asks the model exactly once for every prompt."""

import json
import shutil

import pytest

from opencode.comparison import parse_strictly, texts, to_conversation, to_export
from opencode.engine import make_prompt, open_engine, open_sandbox_store
from opencode.fake_model import FakeModel, answer_text
from opencode.sandbox import Sandbox
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.provider.scripted import Say

pytestmark = pytest.mark.opencode


def prompt_opencode(sandbox: Sandbox, model: FakeModel, session: SessionID, words: str, answer: str) -> None:
    model.play(answer_text(answer))
    sandbox.opencode("run", "--format", "json", "-s", session, words)


async def test_weft_continues_a_session_of_opencode(sandbox: Sandbox, model: FakeModel) -> None:
    model.play(answer_text("One."))
    [first, *_] = sandbox.opencode("run", "--format", "json", "one?").splitlines()
    session = SessionID(json.loads(first)["sessionID"])
    async with open_engine(sandbox, [Say(text="Two.")]) as weft:
        await weft.api.prompt(session, make_prompt("two?"))
        assert weft.list_conversations() == [[("user", "one?\n"), ("assistant", "One."), ("user", "two?")]]
    prompt_opencode(sandbox, model, session, "three?", "Three.")
    [request] = model.requests
    assert to_conversation(request) == [
        ("user", "one?\n"),
        ("assistant", "One."),
        ("user", "two?"),
        ("assistant", "Two."),
        ("user", "three?\n"),
    ]
    async with open_sandbox_store(sandbox) as store:
        messages = await store.list_messages(session)
        info = await store.get_session(session)
    assert texts(messages) == ["one?\n", "One.", "two?", "Two.", "three?\n", "Three."]
    assert parse_strictly(sandbox.opencode("export", session)) == to_export(info, messages)


async def test_opencode_continues_a_session_of_weft(sandbox: Sandbox, model: FakeModel) -> None:
    async with open_engine(sandbox, [Say(text="One.")]) as weft:
        session = (await weft.api.create_session(SessionInput(title="Begun by weft"))).id
        await weft.api.prompt(session, make_prompt("one?"))
    prompt_opencode(sandbox, model, session, "two?", "Two.")
    [request] = model.requests
    assert to_conversation(request) == [("user", "one?"), ("assistant", "One."), ("user", "two?\n")]
    async with open_engine(sandbox, [Say(text="Three.")]) as weft:
        await weft.api.prompt(session, make_prompt("three?"))
        assert weft.list_conversations() == [
            [
                ("user", "one?"),
                ("assistant", "One."),
                ("user", "two?\n"),
                ("assistant", "Two."),
                ("user", "three?"),
            ]
        ]
        messages = await weft.store.list_messages(session)
    assert texts(messages) == ["one?", "One.", "two?\n", "Two.", "three?", "Three."]


async def test_opencode_continues_a_session_that_was_migrated_from_sqlite(
    sandbox: Sandbox, model: FakeModel
) -> None:
    database = f"sqlite:{sandbox.project.parent / 'sessions.db'}"
    tree = f"file:{sandbox.storage}"
    async with open_engine(sandbox, [Say(text="One.")]) as weft:
        session = (await weft.api.create_session(SessionInput(title="Begun by weft"))).id
        await weft.api.prompt(session, make_prompt("one?"))
    sandbox.weft("storage", "migrate", tree, database)
    shutil.rmtree(sandbox.storage)
    sandbox.weft("storage", "migrate", database, tree)
    prompt_opencode(sandbox, model, session, "two?", "Two.")
    [request] = model.requests
    assert to_conversation(request) == [("user", "one?"), ("assistant", "One."), ("user", "two?\n")]
    async with open_sandbox_store(sandbox) as store:
        messages = await store.list_messages(session)
        info = await store.get_session(session)
    assert texts(messages) == ["one?", "One.", "two?\n", "Two."]
    assert parse_strictly(sandbox.opencode("export", session)) == to_export(info, messages)
