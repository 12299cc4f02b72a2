"""What a child session may do, and whom it asks."""

import asyncio

from given.house import ALLOW, EchoInput, say
from given.stage import (
    AGENTS,
    calls_in,
    children_of,
    deny,
    done,
    failed,
    handed,
    open_stage,
    start,
    tasks_of,
    words,
)
from weft.local.permissions import PermissionSettings
from weft.model.agent import Agent
from weft.model.event import PermissionAsked, SessionRested
from weft.model.input import AgentInput, PromptInput, TextInput
from weft.model.part import (
    ToolPart,
)
from weft.model.permission import Rule
from weft.permission.policy import AskPolicy
from weft.provider.scripted import Say, UseTool
from weft.run.runtime import SubtaskLimits
from weft.tool.contract import Tool, ToolContext, ToolResult


async def test_what_the_parent_session_is_denied_is_denied_to_its_child() -> None:
    scripts = {
        "go": [[handed("look")], [Say(text="ok")]],
        "look": [[UseTool(tool="echo", input={"words": "rm"})], [Say(text="no way")]],
    }
    async with open_stage(scripts) as stage:
        session = await start(stage, permission=(deny("echo", "rm"),))
        await stage.api.prompt(session, say("go"))
        (child,) = await children_of(stage, session)
        (_, answer, _) = await stage.api.list_messages(child.id)
        (call,) = [part for part in answer.parts if isinstance(part, ToolPart)]

        assert failed(call).startswith("A rule forbids this call")


async def test_who_may_not_change_files_cannot_have_them_changed_by_a_child() -> None:
    async def change(wanted: EchoInput, ctx: ToolContext) -> ToolResult:
        await ctx.ask("edit", wanted.words)
        return ToolResult(title="", output="changed")

    tool = Tool(name="change", about="Change.", takes=EchoInput, run=change)
    plan = Agent(
        name="plan",
        mode="primary",
        permission=(*ALLOW, deny("edit"), Rule(permission="edit", pattern="plan.md", action="allow")),
    )
    both = [UseTool(tool="change", input={"words": each}) for each in ("src.py", "plan.md")]
    scripts = {"go": [[handed("fix")], [Say(text="ok")]], "fix": [both, [Say(text="so so")]]}
    async with open_stage(scripts, tools=(tool,), agents=(*AGENTS, plan)) as stage:
        session = await start(stage)
        await stage.api.prompt(session, say("go", agent="plan"))
        (child,) = await children_of(stage, session)
        (_, answer, _) = await stage.api.list_messages(child.id)
        code, notes = [part for part in answer.parts if isinstance(part, ToolPart)]

        assert failed(code).startswith("A rule forbids this call")
        assert done(notes).output == "changed"


async def test_a_child_is_not_offered_its_parents_list_nor_the_task_tool() -> None:
    scripts = {"go": [[handed("look")], [Say(text="ok")]], "look": [[Say(text="hm")]]}
    async with open_stage(scripts) as stage:
        session = await start(stage)
        await stage.api.prompt(session, say("go"))
        (child,) = await children_of(stage, session)

        assert child.permission == (deny("todowrite"), deny("todoread"), deny("task"))
        assert [tool.name for tool in stage.cast.asked("look")[0].tools] == ["echo"]


async def test_tasks_are_handed_on_as_deep_as_configured_and_no_deeper() -> None:
    scripts = {
        "go": [[handed("one", "nesting")], [Say(text="top")]],
        "one": [[handed("two", "nesting")], [Say(text="middle")]],
        "two": [[handed("three", "nesting")], [Say(text="bottom")]],
    }
    async with open_stage(scripts, subtasks=SubtaskLimits(depth=2)) as stage:
        session = await start(stage)
        await stage.api.prompt(session, say("go"))
        (first,) = await children_of(stage, session)
        (second,) = await children_of(stage, first.id)
        (refused,) = calls_in(await stage.api.list_messages(second.id))

        assert await children_of(stage, second.id) == []
        assert (refused.tool, done(refused).output) == (
            "invalid",
            (
                "The arguments provided to the tool are invalid: "
                "the tool 'task' is not available in this step; there are echo"
            ),
        )
        assert [tool.name for tool in stage.cast.asked("one")[0].tools] == ["task", "echo"]
        assert [tool.name for tool in stage.cast.asked("two")[0].tools] == ["echo"]


async def test_a_question_of_a_child_is_asked_in_its_name_and_its_parent_stays_busy() -> None:
    ask = Rule(permission="echo", pattern="*", action="ask")
    wary = Agent(name="wary", mode="subagent", permission=(*ALLOW, ask))
    scripts = {
        "go": [[handed("look", "wary")], [Say(text="ok")]],
        "look": [[UseTool(tool="echo", input={"words": "x"})], [Say(text="allowed")]],
    }
    asked = PermissionSettings(terms=AskPolicy(answered=True))
    async with open_stage(scripts, agents=(wary,), permissions=asked) as stage:
        session = await start(stage)
        listening = stage.api.events()
        asking = asyncio.ensure_future(stage.api.prompt(session, say("go")))
        async for told in listening:
            assert not isinstance(told.event, SessionRested)
            if isinstance(told.event, PermissionAsked):
                break
        (child,) = await children_of(stage, session)
        (request,) = await stage.api.list_permissions()
        await stage.api.reply_permission(request.id, "once")
        await asking

        assert request.session_id == child.id
        assert done((await tasks_of(stage, session))[0]).output.startswith("allowed")


async def test_an_agent_the_person_named_is_used_without_asking_and_no_other() -> None:
    rules = (*ALLOW, Rule(permission="task", pattern="*", action="ask"))
    scripts = {
        "go": [[handed("look"), handed("peek", "explore")], [Say(text="ok")]],
        "look": [[Say(text="looked")]],
        "peek": [[Say(text="peeked")]],
    }
    async with open_stage(scripts, rules=rules) as stage:
        session = await start(stage)
        named = PromptInput(parts=(TextInput(text="go"), AgentInput(name="general")))
        await stage.api.prompt(session, named)
        look, peek = await tasks_of(stage, session)

        assert done(look).output.startswith("looked")
        assert "permission" in failed(peek)
        assert [words(each) for each in (await stage.api.list_messages(session))[:1]] == [
            "go Use the above message and context to generate a prompt and call the task tool with subagent: general"
        ]


async def test_an_agent_named_against_the_rules_is_said_to_be_there() -> None:
    async with open_stage({"go": [[Say(text="ok")]]}, rules=(*ALLOW, deny("task", "general"))) as stage:
        session = await start(stage)
        await stage.api.prompt(session, PromptInput(parts=(TextInput(text="go"), AgentInput(name="general"))))

        assert words((await stage.api.list_messages(session))[0]).endswith(
            "with subagent: general . Invoked by user; guaranteed to exist."
        )


async def test_a_prompt_to_a_child_cannot_switch_on_what_its_parent_is_denied() -> None:
    async with open_stage({"go": [[UseTool(tool="echo", input={"words": "x"})], [Say(text="ok")]]}) as stage:
        parent = await start(stage, permission=(deny("echo"),))
        child = await start(stage, parent_id=parent)
        await stage.api.prompt(child, say("go", tools={"echo": True, "task": False}))

        assert (await stage.api.get_session(child)).permission == (
            Rule(permission="echo", pattern="*", action="allow"),
            deny("task"),
            deny("echo"),
        )
        assert [part.tool for part in calls_in(await stage.api.list_messages(child))] == ["invalid"]
