"""Ask for a value of a JSON schema, check it, and decide when to stop asking."""

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from weft.context.exclusions import is_refused
from weft.context.reminders import NAME, ended_in_words, wanted
from weft.context.system import written
from weft.errors import DocumentError, InvalidInputError
from weft.model.catalog import Model
from weft.model.failure import StructureData, StructureFailure
from weft.model.message import AssistantMessage, JsonFormat, MessageWithParts
from weft.model.part import ErrorState, TextPart, ToolPart
from weft.model.wire import parse
from weft.provider.contract import ModelRequest, OutputFormat, ToolSpec
from weft.run.decide import Step
from weft.run.processor import CallDone, CallFailed, CallStarted

ABOUT: Final = (
    "Hand over the value that was asked for. Call it once, at the end: its arguments are the answer."
)
WRAPPER: Final = "value"
RETRIES: Final = 2
# What a tool's arguments cannot be, in one API or the other, at the top of their schema.
NOT_ON_TOP: Final = frozenset(
    {"$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "not", "if", "enum", "const"}
)
DEFINITIONS: Final = ("$defs", "definitions")
FIELDS: Final = ("properties", *DEFINITIONS)
# What OpenAI's APIs know in a schema that they are to enforce.
ENFORCED: Final = frozenset(
    {
        "type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "$ref",
        "title", "description", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "multipleOf", "minItems", "maxItems", *DEFINITIONS,
    }
)  # fmt: skip
# OpenAI's and Anthropic's formats leave the model free to call tools first.
BESIDE_TOOLS: Final = frozenset({"@ai-sdk/openai", "@ai-sdk/azure", "@ai-sdk/anthropic"})
# What our adapters for these speak has none.
WITHOUT_FORMAT: Final = frozenset({"@ai-sdk/amazon-bedrock", "pydantic-ai", ""})


def retries(format: JsonFormat) -> int:
    return RETRIES if format.retry_count is None else format.retry_count


def takes_format(model: Model, *, tools: bool) -> bool:
    """Whether a model's API has a format for answers, also beside tools if there are any.

    The model's option `structuredOutputs` decides where it is set. Of APIs other than those in `BESIDE_TOOLS` some refuse a
    format beside tools, and some take it and then never call one.
    """
    npm, said = model.api.npm, model.options.get("structuredOutputs")
    if npm in WITHOUT_FORMAT:
        return False
    if isinstance(said, bool):
        return said
    beside = npm in BESIDE_TOOLS or model.provider_id in {"openai", "azure"}
    return model.capabilities.structured_output and (beside or not tools)


def with_format(request: ModelRequest, format: JsonFormat) -> ModelRequest:
    """The request for an answer whose text is the value."""
    schema = to_arguments(format.schema)
    return replace(request, format=OutputFormat(name=NAME, schema=schema, strict=is_strict(schema)))


def with_tool(request: ModelRequest, format: JsonFormat, *, forced: bool) -> ModelRequest:
    """The request with the tool to hand the value over, which the model has to call in the end; now, if `forced`."""
    spec = ToolSpec(name=NAME, about=ABOUT, schema=to_arguments(format.schema))
    return replace(
        request,
        system=(*request.system, written("structured")),
        tools=(*request.tools, spec),
        tool_choice="required",
        forced=NAME if forced else "",
    )


def is_strict(schema: Any) -> bool:
    """Whether OpenAI's APIs can enforce a schema: no field is optional, no other is allowed, and no word is unknown."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if not schema.keys() <= ENFORCED:
        return False
    fields = schema.get("properties", {})
    closed = schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(fields)
    if (schema.get("type") == "object" or fields) and not closed:
        return False
    below = [each for name in FIELDS if name in schema for each in schema[name].values()]
    return all(map(is_strict, [*below, schema.get("items"), schema.get("anyOf")]))


def to_arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as one of arguments. These are an object: what may be something else is put into one."""
    if _is_object(schema):
        return {key: item for key, item in schema.items() if key != "$schema"}
    hoisted = {key: schema[key] for key in DEFINITIONS if key in schema}
    inner = {key: item for key, item in schema.items() if key not in (*DEFINITIONS, "$schema", "$id")}
    return {
        "type": "object",
        "properties": {WRAPPER: _moved(inner)},
        "required": [WRAPPER],
        "additionalProperties": False,
        **{key: _moved(item) for key, item in hoisted.items()},
    }


def from_text(schema: dict[str, Any], text: str) -> Any:
    """The value in the text of an answer; `UNSET` if it is no JSON. What was put into an object for the format is taken
    out of it."""
    try:
        said = parse(text.strip().encode())
    except DocumentError:
        return UNSET
    wrapped = not _is_object(schema) and isinstance(said, dict) and said.keys() == {WRAPPER}
    return said[WRAPPER] if wrapped else said


def from_arguments(schema: dict[str, Any], arguments: dict[str, Any]) -> Any:
    """The value in the arguments of a call; `UNSET` if they hold none."""
    return arguments if _is_object(schema) else arguments.get(WRAPPER, UNSET)


def _is_object(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "object" and NOT_ON_TOP.isdisjoint(schema)


def _moved(node: Any) -> Any:
    """With what refers to the whole schema referring to where it stands now. Definitions stay at the top."""
    if isinstance(node, list):
        return [_moved(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {key: _moved_ref(item) if key == "$ref" else _moved(item) for key, item in node.items()}


def _moved_ref(ref: Any) -> Any:
    if not isinstance(ref, str):
        return _moved(ref)
    stays = ref.startswith(tuple(f"#/{name}/" for name in DEFINITIONS))
    return f"#/properties/{WRAPPER}{ref[1:]}" if ref == "#" or (ref.startswith("#/") and not stays) else ref


MOST: Final = 8
LONGEST: Final = 300


def check_schema(schema: dict[str, Any], *, where: str) -> None:
    """Raises `InvalidInputError` if this is no schema, or one that refers to what is not in it."""
    # The library takes longer to load than all of weft, and few prompts want a value.
    jsonschema = import_module("jsonschema")
    try:
        type(_validator(schema)).check_schema(schema)
        lost = next((ref for ref in _references(schema) if not _is_found(schema, ref)), None)
    except jsonschema.SchemaError as error:
        raise InvalidInputError(where, f"no JSON schema: {_told(error)}") from error
    except RecursionError as error:
        raise InvalidInputError(where, "it is nested too deeply") from error
    if lost is not None:
        raise InvalidInputError(where, f"it refers to {lost!r}, which is not in it")


def list_faults(value: Any, schema: dict[str, Any]) -> list[str]:
    """What is wrong with a value, a line each and not too many; nothing if it keeps to the schema."""
    try:
        faults = sorted(_validator(schema).iter_errors(value), key=lambda error: list(map(str, error.path)))
    except RecursionError:
        return ["the value is nested too deeply"]
    told = [_told(fault) for fault in faults]
    more = [f"and {len(told) - MOST} more"] if len(told) > MOST else []
    return [*told[:MOST], *more]


def _validator(schema: dict[str, Any]) -> Any:
    validators, referencing = import_module("jsonschema.validators"), import_module("referencing")
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    # With a registry of our own nothing outside the schema is looked up: the library's own would ask the network.
    return kind(schema, registry=referencing.Registry())


def _is_found(schema: dict[str, Any], ref: str) -> bool:
    referencing, drafts = import_module("referencing"), import_module("referencing.jsonschema")
    whole = referencing.Resource.from_contents(schema, default_specification=drafts.DRAFT202012)
    try:
        referencing.Registry().with_resource("", whole).resolver().lookup(ref)
    except referencing.exceptions.Unresolvable:
        return False
    return ref.startswith("#")


def _told(error: Any) -> str:
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.path)
    words = str(error.message)
    return f"${place}: {words if len(words) <= LONGEST else words[: LONGEST - 1] + '…'}"


def _references(node: Any) -> Iterator[str]:
    below: Iterable[Any] = ()
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        below = node.values()
    elif isinstance(node, list):
        below = node
    for each in below:
        yield from _references(each)


TAKEN = "The value was taken."


class Handed(Struct, frozen=True, kw_only=True):
    """What came of a call that hands over a value, and the value; `UNSET` if it does not keep to the schema."""

    outcome: CallDone | CallFailed
    value: Any = UNSET


def hand_over(call: CallStarted, format: JsonFormat) -> Handed:
    """Judge what a call brings. What is wrong with it is told to the model, which may call again."""
    value = from_arguments(format.schema, call.input)
    faults = ['the argument "value" is missing'] if value is UNSET else list_faults(value, format.schema)
    if not faults:
        done = CallDone(call_id=call.call_id, title=NAME, output=TAKEN, metadata={"valid": True})
        return Handed(outcome=done, value=value)
    said = "The value does not keep to the schema:\n" + "\n".join(f"- {fault}" for fault in faults)
    return Handed(outcome=CallFailed(call_id=call.call_id, error=f"{said}\nMend it, and call {NAME} again."))


def ask_for_value(request: ModelRequest, history: Sequence[MessageWithParts], step: Step) -> ModelRequest:
    """The request for the value that the step's prompt wants, or as it is if it wants none.

    A model whose API has a format is asked by it. Once that was refused, or did not bring the value, the model has to call
    the tool; and whatever it did, it has to call it now if it missed before, or may not take another step.
    """
    format = wanted(step.prompt)
    if format is None or step.summary:
        return request
    answers = _answers(history, step)
    missed = any(_missed(message, format) is not None for message in answers)
    refused = is_refused(answers, request.model)
    if takes_format(request.model, tools=bool(request.tools)) and not missed and not refused:
        return with_format(request, format)
    return with_tool(request, format, forced=missed or step.last)


def find_value(text: str, format: JsonFormat) -> Any:
    """The value in the text of an answer; `UNSET` if it holds none that keeps to the schema."""
    value = from_text(format.schema, text)
    return UNSET if value is UNSET or list_faults(value, format.schema) else value


def find_failure(history: Sequence[MessageWithParts], step: Step) -> StructureFailure | None:
    """Why there will be no value, once the last answer to the step's prompt leaves no hope of one."""
    format = wanted(step.prompt)
    if format is None or step.summary:
        return None
    answers = _answers(history, step)
    if not answers or _has_value(answers[-1]):
        return None
    misses = [reason for message in answers if (reason := _missed(message, format)) is not None]
    if _missed(answers[-1], format) is None and not step.last:
        return None  # it is at work
    if len(misses) <= retries(format) and not step.last:
        return None
    reason = misses[-1] if misses else "the steps it may take were used up"
    return StructureFailure(
        data=StructureData(
            message=f"the model did not give the value that was asked for: {reason}",
            retries=max(len(misses) - 1, 0),
        )
    )


def _answers(history: Sequence[MessageWithParts], step: Step) -> list[MessageWithParts]:
    return [
        message
        for message in history
        if isinstance(message.info, AssistantMessage)
        and message.info.parent_id == step.prompt.id
        and not message.info.summary
    ]


def _has_value(message: MessageWithParts) -> bool:
    return isinstance(message.info, AssistantMessage) and message.info.structured is not UNSET


def _missed(message: MessageWithParts, format: JsonFormat) -> str | None:
    """How an answer failed to hand the value over; None if it did, or did not try yet."""
    if _has_value(message):
        return None
    if ended_in_words(message):
        said = "".join(part.text for part in message.parts if isinstance(part, TextPart))
        value = from_text(format.schema, said)
        faults = [] if value is UNSET else list_faults(value, format.schema)
        return (
            f"its answer does not keep to the schema: {'; '.join(faults)}" if faults else "it ended in words"
        )
    for part in message.parts:
        if not isinstance(part, ToolPart):
            continue
        if part.tool == NAME and isinstance(part.state, ErrorState):
            return part.state.error
        if part.state.input.get("tool") == NAME and part.tool == "invalid":
            return str(part.state.input.get("error", "its call could not be read"))
    return None
