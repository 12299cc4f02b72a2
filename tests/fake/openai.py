"""A fake of OpenAI's Chat Completions API: what it refuses according to its public reference, and how it streams an
answer.
"""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from fake.refusing import (
    NAME,
    PICTURES,
    Json,
    RefusedError,
    need_base64,
    need_format,
    need_keys,
    need_list,
    need_text,
    require,
)
from weft.provider.chunk import Usage
from weft.provider.scripted import AnyMove, End, Fail, Say, Think, UseTool, Wait
from weft.testing.fake_model_api import ReceivedRequest, ServerSentEvents, split_words

FIELDS: Final = frozenset(
    [
        "model",
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "tools",
        "tool_choice",
        "response_format",
        "reasoning_effort",
        "verbosity",
        "prompt_cache_key",
        "prompt_cache_retention",
        "service_tier",
        "parallel_tool_calls",
        "safety_identifier",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "store",
        "metadata",
        "user",
        "stop",
        "seed",
    ]
)
MESSAGE: Final = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
PARTS: Final = {
    "text": {"type", "text"},
    "image_url": {"type", "image_url"},
    "input_audio": {"type", "input_audio"},
    "file": {"type", "file"},
}
MISTRAL_ID: Final = re.compile(r"[A-Za-z0-9]{9}")
REASONS: Final = {
    "stop": "stop",
    "length": "length",
    "tool-calls": "tool_calls",
    "content-filter": "content_filter",
}
CODES: Final = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


class ServerDialect(msgspec.Struct, frozen=True, kw_only=True):
    """How servers of this API differ: additional fields, unsupported fields, and Mistral's own rules."""

    fields: frozenset[str] = frozenset()
    message_fields: frozenset[str] = frozenset()
    longest_id: int = 40
    marks: bool = False
    mistral: bool = False
    unknown: frozenset[str] = frozenset()


STRICT: Final = ServerDialect()


# --- what it refuses ---


def check(body: Json, manners: ServerDialect = STRICT) -> None:
    """Raise `RefusedError` where the API would answer 400."""
    need_keys(body, (FIELDS | manners.fields) - manners.unknown, "body")
    require(isinstance(body.get("model"), str) and body["model"], "you must provide a model parameter")
    require("stream_options" not in body or body.get("stream"), "stream_options is only allowed with stream")
    require(0 <= body.get("temperature", 1) <= 2, "Invalid 'temperature': decimal above maximum value")
    _check_tools(body)
    _check_format(body.get("response_format"))
    messages = need_list(body.get("messages"), "messages")
    for number, message in enumerate(messages):
        _check_message(message, manners, f"messages.[{number}]")
    _check_order(messages, manners)
    _check_calls(messages, manners)


def _check_tools(body: Json) -> None:
    require("tools" not in body or body["tools"], "Invalid 'tools': empty array.")
    require(
        "tools" in body or "tool_choice" not in body,
        "'tool_choice' is only allowed when 'tools' are specified.",
    )
    for number, tool in enumerate(body.get("tools", [])):
        require(tool.get("type") == "function", f"tools.{number}.type: must be function")
        function = need_keys(
            tool.get("function"), {"name", "description", "parameters", "strict"}, f"tools.{number}"
        )
        require(NAME.fullmatch(str(function.get("name"))), f"Invalid 'tools[{number}].function.name'")
        require(
            isinstance(function.get("parameters"), dict), f"Invalid 'tools[{number}].function.parameters'"
        )


def _check_format(wanted: Any) -> None:
    if wanted is None:
        return
    require(wanted.get("type") == "json_schema", "Invalid value: 'response_format.type'")
    given = need_keys(wanted.get("json_schema"), {"name", "schema", "strict"}, "response_format.json_schema")
    require(NAME.fullmatch(str(given.get("name"))), "Invalid 'response_format.json_schema.name'")
    need_format(given, "response_format")


def _check_message(message: Any, manners: ServerDialect, where: str) -> None:
    role = message.get("role") if isinstance(message, dict) else None
    require(role in MESSAGE, f"{where}.role: invalid value: '{role}'")
    extra = manners.message_fields if role == "assistant" else frozenset()
    marks = {"cache_control"} if manners.marks else set()
    need_keys(message, MESSAGE[str(role)] | extra | marks, where)
    content = message.get("content")
    if role == "assistant" and content is None:
        require(message.get("tool_calls"), f"{where}: content or tool_calls must be set")
    elif isinstance(content, list):
        for number, part in enumerate(need_list(content, f"{where}.content")):
            _check_part(part, role == "user", marks, f"{where}.content.[{number}]")
        # The API takes a list of texts, but llama-cpp-python's templates fail on it. A cache mark requires a list.
        require(
            marks or {part["type"] for part in content} != {"text"}, f"{where}.content: expected a string"
        )
    else:
        need_text(content, f"{where}.content")


def _check_part(part: Any, all_kinds: bool, marks: set[str], where: str) -> None:
    kind = part.get("type") if isinstance(part, dict) else None
    require(kind == "text" or (all_kinds and kind in PARTS), f"{where}: invalid content type '{kind}'")
    need_keys(part, PARTS[str(kind)] | marks, where)
    match kind:
        case "text":
            need_text(part.get("text"), where)
        case "image_url":
            _check_url(str(part["image_url"].get("url", "")), PICTURES, where)
        case "file":
            file = need_keys(part["file"], {"filename", "file_data"}, where)
            _check_url(str(file.get("file_data", "")), ("application/pdf",), where)
        case _:
            require(part["input_audio"].get("format") in {"wav", "mp3"}, f"{where}: invalid audio format")
            need_base64(part["input_audio"].get("data"), where)


def _check_url(url: str, kinds: Sequence[str], where: str) -> None:
    if url.startswith(("https://", "http://")):
        return
    head, _, data = url.partition(";base64,")
    require(head.removeprefix("data:") in kinds, f"{where}: You uploaded an unsupported image.")
    need_base64(data, where)


def _check_order(messages: Sequence[Json], manners: ServerDialect) -> None:
    roles = [message["role"] for message in messages]
    after = [role for role in roles if role != "system"]
    require(after, "messages: no message but the system's")
    require(roles[len(roles) - len(after) :] == after, "System message must be at the beginning.")
    require(manners.marks or roles.count("system") <= 1, "Only one system message is supported.")
    require(after[0] == "user", "Conversation must start with a user message")
    require(after[-1] in {"user", "tool"}, "Expected last role User or Tool for serving but got assistant")
    if manners.mistral:
        pairs = pairwise(after)
        require(("tool", "user") not in pairs, "Unexpected role 'user' after role 'tool'")


def _check_calls(messages: Sequence[Json], manners: ServerDialect) -> None:
    waiting: list[str] = []
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            known = message.get("tool_call_id") in waiting
            require(
                known,
                "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.",
            )
            waiting.remove(message["tool_call_id"])
            continue
        require(not waiting, f"tool_call_ids did not have response messages: {waiting}")
        require(
            "tool_calls" not in message or message["tool_calls"],
            f"messages.[{number}].tool_calls: empty array",
        )
        waiting = [_checked_call(call, manners, number) for call in message.get("tool_calls", [])]
        require(len(waiting) == len(set(waiting)), f"messages.[{number}]: duplicate tool_call ids")
    require(not waiting, f"tool_call_ids did not have response messages: {waiting}")


def _checked_call(call: Any, manners: ServerDialect, number: int) -> str:
    where = f"messages.[{number}].tool_calls"
    need_keys(call, {"id", "type", "function"}, where)
    id, function = str(call.get("id", "")), call.get("function", {})
    require(id and len(id) <= manners.longest_id, f"{where}.id: string too long")
    require(
        not manners.mistral or MISTRAL_ID.fullmatch(id),
        "Tool call id must be a-z, A-Z, 0-9, with a length of 9.",
    )
    require(call.get("type") == "function", f"{where}.type: invalid value")
    require(NAME.fullmatch(str(function.get("name", ""))), f"{where}.function.name: does not match pattern")
    try:
        require(
            isinstance(json.loads(function.get("arguments", "")), dict),
            f"{where}.function.arguments: no object",
        )
    except ValueError:
        raise RefusedError(f"{where}.function.arguments: invalid JSON") from None
    return id


# --- how it answers ---


class OpenAIChatDialect(ServerSentEvents):
    """Streams like the API. Reasoning is sent as `reasoning_content`, as most compatible servers do."""

    def __init__(self, manners: ServerDialect = STRICT) -> None:
        self._manners = manners

    def problem(self, request: ReceivedRequest) -> str | None:
        try:
            require(request.path.endswith("/v1/chat/completions"), "Not Found")
            require(
                request.headers.get("authorization", "").startswith("Bearer "),
                "You didn't provide an API key.",
            )
            require(request.headers.get("content-type") == "application/json", "unsupported content type")
            check(request.body, self._manners)
        except RefusedError as refused:
            return str(refused)
        return None

    def frames(self, moves: Sequence[AnyMove]) -> list[bytes]:
        end = next((move for move in moves if isinstance(move, End)), None)
        frames = [_delta(role="assistant", content="")]
        calls = 0
        for move in moves:
            if isinstance(move, Fail):
                return [*frames, self.failure(move.message)]
            frames += _move(move, calls)
            calls += isinstance(move, UseTool)
        reason = REASONS[end.reason] if end else REASONS["tool-calls" if calls else "stop"]
        used = (end.usage if end else None) or Usage(input=10, output=5)
        return [*frames, _frame([_choice({}, reason)]), _frame([], usage=_usage(used)), b"data: [DONE]\n\n"]

    def refusal(self, status: int, message: str) -> bytes:
        error = {
            "message": message,
            "type": "invalid_request_error",
            "param": None,
            "code": CODES.get(status),
        }
        return msgspec.json.encode({"error": error})

    def failure(self, message: str) -> bytes:
        error = {"message": message, "code": 529, "metadata": {"error_type": "provider_overloaded"}}
        return _frame([_choice({}, "error")], error=error)

    def nameless_call(self) -> list[bytes]:
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"arguments": "{}"}}
        return [_delta(tool_calls=[call]), _frame([_choice({}, "tool_calls")]), b"data: [DONE]\n\n"]


def _choice(delta: Json, reason: str | None = None) -> Json:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _frame(choices: list[Json], **more: Any) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: %b\n\n" % msgspec.json.encode({**head, "choices": choices, **more})


def _delta(**delta: Any) -> bytes:
    return _frame([_choice(delta)])


def _move(move: AnyMove, number: int) -> list[bytes]:
    match move:
        case Say(text=text):
            return [_delta(content=word) for word in split_words(text)]
        case Think(text=text):
            return [_delta(reasoning_content=word) for word in split_words(text)]
        case UseTool(tool=tool, input=input, raw=raw):
            written = msgspec.json.encode(input).decode() if raw is None else raw
            start = {"index": number, "id": f"call_{number}", "type": "function"}
            first = {**start, "function": {"name": tool, "arguments": ""}}
            rest = [{"index": number, "function": {"arguments": letter}} for letter in written]
            return [_delta(tool_calls=[piece]) for piece in [first, *rest]]
        case Wait():
            return [b": still here\n\n"]
        case End() | Fail():
            return []


def _usage(used: Usage) -> Json:
    prompt = used.input + used.cache_read + used.cache_write
    completion = used.output + used.reasoning
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": used.cache_read, "cache_write_tokens": used.cache_write},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning},
    }
