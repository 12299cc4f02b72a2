"""Tasks that a model delegates to child sessions."""

import asyncio
import re
from decimal import Decimal

from given.engine import ALLOW, EchoInput, text_prompt
from given.prompt_keyed_provider import Script
from given.subtask_engine import (
    children_of,
    deny,
    get_completed,
    get_error,
    open_subtask_engine,
    start,
    task_call,
    tasks_of,
    text_of,
)
from weft.model.ids import SessionID
from weft.model.part import (
    ErrorState,
    TextPart,
    ToolPart,
)
from weft.provider.chunk import Usage
from weft.provider.contract import ModelRequest, ResultContent, ToolModelMessage
from weft.provider.scripted import End, Fail, Say, UseTool
from weft.tool.contract import Tool, ToolContext, ToolResult


async def test_a_task_runs_in_a_child_and_its_last_text_is_the_result() -> None:
    scripts = {
        "go": [[task_call("look")], [Say(text="It is there.")]],
        "look": [
            [Say(text="Let me see."), UseTool(tool="echo", input={"words": "x"})],
            [Say(text="found it")],
        ],
    }
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        answer = await engine.api.prompt(session, text_prompt("go"))
        (child,) = await children_of(engine, session)
        (part,) = await tasks_of(engine, session)
        (call,) = [
            p for m in await engine.api.list_messages(child.id) for p in m.parts if isinstance(p, ToolPart)
        ]

        assert text_of(answer) == "It is there."
        assert child.title == "Do look (@general subagent)"
        assert get_completed(part).title == "Do look"
        assert (
            get_completed(part).output
            == f"found it\n\n<task_metadata>\nsession_id: {child.id}\n</task_metadata>"
        )
        assert get_completed(part).metadata == {
            "summary": [{"id": call.id, "tool": "echo", "state": {"status": "completed", "title": "Echo x"}}],
            "sessionId": child.id,
            "model": {"providerID": "scripted", "modelID": "test"},
            "truncated": False,
        }
        assert engine.provider.requests_for("go")[1].messages[-1] == ToolModelMessage(
            content=(ResultContent(call_id="call_1.0", tool="task", output=get_completed(part).output),)
        )


async def test_two_tasks_of_one_answer_run_concurrently() -> None:
    both_are_here = asyncio.Barrier(2)

    async def wait_for_both(wanted: EchoInput, _: ToolContext) -> ToolResult:
        await both_are_here.wait()
        return ToolResult(title="", output=wanted.words)

    tool = Tool(name="meet", about="Wait for the other.", takes=EchoInput, run=wait_for_both)
    scripts = {
        "go": [[task_call("one"), task_call("two", "explore")], [Say(text="both")]],
        "one": [[UseTool(tool="meet", input={"words": "1"})], [Say(text="first")]],
        "two": [[UseTool(tool="meet", input={"words": "2"})], [Say(text="second")]],
    }
    async with open_subtask_engine(scripts, tools=(tool,)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        parts = await tasks_of(engine, session)

        assert [get_completed(part).output.partition("\n")[0] for part in parts] == ["first", "second"]
        assert sorted(child.title for child in await children_of(engine, session)) == [
            "Do one (@general subagent)",
            "Do two (@explore subagent)",
        ]


def find_named_session(request: ModelRequest) -> str:
    """Return the session that the last result in a request names."""
    last = request.messages[-1]
    assert isinstance(last, ToolModelMessage)
    found = re.search(r"session_id: (ses_\w+)", last.content[-1].output)
    assert found is not None
    return found[1]


async def test_a_child_session_is_continued_by_its_id() -> None:
    scripts: dict[str, Script] = {
        "go": [
            [task_call("look")],
            lambda request: [task_call("and now?", session_id=find_named_session(request))],
            [Say(text="I see.")],
        ],
        "look": [[Say(text="first look")], [Say(text="second look")]],
    }
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (child,) = await children_of(engine, session)
        _, part = await tasks_of(engine, session)

        assert get_completed(part).output.startswith("second look\n\n<task_metadata>")
        assert [text_of(each) for each in await engine.api.list_messages(child.id)] == [
            "look", "first look", "and now?", "second look",
        ]  # fmt: skip


async def test_only_a_child_session_can_be_continued() -> None:
    nowhere = SessionID("ses_00000000000000000000000000")
    given = [nowhere]
    scripts: dict[str, Script] = {
        "go": [lambda _: [task_call("x", session_id=each) for each in given], [Say(text="oh")]]
    }
    async with open_subtask_engine(scripts) as engine:
        session, stranger = await start(engine), await start(engine)
        given += [session, stranger]
        await engine.api.prompt(session, text_prompt("go"))
        errors = [get_error(part) for part in await tasks_of(engine, session)]

        assert errors == [
            f"session_id: {each} is not a session that was started from here. Leave it out to start a new one."
            for each in (nowhere, session, stranger)
        ]
        assert await children_of(engine, session) == []


async def test_an_invalid_session_id_is_refused_and_a_blank_one_starts_a_new_session() -> None:
    scripts = {
        "go": [
            [task_call("x", session_id="the last one"), task_call("look", session_id=" ")],
            [Say(text="oh")],
        ],
        "look": [[Say(text="found")]],
    }
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        wrong, fresh = await tasks_of(engine, session)

        assert get_error(wrong) == (
            "session_id: the last one is not a session that was started from here. Leave it out to start a new one."
        )
        assert get_completed(fresh).output.startswith("found")


async def test_an_unknown_or_primary_agent_is_refused_with_the_available_ones() -> None:
    scripts = {"go": [[task_call("x", "nobody"), task_call("x", "build")], [Say(text="oh")]]}
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        errors = [get_error(part) for part in await tasks_of(engine, session)]

        assert errors == [
            f"Unknown agent type: {name} is not a valid agent type. There are: general, explore, nesting."
            for name in ("nobody", "build")
        ]
        assert await children_of(engine, session) == []


async def test_a_hidden_agent_is_not_offered_but_can_be_named() -> None:
    scripts = {"go": [[task_call("x", "secret")], [Say(text="ok")]], "x": [[Say(text="psst")]]}
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (part,) = await tasks_of(engine, session)
        (offered,) = [tool for tool in engine.provider.requests_for("go")[0].tools if tool.name == "task"]

        assert get_completed(part).output.startswith("psst")
        assert "- explore: For finding things." in offered.about
        assert "secret" not in offered.about


async def test_the_task_tool_lists_the_agents_that_may_be_used_and_is_missing_without_any() -> None:
    async with open_subtask_engine(
        {"go": [[Say(text="ok")]]}, rules=(*ALLOW, deny("task", "explore"))
    ) as engine:
        await engine.api.prompt(await start(engine), text_prompt("go"))
        (offered,) = [tool for tool in engine.provider.requests_for("go")[0].tools if tool.name == "task"]
        assert "general" in offered.about
        assert "explore" not in offered.about
    async with open_subtask_engine({"go": [[Say(text="ok")]]}, agents=()) as engine:
        await engine.api.prompt(await start(engine), text_prompt("go"))
        assert [tool.name for tool in engine.provider.requests_for("go")[0].tools] == ["echo"]


async def test_a_failed_child_is_an_error_that_its_parent_can_act_on() -> None:
    scripts = {
        "go": [[task_call("look")], [Say(text="I see.")]],
        "look": [[Say(text="half"), Fail(message="no such thing", status=400)]],
    }
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        answer = await engine.api.prompt(session, text_prompt("go"))
        (child,) = await children_of(engine, session)
        (part,) = await tasks_of(engine, session)

        assert get_error(part) == (
            "The subagent failed: no such thing.\nBefore that it said: half\n"
            f"Go on with it by session_id {child.id}, or do without it."
        )
        assert isinstance(part.state, ErrorState)
        assert part.state.metadata is not None
        assert part.state.metadata["sessionId"] == child.id
        assert text_of(answer) == "I see."


async def test_the_cost_of_a_child_is_included_in_its_parents() -> None:
    used = Usage(input=1000, output=10)
    scripts = {
        "go": [[task_call("look"), End(reason="tool-calls", usage=used)], [Say(text="ok"), End(usage=used)]],
        "look": [[Say(text="found"), End(usage=used)]],
    }
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (child,) = await children_of(engine, session)
        parent, below = await engine.api.get_spending(session), await engine.api.get_spending(child.id)

        assert below.own.cost == Decimal("0.00315")
        assert parent.own.cost == 2 * below.own.cost
        assert parent.tree.cost == 3 * below.own.cost
        assert parent.tree.input == 3000


async def test_a_file_mentioned_in_a_task_is_shown_if_the_child_may_read_it_without_asking() -> None:
    async with open_subtask_engine(
        {
            "go": [[task_call("see `@x` @nothing, me@here")], [Say(text="ok")]],
            "see `@x` @nothing, me@here": [[Say(text="ok")]],
        }
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (child,) = await children_of(engine, session)
        (asked, _) = await engine.api.list_messages(child.id)

        assert [type(part) for part in asked.parts] == [TextPart]
