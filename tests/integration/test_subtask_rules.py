"""What a child session may do, and which session its permission requests belong to."""

import asyncio

from given.engine import ALLOW, EchoInput, text_prompt
from given.subtask_engine import (
    AGENTS,
    children_of,
    deny,
    get_completed,
    get_error,
    list_calls,
    open_subtask_engine,
    start,
    task_call,
    tasks_of,
    text_of,
)
from weft.local.permissions import PermissionSettings
from weft.model.agent import AgentInfo
from weft.model.event import PermissionAsked, SessionIdled
from weft.model.input import AgentInput, PromptInput, TextInput
from weft.model.part import (
    ToolPart,
)
from weft.model.permission import Rule
from weft.permission.policy import AskPolicy
from weft.provider.scripted import Say, UseTool
from weft.run.runtime import SubtaskLimits
from weft.tool.contract import Tool, ToolContext, ToolResult


async def test_denials_of_the_parent_session_apply_to_its_child() -> None:
    scripts = {
        "go": [[task_call("look")], [Say(text="ok")]],
        "look": [[UseTool(tool="echo", input={"words": "rm"})], [Say(text="no way")]],
    }
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine, permission=(deny("echo", "rm"),))
        await engine.api.prompt(session, text_prompt("go"))
        (child,) = await children_of(engine, session)
        (_, answer, _) = await engine.api.list_messages(child.id)
        (call,) = [part for part in answer.parts if isinstance(part, ToolPart)]

        assert get_error(call).startswith("A rule forbids this call")


async def test_a_session_that_may_not_edit_cannot_edit_through_a_child() -> None:
    async def change(wanted: EchoInput, ctx: ToolContext) -> ToolResult:
        await ctx.ask("edit", wanted.words)
        return ToolResult(title="", output="changed")

    tool = Tool(name="change", about="Change.", takes=EchoInput, run=change)
    plan = AgentInfo(
        name="plan",
        mode="primary",
        permission=(*ALLOW, deny("edit"), Rule(permission="edit", pattern="plan.md", action="allow")),
    )
    both = [UseTool(tool="change", input={"words": each}) for each in ("src.py", "plan.md")]
    scripts = {"go": [[task_call("fix")], [Say(text="ok")]], "fix": [both, [Say(text="so so")]]}
    async with open_subtask_engine(scripts, tools=(tool,), agents=(*AGENTS, plan)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go", agent="plan"))
        (child,) = await children_of(engine, session)
        (_, answer, _) = await engine.api.list_messages(child.id)
        code, notes = [part for part in answer.parts if isinstance(part, ToolPart)]

        assert get_error(code).startswith("A rule forbids this call")
        assert get_completed(notes).output == "changed"


async def test_a_child_is_not_offered_the_todo_list_of_its_parent_or_the_task_tool() -> None:
    scripts = {"go": [[task_call("look")], [Say(text="ok")]], "look": [[Say(text="hm")]]}
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (child,) = await children_of(engine, session)

        assert child.permission == (deny("todowrite"), deny("todoread"), deny("task"))
        assert [tool.name for tool in engine.provider.requests_for("look")[0].tools] == ["echo"]


async def test_tasks_are_nested_up_to_the_configured_depth() -> None:
    scripts = {
        "go": [[task_call("one", "nesting")], [Say(text="top")]],
        "one": [[task_call("two", "nesting")], [Say(text="middle")]],
        "two": [[task_call("three", "nesting")], [Say(text="bottom")]],
    }
    async with open_subtask_engine(scripts, subtasks=SubtaskLimits(depth=2)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("go"))
        (first,) = await children_of(engine, session)
        (second,) = await children_of(engine, first.id)
        (refused,) = list_calls(await engine.api.list_messages(second.id))

        assert await children_of(engine, second.id) == []
        assert (refused.tool, get_completed(refused).output) == (
            "invalid",
            (
                "The arguments provided to the tool are invalid: "
                "the tool 'task' is not available in this step; there are echo"
            ),
        )
        assert [tool.name for tool in engine.provider.requests_for("one")[0].tools] == ["task", "echo"]
        assert [tool.name for tool in engine.provider.requests_for("two")[0].tools] == ["echo"]


async def test_a_question_of_a_child_is_asked_in_its_session_and_its_parent_stays_busy() -> None:
    ask = Rule(permission="echo", pattern="*", action="ask")
    wary = AgentInfo(name="wary", mode="subagent", permission=(*ALLOW, ask))
    scripts = {
        "go": [[task_call("look", "wary")], [Say(text="ok")]],
        "look": [[UseTool(tool="echo", input={"words": "x"})], [Say(text="allowed")]],
    }
    asked = PermissionSettings(policy=AskPolicy(can_ask=True))
    async with open_subtask_engine(scripts, agents=(wary,), permissions=asked) as engine:
        session = await start(engine)
        listening = engine.api.events()
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        async for published in listening:
            assert not isinstance(published.event, SessionIdled)
            if isinstance(published.event, PermissionAsked):
                break
        (child,) = await children_of(engine, session)
        (request,) = await engine.api.list_permissions()
        await engine.api.reply_permission(request.id, "once")
        await asking

        assert request.session_id == child.id
        assert get_completed((await tasks_of(engine, session))[0]).output.startswith("allowed")


async def test_an_agent_named_by_the_person_is_used_without_asking_and_no_other() -> None:
    rules = (*ALLOW, Rule(permission="task", pattern="*", action="ask"))
    scripts = {
        "go": [[task_call("look"), task_call("peek", "explore")], [Say(text="ok")]],
        "look": [[Say(text="looked")]],
        "peek": [[Say(text="peeked")]],
    }
    async with open_subtask_engine(scripts, rules=rules) as engine:
        session = await start(engine)
        named = PromptInput(parts=(TextInput(text="go"), AgentInput(name="general")))
        await engine.api.prompt(session, named)
        look, peek = await tasks_of(engine, session)

        assert get_completed(look).output.startswith("looked")
        assert "permission" in get_error(peek)
        assert [text_of(each) for each in (await engine.api.list_messages(session))[:1]] == [
            "go Use the above message and context to generate a prompt and call the task tool with subagent: general"
        ]


async def test_an_agent_named_against_the_rules_is_still_mentioned() -> None:
    async with open_subtask_engine(
        {"go": [[Say(text="ok")]]}, rules=(*ALLOW, deny("task", "general"))
    ) as engine:
        session = await start(engine)
        await engine.api.prompt(
            session, PromptInput(parts=(TextInput(text="go"), AgentInput(name="general")))
        )

        assert text_of((await engine.api.list_messages(session))[0]).endswith(
            "with subagent: general . Invoked by user; guaranteed to exist."
        )


async def test_a_prompt_to_a_child_cannot_enable_what_its_parent_is_denied() -> None:
    async with open_subtask_engine(
        {"go": [[UseTool(tool="echo", input={"words": "x"})], [Say(text="ok")]]}
    ) as engine:
        parent = await start(engine, permission=(deny("echo"),))
        child = await start(engine, parent_id=parent)
        await engine.api.prompt(child, text_prompt("go", tools={"echo": True, "task": False}))

        assert (await engine.api.get_session(child)).permission == (
            Rule(permission="echo", pattern="*", action="allow"),
            deny("task"),
            deny("echo"),
        )
        assert [part.tool for part in list_calls(await engine.api.list_messages(child))] == ["invalid"]
