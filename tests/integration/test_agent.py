"""`weft.open` as a Python developer uses it: questions, streams, conversations, tools, values, errors."""

import asyncio
import dataclasses
import threading
from decimal import Decimal
from pathlib import Path
from typing import TypedDict

import msgspec
import pydantic
import pytest

import weft
from weft.model.input import PromptInput, TextInput
from weft.testing import FunctionModel, ModelConversation, Script, call, say


@pytest.fixture(autouse=True)
def project(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("one\n")
    return tmp_path


def open_scripted(project: Path, script: object, **more: object) -> weft.Opening[str]:
    return weft.open(project, model=script, store="memory:", **more)  # type: ignore[arg-type,call-overload]


def test_an_answer_has_its_text_cost_steps_files_and_session(project: Path) -> None:
    script = (
        Script("Add a line.")
        .calls("read", filePath="a.txt").uses(input=1000, output=100)
        .calls("edit", filePath="a.txt", oldString="one\n", newString="one\ntwo\n").uses(input=1000, output=100)
        .says("I added it.").uses(input=1000, output=100)
    )  # fmt: skip
    with open_scripted(project, script) as agent:
        answer = agent.ask("Add a line.")
    assert (answer.text, answer.value, str(answer)) == ("I added it.", "I added it.", "I added it.")
    # 3 dollars for a million tokens in, 15 for a million out.
    assert answer.cost == 3 * (Decimal("0.003") + Decimal("0.0015"))
    assert answer.tokens == weft.Tokens(input=3000, output=300)
    assert [(file.file, file.additions, file.deletions) for file in answer.files] == [("a.txt", 1, 0)]
    assert [[call.tool for call in step.calls] for step in answer.steps] == [["read"], ["edit"], []]
    assert answer.session.startswith("ses_")
    assert answer.error is None
    assert repr(answer) == (
        f"Answer('I added it.', cost=$0.0135, steps=3, files=1, session={answer.session!r})"
    )
    assert "a.txt" in answer._repr_markdown_()
    script.assert_finished()


async def test_every_question_has_a_new_session_and_a_conversation_keeps_one(project: Path) -> None:
    def model(conversation: ModelConversation) -> str:
        return f"{len(conversation.messages)} messages"

    async with open_scripted(project, FunctionModel(model)) as agent:
        first, second = await agent.ask("one"), await agent.ask("two")
        assert (first.text, second.text) == ("1 messages", "1 messages")
        assert first.session != second.session
        talk = await agent.converse(title="Counting")
        assert (await talk.ask("one")).text == "1 messages"
        assert (await talk.ask("two")).text == "3 messages"
        assert (await agent.api.get_session(talk.session)).title == "Counting"
        again = await agent.converse(talk.session)
        assert (await again.ask("three")).text == "5 messages"
        assert len(await again.messages()) == 6


async def test_questions_may_be_asked_concurrently(project: Path) -> None:
    script = Script("a").says("A").asked("b").says("B").asked("c").says("C")
    async with open_scripted(project, script) as agent:
        answers = await asyncio.gather(*(agent.ask(each) for each in ("c", "a", "b")))
    assert [answer.text for answer in answers] == ["C", "A", "B"]


async def test_a_stream_yields_the_growing_text_and_the_answer_at_the_end(project: Path) -> None:
    script = Script().thinks("Hm.").says("Let me see.").calls("read", filePath="a.txt").says("It says one.")
    texts, kinds = [], []
    async with open_scripted(project, script) as agent:
        async for event in agent.stream("What does it say?"):
            texts.append(event.text)
            kinds.append(type(event))
    assert "".join(texts) == "Let me see.\nIt says one."
    assert kinds.count(weft.CallEvent) == 2
    assert kinds.count(weft.StepEvent) == 2
    assert isinstance(event, weft.AnswerEvent)
    assert event.answer.text == "It says one."
    assert "".join(event.answer.steps[0].reasoning) == "Hm."


async def test_leaving_a_stream_ends_the_run(project: Path) -> None:
    script = Script().says("One two three").hangs()
    async with open_scripted(project, script) as agent:
        async with agent.stream("Count.") as stream:
            async for event in stream:
                if event.text:
                    break
        assert await agent.api.list_status() == {}


async def test_leaving_the_agent_ends_a_run_that_another_task_waits_for(project: Path) -> None:
    async with asyncio.timeout(20), open_scripted(project, Script().says("One").hangs()) as agent:
        stream = agent.stream("Count.")
        await anext(stream)
        waiting = asyncio.ensure_future(stream.answer())
        await asyncio.sleep(0)
    with pytest.raises(weft.RunAbortedError):
        await waiting


async def test_the_tools_of_a_question_are_forgotten_with_it(project: Path) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    offered: list[bool] = []

    def model(conversation: ModelConversation) -> str:
        if conversation.tools:  # not for the title
            offered.append("add" in conversation.tools)
        return "Done."

    async with open_scripted(project, FunctionModel(model)) as agent:
        answer = await agent.ask("Add.", tools=[add])
        await agent.api.prompt(answer.session, PromptInput(parts=(TextInput(text="Again."),)))
    assert offered == [True, False]


@dataclasses.dataclass
class RiskDataclass:
    level: str
    reasons: list[str]


class RiskStruct(msgspec.Struct):
    level: str
    reasons: list[str]


class RiskDict(TypedDict):
    level: str
    reasons: list[str]


class RiskModel(pydantic.BaseModel):
    level: str
    reasons: list[str]


RISK = {"level": "low", "reasons": ["small"]}
SCHEMA = {
    "type": "object",
    "properties": {"level": {"type": "string"}, "reasons": {"type": "array", "items": {"type": "string"}}},
    "required": ["level", "reasons"],
}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (RiskDataclass, RiskDataclass("low", ["small"])),
        (RiskStruct, RiskStruct("low", ["small"])),
        (RiskDict, RISK),
        (RiskModel, RiskModel(level="low", reasons=["small"])),
        (SCHEMA, RISK),
        (list[RiskStruct], [RiskStruct("low", ["small"])]),
    ],
    ids=["dataclass", "msgspec", "TypedDict", "pydantic", "JSON schema", "list"],
)
def test_an_answer_has_the_requested_type(schema: object, value: object, project: Path) -> None:
    script = Script().answers([RISK] if isinstance(value, list) else RISK)
    with open_scripted(project, script) as agent:
        assert agent.ask("How risky?", schema=schema).value == value  # type: ignore[call-overload]


def test_a_value_of_the_wrong_type_is_an_error(project: Path) -> None:
    script = Script().says("no idea").says("none").says("nothing")
    with open_scripted(project, script) as agent, pytest.raises(weft.InvalidAnswerError) as raised:
        agent.ask("How risky?", schema=RiskStruct)
    assert raised.value.answer.session


def test_functions_are_tools_with_their_docstring_as_description(project: Path) -> None:
    seen: list[str] = []

    def price(item: str, count: int = 1) -> dict[str, int]:
        """Look up a price.

        Args:
            item: what is bought
            count: how many of it
        """
        seen.append(threading.current_thread().name)
        return {"price": 3 * count}

    async def stock(item: str) -> str:
        """Say how many there are."""
        raise ValueError(f"no {item} here")

    script = Script().calls("price", item="tea", count=2).calls("stock", item="tea").says("Six.")
    with open_scripted(project, script, tools=[price, stock]) as agent:
        answer = agent.ask("What does tea cost?")
    assert [(call.output, call.error) for call in answer.calls] == [
        ('{"price":6}', None),
        ("", "ValueError: no tea here"),
    ]
    assert seen != [threading.main_thread().name]
    (spec,) = [tool for tool in script.requests[0].tools if tool.name == "price"]
    assert spec.about == "Look up a price."
    assert spec.schema["properties"]["item"]["description"] == "what is bought"


async def test_tools_of_one_question_are_offered_only_there_and_run_in_the_callers_loop(
    project: Path,
) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def where() -> str:
        """Say where it runs."""
        loops.append(asyncio.get_running_loop())
        return "here"

    script = Script("a").calls("where").says("A").asked("b").says("B")
    async with open_scripted(project, script) as agent:
        talk = await agent.converse()
        await talk.ask("a", tools=[where])
        await talk.ask("b")
    assert loops == [asyncio.get_running_loop()]
    offered = [{tool.name for tool in request.tools} for request in script.requests]
    assert [("where" in names) for names in offered] == [True, True, False]


def test_system_agent_and_model_reach_the_request_and_the_nearest_setting_wins(project: Path) -> None:
    script, other = Script(name="one").says("1"), Script(name="two").says("2")
    with open_scripted(project, script, system="Be brief.", agent="plan") as agent:
        assert agent.ask("x").text == "1"
        talk = agent.converse(system="Be long.")
        assert talk.ask("x", model=other).text == "2"
    assert "Be brief." in script.requests[0].system[-1]
    assert "Be long." in other.requests[0].system[-1]


def test_rules_allow_and_deny_calls(project: Path) -> None:
    script = (
        Script("a").calls("write", filePath="b.txt", content="x").says("written")
        .asked("b").says("no tools for that")
    )  # fmt: skip
    with open_scripted(project, script) as agent:
        talk = agent.converse()
        assert talk.ask("a").text == "written"
        talk.ask("b", permissions={"edit": "deny"})
    offered = [{tool.name for tool in request.tools} for request in script.requests]
    assert [("write" in names) for names in offered] == [True, True, False]


def test_a_function_answers_permission_requests(project: Path) -> None:
    asked: list[weft.PermissionRequest] = []

    script = (
        Script("a").calls("read", filePath="/etc/hosts").says("read")
        .asked("b").calls("read", filePath="/etc/hostname").says("never")
    )  # fmt: skip

    def choose(request: weft.PermissionRequest) -> str:
        asked.append(request)
        return "once" if len(asked) == 1 else "reject"

    with open_scripted(project, script, permissions=choose) as agent:
        assert agent.ask("a").text == "read"
        with pytest.raises(weft.RunRefusedError):
            agent.ask("b")
    assert {request.permission for request in asked} == {"external_directory"}


FAILURES = [
    (Script().fails("auth"), {}, weft.RunFailedError, "the key is not valid"),
    (Script().says("x").uses(input=10, output=10), {"budget": "0.0001"}, weft.BudgetExceededError, "$0.0001"),
    (Script().hangs(), {"budget": weft.Budget(seconds=1)}, weft.BudgetExceededError, "second"),
    (Script().calls("read", filePath="/etc/hosts"), {}, weft.RunRefusedError, "external_directory"),
    (Script("other").says("x"), {}, weft.RunFailedError, "the script expects 'other', but the prompt is 'x'"),
]


@pytest.mark.parametrize(("script", "options", "error", "message"), FAILURES, ids=lambda each: str(each)[:20])
def test_a_run_that_fails_raises_a_typed_error_with_the_answer_so_far(
    script: Script, options: dict[str, object], error: type[weft.RunFailedError], message: str, project: Path
) -> None:
    with open_scripted(project, script) as agent:
        with pytest.raises(error) as raised:
            agent.ask("x", **options)  # type: ignore[call-overload]
        assert message in str(raised.value)
        assert raised.value.answer.session


def test_text_from_before_a_failure_is_not_the_answer(project: Path) -> None:
    script = Script().says("I will look.").calls("read", filePath="a.txt").fails("auth")
    with open_scripted(project, script) as agent:
        answer = agent.ask("x", check=False)
        assert isinstance(answer.error, weft.RunFailedError)
        assert answer.text == ""
        assert answer.steps[0].text == "I will look."
        with pytest.raises(weft.RunFailedError):
            answer.value  # noqa: B018


def test_a_repetition_raises_its_own_error(project: Path) -> None:
    def model(conversation: ModelConversation) -> object:
        return [say("Again."), call("read", filePath="a.txt")]

    with open_scripted(project, FunctionModel(model)) as agent, pytest.raises(weft.RunLoopError):  # type: ignore[arg-type]
        agent.ask("x")


async def test_an_abort_from_elsewhere_raises_its_own_error(project: Path) -> None:
    async with open_scripted(project, Script().says("one").hangs()) as agent:
        stream = agent.stream("x")
        async for event in stream:
            if event.text:
                (session,) = await agent.api.list_status()
                await agent.api.abort(session)
                break
        with pytest.raises(weft.RunAbortedError):
            await stream.answer()


async def test_the_blocking_agent_works_inside_a_running_loop_as_in_a_notebook(project: Path) -> None:
    agent = open_scripted(project, Script("a").says("A").asked("b").says("B")).start()
    try:
        assert agent.ask("a").text == "A"
        assert "".join(event.text for event in agent.stream("b")) == "B"
        assert len(agent.wait(agent.api.list_sessions())) == 2
    finally:
        agent.close()
