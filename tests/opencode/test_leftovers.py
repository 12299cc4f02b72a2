"""Files that only weft writes do not confuse OpenCode: locks, growth, deleted sessions, and a batch cut short by a crash."""

import json
from pathlib import Path

import pytest

from opencode.comparison import texts
from opencode.engine import Engine, make_prompt, open_engine, open_sandbox_store
from opencode.fake_model import FakeModel, answer_text
from opencode.sandbox import Sandbox
from weft.host.files import Disk
from weft.model.event import MessageRemoved, PartGrew, PartUpdated, SessionDeleted
from weft.model.input import SessionInput
from weft.model.part import TextPart
from weft.model.session import SessionInfo
from weft.provider.scripted import Say
from weft.store.files.store import FileStore

pytestmark = pytest.mark.opencode


class SimulatedDeath(BaseException):
    """Stands for the end of the process: nothing after it is done."""


class DyingDisk(Disk):
    """Dies at the second rename of a batch."""

    def __init__(self) -> None:
        self._moves = 0

    def move(self, source: str, target: str) -> list[str]:
        self._moves += 1
        if self._moves > 1:
            raise SimulatedDeath
        return super().move(source, target)


async def begin(weft: Engine, title: str) -> SessionInfo:
    session = await weft.api.create_session(SessionInput(title=title))
    await weft.api.prompt(session.id, make_prompt("there?"))
    return await weft.api.get_session(session.id)


async def leave_growth(weft: Engine, session: SessionInfo) -> None:
    """Store a text that was still growing when the program ended."""
    answer = (await weft.api.list_messages(session.id))[-1].info
    part = TextPart(
        id=weft.api.runtime.mint.part(), session_id=session.id, message_id=answer.id, text="And further"
    )
    grew = PartGrew(
        session_id=session.id,
        message_id=answer.id,
        part_id=part.id,
        field="text",
        offset=len(part.text),
        delta="more",
    )
    await weft.store.apply(PartUpdated(part=part))
    await weft.store.apply(grew)


async def die_in_a_batch(sandbox: Sandbox, weft: Engine, session: SessionInfo) -> None:
    """Remove one of two messages, then die."""
    messages = await weft.api.list_messages(session.id)
    store = FileStore(str(sandbox.storage), disk=DyingDisk())
    with pytest.raises(SimulatedDeath):
        await store.apply(
            *(MessageRemoved(session_id=session.id, message_id=each.info.id) for each in messages)
        )


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


async def test_opencode_works_whatever_weft_leaves_behind(sandbox: Sandbox, model: FakeModel) -> None:
    async with open_engine(sandbox, *([Say(text="Here.")] for _ in range(4))) as weft:
        deleted = await begin(weft, "Deleted")
        growing = await begin(weft, "Still growing")
        whole = await begin(weft, "Whole")
        halved = await begin(weft, "Cut in half by a crash")
        await weft.store.apply(SessionDeleted(info=deleted))
        await leave_growth(weft, growing)
        await die_in_a_batch(sandbox, weft, halved)

    own = {name.split("/")[0] for name in files(sandbox.storage / ".weft")}
    assert {"lock", "redo", "growth", "temp"} <= own
    shared = {name for name in files(sandbox.storage) if not name.startswith(".weft/")}
    assert [name for name in shared if not name.endswith(".json")] == ["migration"]
    assert [name for name in shared if deleted.id in name] == []

    model.play(answer_text("Here, too."))
    sandbox.opencode("run", "--format", "json", "-s", growing.id, "and?")
    assert len(model.requests) == 1
    listed = json.loads(sandbox.opencode("session", "list", "--format", "json"))
    assert [row["id"] for row in listed] == [growing.id, halved.id, whole.id]
    assert json.loads(sandbox.opencode("export", halved.id))["info"]["id"] == halved.id

    # The next process to open the store completes the interrupted batch, and keeps what OpenCode did meanwhile.
    async with open_sandbox_store(sandbox) as store:
        assert texts(await store.list_messages(whole.id)) == ["there?", "Here."]
        assert await store.list_messages(halved.id) == []
        assert texts(await store.list_messages(growing.id)) == [
            "there?",
            "Here.",
            "And furthermore",
            "and?\n",
            "Here, too.",
        ]
        assert await store.damage() == []
