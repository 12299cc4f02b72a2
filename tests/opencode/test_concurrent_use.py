"""Both programs on one store at the same time: each reads what the other writes, and never sees half of it."""

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator, Iterator
from itertools import count
from threading import Event

import pytest

from opencode.comparison import texts
from opencode.engine import FAKE, Engine, make_prompt, open_engine, open_with
from opencode.fake_model import Answer, FakeModel
from opencode.sandbox import PATIENCE, Sandbox
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.message import MessageWithParts
from weft.model.part import TextPart
from weft.provider.chunk import AnyChunk, Finished, Started, TextDelta, TextEnd, TextStart, Usage
from weft.provider.contract import ModelRequest
from weft.provider.registry import ServedModel
from weft.provider.scripted import Say

pytestmark = pytest.mark.opencode

READS = 100


def stream_words_until(enough: Event) -> Iterator[str]:
    for number in count():
        yield f"word{number} "
        if enough.is_set():
            return


def is_beginning(text: str) -> bool:
    """Return True if the text is a prefix of `stream_words_until`."""
    whole = "".join(f"word{number} " for number in range(text.count(" ") + 1))
    return whole.startswith(text)


async def read_while_it_grows(weft: Engine, opencode: "subprocess.Popen[str]") -> SessionID:
    """Read until the text has grown several times. Nothing that was read may disappear."""
    while not (sessions := await weft.api.list_sessions()):
        assert opencode.poll() is None, opencode.communicate()
    [session] = [each.id for each in sessions]
    before: set[str] = set()
    longest, grown = "", 0
    while grown < READS:
        assert opencode.poll() is None, opencode.communicate()
        assert [each.id for each in await weft.api.list_sessions()] == [session]
        assert (await weft.api.get_session(session)).id == session
        messages = await weft.api.list_messages(session)
        text = "".join(texts(messages)[1:])
        assert before <= list_seen_ids(messages)
        assert text.startswith(longest)
        assert is_beginning(text)
        grown += text != longest
        before, longest = list_seen_ids(messages), text
    return session


def list_seen_ids(messages: list[MessageWithParts]) -> set[str]:
    return {id for message in messages for id in (message.info.id, *(part.id for part in message.parts))}


async def test_weft_reads_and_writes_while_opencode_writes(sandbox: Sandbox, model: FakeModel) -> None:
    enough = Event()
    model.play(Answer(words=stream_words_until(enough), pause=0.001))
    with sandbox.run_opencode("run", "--format", "json", "count") as opencode:
        try:
            async with open_engine(sandbox, [Say(text="Here.")]) as weft:
                async with asyncio.timeout(PATIENCE):
                    theirs = await read_while_it_grows(weft, opencode)
                ours = (await weft.api.create_session(SessionInput(title="Meanwhile"))).id
                await weft.api.prompt(ours, make_prompt("there?"))
                assert texts(await weft.api.list_messages(ours)) == ["there?", "Here."]
                assert opencode.poll() is None
        finally:
            enough.set()
        printed, complaints = await asyncio.to_thread(opencode.communicate, timeout=PATIENCE)
    assert opencode.returncode == 0, complaints
    [said] = [json.loads(line)["part"]["text"] for line in printed.splitlines() if '"type":"text"' in line]
    async with open_engine(sandbox) as weft:
        assert texts(await weft.api.list_messages(theirs)) == ["count\n", said]
        assert is_beginning(said)
        assert {session.id for session in await weft.api.list_sessions()} == {ours, theirs}
        assert await weft.store.damage() == []
    listed = json.loads(sandbox.opencode("session", "list", "--format", "json"))
    assert {row["id"] for row in listed} == {ours, theirs}


class EndlessProvider:
    """A provider whose model sends text until it is stopped."""

    def __init__(self, enough: Event) -> None:
        self._enough = enough

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        del request
        yield Started()
        yield TextStart(id="1")
        for word in stream_words_until(self._enough):
            yield TextDelta(id="1", text=word)
            await asyncio.sleep(0.001)
        yield TextEnd(id="1")
        yield Finished(reason="stop", usage=Usage())


async def test_opencode_reads_while_weft_writes(sandbox: Sandbox) -> None:
    enough = Event()
    async with (
        open_with(sandbox, ServedModel(FAKE, EndlessProvider(enough))) as api,
        asyncio.TaskGroup() as tasks,
    ):
        session = (await api.create_session(SessionInput(title="Unending"))).id
        answering = tasks.create_task(api.prompt(session, make_prompt("count")))
        try:
            listed = await asyncio.to_thread(sandbox.opencode, "session", "list", "--format", "json")
            exported = json.loads(await asyncio.to_thread(sandbox.opencode, "export", session))
            assert not answering.done()
        finally:
            enough.set()
    assert session in {row["id"] for row in json.loads(listed)}
    prompt, answer = exported["messages"]
    assert [part["text"] for part in prompt["parts"]] == ["count"]
    assert "completed" not in answer["info"]["time"]
    [begun] = [part["text"] for part in answer["parts"] if part["type"] == "text"]
    [said] = [part.text for part in (await answering).parts if isinstance(part, TextPart)]
    assert is_beginning(begun)
    assert said.startswith(begun)
