"""Both programs on one store at once: weft reads what OpenCode is writing, and never sees half of it."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event

import pytest

from opencode.engine import Engine, open_engine, say
from opencode.fake_model import Answer, FakeModel
from opencode.reading import texts
from opencode.sandbox import PATIENCE, Sandbox
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.message import MessageWithParts
from weft.provider.scripted import Say

pytestmark = pytest.mark.opencode

READS = 100


def words_until(enough: Event) -> Iterator[str]:
    for number in count():
        yield f"word{number} "
        if enough.is_set():
            return


def is_beginning(text: str) -> bool:
    """Whether it is what `words_until` says, as far as it goes."""
    whole = "".join(f"word{number} " for number in range(text.count(" ") + 1))
    return whole.startswith(text)


@contextmanager
def running(sandbox: Sandbox, *arguments: str) -> Generator["subprocess.Popen[str]"]:
    opencode = sandbox.start_opencode(*arguments)
    try:
        yield opencode
    finally:
        if opencode.poll() is None:
            os.killpg(opencode.pid, signal.SIGKILL)
        opencode.communicate()


async def read_while_it_grows(weft: Engine, opencode: "subprocess.Popen[str]") -> SessionID:
    """Read until the text has been seen to grow so many times; whatever was once seen must be seen again."""
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
        assert before <= seen(messages)
        assert text.startswith(longest)
        assert is_beginning(text)
        grown += text != longest
        before, longest = seen(messages), text
    return session


def seen(messages: list[MessageWithParts]) -> set[str]:
    return {id for message in messages for id in (message.info.id, *(part.id for part in message.parts))}


async def test_weft_reads_and_writes_while_opencode_writes(sandbox: Sandbox, model: FakeModel) -> None:
    enough = Event()
    model.plays(Answer(words=words_until(enough), pause=0.001))
    with running(sandbox, "run", "--format", "json", "count") as opencode:
        try:
            async with open_engine(sandbox, [Say(text="Here.")]) as weft:
                async with asyncio.timeout(PATIENCE):
                    theirs = await read_while_it_grows(weft, opencode)
                ours = (await weft.api.create_session(SessionInput(title="Meanwhile"))).id
                await weft.api.prompt(ours, say("there?"))
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
