"""Parts of a prompt that run in child sessions."""

import asyncio

import pytest

from given.engine import text_prompt
from given.subtask_engine import (
    children_of,
    get_completed,
    get_error,
    open_subtask_engine,
    start,
    subtask,
    tasks_in,
    tasks_of,
    text_of,
)
from weft.errors import NotFoundError
from weft.model.agent import Instruction
from weft.model.input import AgentInput, PromptInput
from weft.model.message import AssistantMessage, UserMessage
from weft.model.part import (
    ModelRef,
    SubtaskPart,
)
from weft.provider.scripted import Fail, Say, Wait


async def test_every_subtask_of_a_prompt_runs_in_order() -> None:
    scripts = {
        "one": [[Say(text="first")]],
        "two": [[Say(text="second")]],
        "three": [[Say(text="third")]],
        "The following tool was executed by the user": [[Say(text="All three.")]],
    }
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        prompt = PromptInput(parts=(subtask("one"), subtask("two", "explore"), subtask("three")))
        answer = await engine.api.prompt(session, prompt)
        messages = await engine.api.list_messages(session)
        asked, *handovers, last = messages
        parts = [part for part in asked.parts if isinstance(part, SubtaskPart)]

        assert [get_completed(part).output.partition("\n")[0] for part in tasks_in(messages)] == [
            "first",
            "second",
            "third",
        ]
        assert [part.call_id for part in tasks_in(messages)] == [part.id for part in parts]
        assert [
            (each.info.agent, each.info.mode, each.info.finish, each.info.parent_id)
            for each in handovers
            if isinstance(each.info, AssistantMessage)
        ] == [(agent, agent, "tool-calls", asked.info.id) for agent in ("general", "explore", "general")]
        assert all(isinstance(each.info, AssistantMessage) and each.info.time.completed for each in handovers)
        assert tasks_in(messages)[0].state.input == {
            "prompt": "one", "description": "Do one", "subagent_type": "general",
        }  # fmt: skip
        assert last == answer
        assert text_of(answer) == "All three."
        assert len(await children_of(engine, session)) == 3


async def test_after_a_subtask_command_the_model_is_asked_for_a_summary() -> None:
    scripts = {
        "review": [[Say(text="fine")]],
        "The following tool was executed by the user": [[Say(text="It is fine.")]],
    }
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        await engine.api.prompt(session, PromptInput(parts=(subtask("review", "build", command="review"),)))
        _, handover, request, answer = await engine.api.list_messages(session)

        assert get_completed(tasks_in([handover])[0]).input["command"] == "review"
        assert isinstance(request.info, UserMessage)
        assert text_of(request) == "Summarize the task tool output above and continue with your task."
        assert isinstance(answer.info, AssistantMessage)
        assert answer.info.parent_id == request.info.id
        assert text_of(answer) == "It is fine."


async def test_a_failed_subtask_does_not_prevent_the_next() -> None:
    scripts = {
        "one": [[Fail(message="no such thing", status=400)]],
        "two": [[Say(text="second")]],
        "The following tool was executed by the user": [[Say(text="One of two.")]],
    }
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        await engine.api.prompt(session, PromptInput(parts=(subtask("one"), subtask("two"))))
        one, two = await tasks_of(engine, session)

        assert get_error(one).startswith("Tool execution failed: The subagent failed: no such thing.")
        assert get_completed(two).output.startswith("second")


async def test_an_aborted_subtask_ends_the_prompt_and_the_next_one_is_answered() -> None:
    scripts = {
        "one": [[Say(text="I wait"), Wait(seconds=10_000)]],
        "two": [[Say(text="second")]],
        "The following tool was executed by the user": [[Say(text="Here.")]],
    }
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        prompt = PromptInput(parts=(subtask("one"), subtask("two")))
        asking = asyncio.ensure_future(engine.api.prompt(session, prompt))
        await engine.clock.somebody_sleeps(9_000)
        await engine.api.abort(session)
        await asking
        answer = await engine.api.prompt(session, text_prompt("are you there?"))

        assert [get_error(part) for part in await tasks_of(engine, session)] == ["Tool execution aborted"]
        assert text_of(answer) == "Here."


async def test_a_subtask_uses_the_model_it_names() -> None:
    scripts = {
        "one": [[Say(text="first")]],
        "The following tool was executed by the user": [[Say(text="ok")]],
    }
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        model = ModelRef(provider_id="scripted", model_id="test")
        await engine.api.prompt(session, PromptInput(parts=(subtask("one", model=model),)))
        (part,) = await tasks_of(engine, session)

        assert get_completed(part).metadata["model"] == {"providerID": "scripted", "modelID": "test"}


async def test_a_prompt_that_names_an_unknown_agent_stores_nothing() -> None:
    async with open_subtask_engine({}) as engine:
        session = await start(engine)
        for part in (subtask("x", "nobody"), AgentInput(name="nobody")):
            with pytest.raises(NotFoundError):
                await engine.api.prompt(session, PromptInput(parts=(part,)))

        assert await engine.api.list_messages(session) == []


async def test_a_session_that_begins_with_a_subtask_is_titled_after_it() -> None:
    scripts = {
        "find the door": [[Say(text="there")]],
        "The following tool was executed by the user": [[Say(text="ok")]],
    }
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        await engine.api.prompt(session, PromptInput(parts=(subtask("find the door"),)))

        assert (await engine.api.get_session(session)).title == "find the door"


async def test_changes_made_meanwhile_are_noted_in_a_prompt_whose_subtasks_have_run() -> None:
    rule = [Instruction(source="/nowhere/AGENTS.md", text="Be brief.")]
    scripts = {
        "hello": [[Say(text="hi")], [Say(text="ok")]],
        "one": [[Say(text="first")]],
    }
    async with open_subtask_engine(scripts, instructions=lambda _: tuple(rule)) as engine:
        session = await start(engine)
        await engine.api.prompt(session, text_prompt("hello"))
        rule[0] = Instruction(source="/nowhere/AGENTS.md", text="Be long.")
        await engine.api.prompt(session, PromptInput(parts=(subtask("one"),)))
        (asked,) = [each for each in await engine.api.list_messages(session) if "Be long." in text_of(each)]

        assert isinstance(asked.info, UserMessage)
        assert any(isinstance(part, SubtaskPart) for part in asked.parts)
