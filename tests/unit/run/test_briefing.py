"""The briefing of a session: made once, stored, and never changed."""

import asyncio
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from given.engine import NOW, EchoInput, Engine, open_engine, text_prompt
from given.instruction_repository import Repository
from weft.context.notes import wrap_reminder
from weft.context.system import read_text
from weft.model.agent import AgentInfo
from weft.model.event import PartUpdated
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.message import MessageWithParts
from weft.model.part import TextPart
from weft.provider.chunk import Usage
from weft.provider.contract import ModelRequest, TextContent, UserModelMessage
from weft.provider.scripted import End, Say, UseTool
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult

DAY = 24 * 60 * 60 * 1000
PLANNER = AgentInfo(name="plan", mode="primary")
SUMMARISER = AgentInfo(name="compaction", mode="primary", hidden=True, prompt="Sum it up.")
CALL = UseTool(tool="echo", input={"words": "x"})


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


async def start(engine: Engine) -> SessionID:
    return (await engine.api.create_session(SessionInput())).id


def pieces(request: ModelRequest) -> list[bytes]:
    """Return a request in pieces, as bytes, in the order a provider reads it."""
    return [msgspec.json.encode(each) for each in (request.tools, *request.system, *request.messages)]


def texts_of(turn: object) -> list[str]:
    assert isinstance(turn, UserModelMessage)
    return [content.text for content in turn.content if isinstance(content, TextContent)]


def parts(message: MessageWithParts) -> list[tuple[str, bool]]:
    return [(part.text, part.synthetic) for part in message.parts if isinstance(part, TextPart)]


async def test_a_changed_file_is_noted_in_the_next_prompt_and_the_prefix_stays_as_it_was(
    repository: Repository,
) -> None:
    script = ([CALL], [Say(text="one")], [CALL], [Say(text="two")], [Say(text="three")])
    async with open_engine(*script, place=repository.place, instructions=repository.read()) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("first"))
        (repository.near / "AGENTS.md").write_text("Nearer.")
        await engine.api.prompt(session, text_prompt("second"))
        await engine.api.prompt(session, text_prompt("third"))
        requests = engine.provider.requests

    assert len(requests) == 5
    for before, after in pairwise(requests):
        assert pieces(after)[: len(pieces(before))] == pieces(before)
    assert (
        requests[0]
        .system[1]
        .endswith(
            f"Instructions from: {repository.near}/AGENTS.md\nNear.\n\nInstructions from: {repository.top}/AGENTS.md\nFar."
        )
    )
    asked = texts_of(requests[2].messages[-1])
    assert asked[0] == "second"
    assert f"Instructions from: {repository.near}/AGENTS.md\nNearer.\n</system-reminder>" in asked[1]
    assert texts_of(requests[4].messages[-1]) == ["third"]


async def test_another_process_on_another_day_sends_the_same_prefix(repository: Repository) -> None:
    store = MemoryStore()
    async with open_engine(
        [Say(text="one")], store=store, place=repository.place, instructions=repository.read()
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("first"))
        (before,) = engine.provider.requests
    async with open_engine(
        [Say(text="two")],
        store=store,
        place=repository.place,
        instructions=repository.read(),
        clock=HandClock(NOW + DAY),
        seed=2,
    ) as engine:
        await engine.api.prompt(session, text_prompt("second"))
        (after,) = engine.provider.requests
        stored = await engine.api.list_messages(session)

    assert pieces(after)[: len(pieces(before))] == pieces(before)
    words, note = parts(stored[-2])
    assert words == ("second", False)
    assert note[0].startswith("<system-reminder>\nToday's date is now ")
    assert note[1]


async def test_new_and_removed_files_are_noted_once(repository: Repository) -> None:
    script = ([Say(text="one")], [Say(text="two")], [Say(text="three")])
    async with open_engine(*script, place=repository.place, instructions=repository.read()) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("first"))
        (repository.near / "AGENTS.md").unlink()
        await engine.api.prompt(session, text_prompt("second"))
        await engine.api.prompt(session, text_prompt("third"))
        stored = await engine.api.list_messages(session)

    gone = f"The instructions from {repository.near}/AGENTS.md no longer apply: the file was removed."
    assert parts(stored[2]) == [("second", False), (wrap_reminder(gone), True)]
    assert parts(stored[4]) == [("third", False)]


async def test_a_fork_has_the_prefix_of_its_original(repository: Repository) -> None:
    script = ([Say(text="one")], [Say(text="two")])
    async with open_engine(*script, place=repository.place, instructions=repository.read()) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("first"))
        (repository.top / "AGENTS.md").write_text("Farther.")
        fork = await engine.api.fork_session(session)
        await engine.api.prompt(fork.id, text_prompt("second"))
        before, after = engine.provider.requests

    assert pieces(after)[: len(pieces(before))] == pieces(before)
    assert "Farther." in texts_of(after.messages[-1])[1]


async def test_a_note_that_compaction_cuts_off_moves_into_the_system_prompt(
    repository: Repository,
) -> None:
    full = End(usage=Usage(input=195_000, output=100), reason="tool-calls")
    script = ([Say(text="one")], [CALL, full], [Say(text="We did x.")], [Say(text="Done.")])
    async with open_engine(
        *script, place=repository.place, instructions=repository.read(), agents=(SUMMARISER,)
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("first"))
        (repository.top / "AGENTS.md").write_text("Farther.")
        await engine.api.prompt(session, text_prompt("second"))
        last = engine.provider.requests[-1]

    assert last.system[1].endswith(f"Instructions from: {repository.top}/AGENTS.md\nFarther.")
    assert not any(
        "have changed" in text
        for turn in last.messages
        if isinstance(turn, UserModelMessage)
        for text in texts_of(turn)
    )


async def test_a_message_sent_during_a_run_is_shown_alike_in_this_run_and_the_next() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def linger(wanted: EchoInput, ctx: ToolContext) -> ToolResult:
        entered.set()
        await leave.wait()
        return ToolResult(title="", output=wanted.words)

    lingering: AnyTool = Tool(name="echo", about="Take long.", takes=EchoInput, run=linger)
    clock = HandClock(NOW)
    script = ([CALL], [Say(text="one")], [Say(text="two")])
    async with open_engine(*script, clock=clock, tools=(lingering,)) as engine, asyncio.TaskGroup() as tasks:
        session = await start(engine)
        listening = engine.api.events()
        first = tasks.create_task(engine.api.prompt(session, text_prompt("first")))
        await entered.wait()
        clock.turn(1000)
        second = tasks.create_task(engine.api.prompt(session, text_prompt("also this")))
        async for each in listening:
            if (
                isinstance(each.event, PartUpdated)
                and "also this" in msgspec.json.encode(each.event).decode()
            ):
                break
        clock.turn(1000)
        leave.set()
        await asyncio.gather(first, second)
        await engine.api.prompt(session, text_prompt("third"))
        requests = engine.provider.requests
        stored = await engine.api.list_messages(session)

    wrapped = wrap_reminder(
        "The user sent the following message:\nalso this\n\nPlease address this message and continue with your tasks."
    )
    assert texts_of(requests[1].messages[-1]) == [wrapped]
    for before, after in pairwise(requests):
        assert pieces(after)[: len(pieces(before))] == pieces(before)
    assert [("also this", False)] in [parts(message) for message in stored]


async def test_the_last_step_reminder_is_not_in_the_next_request() -> None:
    async with open_engine([CALL], [Say(text="so far")], [Say(text="on")], steps=2) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        await engine.api.prompt(session, text_prompt("go on"))
        _, last, after = engine.provider.requests

    assert texts_of(last.messages[-1]) == [wrap_reminder(read_text("last_step"))]
    assert after.messages[: len(last.messages) - 1] == last.messages[:-1]


# --- plans ---


async def test_plan_reminders_are_shown_and_not_stored() -> None:
    async with open_engine([Say(text="a plan")], [Say(text="done")], agents=(PLANNER,)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("plan it", agent="plan"))
        await engine.api.prompt(session, text_prompt("do it"))
        first, second = engine.provider.requests
        stored = await engine.api.list_messages(session)

    assert texts_of(first.messages[-1]) == ["plan it", wrap_reminder(read_text("plan"))]
    assert texts_of(second.messages[-1]) == ["do it", wrap_reminder(read_text("build_switch"))]
    assert second.messages[0] == first.messages[0]
    assert [parts(stored[0]), parts(stored[2])] == [[("plan it", False)], [("do it", False)]]


async def test_with_plan_files_the_plan_agent_is_told_the_path_and_the_build_agent_finds_it(
    repository: Repository,
) -> None:
    script = ([Say(text="a plan")], [Say(text="a better plan")], [Say(text="done")])
    async with open_engine(
        *script, place=repository.place, agents=(PLANNER,), plan_files=True, plans="/nowhere"
    ) as engine:
        made = await engine.api.create_session(SessionInput())
        path = repository.top / ".opencode" / "plans" / f"{made.time.created}-{made.slug}.md"
        await engine.api.prompt(made.id, text_prompt("plan it", agent="plan"))
        path.write_text("The plan.")
        await engine.api.prompt(made.id, text_prompt("better", agent="plan"))
        await engine.api.prompt(made.id, text_prompt("do it"))
        requests = engine.provider.requests
        stored = await engine.api.list_messages(made.id)

    assert f"The plan file: {path}\nIt does not exist yet" in parts(stored[0])[1][0]
    assert parts(stored[2]) == [("better", False)]
    assert (
        f"A plan file exists at {path}. You should execute on the plan defined within it"
        in parts(stored[4])[1][0]
    )
    for before, after in pairwise(requests):
        assert pieces(after)[: len(pieces(before))] == pieces(before)
