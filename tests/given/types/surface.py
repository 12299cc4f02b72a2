"""The types that people's programs see. Type checkers read this file; nothing runs it."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypedDict, assert_type

import msgspec
import pydantic

import weft
from weft.testing import (
    FunctionModel,
    ModelConversation,
    Reply,
    Script,
    Tape,
    assert_called,
    assert_changed,
    call,
    recording,
    replaying,
    say,
    think,
)

JSON_SCHEMA: Mapping[str, object] = {"type": "object"}


@dataclass
class Data:
    name: str


class Typed(TypedDict):
    name: str


class Packed(msgspec.Struct):
    name: str


class Model(pydantic.BaseModel):
    name: str


async def ask_without_a_type(agent: weft.Agent[str]) -> None:
    answer = await agent.ask("?")
    assert_type(answer, weft.Answer[str])
    assert_type(answer.value, str)
    assert_type(answer.text, str)
    assert_type(answer.cost, Decimal | None)
    assert_type(answer.tokens, weft.Tokens | None)
    assert_type(answer.files, tuple[weft.FileDiff, ...])
    assert_type(answer.steps, tuple[weft.Step, ...])
    assert_type(answer.calls, tuple[weft.Call, ...])
    assert_type(answer.session, weft.SessionID)
    assert_type(answer.error, weft.RunFailedError | None)


async def ask_for_a_type(agent: weft.Agent[str]) -> None:
    assert_type((await agent.ask("?", schema=Data)).value, Data)
    assert_type((await agent.ask("?", schema=Typed)).value, Typed)
    assert_type((await agent.ask("?", schema=Packed)).value, Packed)
    assert_type((await agent.ask("?", schema=Model)).value, Model)
    assert_type((await agent.ask("?", schema=int)).value, int)
    assert_type((await agent.ask("?", schema=list[Data])).value, list[Data])
    assert_type((await agent.ask("?", schema=JSON_SCHEMA)).value, weft.Json)
    assert_type((await agent.ask("?", schema={"type": "object"})).value, weft.Json)
    assert_type((await agent.ask("?", schema=None)).value, str)


async def open_with_a_type() -> None:
    async with weft.open(".") as plain:
        assert_type(plain, weft.Agent[str])
    async with weft.open(".", schema=Data) as agent:
        assert_type(agent, weft.Agent[Data])
        assert_type((await agent.ask("?")).value, Data)
        assert_type((await agent.ask("?", schema=Typed)).value, Typed)
        assert_type((await (await agent.converse()).ask("?")).value, Data)
    async with weft.open(".", schema=JSON_SCHEMA) as json:
        assert_type(json, weft.Agent[weft.Json])
    async with weft.connect("http://127.0.0.1:4096") as remote:
        assert_type(remote, weft.Agent[str])
    async with weft.connect("http://127.0.0.1:4096", schema=Packed) as typed:
        assert_type(typed, weft.Agent[Packed])


async def converse_with_a_type(agent: weft.Agent[str]) -> None:
    talk = await agent.converse()
    assert_type(talk, weft.Conversation[str])
    assert_type(talk.session, weft.SessionID)
    assert_type(await talk.messages(), list[weft.MessageWithParts])
    assert_type(await agent.converse("ses_1", schema=Data), weft.Conversation[Data])
    assert_type(await agent.converse(schema=Typed), weft.Conversation[Typed])
    assert_type(await agent.converse(schema=Packed), weft.Conversation[Packed])
    assert_type(await agent.converse(schema=Model), weft.Conversation[Model])
    assert_type(await agent.converse(schema=JSON_SCHEMA), weft.Conversation[weft.Json])


async def stream_with_a_type(agent: weft.Agent[str]) -> None:
    async with agent.stream("?") as events:
        assert_type(events, weft.Stream[str])
        async for event in events:
            assert_type(event.text, str)
            match event:
                case weft.TextEvent():
                    pass
                case weft.ReasoningEvent():
                    assert_type(event.reasoning, str)
                case weft.CallEvent():
                    assert_type(event.call, weft.Call)
                case weft.PermissionEvent():
                    assert_type(event.request, weft.PermissionRequest)
                case weft.RetryEvent():
                    assert_type(event.attempt, int)
                case weft.StepEvent():
                    assert_type(event.step, weft.Step)
                case weft.AnswerEvent():
                    assert_type(event.answer, weft.Answer[str])
    assert_type(agent.stream("?", schema=Data), weft.Stream[Data])
    assert_type(agent.stream("?", schema=Typed), weft.Stream[Typed])
    assert_type(agent.stream("?", schema=Packed), weft.Stream[Packed])
    assert_type(agent.stream("?", schema=Model), weft.Stream[Model])
    assert_type(agent.stream("?", schema=JSON_SCHEMA), weft.Stream[weft.Json])
    assert_type(await agent.stream("?", schema=Data).answer(), weft.Answer[Data])


def ask_and_wait() -> None:
    with weft.open(".") as agent:
        assert_type(agent, weft.BlockingAgent[str])
        assert_type(agent.ask("?").value, str)
        assert_type(agent.ask("?", schema=Data).value, Data)
        assert_type(agent.ask("?", schema=Typed).value, Typed)
        assert_type(agent.ask("?", schema=Packed).value, Packed)
        assert_type(agent.ask("?", schema=Model).value, Model)
        assert_type(agent.ask("?", schema=JSON_SCHEMA).value, weft.Json)
        assert_type(agent.converse(), weft.BlockingConversation[str])
        assert_type(agent.converse(schema=Data), weft.BlockingConversation[Data])
        assert_type(agent.converse(schema=Data).ask("?").value, Data)
        assert_type(agent.converse().messages(), list[weft.MessageWithParts])
        assert_type(agent.converse(schema=JSON_SCHEMA), weft.BlockingConversation[weft.Json])
        assert_type(agent.stream("?"), weft.BlockingStream[str])
        assert_type(agent.stream("?", schema=Typed), weft.BlockingStream[Typed])
        assert_type(agent.stream("?", schema=JSON_SCHEMA), weft.BlockingStream[weft.Json])
        assert_type(agent.stream("?", schema=Model).answer(), weft.Answer[Model])
        for event in agent.stream("?", schema=Data):
            if isinstance(event, weft.AnswerEvent):
                assert_type(event.answer, weft.Answer[Data])
        sessions = agent.wait(agent.api.list_sessions())
        assert_type(sessions[0].id, weft.SessionID)
        for published in agent.iterate(agent.api.events):
            assert_type(published.cursor, int)
    with weft.open(".", schema=Data) as typed, weft.connect("http://127.0.0.1:4096") as remote:
        assert_type(typed, weft.BlockingAgent[Data])
        assert_type(remote, weft.BlockingAgent[str])
    assert_type(weft.open(".", schema=Data).start(), weft.BlockingAgent[Data])


def handle_a_failure(agent: weft.BlockingAgent[str]) -> None:
    try:
        agent.ask("?")
    except weft.BudgetExceededError as error:
        assert_type(error.answer, weft.Answer[object])
        assert_type(error.hint, str)
    answer = agent.ask("?", check=False)
    if answer.error is not None:
        assert_type(answer.error, weft.RunFailedError)


def permit(request: weft.PermissionRequest) -> Literal["once", "reject"]:
    return "once" if request.permission == "read" else "reject"


async def permit_later(request: weft.PermissionRequest) -> Literal["always"] | None:
    return "always" if request.permission == "read" else None


def look_up(item: str, count: int = 1) -> float:
    """Look up a price."""
    return 2.5 * count if item else 0.0


async def look_up_later(item: str, context: weft.ToolCallContext) -> weft.ToolAnswer:
    """Look up a price."""
    await context.ask("look", item)
    await context.report(title=item, metadata={"count": 1})
    return weft.ToolAnswer(output=item, metadata={"count": 1})


def set_every_option(path: weft.SessionID) -> None:
    weft.open(
        ".", model="a/b", agent="plan", system="Be brief.", tools=[look_up, look_up_later], budget="0.5"
    )
    weft.open(".", permissions="allow", budget=Decimal("0.5"), store="memory:", env={"A": "b"})
    weft.open(".", permissions={"bash": {"git *": "allow", "*": "deny"}, "edit": "ask"}, budget=1)
    weft.open(".", permissions=permit, budget=weft.Budget(cost=Decimal(1)))
    weft.open(
        ".", permissions=permit_later, model=Script().says("Hello."), warn=lambda error: print(error.hint)
    )


def answer_twice(conversation: ModelConversation) -> Reply:
    assert_type(conversation.results, tuple[str, ...])
    if not conversation.results:
        return [think("Hm."), say("I look."), call("read", filePath=conversation.prompt)]
    return "Done."


def script_a_model(answer: weft.Answer[Data], tape: Tape) -> None:
    script = Script("Go").thinks("Hm.").calls("read", filePath="a").also_calls("list").says("Done.")
    assert_type(script.uses(input=1, output=2).asked("Go on").fails("overload").hangs(), Script)
    weft.open(".", model=FunctionModel(answer_twice), tape=tape)
    assert_type(assert_called(answer, "read", filePath="a"), weft.Call)
    assert_type(assert_changed(answer, "a"), tuple[weft.FileDiff, ...])
    with recording("a.jsonl") as recorded, weft.open(".", tape=recorded):
        pass
    with replaying("a.jsonl") as replayed, weft.open(".", tape=replayed):
        pass


def narrow_messages(messages: list[weft.MessageWithParts]) -> list[str]:
    """A comparison of `role` or `type` narrows a union, as in TypeScript."""
    models = [each.info.model_id for each in messages if each.info.role == "assistant"]
    return [*models, *(part.text for each in messages for part in each.parts if part.type == "text")]
