"""A store that OpenCode also writes to is verified without a false alarm, and forgery in it is noticed all the same."""

import json
from pathlib import Path

import pytest

from opencode.engine import make_prompt, open_engine
from opencode.fake_model import FakeModel, answer_text
from opencode.sandbox import Sandbox
from weft.host.now import now
from weft.maintenance.verify import verify_store
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.proof import SessionProof
from weft.provider.scripted import Say
from weft.store.maintenance import open_maintenance

pytestmark = pytest.mark.opencode


def verify(sandbox: Sandbox, session: SessionID) -> list[SessionProof]:
    store = open_maintenance(f"file:{sandbox.storage}")
    return list(verify_store(store, now=now(), only=session).proofs)


def forge_text(storage: Path, old: str, new: str) -> None:
    for path in storage.glob("part/*/*.json"):
        part = json.loads(path.read_text())
        if part.get("text") == old:
            path.write_text(json.dumps({**part, "text": new}, indent=2))


def prompt_opencode(sandbox: Sandbox, model: FakeModel, session: SessionID, words: str) -> None:
    model.play(answer_text("An answer of OpenCode's."))
    sandbox.opencode("run", "--format", "json", "-s", session, words)


async def test_changes_of_opencode_to_a_session_of_weft_are_reported_as_outside_weft(
    sandbox: Sandbox, model: FakeModel
) -> None:
    async with open_engine(sandbox, [Say(text="One.")]) as weft:
        session = (await weft.api.create_session(SessionInput(title="Begun by weft"))).id
        await weft.api.prompt(session, make_prompt("one?"))
    assert [proof.verdict for proof in verify(sandbox, session)] == ["intact"]
    prompt_opencode(sandbox, model, session, "two?")
    [proof] = verify(sandbox, session)
    assert (proof.verdict, {finding.kind for finding in proof.findings}) == ("outside", {"outside"})
    async with open_engine(sandbox, [Say(text="Three.")]) as weft:
        await weft.api.prompt(session, make_prompt("three?"))
    prompt_opencode(sandbox, model, session, "four?")
    [proof] = verify(sandbox, session)
    assert (proof.verdict, {finding.kind for finding in proof.findings}) == ("outside", {"outside"})
    # Now somebody changes what weft recorded.
    forge_text(sandbox.storage, "One.", "Eleven.")
    [proof] = verify(sandbox, session)
    assert [finding.kind for finding in proof.findings if finding.is_fault] == ["changed"]


async def test_a_session_begun_by_opencode_is_neither_proven_nor_faulty(
    sandbox: Sandbox, model: FakeModel
) -> None:
    model.play(answer_text("One."))
    [first, *_] = sandbox.opencode("run", "--format", "json", "one?").splitlines()
    session = SessionID(json.loads(first)["sessionID"])
    assert [proof.verdict for proof in verify(sandbox, session)] == ["unproven"]
    async with open_engine(sandbox, [Say(text="Two.")]) as weft:
        await weft.api.prompt(session, make_prompt("two?"))
    [proof] = verify(sandbox, session)
    assert (proof.verdict, [finding.kind for finding in proof.findings]) == ("unproven", ["uncovered"])
    prompt_opencode(sandbox, model, session, "three?")
    [proof] = verify(sandbox, session)
    assert (proof.verdict, {finding.kind for finding in proof.findings}) == (
        "outside",
        {"outside", "uncovered"},
    )
