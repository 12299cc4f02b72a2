"""Build a request for Google's `generateContent`, with tool schemas in the OpenAPI subset it reads (pure)."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final

from weft.provider.contract import (
    AssistantTurn,
    CallContent,
    FileContent,
    ModelMessage,
    ModelRequest,
    ReasoningContent,
    TextContent,
    ToolSpec,
    ToolTurn,
    UserTurn,
)
from weft.provider.media import MB, MediaLimits, show_files, to_data
from weft.provider.normalise import (
    LONGEST_NAME,
    ends_with_question,
    own_metadata,
    pair_calls,
    tool_name,
)

Json = dict[str, Any]

DEEPEST: Final = 12
FREE: Final = {"type": "object"}
# Taken over as they are. What is not here makes Gemini refuse the whole request.
PLAIN: Final = (
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
# Each bound with the one beyond which it begins, which Gemini has no word for, and the step from there for whole numbers.
BOUNDS: Final = (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1))
FORMATS: Final = {
    "string": ("enum", "date-time"),
    "integer": ("int32", "int64"),
    "number": ("float", "double"),
}
NUMBERS: Final = ("integer", "number")


def to_parameters(schema: Mapping[str, Any]) -> Json | None:
    """The schema of a tool's input; None for a tool that takes nothing, as Gemini wants it said."""
    made = to_schema(schema)
    return made if made.get("properties") else None


def to_schema(schema: object, defs: Mapping[str, Any] | None = None, depth: int = 0) -> Json:
    """Types and bounds that Gemini knows are kept, references are written out, everything else is left away."""
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return dict(FREE)
    defs = _definitions(schema) or defs or {}
    schema = _flat(schema, defs)
    several = _alternatives(schema)
    if several is not None:
        return _any_of(schema, several, defs, depth)
    type = _type(schema)
    made: Json = {"type": type}
    made |= {name: schema[name] for name in PLAIN if _fits(schema.get(name))}
    if schema.get("format") in FORMATS.get(type, ()):
        made["format"] = schema["format"]
    if "null" in _types(schema):
        made["nullable"] = True
    made |= _enum(schema)
    if made["type"] in NUMBERS:
        made |= _bounds(schema)
    if made["type"] == "object":
        made |= _object(schema, defs, depth)
    if made["type"] == "array":
        # OpenCode puts an empty schema here, which Gemini refuses in a nested list: it wants a type.
        items = schema.get("items")
        made["items"] = to_schema(items, defs, depth + 1) if items else {"type": "string"}
    return made


def _definitions(schema: Mapping[str, Any]) -> Json:
    return {
        f"#/{place}/{name}": each
        for place in ("$defs", "definitions")
        if isinstance(schema.get(place), Mapping)
        for name, each in schema[place].items()
    }


def _flat(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Json:
    """The schema with what it refers to, and all of `allOf`, in its own words."""
    flat: Json = {}
    seen: set[str] = set()
    waiting: list[Any] = [schema]
    while waiting:
        each = waiting.pop(0)
        if not isinstance(each, Mapping):
            continue
        for name, value in each.items():
            if name == "properties" and isinstance(value, Mapping):
                flat[name] = {**value, **flat.get(name, {})}
            elif name == "required" and isinstance(value, list):
                flat[name] = [*flat.get(name, []), *value]
            else:
                flat.setdefault(name, value)
        reference = each.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            waiting.append(defs.get(reference))
        waiting.extend(each["allOf"] if isinstance(each.get("allOf"), list) else ())
    return flat


def _alternatives(schema: Json) -> list[Json] | None:
    """The schemas of which one is to hold, when there are several."""
    for name in ("anyOf", "oneOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return [dict(each) for each in schema[name] if isinstance(each, Mapping)]
    types = [type for type in _types(schema) if type != "null"]
    if len(types) > 1:
        rest = {name: value for name, value in schema.items() if name not in {"type", "description"}}
        nullable = [{"type": "null"}] if "null" in _types(schema) else []
        return [*({**rest, "type": type} for type in types), *nullable]
    return None


def _any_of(schema: Json, several: list[Json], defs: Mapping[str, Any], depth: int) -> Json:
    # Beside `anyOf` Gemini takes nothing else: what is said of all is said of each.
    real = [each for each in several if each.get("type") != "null"]
    said = {"description": schema["description"]} if _fits(schema.get("description")) else {}
    rest = {name: value for name, value in schema.items() if name not in {"anyOf", "oneOf", "$ref", "allOf"}}
    if len(real) <= 1:
        only = to_schema({**rest, **(real[0] if real else {}), **said}, defs, depth + 1)
    else:
        made = [to_schema({**said, **each}, defs, depth + 1) for each in real]
        only = {"anyOf": made}
    if len(real) != len(several):
        for each in only.get("anyOf", [only]):
            each["nullable"] = True
    return only


def _types(schema: Mapping[str, Any]) -> list[str]:
    type = schema.get("type")
    if isinstance(type, list):
        return [each for each in type if isinstance(each, str)]
    return [type] if isinstance(type, str) else []


def _type(schema: Json) -> str:
    for type in _types(schema):
        if type in {"string", "number", "integer", "boolean", "array", "object"}:
            return type
    if "properties" in schema:
        return "object"
    if "items" in schema:
        return "array"
    return "string"


def _bounds(schema: Json) -> Json:
    made: Json = {}
    for name, beyond, step in BOUNDS:
        if _is_number(schema.get(name)):
            made[name] = schema[name]
        elif _is_number(edge := schema.get(beyond)):
            made[name] = edge + step if isinstance(edge, int) and _type(schema) == "integer" else edge
    return made


def _enum(schema: Json) -> Json:
    """Gemini knows words to choose from only: numbers become strings, and so does their type (as in OpenCode)."""
    values = schema["enum"] if isinstance(schema.get("enum"), list) else []
    if "const" in schema:
        values = [schema["const"]]
    words = [_word(value) for value in values if value is not None and not isinstance(value, (dict, list))]
    words = list(dict.fromkeys(word for word in words if word))
    if not words:
        return {}
    return {"type": "string", "enum": words} | ({"nullable": True} if None in values else {})


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _object(schema: Json, defs: Mapping[str, Any], depth: int) -> Json:
    given = schema.get("properties")
    properties = {
        name: to_schema(each, defs, depth + 1)
        for name, each in (given.items() if isinstance(given, Mapping) else ())
    }
    if not properties:
        return {}
    wanted = schema["required"] if isinstance(schema.get("required"), list) else []
    required = list(dict.fromkeys(name for name in wanted if isinstance(name, str) and name in properties))
    return {"properties": properties} | ({"required": required} if required else {})


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _fits(value: object) -> bool:
    """What may be copied: a word, a number, a yes or no."""
    return isinstance(value, (str, int, float)) and value != ""


KEY: Final = "google"
# Google's own word for a call whose signature is not at hand: made by another model, or cut off before it came.
UNSIGNED: Final = "skip_thought_signature_validator"
SHOWN: Final = re.compile(r"image/(png|jpeg|webp|heic|heif)|application/pdf|audio/.+|video/.+")
INSIDE: Final = ("image/png", "image/jpeg", "image/webp", "application/pdf")
LIMITS: Final = MediaLimits(each=20 * MB, total=90 * MB, count=900)
GENERATION_OPTIONS: Final = (
    "stopSequences",
    "seed",
    "presencePenalty",
    "frequencyPenalty",
    "responseModalities",
    "mediaResolution",
    "imageConfig",
)
CHOICES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def to_body(request: ModelRequest) -> Json:
    """The conversation comes last: as it grows, what was sent before stays a prefix of what is sent next."""
    body: Json = {}
    if system := [{"text": words} for words in request.system if words]:
        body["systemInstruction"] = {"parts": system}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_tool(*each) for each in named_tools(request).items()]}]
        forced = {"allowedFunctionNames": [wire_name(request.forced)]} if request.forced else {}
        body["toolConfig"] = {"functionCallingConfig": {"mode": CHOICES[request.tool_choice], **forced}}
    if generation := _generation(request):
        body["generationConfig"] = generation
    body |= {
        name: request.parameters.options[name]
        for name in ("safetySettings", "cachedContent", "labels")
        if request.parameters.options.get(name) is not None
    }
    body["contents"] = to_contents(request)
    return body


def wire_name(tool: str) -> str:
    """A tool's name as Gemini takes it: it begins with a letter or an underscore."""
    name = tool_name(tool)
    return name if name[0].isalpha() or name[0] == "_" else f"_{name}"[:LONGEST_NAME]


def named_tools(request: ModelRequest) -> dict[str, ToolSpec]:
    """The tools by the names they go by on the wire."""
    return {wire_name(tool.name): tool for tool in request.tools}


def _tool(name: str, tool: ToolSpec) -> Json:
    declared: Json = {"name": name, "description": tool.about}
    parameters = to_parameters(tool.schema)
    return declared | ({"parameters": parameters} if parameters else {})


def _generation(request: ModelRequest) -> Json:
    asked = request.parameters
    wanted = {
        "temperature": asked.temperature,
        "topP": asked.top_p,
        "topK": asked.top_k,
        "maxOutputTokens": asked.max_output,
        "thinkingConfig": _thinking(request),
        "responseMimeType": "application/json" if request.format is not None else None,
        "responseJsonSchema": request.format.schema if request.format is not None else None,
    } | {name: asked.options.get(name) for name in GENERATION_OPTIONS}
    return {name: value for name, value in wanted.items() if value is not None}


def _thinking(request: ModelRequest) -> Json | None:
    config = request.parameters.options.get("thinkingConfig")
    if not isinstance(config, dict):
        return None
    # OpenCode asks every Google model for its thoughts, and one that has none refuses the request.
    if not request.model.capabilities.reasoning and config.keys() <= {"includeThoughts"}:
        return None
    both = "thinkingLevel" in config and "thinkingBudget" in config
    return {name: value for name, value in config.items() if not (both and name == "thinkingBudget")} or None


# --- the conversation ---


def to_contents(request: ModelRequest) -> list[Json]:
    """By turns, the user first and last; calls and their responses side by side, equal in number."""
    newer = is_newer(request.model.api.id)
    paired = show_files(pair_calls(request.messages), request.model, _shows, LIMITS)
    said = [turn for turn in paired if not _is_silent(turn)]
    contents: list[Json] = []
    ids: dict[str, Json] = {}
    for turn in ends_with_question(said):
        match turn:
            case UserTurn():
                _append(contents, "user", [_shown(part) for part in turn.content if not _is_empty(part)])
            case AssistantTurn():
                ids = {part.call_id: _id(part) for part in turn.content if isinstance(part, CallContent)}
                _append(contents, "model", _answer(turn))
            case ToolTurn():
                _append(contents, "user", _responses(turn, ids, newer=newer))
    if newer:
        _sign(contents)
    return contents


def _is_silent(turn: ModelMessage) -> bool:
    match turn:
        case UserTurn():
            return all(_is_empty(part) for part in turn.content)
        case AssistantTurn():
            return not _answer(turn)
        case ToolTurn():
            return False


def is_newer(id: str) -> bool:
    """Gemini 3 and later: it insists on signatures and takes files inside a response."""
    return "gemini" in id and re.search(r"gemini-[12]\b", id) is None


def _append(contents: list[Json], role: str, parts: list[Json]) -> None:
    """A call must follow the user's turn, so two answers in a row are one."""
    if role == "model" and contents and contents[-1]["role"] == "model":
        contents[-1]["parts"].extend(parts)
    else:
        contents.append({"role": role, "parts": parts})


def _sign(contents: list[Json]) -> None:
    """The first call of an answer carries the signature. The same in every turn: what was sent does not change later."""
    for content in contents:
        call = next((part for part in content["parts"] if "functionCall" in part), None)
        if call is not None:
            call.setdefault("thoughtSignature", UNSIGNED)


def _answer(turn: AssistantTurn) -> list[Json]:
    return [part for each in turn.content for part in _answered(each)]


def _answered(part: TextContent | ReasoningContent | CallContent) -> list[Json]:
    signature = own_metadata(part.metadata, KEY).get("thoughtSignature")
    signed: Json = {"thoughtSignature": signature} if _is_base64(signature) else {}
    match part:
        case TextContent(text=text):
            return [{"text": text, **signed}] if text else []
        case ReasoningContent(text=text):
            # What was not signed was thought by somebody else, or is of no use to the model.
            return [{"text": text, "thought": True, **signed}] if text and signed else []
        case CallContent():
            call: Json = {"name": wire_name(part.tool), "args": part.input}
            return [{"functionCall": _id(part) | call, **signed}]


def _id(call: CallContent) -> Json:
    """Only an id that Gemini gave is given back: some of its servers know none."""
    id = own_metadata(call.metadata, KEY).get("callId")
    return {"id": id} if isinstance(id, str) and id else {}


def _is_base64(signature: object) -> bool:
    if not isinstance(signature, str) or not signature:
        return False
    try:
        return bool(base64.b64decode(signature.replace("-", "+").replace("_", "/"), validate=True))
    except (binascii.Error, ValueError):
        return False


def _responses(turn: ToolTurn, ids: dict[str, Json], *, newer: bool) -> list[Json]:
    """The responses, and after them the files that cannot stand inside one."""
    responses: list[Json] = []
    beside: list[Json] = []
    for result in turn.content:
        response: Json = {
            "name": wire_name(result.tool),
            "response": {"error" if result.error else "output": result.output},
        }
        shown = [_shown(file) for file in result.files]
        inside = [part for part in shown if newer and _goes_inside(part)]
        if inside:
            response["parts"] = inside
        responses.append({"functionResponse": ids.get(result.call_id, {}) | response})
        outside = [part for part in shown if part not in inside]
        if outside:
            beside += [{"text": f"What {result.tool} gave:"}, *outside]
    return responses + beside


def _goes_inside(part: Json) -> bool:
    return "inlineData" in part and part["inlineData"]["mimeType"] in INSIDE


# --- files ---


def _is_empty(part: TextContent | FileContent) -> bool:
    return isinstance(part, TextContent) and not part.text


def _shows(file: FileContent) -> bool:
    """What Gemini reads, whole or by an address it can fetch."""
    data = to_data(file.url)
    if data is None:
        return file.url.startswith(("https://", "gs://")) and SHOWN.fullmatch(file.mime) is not None
    return SHOWN.fullmatch(data.mime) is not None and _is_base64(data.base64)


def _shown(part: TextContent | FileContent) -> Json:
    if isinstance(part, TextContent):
        return {"text": part.text}
    data = to_data(part.url)
    if data is None:
        return {"fileData": {"mimeType": part.mime, "fileUri": part.url}}
    return {"inlineData": {"mimeType": data.mime, "data": data.base64}}
