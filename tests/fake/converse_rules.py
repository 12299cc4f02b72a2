"""What Amazon's Converse API refuses, according to its public reference."""

import base64
import hashlib
import re
from collections.abc import Sequence
from typing import Any, Final

from fake.refusing import (
    NAME,
    Json,
    find_first_of_turn,
    need_base64,
    need_keys,
    need_list,
    need_text,
    require,
)

FIELDS: Final = frozenset(
    [
        "messages",
        "system",
        "inferenceConfig",
        "toolConfig",
        "guardrailConfig",
        "additionalModelRequestFields",
        "additionalModelResponseFieldPaths",
        "promptVariables",
        "requestMetadata",
        "performanceConfig",
        "serviceTier",
    ]
)
ASKED: Final = frozenset({"text", "image", "document", "video", "toolResult", "cachePoint"})
SAID: Final = frozenset({"text", "toolUse", "reasoningContent", "cachePoint"})
BROUGHT: Final = frozenset({"text", "image", "document", "video", "json"})
FORMATS: Final = {
    "image": {"png", "jpeg", "gif", "webp"},
    "document": {"pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"},
    "video": {"mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"},
}
ID: Final = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
DOCUMENT_NAME: Final = re.compile(r"(?!.*  )[A-Za-z0-9 ()\[\]-]{1,200}")
LARGEST: Final = int(3.75 * 1024 * 1024)
MOST_PICTURES, MOST_DOCUMENTS, MOST_MARKS = 20, 5, 4


def check_request(model: str, body: Json) -> None:
    """Raise `RefusedError` where the API would answer 400."""
    need_keys(body, FIELDS, "body")
    messages = need_list(body.get("messages"), "messages")
    require(messages[0].get("role") == "user", "A conversation must start with a user message.")
    require(messages[-1].get("role") == "user", "A conversation must end with a user message.")
    for number, message in enumerate(messages):
        _check_message(message, number, messages)
    for number, block in enumerate(body.get("system", [])):
        _check_one(block, frozenset({"text", "cachePoint"}), f"system.{number}")
    _check_calls(messages)
    _check_tools(body, messages, model)
    _check_limits(body.get("inferenceConfig", {}))
    _check_thinking(body, messages, model)
    _check_counts(body, messages, model)


def _check_message(message: Json, number: int, messages: Sequence[Json]) -> None:
    where = f"messages.{number}"
    need_keys(message, frozenset({"role", "content"}), where)
    require(message["role"] in {"user", "assistant"}, f"{where}.role: unknown")
    if number:
        require(
            message["role"] != messages[number - 1]["role"],
            "A conversation must alternate between user and assistant roles.",
        )
    blocks = need_list(message["content"], where)
    for index, block in enumerate(blocks):
        _check_one(block, ASKED if message["role"] == "user" else SAID, f"{where}.content.{index}")
    require("cachePoint" not in blocks[0], f"{where}: a cache point needs something before it")
    if any("document" in block for block in blocks):
        require(any("text" in block for block in blocks), "A text block must be included with a document.")


def _check_one(block: Any, allowed: frozenset[str], where: str) -> None:
    need_keys(block, allowed, where)
    require(len(block) == 1, f"{where}: exactly one field of the union must be set")
    [(kind, held)] = block.items()
    match kind:
        case "text":
            need_text(held, f"The text field in the ContentBlock object at {where} is blank.")
        case "cachePoint":
            require(held == {"type": "default"}, f"{where}.cachePoint.type: unknown")
        case "image" | "document" | "video":
            _check_file(kind, held, where)
        case "toolUse":
            need_keys(held, frozenset({"toolUseId", "name", "input"}), where)
            require(ID.fullmatch(str(held.get("toolUseId"))), f"{where}.toolUseId: must match the pattern")
            require(NAME.fullmatch(str(held.get("name"))), f"{where}.name: must match the pattern")
            require(
                isinstance(held.get("input"), dict), f"{where}.input: The format of the value is invalid."
            )
        case "toolResult":
            _check_result(held, where)
        case _:
            _check_thought(held, where)


def _check_file(kind: str, held: Json, where: str) -> None:
    known = {"format", "source"} | ({"name"} if kind == "document" else set())
    need_keys(held, frozenset(known), where)
    require(held.get("format") in FORMATS[kind], f"{where}.format: unknown")
    if kind == "document":
        require(
            DOCUMENT_NAME.fullmatch(str(held.get("name"))),
            f"{where}.name: only letters, numbers, single spaces …",
        )
    need_base64(held["source"].get("bytes"), where)
    require(
        len(held["source"]["bytes"]) * 3 // 4 <= LARGEST * (8 if kind == "video" else 1),
        f"{where}: too large",
    )


def _check_result(held: Json, where: str) -> None:
    need_keys(held, frozenset({"toolUseId", "content", "status"}), where)
    require(held.get("status", "success") in {"success", "error"}, f"{where}.status: unknown")
    for number, inner in enumerate(need_list(held.get("content"), where)):
        _check_one(inner, BROUGHT, f"{where}.content.{number}")


def _check_thought(held: Json, where: str) -> None:
    need_keys(held, frozenset({"reasoningText", "redactedContent"}), where)
    require(len(held) == 1, f"{where}: exactly one field of the union must be set")
    if "redactedContent" in held:
        need_base64(held["redactedContent"], where)
        return
    text = need_keys(held["reasoningText"], frozenset({"text", "signature"}), where)
    require(
        text.get("signature") == signature_of(str(text.get("text"))),
        f"{where}: Invalid `signature` in `thinking` block",
    )


def signature_of(thought: str) -> str:
    """Return the signature that this fake gives a thought. It accepts no other."""
    return base64.b64encode(hashlib.sha256(thought.encode()).digest()).decode()


# --- the conversation ---


def _list_blocks(message: Json, kind: str) -> list[Json]:
    return [block[kind] for block in message["content"] if kind in block]


def _check_calls(messages: Sequence[Json]) -> None:
    seen: set[str] = set()
    for number, message in enumerate(messages):
        calls = [call["toolUseId"] for call in _list_blocks(message, "toolUse")]
        require(len({*calls}) == len(calls) and seen.isdisjoint(calls), "The toolUse ids must be unique.")
        seen |= {*calls}
        after = messages[number + 1 : number + 2]
        results = [result["toolUseId"] for result in _list_blocks(after[0], "toolResult")] if after else []
        missing = [call for call in calls if call not in results]
        require(
            not missing,
            f"Expected toolResult blocks at messages.{number + 1}.content for the following Ids: {missing}",
        )
        require(
            len(results) == len(calls) and set(results) == set(calls),
            f"The number of toolResult blocks at messages.{number + 1}.content exceeds the number of toolUse blocks.",
        )
        if calls:
            kinds = [next(iter(block)) for block in message["content"] if "cachePoint" not in block]
            require(set(kinds[kinds.index("toolUse") :]) == {"toolUse"}, "toolUse blocks come last")
            first = [next(iter(block)) for block in after[0]["content"]][: len(results)]
            require(set(first) == {"toolResult"}, "toolResult blocks come first")
    require(
        not _list_blocks(messages[0], "toolResult"),
        "toolResult blocks without toolUse blocks of a previous turn",
    )


def _check_tools(body: Json, messages: Sequence[Json], model: str) -> None:
    config = body.get("toolConfig")
    used = any(_list_blocks(message, kind) for message in messages for kind in ("toolUse", "toolResult"))
    require(
        config or not used,
        "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
    )
    if config is None:
        return
    need_keys(config, frozenset({"tools", "toolChoice"}), "toolConfig")
    for number, tool in enumerate(need_list(config.get("tools"), "toolConfig.tools")):
        spec = need_keys(
            tool["toolSpec"], frozenset({"name", "description", "inputSchema"}), f"tools.{number}"
        )
        require(NAME.fullmatch(str(spec.get("name"))), f"tools.{number}.name: must match the pattern")
        require(spec.get("description", "x"), f"tools.{number}.description: must not be empty")
        require(
            spec["inputSchema"]["json"].get("type") == "object",
            f"tools.{number}.inputSchema: type is invalid",
        )
    full = "claude" in model or "nova" in model
    require(full or "toolChoice" not in config, "This model doesn't support the toolConfig.toolChoice field.")
    results = [result for message in messages for result in _list_blocks(message, "toolResult")]
    require(
        full or all("status" not in each for each in results), "This model doesn't support the status field."
    )
    plain = all("text" in inner for each in results for inner in each["content"])
    require(full or plain, "This model doesn't support files in the toolResult field.")


def _check_limits(limits: Json) -> None:
    need_keys(limits, frozenset({"maxTokens", "temperature", "topP", "stopSequences"}), "inferenceConfig")
    require(limits.get("maxTokens", 1) >= 1, "inferenceConfig.maxTokens: must be at least 1")
    require(0 <= limits.get("temperature", 0) <= 1, "inferenceConfig.temperature: must be between 0 and 1")
    require(0 <= limits.get("topP", 0) <= 1, "inferenceConfig.topP: must be between 0 and 1")


def _check_thinking(body: Json, messages: Sequence[Json], model: str) -> None:
    fields, limits = body.get("additionalModelRequestFields", {}), body.get("inferenceConfig", {})
    thinking = fields.get("thinking", {"type": "disabled"})
    if thinking["type"] == "disabled":
        require(
            "claude" not in model or not {"temperature", "topP"} <= limits.keys(),
            "`temperature` and `top_p` cannot both be specified for this model.",
        )
        return
    require("claude" in model, "Malformed input request: extraneous key [thinking] is not permitted")
    require(
        not {"temperature", "topP"} & limits.keys(),
        "`temperature` may only be set to 1 when thinking is enabled.",
    )
    require("top_k" not in fields, "`top_k` must be unset when thinking is enabled.")
    require(
        "toolChoice" not in body.get("toolConfig", {}),
        "Thinking may not be enabled when tool_choice forces tool use.",
    )
    if thinking["type"] != "enabled":
        return
    require(thinking["budget_tokens"] >= 1024, "thinking.budget_tokens: must be at least 1024")
    require(thinking["budget_tokens"] < limits["maxTokens"], "`max_tokens` must be greater than the budget.")
    begun = find_first_of_turn(messages, lambda block: "toolResult" in block)
    first = next(iter(begun["content"][0])) if begun is not None else "reasoningContent"
    require(first == "reasoningContent", f"Expected `thinking` or `redacted_thinking`, but found `{first}`.")


def _check_counts(body: Json, messages: Sequence[Json], model: str) -> None:
    blocks = [block for message in messages for block in message["content"]]
    inner = [each for block in blocks for each in block.get("toolResult", {}).get("content", ())]
    names = [each["document"]["name"] for each in (*blocks, *inner) if "document" in each]
    require(
        len(names) <= MOST_DOCUMENTS and len(set(names)) == len(names),
        "too many documents, or two of one name",
    )
    require(sum("image" in each for each in (*blocks, *inner)) <= MOST_PICTURES, "too many images")
    marks = sum("cachePoint" in block for block in (*blocks, *body.get("system", [])))
    require(marks <= MOST_MARKS, "A maximum of 4 cache points may be provided.")
    require(
        not marks or "claude" in model or "nova" in model,
        "You invoked an unsupported model or your request did not allow prompt caching.",
    )
