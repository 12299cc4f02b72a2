"""A value of a JSON schema instead of text: requested, handed over, checked."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from given.engine import ALLOW, ECHO, open_engine, text_prompt
from weft.errors import InvalidInputError
from weft.model.agent import AgentInfo
from weft.model.failure import StructureData, StructureFailure
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.input import PromptInput, SessionInput
from weft.model.message import (
    AssistantMessage,
    AssistantTime,
    JsonFormat,
    MessageWithParts,
    TextFormat,
    UserMessage,
)
from weft.model.part import CallTime, CompletedState, ErrorState, Moment, ToolPart
from weft.model.permission import Rule
from weft.model.wire import decode, encode, parse
from weft.provider.contract import ToolSpec, UserModelMessage
from weft.provider.scripted import AnyMove, Say, UseTool
from weft.run.decide import ModelStep, decide
from weft.run.json_schema import (
    check_schema,
    find_value_failure,
    from_arguments,
    from_text,
    is_strict,
    list_faults,
    to_arguments,
)
from weft.tool.registry import INVALID

PERSON = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ADA = {"name": "Ada", "age": 36}
NAMES = {"type": "array", "items": {"$ref": "#/$defs/name"}, "$defs": {"name": {"type": "string"}}}
REMINDER = "You ended without handing over the value. Call StructuredOutput now."


def use_value(value: Any) -> UseTool:
    return UseTool(tool="StructuredOutput", input=value)


def info(message: MessageWithParts) -> AssistantMessage:
    assert isinstance(message.info, AssistantMessage)
    return message.info


class SchemaRun:
    """The result of one prompt."""

    def __init__(self, answer: MessageWithParts, messages: Sequence[MessageWithParts], requests: Any) -> None:
        self.answer, self.messages, self.requests = info(answer), messages, requests

    def states(self) -> list[str]:
        return [
            f"{part.tool}: {part.state.output if isinstance(part.state, CompletedState) else part.state.error}"
            for message in self.messages
            for part in message.parts
            if isinstance(part, ToolPart) and isinstance(part.state, CompletedState | ErrorState)
        ]


async def run_schema(*script: Sequence[AnyMove], schema: dict[str, Any] = PERSON, **more: Any) -> SchemaRun:
    retry_count = more.pop("retry_count", None)
    more.setdefault("tools", (INVALID, ECHO))
    async with asyncio.timeout(60), open_engine(*script, **more) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        format = JsonFormat(schema=schema, retry_count=retry_count)
        answer = await engine.api.prompt(session, text_prompt("who?", format=format))
        return SchemaRun(answer, await engine.store.list_messages(session), engine.provider.requests)


async def test_the_value_is_stored_on_the_message_and_ends_the_run() -> None:
    found = await run_schema([Say(text="I know."), use_value(ADA)], [Say(text="never asked for")])

    assert (found.answer.structured, found.answer.error) == (ADA, None)
    assert found.states() == ["StructuredOutput: The value was accepted."]
    assert len(found.requests) == 1
    prompt = found.messages[0].info
    assert isinstance(prompt, UserMessage)
    assert prompt.format == JsonFormat(schema=PERSON)


async def test_the_model_gets_the_value_tool_and_must_call_a_tool() -> None:
    found = await run_schema([use_value(ADA)])
    request = found.requests[0]
    schema = {key: item for key, item in PERSON.items() if key != "$schema"}

    assert request.tools[-1].schema == schema
    assert [tool.name for tool in request.tools] == ["echo", "StructuredOutput"]
    assert request.tool_choice == "required"
    assert "StructuredOutput" in request.system[-1]


async def test_other_tools_are_used_before_the_value_is_given() -> None:
    found = await run_schema([UseTool(tool="echo", input={"words": "Ada, 36"})], [use_value(ADA)])

    assert (found.answer.structured, len(found.requests)) == (ADA, 2)


async def test_the_model_is_told_what_is_wrong_with_a_value_and_corrects_it() -> None:
    found = await run_schema(
        [use_value({"name": "Ada", "age": -1, "x": 0})], [use_value({"name": "Ada"})], [use_value(ADA)]
    )

    assert found.answer.structured == ADA
    first, second, third = found.states()
    assert "- $: Additional properties are not allowed ('x' was unexpected)" in first
    assert "- $.age: -1 is less than the minimum of 0" in first
    assert "- $: 'age' is a required property" in second
    assert third == "StructuredOutput: The value was accepted."


async def test_too_many_wrong_values_are_a_failure_with_the_reason() -> None:
    found = await run_schema(*[[use_value({"name": "Ada"})]] * 9)

    assert isinstance(found.answer.error, StructureFailure)
    assert found.answer.error.data.retries == 2
    assert "'age' is a required property" in found.answer.error.data.message
    assert (found.answer.structured, len(found.requests)) == (UNSET, 3)


async def test_the_number_of_retries_is_part_of_the_format() -> None:
    assert len((await run_schema(*[[use_value({})]] * 9, retry_count=0)).requests) == 1
    assert len((await run_schema(*[[use_value({})]] * 9, retry_count=4)).requests) == 5


async def test_an_answer_without_a_value_gets_a_reminder_that_stays_in_place() -> None:
    found = await run_schema([Say(text="She is Ada.")], [Say(text="As I said.")], [use_value(ADA)])
    seconds, thirds = found.requests[1].messages, found.requests[2].messages

    assert found.answer.structured == ADA
    assert [type(turn).__name__ for turn in thirds] == [
        "UserModelMessage",
        "AssistantModelMessage",
        "UserModelMessage",
        "AssistantModelMessage",
        "UserModelMessage",
    ]
    assert isinstance(thirds[2], UserModelMessage)
    assert REMINDER in str(thirds[2])
    assert thirds[: len(seconds)] == seconds


async def test_answers_with_text_alone_fail_in_the_end() -> None:
    found = await run_schema(*[[Say(text="She is Ada.")]] * 9)

    assert found.answer.error == StructureFailure(
        data=StructureData(
            message="the model did not give the value that was asked for: its answer is not JSON", retries=2
        )
    )
    assert len(found.requests) == 3


async def test_invalid_json_arguments_count_as_an_attempt() -> None:
    broken = UseTool(tool="StructuredOutput", raw="{not json")
    found = await run_schema(*[[broken]] * 9)

    assert isinstance(found.answer.error, StructureFailure)
    assert "the arguments are not JSON" in found.answer.error.data.message


async def test_on_the_last_step_only_the_value_tool_is_offered() -> None:
    work = [UseTool(tool="echo", input={"words": "x"})]
    found = await run_schema(work, [use_value(ADA)], steps=2)
    failed = await run_schema(work, [Say(text="no time")], steps=2)

    assert [tool.name for tool in found.requests[1].tools] == ["StructuredOutput"]
    assert found.answer.structured == ADA
    assert isinstance(failed.answer.error, StructureFailure)


async def test_an_agent_without_tools_can_return_a_value() -> None:
    deny = (Rule(permission="*", pattern="*", action="deny"),)
    found = await run_schema([use_value(ADA)], rules=deny)

    assert [tool.name for tool in found.requests[0].tools] == ["StructuredOutput"]
    assert found.answer.structured == ADA


async def test_a_value_that_is_not_an_object_is_wrapped_in_one() -> None:
    found = await run_schema([use_value({"value": ["Ada"]})], schema=NAMES)
    missing = await run_schema([use_value({"names": ["Ada"]})], [use_value({"value": ["Ada"]})], schema=NAMES)

    assert found.requests[0].tools[-1] == ToolSpec(
        name="StructuredOutput",
        about=found.requests[0].tools[-1].about,
        schema={
            "type": "object",
            "properties": {"value": {"type": "array", "items": {"$ref": "#/$defs/name"}}},
            "required": ["value"],
            "additionalProperties": False,
            "$defs": {"name": {"type": "string"}},
        },
    )
    assert found.answer.structured == ["Ada"]
    assert '- the argument "value" is missing' in missing.states()[0]


async def test_a_null_is_a_value() -> None:
    found = await run_schema([use_value({"value": None})], schema={"type": ["string", "null"]})

    assert found.answer.structured is None
    assert decode(encode(found.answer), AssistantMessage) == found.answer
    assert b'"structured":null' in encode(found.answer)


async def test_an_answer_without_a_value_has_no_structured_field() -> None:
    async with open_engine([Say(text="hi")]) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        answer = await engine.api.prompt(session, text_prompt("go", format=TextFormat()))

        assert b"structured" not in encode(answer.info)
        assert engine.provider.requests[0].tool_choice == "auto"


async def test_the_next_prompt_is_answered_with_text_again() -> None:
    async with asyncio.timeout(60), open_engine([use_value(ADA)], [Say(text="words")]) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        await engine.api.prompt(session, text_prompt("who?", format=JsonFormat(schema=PERSON)))
        answer = await engine.api.prompt(session, text_prompt("thanks"))

        assert (info(answer).structured, info(answer).finish) == (UNSET, "stop")
        assert [tool.name for tool in engine.provider.requests[1].tools] == ["echo"]


async def test_the_value_tool_does_not_exist_if_no_value_was_requested() -> None:
    async with (
        asyncio.timeout(60),
        open_engine([use_value(ADA)], [Say(text="oh")], tools=(INVALID, ECHO)) as engine,
    ):
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        answer = await engine.api.prompt(session, text_prompt("go"))

        assert info(answer).structured is UNSET
        assert "there is no tool 'StructuredOutput'" in str(engine.provider.requests[1].messages)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "objet"}, "not a JSON schema"),
        ({"properties": ["a"]}, "not a JSON schema"),
        ({"$ref": "#/$defs/nobody"}, "which is not in it"),
        ({"items": {"$ref": "https://example.com/schema"}}, "which is not in it"),
        ({"enum": [1], "items": {"$ref": "#/enum/first"}}, "which is not in it"),
        ({"enum": [1], "items": {"$ref": "#/enum/0"}}, "which is not in it"),
        ({"$dynamicRef": "#nobody"}, "which is not in it"),
        (
            {"$defs": {"a": {}, "b": {"$id": "https://example.com/b", "$ref": "#/$defs/a"}}},
            "which is not in it",
        ),
        ({"$schema": ["draft"], "type": "object"}, "not a JSON schema"),
        ({"$id": 5}, "not a JSON schema"),
    ],
)
async def test_an_invalid_schema_is_refused_before_anything_is_stored(
    schema: dict[str, Any], reason: str
) -> None:
    async with open_engine() as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        with pytest.raises(InvalidInputError, match=reason):
            await engine.api.prompt(session, text_prompt("go", format=JsonFormat(schema=schema)))

        assert await engine.api.list_messages(session) == []


async def test_an_unknown_format_is_refused_in_a_prompt_and_kept_in_a_history() -> None:
    async with open_engine() as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        for format in ({"type": "yaml"}, {"type": "json_schema", "schema": {}, "retryCount": -1}):
            raw = encode({"parts": [{"type": "text", "text": "go"}], "format": format})
            with pytest.raises(InvalidInputError, match="format"):
                await engine.api.prompt(session, decode(raw, PromptInput))

    written = {
        "id": "msg_1",
        "sessionID": "ses_1",
        "role": "user",
        "time": {"created": 1},
        "agent": "build",
        "format": {"type": "yaml", "strict": True},
    }
    assert json.loads(encode(decode(encode(written), UserMessage))) == written


async def test_the_output_format_is_kept_after_compaction() -> None:
    compaction = AgentInfo(
        name="compaction", mode="primary", prompt="Sum it up.", permission=ALLOW, hidden=True
    )
    async with (
        asyncio.timeout(60),
        open_engine(
            [UseTool(tool="echo", input={"words": "y" * 900_000})],
            [Say(text="a summary")],
            [use_value(ADA)],
            agents=(compaction,),
        ) as engine,
    ):
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        answer = await engine.api.prompt(session, text_prompt("who?", format=JsonFormat(schema=PERSON)))

        assert info(answer).structured == ADA


# --- when to stop asking ---

ANSWERS = {
    "words": (),
    "bad": (("StructuredOutput", False),),
    "work": (("echo", True),),
    "good": (("echo", True), ("StructuredOutput", True)),
}


def answer_to(prompt: UserMessage, number: int, kind: str) -> MessageWithParts:
    place = {"session_id": prompt.session_id, "message_id": MessageID(f"msg_a{number}")}
    time = CallTime(start=1, end=2)
    parts = tuple(
        ToolPart(
            id=PartID(f"prt_{number}_{at}"),
            call_id=f"c{at}",
            tool=tool,
            state=CompletedState(input={}, output="", title="", metadata={}, time=time)
            if worked
            else ErrorState(input={}, error="wrong", time=time),
            **place,
        )
        for at, (tool, worked) in enumerate(ANSWERS[kind])
    )
    answer = AssistantMessage(
        id=place["message_id"],
        session_id=prompt.session_id,
        time=AssistantTime(created=1, completed=2),
        parent_id=prompt.id,
        finish="stop",
        structured=ADA if kind == "good" else UNSET,
    )
    return MessageWithParts(info=answer, parts=parts)


@given(st.lists(st.sampled_from(sorted(ANSWERS)), max_size=12), st.none() | st.integers(0, 4))
def test_the_run_fails_with_the_first_excess_attempt_and_not_before(
    kinds: list[str], retry_count: int | None
) -> None:
    format = JsonFormat(schema=PERSON, retry_count=retry_count)
    prompt = UserMessage(
        id=MessageID("msg_p"), session_id=SessionID("ses_1"), time=Moment(created=1), format=format
    )
    history = [MessageWithParts(info=prompt, parts=())]
    most, misses = 2 if retry_count is None else retry_count, 0
    for number, kind in enumerate(kinds):
        history.append(answer_to(prompt, number, kind))
        misses += kind in {"words", "bad"}
        failure = find_value_failure(history, ModelStep(prompt))
        over = kind in {"words", "bad"} and misses > most

        assert (failure is not None) == over
        assert (find_value_failure(history, ModelStep(prompt, last=True)) is not None) == (kind != "good")
        # A run that has a value ends; without one it is asked again until it fails.
        asked_again = isinstance(decide(history), ModelStep)
        assert asked_again == (kind != "good")
        if over or kind == "good":
            break


# --- schemas ---

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def schema_of(value: Any) -> dict[str, Any]:
    """Return a schema that only this value satisfies."""
    match value:
        case dict():
            return {
                "type": "object",
                "properties": {key: schema_of(item) for key, item in value.items()},
                "required": sorted(value),
                "additionalProperties": False,
            }
        case list():
            places = {"prefixItems": [schema_of(item) for item in value]} if value else {}
            return {"type": "array", "minItems": len(value), "items": False, **places}
        case _:
            return {"const": value}


@given(VALUES, VALUES)
def test_a_value_matches_a_schema_made_of_it_and_another_does_not(value: Any, other: Any) -> None:
    schema = schema_of(value)
    check_schema(schema, where="schema")

    assert list_faults(value, schema) == []
    # As JSON, where 1 is not true; for Python it is.
    assert (list_faults(other, schema) == []) == (to_sorted_json(other) == to_sorted_json(value))


def to_sorted_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@given(VALUES)
def test_wrapped_arguments_give_the_value_back(value: Any) -> None:
    schema = schema_of(value)
    shown = to_arguments(schema)
    arguments = value if isinstance(value, dict) else {"value": value}

    assert shown["type"] == "object"
    assert list_faults(arguments, shown) == []
    assert from_arguments(schema, arguments) == value


def test_a_recursive_schema_still_refers_to_itself_when_wrapped() -> None:
    tree = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#"}}]}
    shown = to_arguments(tree)

    assert list_faults({"value": ["a", ["b", []]]}, shown) == []
    assert list_faults({"value": ["a", [7]]}, shown) != []


def test_a_text_with_half_a_character_has_no_value() -> None:
    assert from_text({"type": "string"}, '"\ud800"') is UNSET


def test_a_schema_that_refers_to_its_own_names_is_valid() -> None:
    schema = {
        "$defs": {"a": {"$anchor": "thread"}, "b": {"$id": "https://example.com/b", "$defs": {"c": {}}}},
        "properties": {
            "x": {"$ref": "#thread"},
            "y": {"$ref": "https://example.com/b"},
            "z": {"$id": "https://example.com/z", "$defs": {"$id": {}}, "$ref": "#/$defs/$id"},
            "$id": {"$dynamicRef": "#thread"},
        },
    }
    check_schema(schema, where="format.schema")
    assert list_faults({"x": 1, "y": 2, "z": 3, "$id": 4}, schema) == []


def test_a_schema_of_an_old_draft_is_not_strict() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-03/schema#",
        "type": "object",
        "properties": {},
        "additionalProperties": False,
        "required": True,
    }
    check_schema(schema, where="format.schema")
    assert not is_strict(to_arguments(schema))


@pytest.mark.parametrize("number", ["1" * 400, "1e400", "0.12345678901234567890"])
def test_a_number_that_is_too_long_to_check_is_a_fault(number: str) -> None:
    faults = list_faults(parse(number.encode()), {"multipleOf": 0.5})
    assert faults == ["a number in it has too many digits"]


def test_the_list_of_faults_is_bounded() -> None:
    faults = list_faults(["x" * 5000] * 50, {"items": {"type": "integer"}})

    assert len(faults) == 9
    assert faults[-1] == "and 42 more"
    assert all(len(fault) < 320 for fault in faults)
