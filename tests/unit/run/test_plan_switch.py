"""The switch between planning and building, if the person agrees."""

from pathlib import Path

from msgspec.structs import replace

from given.engine import PLACE, Engine, open_engine, text_prompt
from given.gate_harness import run_alongside
from weft.local.permissions import PermissionSettings
from weft.model.agent import AgentInfo
from weft.model.event import QuestionAsked
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.message import UserMessage
from weft.model.part import CompletedState, ErrorState, TextPart, ToolPart
from weft.permission.policy import AskPolicy
from weft.provider.scripted import Say, UseTool
from weft.tool.registry import PLAN_ENTER, PLAN_EXIT

CAN_ASK = PermissionSettings(policy=AskPolicy(can_ask=True))
PLAN = AgentInfo(name="plan", mode="primary")
TOOLS = (PLAN_ENTER, PLAN_EXIT)


async def run(engine: Engine, session: SessionID, agent: str, answer: str) -> QuestionAsked:
    async with run_alongside(engine.api.prompt(session, text_prompt("go", agent=agent))) as [running]:
        async for published in engine.api.events(after=0):
            if isinstance(published.event, QuestionAsked):
                asked = published.event
                await engine.api.reply_question(asked.request.id, ((answer,),))
                break
        await running
    return asked


async def test_approving_a_plan_switches_to_the_build_agent() -> None:
    script = ([UseTool(tool="plan_exit", input={})], [Say(text="building")])
    async with open_engine(
        *script, tools=TOOLS, agents=(PLAN,), permissions=CAN_ASK, plans="/nowhere/plans"
    ) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        asked = await run(engine, session, "plan", "Yes")
        [question] = asked.request.questions
        assert (question.header, question.custom, [option.label for option in question.options]) == (
            "Build Agent",
            False,
            ["Yes", "No"],
        )
        messages = await engine.api.list_messages(session)
        prompts = [message for message in messages if isinstance(message.info, UserMessage)]
        assert [prompt.info.agent for prompt in prompts] == ["plan", "build"]
        [words] = prompts[1].parts
        assert isinstance(words, TextPart)
        assert words.synthetic
        assert words.text.startswith("The person has approved the plan in plans/")
        assert words.text.endswith(". You may change files now. Carry out the plan.")
        [call] = [part for message in messages for part in message.parts if isinstance(part, ToolPart)]
        assert isinstance(call.state, CompletedState)
        assert call.state.title == "Switching to build agent"
        assert messages[-1].info.agent == "build"


async def test_approving_planning_switches_to_the_plan_agent() -> None:
    script = ([UseTool(tool="plan_enter", input={})], [Say(text="planning")])
    async with open_engine(
        *script, tools=TOOLS, agents=(PLAN,), permissions=CAN_ASK, plans="/nowhere/plans"
    ) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        asked = await run(engine, session, "build", "Yes")
        assert asked.request.questions[0].header == "Plan Mode"
        messages = await engine.api.list_messages(session)
        words = [part.text for part in messages[2].parts if isinstance(part, TextPart)] + [
            part.text for part in messages[1].parts if isinstance(part, TextPart)
        ]
        assert "The person wants a plan first. Plan now, and change nothing." in words
        assert messages[-1].info.agent == "plan"


async def test_a_rejected_switch_ends_the_run_and_keeps_the_agent() -> None:
    script = ([UseTool(tool="plan_exit", input={})], [Say(text="never")])
    async with open_engine(
        *script, tools=TOOLS, agents=(PLAN,), permissions=CAN_ASK, plans="/nowhere/plans"
    ) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        await run(engine, session, "plan", "No")
        messages = await engine.api.list_messages(session)
        assert [message.info.agent for message in messages] == ["plan", "plan"]
        [call] = [part for part in messages[1].parts if isinstance(part, ToolPart)]
        assert isinstance(call.state, ErrorState)
        assert call.state.error == "The user dismissed this question"
        assert len(engine.provider.requests) == 1


async def test_without_a_user_the_agent_does_not_switch(tmp_path: Path) -> None:
    script = ([UseTool(tool="plan_exit", input={})], [Say(text="so be it")])
    place = replace(PLACE, directory=str(tmp_path), worktree=str(tmp_path))
    async with open_engine(*script, tools=TOOLS, agents=(PLAN,), plans=str(tmp_path), place=place) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        await engine.api.prompt(session, text_prompt("go", agent="plan"))
        messages = await engine.api.list_messages(session)
        assert [message.info.agent for message in messages] == ["plan", "plan", "plan"]
