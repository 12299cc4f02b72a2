"""A fake of Anthropic's Messages API: what it refuses according to its public reference, and how it streams an answer."""

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from fake.refusing import (
    NAME,
    PICTURES,
    Json,
    RefusedError,
    find_first_of_turn,
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
        "max_tokens",
        "messages",
        "stream",
        "system",
        "tools",
        "tool_choice",
        "temperature",
        "top_p",
        "top_k",
        "thinking",
        "metadata",
        "service_tier",
        "stop_sequences",
        "container",
        "context_management",
        "mcp_servers",
        "output_config",
        "speed",
    ]
)
BLOCKS: Final = {
    "text": {"type", "text", "cache_control"},
    "image": {"type", "source", "cache_control"},
    "document": {"type", "source", "title", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}
ROLES: Final = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use"},
}
THOUGHTS: Final = ("thinking", "redacted_thinking")
ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
MOST_MARKS: Final = 4
MOST_BYTES: Final = 5 * 1024 * 1024
REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool-calls": "tool_use",
    "content-filter": "refusal",
}
ERRORS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


def signature_of(thinking: str) -> str:
    """Return the signature that this fake gives a thought. It accepts no other."""
    return "sig_" + hashlib.sha256(thinking.encode()).hexdigest()[:16]


def to_redacted(secret: str) -> str:
    return "red_" + hashlib.sha256(secret.encode()).hexdigest()[:16]


# --- what it refuses ---


def check(body: Json) -> None:
    """Raise `RefusedError` where the API would answer 400."""
    need_keys(body, FIELDS, "body")
    require(isinstance(body.get("model"), str) and body["model"], "model: Field required")
    require(isinstance(body.get("max_tokens"), int) and body["max_tokens"] > 0, "max_tokens: Field required")
    _check_system(body.get("system", []))
    messages = need_list(body.get("messages"), "messages")
    require(messages[0].get("role") == "user", 'messages: first message must use the "user" role')
    for number, message in enumerate(messages):
        _check_message(message, f"messages.{number}")
    _check_last(messages[-1])
    _check_calls(messages)
    _check_tools(body, messages)
    _check_thinking(body, messages)
    marks = msgspec.json.encode(body).count(b'"cache_control":')
    require(marks <= MOST_MARKS, f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")
    if "temperature" in body:
        require("top_p" not in body, "`temperature` and `top_p` cannot both be specified for this model.")
        require(0 <= body["temperature"] <= 1, "temperature: range: 0..1")


def _check_system(system: Any) -> None:
    if isinstance(system, str):
        need_text(system, "system")
        return
    for number, block in enumerate(system):
        need_keys(block, BLOCKS["text"], f"system.{number}")
        need_text(block.get("text"), f"system.{number}")


def _check_message(message: Any, where: str) -> None:
    need_keys(message, {"role", "content"}, where)
    role, content = message.get("role"), message.get("content")
    require(role in ROLES, f"{where}.role: Input should be 'user' or 'assistant'")
    if isinstance(content, str):
        need_text(content, where)
        return
    for number, block in enumerate(need_list(content, f"{where}.content")):
        _check_block(block, ROLES[role], f"{where}.content.{number}")
    require(
        role == "user" or content[-1]["type"] not in THOUGHTS,
        f"{where}: The final block in an assistant message cannot be `thinking`.",
    )


def _check_block(block: Any, allowed: set[str], where: str) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    require(
        kind in allowed,
        f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags",
    )
    need_keys(block, BLOCKS[str(kind)], f"{where}.{kind}")
    mark = block.get("cache_control", {"type": "ephemeral"})
    require(mark.get("type") == "ephemeral", f"{where}.cache_control: Input should be 'ephemeral'")
    match kind:
        case "text":
            need_text(block.get("text"), f"{where}.text")
        case "image" | "document":
            _check_source(block, where)
        case "tool_use":
            require(ID.fullmatch(str(block.get("id", ""))), f"{where}.id: String should match pattern")
            require(NAME.fullmatch(str(block.get("name", ""))), f"{where}.name: String should match pattern")
            require(
                isinstance(block.get("input"), dict), f"{where}.input: Input should be a valid dictionary"
            )
        case "tool_result":
            _check_result(block, where)
        case "thinking":
            signed = signature_of(str(block.get("thinking"))) == block.get("signature")
            require(signed, f"{where}: Invalid `signature` in `thinking` block")
        case _:
            require(
                str(block.get("data", "")).startswith("red_"),
                f"{where}: Invalid `data` in `redacted_thinking` block",
            )


def _check_source(block: Json, where: str) -> None:
    source = block.get("source", {})
    if source.get("type") == "url":
        require(str(source.get("url")).startswith("https://"), f"{where}: Only HTTPS URLs are supported.")
        return
    need_keys(source, {"type", "media_type", "data"}, f"{where}.source")
    allowed = PICTURES if block["type"] == "image" else ("application/pdf",)
    require(source.get("media_type") in allowed, f"{where}.source.base64.media_type: unsupported")
    need_base64(source.get("data"), where)
    require(len(source["data"]) <= MOST_BYTES, f"{where}: image exceeds 5 MB maximum")


def _check_result(block: Json, where: str) -> None:
    content = block.get("content")
    if not isinstance(content, str):
        for number, inner in enumerate(need_list(content, where)):
            _check_block(inner, {"text", "image", "document"}, f"{where}.content.{number}")
            require(
                not block.get("is_error") or inner["type"] == "text",
                f'{where}: all content must be type "text" if `is_error` is true',
            )


def _check_last(message: Json) -> None:
    # Newer models accept no unfinished answer to continue.
    require(message["role"] == "user", "This model does not support assistant message prefill.")


def _blocks(message: Json, *kinds: str) -> list[Json]:
    content = message["content"]
    return [] if isinstance(content, str) else [block for block in content if block["type"] in kinds]


def _check_calls(messages: Sequence[Json]) -> None:
    seen: set[str] = set()
    for number, message in enumerate(messages):
        calls = [block["id"] for block in _blocks(message, "tool_use")]
        require(
            seen.isdisjoint(calls) and len(set(calls)) == len(calls),
            "messages: `tool_use` ids must be unique",
        )
        seen |= set(calls)
        if calls:
            said = [block["type"] for block in message["content"]]
            require(
                set(said[said.index("tool_use") :]) == {"tool_use"},
                f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after",
            )
            require(number + 1 < len(messages), "messages: `tool_use` without `tool_result`")
        _check_answers(calls, messages[number + 1 : number + 2], number)
        if number == 0:
            require(not _blocks(message, "tool_result"), "messages.0: unexpected `tool_use_id`")


def _check_answers(calls: list[str], after: Sequence[Json], number: int) -> None:
    if not after:
        return
    answers = [block["tool_use_id"] for block in _blocks(after[0], "tool_result")]
    missing = [call for call in calls if call not in answers]
    require(
        not missing, f"messages.{number}: `tool_use` ids were found without `tool_result` blocks: {missing}"
    )
    extra = [answer for answer in answers if answer not in calls]
    require(
        not extra, f"messages.{number + 1}: unexpected `tool_use_id` found in `tool_result` blocks: {extra}"
    )
    require(
        len(answers) == len(set(answers)), f"messages.{number + 1}: each tool_use must have a single result"
    )
    first = [block["type"] for block in after[0]["content"]][: len(answers)] if answers else []
    require(set(first) <= {"tool_result"}, f"messages.{number + 1}: tool_result blocks must come first")


def _check_tools(body: Json, messages: Sequence[Json]) -> None:
    tools = body.get("tools", [])
    if (wanted := body.get("output_config", {}).get("format")) is not None:
        need_keys(wanted, {"type", "schema"}, "output_config.format")
        require(
            wanted.get("type") == "json_schema", "output_config.format.type: Input should be 'json_schema'"
        )
        need_format(wanted | {"strict": True}, "output_config.format")
    used = any(_blocks(message, "tool_use", "tool_result") for message in messages)
    require(tools or not used, "Requests which include `tool_use` or `tool_result` blocks must define tools")
    require(tools or "tool_choice" not in body, "tool_choice may only be specified while providing tools")
    for number, tool in enumerate(tools):
        need_keys(tool, {"name", "description", "input_schema", "cache_control"}, f"tools.{number}")
        require(NAME.fullmatch(str(tool.get("name"))), f"tools.{number}.name: String should match pattern")
        require(
            tool.get("input_schema", {}).get("type") == "object",
            f"tools.{number}.input_schema.type: Field required",
        )
    names = [tool["name"] for tool in tools]
    require(len(names) == len(set(names)), "tools: Tool names must be unique.")


def _check_thinking(body: Json, messages: Sequence[Json]) -> None:
    thinking = body.get("thinking", {"type": "disabled"})
    if thinking["type"] == "disabled":
        return
    require(body.get("temperature", 1) == 1, "`temperature` may only be set to 1 when thinking is enabled.")
    require("top_k" not in body, "`top_k` must be unset when thinking is enabled.")
    forced = body.get("tool_choice", {}).get("type") in {"any", "tool"}
    require(not forced, "Thinking may not be enabled when tool_choice forces tool use.")
    if thinking["type"] != "enabled":
        return
    budget = thinking.get("budget_tokens", 0)
    require(budget >= 1024, "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    require(budget < body["max_tokens"], "`max_tokens` must be greater than `thinking.budget_tokens`.")
    begun = find_first_of_turn(messages, lambda block: block["type"] == "tool_result")
    first = begun["content"][0]["type"] if begun is not None else "thinking"
    require(first in THOUGHTS, f"Expected `thinking` or `redacted_thinking`, but found `{first}`.")


# --- how it answers ---


def _frame(kind: str, **fields: Any) -> bytes:
    data = msgspec.json.encode({"type": kind, **fields})
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


class AnthropicDialect(ServerSentEvents):
    """Streams like the API with fine-grained tool streaming: the input of a call arrives character by character."""

    def problem(self, request: ReceivedRequest) -> str | None:
        try:
            require(request.path.endswith("/v1/messages"), "Not Found")
            require(request.headers.get("anthropic-version"), "anthropic-version: header is required")
            require(
                "x-api-key" in request.headers or "authorization" in request.headers,
                "x-api-key header is required",
            )
            require(
                request.headers.get("content-type") == "application/json",
                "content-type must be application/json",
            )
            check(request.body)
        except RefusedError as refused:
            return str(refused)
        return None

    def frames(self, moves: Sequence[AnyMove]) -> list[bytes]:
        end = next((move for move in moves if isinstance(move, End)), None)
        called = any(isinstance(move, UseTool) for move in moves)
        used = (end.usage if end else None) or Usage(input=10, output=5)
        start = {"id": "msg_1", "type": "message", "role": "assistant", "usage": _start_usage(used)}
        frames = [_frame("message_start", message=start), _frame("ping")]
        for index, move in enumerate(moves):
            if isinstance(move, Fail):
                return [*frames, self.failure(move.message)]
            frames += _move(index, move)
        reason = REASONS[end.reason] if end else REASONS["tool-calls" if called else "stop"]
        delta = {"stop_reason": reason, "stop_sequence": None}
        return [*frames, _frame("message_delta", delta=delta, usage=_end_usage(used)), _frame("message_stop")]

    def refusal(self, status: int, message: str) -> bytes:
        error = {"type": ERRORS.get(status, "api_error"), "message": message}
        return msgspec.json.encode({"type": "error", "error": error, "request_id": "req_1"})

    def failure(self, message: str) -> bytes:
        return _frame("error", error={"type": "overloaded_error", "message": message})

    def nameless_call(self) -> list[bytes]:
        start = self.frames([Say(text="a")])[0]
        block = {"type": "tool_use", "id": "toolu_1", "input": {}}
        return [start, _frame("content_block_start", index=0, content_block=block)]


def _start_usage(used: Usage) -> Json:
    return {
        "input_tokens": used.input,
        "cache_read_input_tokens": used.cache_read,
        "cache_creation_input_tokens": used.cache_write,
        "output_tokens": 1,
    }


def _end_usage(used: Usage) -> Json:
    details = {"output_tokens_details": {"thinking_tokens": used.reasoning}} if used.reasoning else {}
    return {"output_tokens": used.output + used.reasoning, **details}


def _move(index: int, move: AnyMove) -> list[bytes]:
    match move:
        case Say(text=text):
            deltas = [{"type": "text_delta", "text": word} for word in split_words(text)]
            return _block(index, {"type": "text", "text": ""}, deltas)
        case Think(text=text):
            deltas = [{"type": "thinking_delta", "thinking": word} for word in split_words(text)]
            deltas.append({"type": "signature_delta", "signature": signature_of(text)})
            return _block(index, {"type": "thinking", "thinking": "", "signature": ""}, deltas)
        case UseTool(tool=tool, input=input, raw=raw):
            written = msgspec.json.encode(input).decode() if raw is None else raw
            pieces = [{"type": "input_json_delta", "partial_json": letter} for letter in ["", *written]]
            return _block(
                index, {"type": "tool_use", "id": f"toolu_{index}", "name": tool, "input": {}}, pieces
            )
        case Wait():
            return [_frame("ping")]
        case End() | Fail():
            return []


def _block(index: int, block: Json, deltas: list[Json]) -> list[bytes]:
    return [
        _frame("content_block_start", index=index, content_block=block),
        *(_frame("content_block_delta", index=index, delta=delta) for delta in deltas),
        _frame("content_block_stop", index=index),
    ]
