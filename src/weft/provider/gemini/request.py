"""Build a request for Google's `generateContent`, with tool schemas in the OpenAPI subset that it accepts (pure)."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final

from weft.provider.contract import (
    AssistantModelMessage,
    CallContent,
    MediaContent,
    ModelMessage,
    ModelRequest,
    ReasoningContent,
    TextContent,
    ToolModelMessage,
    ToolSpec,
    UserModelMessage,
)
from weft.provider.media import MB, MediaLimits, adapt_files, parse_data_url
from weft.provider.normalise import (
    MAX_NAME_LENGTH,
    ensure_user_messages,
    get_own_metadata,
    pair_calls,
    to_tool_name,
)

Json = dict[str, Any]

MAX_SCHEMA_DEPTH: Final = 12
ANY_OBJECT: Final = {"type": "object"}
# Other keys are not copied: Gemini refuses a request with keys it does not know.
COPIED_KEYS: Final = (
    "title",
    "description",
    "nullable",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
    "pattern",
)
# Each bound, its exclusive form, which Gemini does not support, and the step from that to the bound for integers.
BOUNDS: Final = (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1))
FORMATS_BY_TYPE: Final = {
    "string": ("enum", "date-time"),
    "integer": ("int32", "int64"),
    "number": ("float", "double"),
}
NUMBER_TYPES: Final = ("integer", "number")


def to_parameters(schema: Mapping[str, Any]) -> Json | None:
    """Convert the schema of a tool's input. Return None for a tool without input, as Gemini requires."""
    converted = to_schema(schema)
    return converted if converted.get("properties") else None


def to_schema(schema: object, definitions: Mapping[str, Any] | None = None, depth: int = 0) -> Json:
    """Convert a JSON schema: keep the types and bounds that Gemini knows, inline references and drop everything else."""
    if not isinstance(schema, Mapping) or depth > MAX_SCHEMA_DEPTH:
        return dict(ANY_OBJECT)
    definitions = _list_definitions(schema) or definitions or {}
    schema = _flatten(schema, definitions)
    alternatives = _find_alternatives(schema)
    if alternatives is not None:
        return _to_any_of(schema, alternatives, definitions, depth)
    type = _choose_type(schema)
    converted: Json = {"type": type}
    converted |= {name: schema[name] for name in COPIED_KEYS if _is_copyable(schema.get(name))}
    if schema.get("format") in FORMATS_BY_TYPE.get(type, ()):
        converted["format"] = schema["format"]
    if "null" in _list_types(schema):
        converted["nullable"] = True
    converted |= _to_enum(schema)
    if converted["type"] in NUMBER_TYPES:
        converted |= _to_bounds(schema)
    if converted["type"] == "object":
        converted |= _to_object(schema, definitions, depth)
    if converted["type"] == "array":
        # OpenCode puts an empty schema here. Gemini refuses that in a nested list, because it requires a type.
        items = schema.get("items")
        converted["items"] = to_schema(items, definitions, depth + 1) if items else {"type": "string"}
    return converted


def _list_definitions(schema: Mapping[str, Any]) -> Json:
    return {
        f"#/{keyword}/{name}": definition
        for keyword in ("$defs", "definitions")
        if isinstance(schema.get(keyword), Mapping)
        for name, definition in schema[keyword].items()
    }


def _flatten(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Json:
    """Merge the schema with everything it refers to and with all of `allOf`."""
    flat: Json = {}
    seen: set[str] = set()
    queue: list[Any] = [schema]
    while queue:
        current = queue.pop(0)
        if not isinstance(current, Mapping):
            continue
        for name, value in current.items():
            if name == "properties" and isinstance(value, Mapping):
                known = flat.get(name)
                flat[name] = {**value, **(known if isinstance(known, Mapping) else {})}
            elif name == "required" and isinstance(value, list):
                known = flat.get(name)
                flat[name] = [*(known if isinstance(known, list) else []), *value]
            else:
                flat.setdefault(name, value)
        reference = current.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            queue.append(definitions.get(reference))
        queue.extend(current["allOf"] if isinstance(current.get("allOf"), list) else ())
    return flat


def _find_alternatives(schema: Json) -> list[Json] | None:
    """Return the alternative schemas, or None if there is only one."""
    for name in ("anyOf", "oneOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return [dict(each) for each in schema[name] if isinstance(each, Mapping)]
    types = [type for type in _list_types(schema) if type != "null"]
    if len(types) > 1:
        rest = {name: value for name, value in schema.items() if name not in {"type", "description"}}
        nullable = [{"type": "null"}] if "null" in _list_types(schema) else []
        return [*({**rest, "type": type} for type in types), *nullable]
    return None


def _to_any_of(schema: Json, alternatives: list[Json], definitions: Mapping[str, Any], depth: int) -> Json:
    # Gemini accepts no other key next to `anyOf`, so the description is repeated in each alternative.
    types = [alternative for alternative in alternatives if alternative.get("type") != "null"]
    description = {"description": schema["description"]} if _is_copyable(schema.get("description")) else {}
    rest = {name: value for name, value in schema.items() if name not in {"anyOf", "oneOf", "$ref", "allOf"}}
    if len(types) <= 1:
        merged = to_schema({**rest, **(types[0] if types else {}), **description}, definitions, depth + 1)
    else:
        converted = [
            to_schema({**description, **alternative}, definitions, depth + 1) for alternative in types
        ]
        merged = {"anyOf": converted}
    if len(types) != len(alternatives):
        for alternative in merged.get("anyOf", [merged]):
            alternative["nullable"] = True
    return merged


def _list_types(schema: Mapping[str, Any]) -> list[str]:
    type = schema.get("type")
    if isinstance(type, list):
        return [each for each in type if isinstance(each, str)]
    return [type] if isinstance(type, str) else []


def _choose_type(schema: Json) -> str:
    for type in _list_types(schema):
        if type in {"string", "number", "integer", "boolean", "array", "object"}:
            return type
    if "properties" in schema:
        return "object"
    if "items" in schema:
        return "array"
    return "string"


def _to_bounds(schema: Json) -> Json:
    bounds: Json = {}
    for name, exclusive_name, step in BOUNDS:
        if _is_number(schema.get(name)):
            bounds[name] = schema[name]
        elif _is_number(exclusive := schema.get(exclusive_name)):
            bounds[name] = (
                exclusive + step
                if isinstance(exclusive, int) and _choose_type(schema) == "integer"
                else exclusive
            )
    return bounds


def _to_enum(schema: Json) -> Json:
    """Convert an enum. Gemini accepts strings only: numbers become strings and so does their type, as in OpenCode."""
    values = schema["enum"] if isinstance(schema.get("enum"), list) else []
    if "const" in schema:
        values = [schema["const"]]
    strings = [
        _to_string(value) for value in values if value is not None and not isinstance(value, (dict, list))
    ]
    strings = list(dict.fromkeys(string for string in strings if string))
    if not strings:
        return {}
    return {"type": "string", "enum": strings} | ({"nullable": True} if None in values else {})


def _to_string(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _to_object(schema: Json, definitions: Mapping[str, Any], depth: int) -> Json:
    declared = schema.get("properties")
    properties = {
        name: to_schema(property, definitions, depth + 1)
        for name, property in (declared.items() if isinstance(declared, Mapping) else ())
    }
    if not properties:
        return {}
    names = schema["required"] if isinstance(schema.get("required"), list) else []
    required = list(dict.fromkeys(name for name in names if isinstance(name, str) and name in properties))
    return {"properties": properties} | ({"required": required} if required else {})


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_copyable(value: object) -> bool:
    """Return True for a non-empty string, a number or a boolean."""
    return isinstance(value, (str, int, float)) and value != ""


METADATA_KEY: Final = "google"
# Google's placeholder for a call without a signature: one that another model made, or that was cut off.
SKIP_SIGNATURE: Final = "skip_thought_signature_validator"
ACCEPTED_TYPES: Final = re.compile(r"image/(png|jpeg|webp|heic|heif)|application/pdf|audio/.+|video/.+")
TYPES_IN_RESPONSES: Final = ("image/png", "image/jpeg", "image/webp", "application/pdf")
MEDIA_LIMITS: Final = MediaLimits(max_file_chars=20 * MB, max_total_chars=90 * MB, max_files=900)
GENERATION_OPTIONS: Final = (
    "stopSequences",
    "seed",
    "presencePenalty",
    "frequencyPenalty",
    "responseModalities",
    "mediaResolution",
    "imageConfig",
)
CALLING_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def to_body(request: ModelRequest) -> Json:
    """Build the body. The conversation comes last, so that each request begins with the bytes of the one before it."""
    body: Json = {}
    if system := [{"text": text} for text in request.system if text]:
        body["systemInstruction"] = {"parts": system}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_to_tool(*item) for item in map_tools(request).items()]}]
        forced = {"allowedFunctionNames": [to_wire_name(request.forced)]} if request.forced else {}
        body["toolConfig"] = {"functionCallingConfig": {"mode": CALLING_MODES[request.tool_choice], **forced}}
    if generation := _to_generation(request):
        body["generationConfig"] = generation
    body |= {
        name: request.parameters.options[name]
        for name in ("safetySettings", "cachedContent", "labels")
        if request.parameters.options.get(name) is not None
    }
    body["contents"] = to_contents(request)
    return body


def to_wire_name(tool: str) -> str:
    """Return a tool name that Gemini accepts: it begins with a letter or an underscore."""
    name = to_tool_name(tool)
    return name if name[0].isalpha() or name[0] == "_" else f"_{name}"[:MAX_NAME_LENGTH]


def map_tools(request: ModelRequest) -> dict[str, ToolSpec]:
    """Return the tools by their names on the wire."""
    return {to_wire_name(tool.name): tool for tool in request.tools}


def _to_tool(name: str, tool: ToolSpec) -> Json:
    declaration: Json = {"name": name, "description": tool.about}
    parameters = to_parameters(tool.schema)
    return declaration | ({"parameters": parameters} if parameters else {})


def _to_generation(request: ModelRequest) -> Json:
    parameters = request.parameters
    fields = {
        "temperature": parameters.temperature,
        "topP": parameters.top_p,
        "topK": parameters.top_k,
        "maxOutputTokens": parameters.max_output,
        "thinkingConfig": _to_thinking(request),
        "responseMimeType": "application/json" if request.format is not None else None,
        "responseJsonSchema": request.format.schema if request.format is not None else None,
    } | {name: parameters.options.get(name) for name in GENERATION_OPTIONS}
    return {name: value for name, value in fields.items() if value is not None}


def _to_thinking(request: ModelRequest) -> Json | None:
    config = request.parameters.options.get("thinkingConfig")
    if not isinstance(config, dict):
        return None
    # OpenCode requests thoughts from every Google model. A model without thinking refuses the request.
    if not request.model.capabilities.reasoning and config.keys() <= {"includeThoughts"}:
        return None
    has_both = "thinkingLevel" in config and "thinkingBudget" in config
    return {
        name: value for name, value in config.items() if not (has_both and name == "thinkingBudget")
    } or None


# --- the conversation ---


def to_contents(request: ModelRequest) -> list[Json]:
    """Return the conversation. Roles alternate, the user is first and last, and each call has a response next to it."""
    gemini_3 = is_gemini_3(request.model.api.id)
    paired = adapt_files(pair_calls(request.messages), request.model, _accepts_file, MEDIA_LIMITS)
    messages = [message for message in paired if not _is_empty_message(message)]
    contents: list[Json] = []
    ids: dict[str, Json] = {}
    for message in ensure_user_messages(messages):
        match message:
            case UserModelMessage():
                _append_content(
                    contents, "user", [_to_part(part) for part in message.content if not _is_empty_text(part)]
                )
            case AssistantModelMessage():
                ids = {
                    part.call_id: _to_id(part) for part in message.content if isinstance(part, CallContent)
                }
                _append_content(contents, "model", _to_answer_parts(message))
            case ToolModelMessage():
                _append_content(contents, "user", _to_responses(message, ids, gemini_3=gemini_3))
    if gemini_3:
        _add_signatures(contents)
    return contents


def _is_empty_message(message: ModelMessage) -> bool:
    match message:
        case UserModelMessage():
            return all(_is_empty_text(part) for part in message.content)
        case AssistantModelMessage():
            return not _to_answer_parts(message)
        case ToolModelMessage():
            return False


def is_gemini_3(id: str) -> bool:
    """Return True for Gemini 3 and later, which require signatures and accept files inside a response."""
    return "gemini" in id and re.search(r"gemini-[12]\b", id) is None


def _append_content(contents: list[Json], role: str, parts: list[Json]) -> None:
    """Append content. Two answers in a row become one, because a call must follow the user's turn."""
    if role == "model" and contents and contents[-1]["role"] == "model":
        contents[-1]["parts"].extend(parts)
    else:
        contents.append({"role": role, "parts": parts})


def _add_signatures(contents: list[Json]) -> None:
    """Add a placeholder to the first call of each answer if it has no signature. It is always the same, so that requests
    keep a common prefix.
    """
    for content in contents:
        call = next((part for part in content["parts"] if "functionCall" in part), None)
        if call is not None:
            call.setdefault("thoughtSignature", SKIP_SIGNATURE)


def _to_answer_parts(message: AssistantModelMessage) -> list[Json]:
    return [part for item in message.content for part in _to_parts(item)]


def _to_parts(part: TextContent | ReasoningContent | CallContent) -> list[Json]:
    signature = get_own_metadata(part.metadata, METADATA_KEY).get("thoughtSignature")
    signed: Json = {"thoughtSignature": signature} if _is_signature(signature) else {}
    match part:
        case TextContent(text=text):
            return [{"text": text, **signed}] if text else []
        case ReasoningContent(text=text):
            # Without a signature the model cannot use the thought: another model may have written it.
            return [{"text": text, "thought": True, **signed}] if text and signed else []
        case CallContent():
            call: Json = {"name": to_wire_name(part.tool), "args": part.input}
            return [{"functionCall": _to_id(part) | call, **signed}]


def _to_id(call: CallContent) -> Json:
    """Return the call's id if Gemini assigned it: some servers know no ids."""
    id = get_own_metadata(call.metadata, METADATA_KEY).get("callId")
    return {"id": id} if isinstance(id, str) and id else {}


def _is_signature(value: object) -> bool:
    if not isinstance(value, str) or not value:
        return False
    try:
        return bool(base64.b64decode(value.replace("-", "+").replace("_", "/"), validate=True))
    except (binascii.Error, ValueError):
        return False


def _to_responses(message: ToolModelMessage, ids: dict[str, Json], *, gemini_3: bool) -> list[Json]:
    """Return the responses, followed by the files that cannot be inside one."""
    responses: list[Json] = []
    other_parts: list[Json] = []
    for result in message.content:
        response: Json = {
            "name": to_wire_name(result.tool),
            "response": {"error" if result.error else "output": result.output},
        }
        parts = [_to_part(file) for file in result.files]
        inner = [part for part in parts if gemini_3 and _fits_in_response(part)]
        if inner:
            response["parts"] = inner
        responses.append({"functionResponse": ids.get(result.call_id, {}) | response})
        outer = [part for part in parts if part not in inner]
        if outer:
            other_parts += [{"text": f"Files from the call of {result.tool}:"}, *outer]
    return responses + other_parts


def _fits_in_response(part: Json) -> bool:
    return "inlineData" in part and part["inlineData"]["mimeType"] in TYPES_IN_RESPONSES


# --- files ---


def _is_empty_text(part: TextContent | MediaContent) -> bool:
    return isinstance(part, TextContent) and not part.text


def _accepts_file(file: MediaContent) -> bool:
    """Accept what Gemini reads, inline or at a URL that it can fetch."""
    data = parse_data_url(file.url)
    if data is None:
        return file.url.startswith(("https://", "gs://")) and ACCEPTED_TYPES.fullmatch(file.mime) is not None
    return ACCEPTED_TYPES.fullmatch(data.mime) is not None


def _to_part(part: TextContent | MediaContent) -> Json:
    if isinstance(part, TextContent):
        return {"text": part.text}
    data = parse_data_url(part.url)
    if data is None:
        return {"fileData": {"mimeType": part.mime, "fileUri": part.url}}
    return {"inlineData": {"mimeType": data.mime, "data": data.base64}}
