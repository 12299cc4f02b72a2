"""Request a value that matches a JSON schema, check it, and decide when to stop (pure)."""

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from weft.context.exclusions import is_refused
from weft.context.reminders import VALUE_TOOL, ended_without_calls, find_json_format
from weft.context.system import read_text
from weft.errors import DocumentError, InvalidInputError
from weft.model.catalog import Model
from weft.model.failure import StructureData, StructureFailure
from weft.model.message import AssistantMessage, JsonFormat, MessageWithParts
from weft.model.part import ErrorState, TextPart, ToolPart
from weft.model.wire import parse
from weft.provider.contract import ModelRequest, OutputFormat, ToolSpec
from weft.run.decide import ModelStep
from weft.run.processor import CallDone, CallFailed, CallStarted

# --- request a value ---

VALUE_TOOL_ABOUT: Final = (
    "Hand over the value that was asked for. Call it once, at the end: its arguments are the answer."
)
WRAPPER_FIELD: Final = "value"
DEFAULT_VALUE_RETRIES: Final = 2
# Keywords that some API does not accept at the top of a tool's schema.
NOT_AT_TOP_LEVEL: Final = frozenset(
    {"$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "not", "if", "enum", "const"}
)
DEFINITIONS: Final = ("$defs", "definitions")
SCHEMA_MAPS: Final = ("properties", *DEFINITIONS)  # keywords that map names to schemas
# The keywords that OpenAI's APIs accept in a schema that they enforce.
STRICT_KEYWORDS: Final = frozenset(
    {
        "type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "$ref",
        "title", "description", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "multipleOf", "minItems", "maxItems", *DEFINITIONS,
    }
)  # fmt: skip
# With the output formats of these APIs, the model can still call tools first.
FORMAT_WITH_TOOLS: Final = frozenset({"@ai-sdk/openai", "@ai-sdk/azure", "@ai-sdk/anthropic"})
# Our adapters for these APIs have no output format.
WITHOUT_OUTPUT_FORMAT: Final = frozenset({"@ai-sdk/amazon-bedrock", "pydantic-ai", ""})


def get_retries(format: JsonFormat) -> int:
    return DEFAULT_VALUE_RETRIES if format.retry_count is None else format.retry_count


def has_native_format(model: Model, *, tools: bool) -> bool:
    """Return True if the model's API has an output format, and accepts it together with tools if there are any.

    The model's option `structuredOutputs` overrides this. Of the APIs that are not in `FORMAT_WITH_TOOLS`, some refuse a format
    together with tools, and some accept it and then never call a tool.
    """
    npm, option = model.api.npm, model.options.get("structuredOutputs")
    if npm in WITHOUT_OUTPUT_FORMAT:
        return False
    if isinstance(option, bool):
        return option
    works_with_tools = npm in FORMAT_WITH_TOOLS or model.provider_id in {"openai", "azure"}
    return model.capabilities.structured_output and (works_with_tools or not tools)


def with_format(request: ModelRequest, format: JsonFormat) -> ModelRequest:
    """Return the request with an output format: the text of the answer is the value."""
    schema = to_arguments(format.schema)
    return replace(request, format=OutputFormat(name=VALUE_TOOL, schema=schema, strict=is_strict(schema)))


def with_tool(request: ModelRequest, format: JsonFormat, *, forced: bool) -> ModelRequest:
    """Return the request with the tool that takes the value. The model has to call it at the end, or now if `forced`."""
    spec = ToolSpec(name=VALUE_TOOL, about=VALUE_TOOL_ABOUT, schema=to_arguments(format.schema))
    return replace(
        request,
        system=(*request.system, read_text("structured")),
        tools=(*request.tools, spec),
        tool_choice="required",
        forced=VALUE_TOOL if forced else "",
    )


def is_strict(schema: Any) -> bool:
    """Return True if OpenAI's APIs can enforce a schema: it requires all its fields, allows no others, and has only known keywords."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if not schema.keys() <= STRICT_KEYWORDS:
        return False
    fields = schema.get("properties", {})
    required = schema.get("required", [])  # a boolean in draft 3
    closed = (
        schema.get("additionalProperties") is False
        and isinstance(required, list)
        and set(required) == set(fields)
    )
    if (schema.get("type") == "object" or fields) and not closed:
        return False
    subschemas = [each for name in SCHEMA_MAPS if name in schema for each in schema[name].values()]
    return all(map(is_strict, [*subschemas, schema.get("items"), schema.get("anyOf")]))


def to_arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema as a schema of tool arguments. These must be an object, so another type is wrapped in one."""
    if _is_object(schema):
        return {key: item for key, item in schema.items() if key != "$schema"}
    hoisted = {key: schema[key] for key in DEFINITIONS if key in schema}
    inner = {key: item for key, item in schema.items() if key not in (*DEFINITIONS, "$schema", "$id")}
    return {
        "type": "object",
        "properties": {WRAPPER_FIELD: _adapt_refs(inner)},
        "required": [WRAPPER_FIELD],
        "additionalProperties": False,
        **{key: _adapt_refs(item) for key, item in hoisted.items()},
    }


def from_text(schema: dict[str, Any], text: str) -> Any:
    """Return the value in the text of an answer, unwrapped; `UNSET` if the text is not JSON."""
    try:
        value = parse(text.strip().encode())
    except (DocumentError, UnicodeEncodeError):
        return UNSET
    wrapped = not _is_object(schema) and isinstance(value, dict) and value.keys() == {WRAPPER_FIELD}
    return value[WRAPPER_FIELD] if wrapped else value


def from_arguments(schema: dict[str, Any], arguments: dict[str, Any]) -> Any:
    """Return the value in the arguments of a call, unwrapped; `UNSET` if there is none."""
    return arguments if _is_object(schema) else arguments.get(WRAPPER_FIELD, UNSET)


def _is_object(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "object" and NOT_AT_TOP_LEVEL.isdisjoint(schema)


def _adapt_refs(node: Any) -> Any:
    """Adapt references to the place of a schema within its wrapper. Definitions stay at the top level."""
    if isinstance(node, list):
        return [_adapt_refs(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {key: _adapt_ref(item) if key == "$ref" else _adapt_refs(item) for key, item in node.items()}


def _adapt_ref(ref: Any) -> Any:
    if not isinstance(ref, str):
        return _adapt_refs(ref)
    is_definition = ref.startswith(tuple(f"#/{name}/" for name in DEFINITIONS))
    return (
        f"#/properties/{WRAPPER_FIELD}{ref[1:]}"
        if ref == "#" or (ref.startswith("#/") and not is_definition)
        else ref
    )


# --- check a value ---

REFERENCES: Final = ("$ref", "$dynamicRef")
MAX_FAULTS: Final = 8
MAX_FAULT_LENGTH: Final = 300


def check_schema(schema: dict[str, Any], *, where: str) -> None:
    """Raise `InvalidInputError` if this is not a JSON schema, or if it has references to anything outside it."""
    # Loading this library takes longer than loading weft, and few prompts ask for a value.
    jsonschema = import_module("jsonschema")
    try:
        _find_validator_class(schema).check_schema(schema)
        unresolved = _find_unresolved(schema)
    except jsonschema.SchemaError as error:
        raise InvalidInputError(where, f"not a JSON schema: {_format_error(error)}") from error
    except RecursionError as error:
        raise InvalidInputError(where, "it is nested too deeply") from error
    if unresolved is not None:
        raise InvalidInputError(where, f"it refers to {unresolved!r}, which is not in it")


def list_faults(value: Any, schema: dict[str, Any]) -> list[str]:
    """Return what is wrong with a value, one line each; empty if it matches the schema.

    After `MAX_FAULTS` of them, one line says how many more there are.
    """
    try:
        faults = sorted(
            _make_validator(schema).iter_errors(value), key=lambda error: list(map(str, error.path))
        )
    except RecursionError:
        return ["the value is nested too deeply"]
    except (ArithmeticError, TypeError):  # the library divides by a float
        return ["a number in it has too many digits"]
    lines = [_format_error(fault) for fault in faults]
    more = [f"and {len(lines) - MAX_FAULTS} more"] if len(lines) > MAX_FAULTS else []
    return [*lines[:MAX_FAULTS], *more]


def _find_validator_class(schema: dict[str, Any]) -> Any:
    """Return the class that checks values against a schema: that of the draft that it names, else of the newest."""
    validators = import_module("jsonschema.validators")
    named = schema if isinstance(schema.get("$schema"), str) else {}
    return validators.validator_for(named, default=validators.Draft202012Validator)


def _make_validator(schema: dict[str, Any]) -> Any:
    # An empty registry keeps the library from fetching references over the network.
    return _find_validator_class(schema)(schema, registry=import_module("referencing").Registry())


def _find_unresolved(schema: dict[str, Any]) -> str | None:
    """Return a reference in a valid schema to something that is not in it, or not a schema; None if there is none."""
    referencing, drafts = import_module("referencing"), import_module("referencing.jsonschema")
    resource = referencing.Resource.from_contents(schema, default_specification=drafts.DRAFT202012)
    resolver = referencing.Registry().with_resource("", resource).crawl().resolver()
    references = _iterate_references(schema, resolver, drafts.DRAFT202012)
    return next((ref for ref, each in references if not _resolves(ref, each)), None)


def _resolves(ref: str, resolver: Any) -> bool:
    referencing = import_module("referencing")
    try:
        contents = resolver.lookup(ref).contents
    except (referencing.exceptions.Unresolvable, ValueError):
        return False  # ValueError: it has a name where a list needs a number
    return isinstance(contents, dict | bool)


def _format_error(error: Any) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.path)
    message = str(error.message)
    return (
        f"${path}: {message if len(message) <= MAX_FAULT_LENGTH else message[: MAX_FAULT_LENGTH - 1] + '…'}"
    )


def _iterate_references(node: Any, resolver: Any, draft: Any) -> Iterator[tuple[str, Any]]:
    """Yield each reference with the resolver for its place: an `$id` changes what references below it are relative to."""
    children: Iterable[Any] = ()
    if isinstance(node, dict):
        if isinstance(node.get("$id"), str):
            resolver = resolver.in_subresource(draft.create_resource(node))
        yield from ((node[key], resolver) for key in REFERENCES if isinstance(node.get(key), str))
        children = node.values()
    elif isinstance(node, list):
        children = node
    for child in children:
        yield from _iterate_references(child, resolver, draft)


# --- decide when to stop ---

VALUE_ACCEPTED = "The value was accepted."


class HandedValue(Struct, frozen=True, kw_only=True):
    """The result of a call that hands over a value, and the value; `UNSET` if it does not match the schema."""

    outcome: CallDone | CallFailed
    value: Any = UNSET


def check_handed_value(call: CallStarted, format: JsonFormat) -> HandedValue:
    """Check the value that a call hands over. The model reads what is wrong with it, and may call again."""
    value = from_arguments(format.schema, call.input)
    faults = ['the argument "value" is missing'] if value is UNSET else list_faults(value, format.schema)
    if not faults:
        done = CallDone(
            call_id=call.call_id, title=VALUE_TOOL, output=VALUE_ACCEPTED, metadata={"valid": True}
        )
        return HandedValue(outcome=done, value=value)
    message = "The value does not match the schema:\n" + "\n".join(f"- {fault}" for fault in faults)
    return HandedValue(
        outcome=CallFailed(call_id=call.call_id, error=f"{message}\nCorrect it, and call {VALUE_TOOL} again.")
    )


def request_value(
    request: ModelRequest, history: Sequence[MessageWithParts], step: ModelStep
) -> ModelRequest:
    """Return the request, extended so that the model gives the value that the prompt asks for; unchanged if it asks for none.

    The API's own output format comes first. If it has none, or refused it, or did not give the value, the model has to call a tool:
    at once if it failed to give the value before, or if this is the last step.
    """
    format = find_json_format(step.prompt)
    if format is None or step.summary:
        return request
    answers = _list_answers(history, step)
    has_failed = any(_find_reason(message, format) is not None for message in answers)
    is_format_refused = is_refused(answers, request.model)
    if (
        has_native_format(request.model, tools=bool(request.tools))
        and not has_failed
        and not is_format_refused
    ):
        return with_format(request, format)
    return with_tool(request, format, forced=has_failed or step.last)


def find_value(text: str, format: JsonFormat) -> Any:
    """Return the value in the text of an answer; `UNSET` if there is none that matches the schema."""
    value = from_text(format.schema, text)
    return UNSET if value is UNSET or list_faults(value, format.schema) else value


def find_value_failure(history: Sequence[MessageWithParts], step: ModelStep) -> StructureFailure | None:
    """Return the failure if the last answer to the prompt has no value, and no further attempt is allowed."""
    format = find_json_format(step.prompt)
    if format is None or step.summary:
        return None
    answers = _list_answers(history, step)
    if not answers or _has_value(answers[-1]):
        return None
    reasons = [reason for message in answers if (reason := _find_reason(message, format)) is not None]
    if _find_reason(answers[-1], format) is None and not step.last:
        return None  # the model is still working
    if len(reasons) <= get_retries(format) and not step.last:
        return None
    reason = reasons[-1] if reasons else "it reached its step limit"
    return StructureFailure(
        data=StructureData(
            message=f"the model did not give the value that was asked for: {reason}",
            retries=max(len(reasons) - 1, 0),
        )
    )


def _list_answers(history: Sequence[MessageWithParts], step: ModelStep) -> list[MessageWithParts]:
    return [
        message
        for message in history
        if isinstance(message.info, AssistantMessage)
        and message.info.parent_id == step.prompt.id
        and not message.info.summary
    ]


def _has_value(message: MessageWithParts) -> bool:
    return isinstance(message.info, AssistantMessage) and message.info.structured is not UNSET


def _find_reason(message: MessageWithParts, format: JsonFormat) -> str | None:
    """Return why an answer has no value, or None if it has one or has not tried yet."""
    if _has_value(message):
        return None
    if ended_without_calls(message):
        text = "".join(part.text for part in message.parts if isinstance(part, TextPart) and not part.ignored)
        value = from_text(format.schema, text)
        faults = [] if value is UNSET else list_faults(value, format.schema)
        return (
            f"its answer does not match the schema: {'; '.join(faults)}"
            if faults
            else "its answer is not JSON"
        )
    for part in message.parts:
        if not isinstance(part, ToolPart):
            continue
        if part.tool == VALUE_TOOL and isinstance(part.state, ErrorState):
            return part.state.error
        if part.state.input.get("tool") == VALUE_TOOL and part.tool == "invalid":
            return str(part.state.input.get("error", "its call could not be read"))
    return None
