"""Each program continues a session that the other one began, and asks the model exactly once for every prompt."""

import json

import pytest

from opencode.comparison import asked, exported, strict, texts
from opencode.engine import open_engine, open_sandbox_store, say
from opencode.fake_model import FakeModel, said
from opencode.sandbox import Sandbox
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.provider.scripted import Say

pytestmark = pytest.mark.opencode


def prompt_opencode(sandbox: Sandbox, model: FakeModel, session: SessionID, words: str, answer: str) -> None:
    model.plays(said(answer))
    sandbox.opencode("run", "--format", "json", "-s", session, words)


async def test_weft_goes_on_with_a_session_that_opencode_began(sandbox: Sandbox, model: FakeModel) -> None:
    model.plays(said("One."))
    [first, *_] = sandbox.opencode("run", "--format", "json", "one?").splitlines()
    session = SessionID(json.loads(first)["sessionID"])
    async with open_engine(sandbox, [Say(text="Two.")]) as weft:
        await weft.api.prompt(session, say("two?"))
        assert weft.heard() == [[("user", "one?\n"), ("assistant", "One."), ("user", "two?")]]
    prompt_opencode(sandbox, model, session, "three?", "Three.")
    [request] = model.requests
    assert asked(request) == [
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
    assert strict(sandbox.opencode("export", session)) == exported(info, messages)


async def test_opencode_goes_on_with_a_session_that_weft_began(sandbox: Sandbox, model: FakeModel) -> None:
    async with open_engine(sandbox, [Say(text="One.")]) as weft:
        session = (await weft.api.create_session(SessionInput(title="Begun by weft"))).id
        await weft.api.prompt(session, say("one?"))
    prompt_opencode(sandbox, model, session, "two?", "Two.")
    [request] = model.requests
    assert asked(request) == [("user", "one?"), ("assistant", "One."), ("user", "two?\n")]
    async with open_engine(sandbox, [Say(text="Three.")]) as weft:
        await weft.api.prompt(session, say("three?"))
        assert weft.heard() == [
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
