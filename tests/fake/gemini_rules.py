"""What Google's `generateContent` refuses, according to its public reference."""

import base64
import binascii
import re
from typing import Any, Final

Json = dict[str, Any]

KNOWN: Final = frozenset(
    [
        "contents",
        "tools",
        "toolConfig",
        "safetySettings",
        "systemInstruction",
        "generationConfig",
        "cachedContent",
        "labels",
    ]
)
GENERATION: Final = frozenset(
    [
        "temperature",
        "topP",
        "topK",
        "maxOutputTokens",
        "thinkingConfig",
        "stopSequences",
        "seed",
        "responseModalities",
        "mediaResolution",
        "imageConfig",
        "presencePenalty",
        "frequencyPenalty",
        "candidateCount",
        "responseMimeType",
        "responseSchema",
        "responseJsonSchema",
    ]
)
SCHEMA: Final = frozenset(
    [
        "type",
        "format",
        "title",
        "description",
        "nullable",
        "enum",
        "maxItems",
        "minItems",
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "minLength",
        "maxLength",
        "pattern",
        "example",
        "anyOf",
        "propertyOrdering",
        "default",
        "items",
        "minimum",
        "maximum",
    ]
)
TYPES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object"})
FORMATS: Final = {
    "string": {"enum", "date-time"},
    "number": {"float", "double"},
    "integer": {"int32", "int64"},
}
MEDIA: Final = re.compile(r"image/(png|jpeg|webp|heic|heif)|application/pdf|audio/.+|video/.+|text/.+")
INSIDE: Final = re.compile(r"image/(png|jpeg|webp)|application/pdf|text/plain")
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
DATA: Final = frozenset({"text", "inlineData", "fileData", "functionCall", "functionResponse"})
SKIP: Final = "skip_thought_signature_validator"


class RefusedError(Exception):
    """The message that the API would send with status 400."""

    def body(self) -> Json:
        return {"error": {"code": 400, "message": str(self), "status": "INVALID_ARGUMENT"}}


def requires_signatures(model: str) -> bool:
    """Return True for Gemini 3 and later, which require signatures."""
    return re.search(r"gemini-(?:[3-9]|\D)", model) is not None


def check_request(model: str, body: Json) -> None:
    """Raise `RefusedError` where the API would refuse the body."""
    _allow_only(body, KNOWN, "")
    _check_generation(model, body.get("generationConfig", {}))
    _require(
        "tools" not in body or body.get("generationConfig", {}).get("responseMimeType") != "application/json",
        "Function calling with a response mime type: 'application/json' is unsupported",
    )
    for words in body.get("systemInstruction", {}).get("parts", []):
        _require(words.get("text"), "systemInstruction.parts: text must not be empty")
    for tool in body.get("tools", []):
        _allow_only(tool, {"functionDeclarations"}, "tools")
        _check_declarations(tool["functionDeclarations"])
    contents = body.get("contents")
    _require(
        isinstance(contents, list) and contents,
        "* GenerateContentRequest.contents: contents is not specified",
    )
    for index, content in enumerate(contents or ()):
        _check_content(content, f"contents[{index}]", newer=requires_signatures(model))
    _check_turns(contents or [])
    if requires_signatures(model):
        _check_signatures(contents or [])


def _require(holds: object, message: str) -> None:
    if not holds:
        raise RefusedError(message)


def _allow_only(value: Json, names: frozenset[str] | set[str], where: str) -> None:
    for name in value:
        _require(
            name in names,
            f"Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field.",
        )


def _check_generation(model: str, config: Json) -> None:
    _allow_only(config, GENERATION, "generation_config")
    thinking = config.get("thinkingConfig", {})
    _allow_only(
        thinking, {"includeThoughts", "thinkingBudget", "thinkingLevel"}, "generation_config.thinking_config"
    )
    both = "thinkingLevel" in thinking and "thinkingBudget" in thinking
    _require(not both, "You can only set only one of thinking budget and thinking level.")
    thinks = re.search(r"gemini-(1|2\.0)", model) is None
    _require(thinks or not thinking, "Thinking is not enabled for this model.")
    _require(config.get("maxOutputTokens", 1) > 0, "max_output_tokens must be positive.")


# --- tools ---


def _check_declarations(declared: list[Json]) -> None:
    names: set[str] = set()
    for index, each in enumerate(declared):
        where = f"tools[0].function_declarations[{index}]"
        _allow_only(each, {"name", "description", "parameters"}, where)
        name = each.get("name", "")
        _require(NAME.fullmatch(name), f"{where}.name: Invalid function name. {name!r}")
        _require(name not in names, f"Duplicate function declaration found: {name}")
        names.add(name)
        if "parameters" in each:
            _require(
                each["parameters"].get("type") == "object",
                f"{where}.parameters: schema should be of type OBJECT.",
            )
            _check_schema(each["parameters"], f"{where}.parameters")


def _check_schema(schema: Json, where: str) -> None:
    _allow_only(schema, SCHEMA, where)
    if "anyOf" in schema:
        _require(set(schema) == {"anyOf"}, f"{where}: when using any_of, it must be the only field set.")
        for each in schema["anyOf"]:
            _check_schema(each, f"{where}.any_of")
        return
    type = schema.get("type")
    _require(type in TYPES, f"{where}.type: missing field.")
    _require(
        "format" not in schema or schema["format"] in FORMATS.get(str(type), ()),
        f"{where}.format: not supported.",
    )
    if "enum" in schema:
        _require(type == "string", f"{where}.enum: only allowed for STRING type")
        _require(
            all(isinstance(word, str) and word for word in schema["enum"]), f"{where}.enum: cannot be empty"
        )
    if type == "array":
        _require(isinstance(schema.get("items"), dict), f"{where}.items: missing field.")
        _check_schema(schema["items"], f"{where}.items")
    properties = schema.get("properties", {})
    _require(
        "properties" not in schema or type == "object", f"{where}.properties: only allowed for OBJECT type"
    )
    _require(
        "properties" not in schema or properties, f"{where}.properties: should be non-empty for OBJECT type"
    )
    for name in schema.get("required", []):
        _require(name in properties, f"{where}.required[0]: property is not defined")
    for name, each in properties.items():
        _check_schema(each, f"{where}.properties[{name}]")


# --- the conversation ---


def _check_content(content: Json, where: str, *, newer: bool) -> None:
    _allow_only(content, {"role", "parts"}, where)
    _require(content.get("role") in ("user", "model"), "Please use a valid role: user, model.")
    _require(
        content.get("parts"), f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty."
    )
    for index, part in enumerate(content["parts"]):
        _check_part(part, f"{where}.parts[{index}]", role=content["role"], newer=newer)


def _check_part(part: Json, where: str, *, role: str, newer: bool) -> None:
    _allow_only(part, DATA | {"thought", "thoughtSignature"}, where)
    _require(
        len(DATA & set(part)) == 1,
        f"* {where}.data: required oneof field 'data' must have one initialized field",
    )
    _require(
        part.get("text", "x") != "", f"Unable to submit request because {where} has an empty text parameter."
    )
    if "thoughtSignature" in part:
        _require(role == "model", f"{where}.thought_signature: only the model's parts are signed")
        _require(
            _is_base64(part["thoughtSignature"]), f"Invalid value at '{where}.thought_signature' (TYPE_BYTES)"
        )
    if "thought" in part:
        _require(role == "model" and part["thought"] is True, f"{where}.thought: only the model thinks")
    if "functionCall" in part:
        _require(role == "model", f"{where}: a function call with role user")
        _allow_only(part["functionCall"], {"id", "name", "args"}, where)
        _require(
            NAME.fullmatch(part["functionCall"].get("name", "")),
            f"{where}.function_call.name: Name cannot be empty.",
        )
        _require(
            isinstance(part["functionCall"].get("args", {}), dict),
            f"{where}.function_call.args: not a Struct",
        )
    if "functionResponse" in part:
        _require(role == "user", f"{where}: a function response with role model")
        _check_response(part["functionResponse"], where, newer=newer)
    if "inlineData" in part:
        _check_inline(part["inlineData"], MEDIA, where)
    if "fileData" in part:
        _require(
            part["fileData"].get("fileUri", "").startswith(("https://", "gs://")),
            f"{where}: Unsupported file uri",
        )


def _check_response(response: Json, where: str, *, newer: bool) -> None:
    _allow_only(response, {"id", "name", "response", "parts"}, where)
    _require(response.get("name"), f"{where}.function_response.name: Name cannot be empty.")
    _require(isinstance(response.get("response"), dict), f"{where}.function_response.response: not a Struct")
    _require(
        newer or "parts" not in response, "Multimodal function responses are not supported by this model."
    )
    for part in response.get("parts", []):
        _allow_only(part, {"inlineData"}, f"{where}.function_response.parts")
        _check_inline(part["inlineData"], INSIDE, where)


def _check_inline(data: Json, allowed: re.Pattern[str], where: str) -> None:
    _allow_only(data, {"mimeType", "data", "displayName"}, where)
    _require(allowed.fullmatch(data.get("mimeType", "")), f"Unsupported MIME type: {data.get('mimeType')}")
    _require(_is_base64(data.get("data")), f"Invalid value at '{where}.inline_data.data' (TYPE_BYTES)")


def _is_base64(data: object) -> bool:
    if not isinstance(data, str) or not data:
        return False
    try:
        base64.b64decode(data.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _list_parts(content: Json, kind: str) -> list[Json]:
    return [part[kind] for part in content["parts"] if kind in part]


def _check_turns(contents: list[Json]) -> None:
    _require(contents[0]["role"] == "user", "Please ensure that multiturn requests begin with a user turn.")
    _require(contents[-1]["role"] == "user", "Please ensure that the request ends with a user turn.")
    before: Json = {"role": "", "parts": []}
    for content in contents:
        calls, responses = _list_parts(before, "functionCall"), _list_parts(content, "functionResponse")
        alternates = not (before["role"] == content["role"] == "model")
        _require(
            alternates,
            "Please ensure that function call turn comes immediately after a user turn or after a function response "
            "turn.",
        )
        _require(
            not responses or calls,
            "Please ensure that function response turn comes immediately after a function call turn.",
        )
        _require(
            len(calls) == len(responses),
            "Please ensure that the number of function response parts is equal to the number of function call parts "
            "of the function call turn.",
        )
        for call, response in zip(calls, responses, strict=True):
            same = (call["name"], call.get("id")) == (response["name"], response.get("id"))
            _require(
                same, f"Function response {response['name']!r} does not match function call {call['name']!r}."
            )
        before = content


def _check_signatures(contents: list[Json]) -> None:
    """Require a signature on the first call of every step since the user's last message."""
    spoken = [
        index
        for index, content in enumerate(contents)
        if "text" in content["parts"][0] and content["role"] == "user"
    ]
    for index in range(spoken[-1] if spoken else 0, len(contents)):
        first = next((part for part in contents[index]["parts"] if "functionCall" in part), None)
        if first is not None:
            _require(
                first.get("thoughtSignature"),
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                f"work correctly. Additional data, function call `{first['functionCall']['name']}`, position {index}.",
            )
