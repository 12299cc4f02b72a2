"""What OpenAI's Responses API refuses, according to its public reference."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from fake.refusing import RefusedError as Unfit
from fake.refusing import need_format, need_keys, require

Json = dict[str, Any]

KNOWN: Final = frozenset(
    [
        "model",
        "input",
        "stream",
        "store",
        "max_output_tokens",
        "temperature",
        "top_p",
        "reasoning",
        "include",
        "text",
        "tools",
        "tool_choice",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "parallel_tool_calls",
        "max_tool_calls",
        "service_tier",
        "safety_identifier",
        "truncation",
        "user",
        "instructions",
    ]
)
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh")
SUMMARIES: Final = ("auto", "concise", "detailed")
PICTURES: Final = ("png", "jpeg", "gif", "webp")
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
ENCRYPTED_INCLUDE: Final = "reasoning.encrypted_content"
LEAST_OUTPUT: Final = 16
LONGEST: Final = 64


class RefusedError(Exception):
    """The message that the API would send with status 400."""

    def __init__(self, message: str, *, param: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code

    def body(self) -> Json:
        kind = "invalid_request_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param or None, "code": self.code}}


def reasons(model: str) -> bool:
    return re.match(r"(o\d|gpt-[5-9]|codex)", model) is not None and "chat" not in model


def check_request(body: Json, *, knows: Callable[[str], bool] = lambda _: True) -> None:
    """Raise `RefusedError` where the API would refuse the body. `knows` recognises encrypted content of the API itself."""
    for name in body:
        _require(name in KNOWN, f"Unknown parameter: '{name}'.", name)
    _require(
        isinstance(body.get("model"), str) and body["model"], "you must provide a model parameter", "model"
    )
    _check_settings(body)
    _check_tools(body.get("tools", []))
    _require(
        isinstance(body.get("input"), list) and body["input"], "Missing required parameter: 'input'.", "input"
    )
    for index, item in enumerate(body["input"]):
        _check_item(item, f"input[{index}]", stored=bool(body.get("store", True)))
    _check_calls(body["input"])
    _check_reasoning(body["input"], knows)


def _require(holds: object, message: str, param: str = "", code: str | None = None) -> None:
    if not holds:
        raise RefusedError(message, param=param, code=code)


def _check_settings(body: Json) -> None:
    model, effort = body["model"], body.get("reasoning", {}).get("effort")
    for name in ("temperature", "top_p"):
        allowed = name not in body or not reasons(model) or effort == "none"
        _require(allowed, f"Unsupported parameter: '{name}' is not supported with this model.", name)
    _require(effort in (None, *EFFORTS), f"Invalid value: '{effort}'.", "reasoning.effort")
    summary = body.get("reasoning", {}).get("summary")
    _require(summary in (None, *SUMMARIES), f"Invalid value: '{summary}'.", "reasoning.summary")
    supported = reasons(model) or ENCRYPTED_INCLUDE not in body.get("include", [])
    _require(supported, "Encrypted content is not supported with this model.", "include")
    least = body.get("max_output_tokens", LEAST_OUTPUT)
    _require(
        isinstance(least, int) and least >= LEAST_OUTPUT,
        f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {LEAST_OUTPUT}.",
        "max_output_tokens",
    )
    verbosity = body.get("text", {}).get("verbosity")
    _require(verbosity in (None, "low", "medium", "high"), f"Invalid value: '{verbosity}'.", "text.verbosity")
    if (wanted := body.get("text", {}).get("format")) is not None:
        try:
            need_keys(wanted, {"type", "name", "schema", "strict"}, "text.format")
            require(wanted.get("type") == "json_schema" and wanted.get("name"), "Missing 'text.format.name'")
            need_format(wanted, "text.format")
        except Unfit as unfit:
            raise RefusedError(str(unfit), param="text.format") from None
    key = body.get("prompt_cache_key", "")
    _require(
        isinstance(key, str) and len(key) <= LONGEST,
        "Invalid 'prompt_cache_key': string too long.",
        "prompt_cache_key",
    )


def _check_tools(tools: list[Json]) -> None:
    names: set[str] = set()
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        _require(tool.get("type") == "function", f"Invalid value: '{tool.get('type')}'.", f"{where}.type")
        _check_name(tool.get("name"), f"{where}.name")
        _require(tool["name"] not in names, f"Duplicate tool name: {tool['name']}", where)
        names.add(tool["name"])
        schema = tool.get("parameters")
        _require(
            isinstance(schema, dict) and schema.get("type") == "object",
            f"Invalid schema for function '{tool['name']}': schema must be a JSON Schema of 'type: \"object\"'.",
            f"{where}.parameters",
            "invalid_function_parameters",
        )


def _check_name(name: object, where: str) -> None:
    fits = isinstance(name, str) and NAME.fullmatch(name) is not None
    _require(
        fits, f"Invalid '{where}': string does not match pattern '^[a-zA-Z0-9_-]+$'.", where, "invalid_value"
    )


# --- items ---


def _check_item(item: Json, where: str, *, stored: bool) -> None:
    if "id" in item and not stored:
        raise RefusedError(
            f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false.",
            param="input",
        )
    match item.get("type", "message"):
        case "message":
            _check_message(item, where)
        case "function_call":
            _check_call(item, where)
        case "function_call_output":
            _check_output(item, where)
        case "reasoning":
            _allow_only(item, {"type", "id", "summary", "encrypted_content", "content", "status"}, where)
            summary = item.get("summary")
            _require(isinstance(summary, list), f"Missing required parameter: '{where}.summary'.", where)
            for part in summary or ():
                _require(part.get("type") == "summary_text", f"Invalid value at '{where}.summary'.", where)
        case other:
            raise RefusedError(f"Invalid value: '{other}'.", param=f"{where}.type")


def _allow_only(item: Json, names: set[str], where: str) -> None:
    for name in item:
        _require(name in names, f"Unknown parameter: '{where}.{name}'.", where)


def _check_message(item: Json, where: str) -> None:
    _allow_only(item, {"type", "id", "role", "content", "status", "phase"}, where)
    role, content = item.get("role"), item.get("content")
    _require(
        role in ("user", "assistant", "system", "developer"), f"Invalid value: '{role}'.", f"{where}.role"
    )
    _require(item.get("phase") in (None, "commentary", "final_answer"), "Invalid value for 'phase'.", where)
    if isinstance(content, str):
        return
    _require(isinstance(content, list) and content, f"Invalid '{where}.content': empty array.", where)
    allowed = (
        ("output_text", "refusal") if role == "assistant" else ("input_text", "input_image", "input_file")
    )
    for part in content or ():
        _require(part.get("type") in allowed, f"Invalid value: '{part.get('type')}'.", f"{where}.content")
        _check_part(part, where)


def _check_part(part: Json, where: str) -> None:
    match part["type"]:
        case "input_text" | "output_text":
            _require(isinstance(part.get("text"), str), f"Missing '{where}.content.text'.", where)
        case "input_image":
            url = part.get("image_url", "")
            media = _media(url)
            fits = url.startswith(("http://", "https://")) or (
                media is not None and media.removeprefix("image/") in PICTURES
            )
            _require(
                fits,
                "The image data you provided does not represent a valid image.",
                where,
                "invalid_base64_image",
            )
        case "input_file":
            given = [name for name in ("file_data", "file_url", "file_id") if name in part]
            _require(len(given) == 1, f"Exactly one of file_data, file_url, file_id: {given}", where)
            if given == ["file_data"]:
                _require(part.get("filename"), f"Missing required parameter: '{where}.filename'.", where)
                _require(_media(part["file_data"]) == "application/pdf", f"Invalid file data: {where}", where)
        case _:
            pass


def _media(url: str) -> str | None:
    """Return the media type of a `data:` URL with valid base64."""
    found = re.fullmatch(r"data:([\w.+/-]+);base64,(.+)", url, re.DOTALL)
    if found is None:
        return None
    try:
        base64.b64decode(found[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    return found[1]


def _check_call(item: Json, where: str) -> None:
    _allow_only(item, {"type", "id", "call_id", "name", "arguments", "status"}, where)
    _check_name(item.get("name"), f"{where}.name")
    _require(isinstance(item.get("arguments"), str), f"Invalid type for '{where}.arguments'.", where)
    _check_call_id(item, where)


def _check_output(item: Json, where: str) -> None:
    _allow_only(item, {"type", "id", "call_id", "output", "status"}, where)
    _check_call_id(item, where)
    output = item.get("output")
    if isinstance(output, list):
        _require(output, f"Invalid '{where}.output': empty array.", where)
        for part in output:
            _require(part.get("type") in ("input_text", "input_image", "input_file"), "Invalid value.", where)
            _check_part(part, where)
    else:
        _require(isinstance(output, str), f"Missing required parameter: '{where}.output'.", where)


def _check_call_id(item: Json, where: str) -> None:
    id = item.get("call_id")
    fits = isinstance(id, str) and 0 < len(id) <= LONGEST
    _require(fits, f"Invalid '{where}.call_id': empty string, or longer than {LONGEST}.", where)


# --- calls and their outputs ---


def _check_calls(items: Iterable[Json]) -> None:
    """Require one output for every call, before the model or the user says more, and no output without a call."""
    waiting: list[str] = []
    seen: set[str] = set()
    for item in items:
        match item.get("type", "message"):
            case "function_call":
                _require(item["call_id"] not in seen, f"Duplicate call_id {item['call_id']}.", "input")
                seen.add(item["call_id"])
                waiting.append(item["call_id"])
            case "function_call_output":
                id = item["call_id"]
                _require(
                    id in waiting, f"No tool call found for function call output with call_id {id}.", "input"
                )
                waiting.remove(id)
            case "message" if item["role"] != "assistant":
                _require(not waiting, f"No tool output found for function call {waiting[:1]}.", "input")
            case _:
                pass
    _require(not waiting, f"No tool output found for function call {waiting[:1]}.", "input")


def _check_reasoning(items: list[Json], knows: Callable[[str], bool]) -> None:
    for index, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        content = item.get("encrypted_content")
        verified = isinstance(content, str) and content and knows(content)
        _require(
            verified,
            "The encrypted content for item could not be verified.",
            f"input[{index}]",
            "invalid_encrypted_content",
        )
        rest = [each for each in items[index + 1 :] if each.get("type") != "reasoning"][:1]
        followed = rest and (rest[0].get("type") == "function_call" or rest[0].get("role") == "assistant")
        _require(
            followed, "Item of type 'reasoning' was provided without its required following item.", "input"
        )
