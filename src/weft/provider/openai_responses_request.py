"""A request in the words of OpenAI's Responses API, valid whatever the history holds (pure).

Everything is sent each time and nothing is looked up on the server: reasoning goes back encrypted, without item ids.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from weft.provider.contract import (
    AssistantTurn,
    CallContent,
    FileContent,
    ModelMessage,
    ModelRequest,
    Metadata,
    ReasoningContent,
    ResultContent,
    TextContent,
    ToolSpec,
    ToolTurn,
    UserTurn,
)

KEY: Final = "openai"
ENCRYPTED: Final = "reasoning.encrypted_content"
LONGEST_CALL_ID: Final = 64
PHASES: Final = ("commentary", "final_answer")
NO_RESULT: Final = "[Tool execution was interrupted]"
NOTHING_SAID: Final = "Continue."

# What a person may set under `options`, and where it goes. What is not listed means nothing to this API.
PLAIN_OPTIONS: Final = {
    "promptCacheKey": "prompt_cache_key",
    "promptCacheRetention": "prompt_cache_retention",
    "parallelToolCalls": "parallel_tool_calls",
    "maxToolCalls": "max_tool_calls",
    "serviceTier": "service_tier",
    "safetyIdentifier": "safety_identifier",
    "truncation": "truncation",
    "metadata": "metadata",
    "user": "user",
}

Json = dict[str, Any]


def to_body(request: ModelRequest) -> Json:
    """The conversation comes last: as it grows, what was sent before stays a prefix of what is sent next."""
    asked = request.parameters
    reasons = _reasons(request)
    body: Json = {"model": request.model.api.id, "stream": True, "store": asked.options.get("store") is True}
    if asked.max_output is not None:
        body["max_output_tokens"] = asked.max_output
    body |= _sampling(request, reasons=reasons)
    if reasons:
        body |= _reasoning(asked.options)
    if verbosity := asked.options.get("textVerbosity"):
        body["text"] = {"verbosity": verbosity}
    body |= {name: asked.options[key] for key, name in PLAIN_OPTIONS.items() if asked.options.get(key) is not None}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = request.tool_choice
    role = "developer" if reasons else "system"
    system = [{"role": role, "content": words} for words in request.system if words]
    items = list(_items(request.messages))
    body["input"] = [*system, *(items or [_said_by_user([_text(NOTHING_SAID)])])]
    return body


def _reasons(request: ModelRequest) -> bool:
    """A model that reasons, by the catalogue or because somebody set how much."""
    options = request.parameters.options
    return request.model.capabilities.reasoning or any(
        options.get(key) is not None for key in ("reasoningEffort", "reasoningSummary")
    )


def _sampling(request: ModelRequest, *, reasons: bool) -> Json:
    # A reasoning model refuses these, except where it is told not to reason.
    if reasons and request.parameters.options.get("reasoningEffort") != "none":
        return {}
    wanted = {"temperature": request.parameters.temperature, "top_p": request.parameters.top_p}
    return {name: value for name, value in wanted.items() if value is not None}


def _reasoning(options: Json) -> Json:
    wanted = {"effort": options.get("reasoningEffort"), "summary": options.get("reasoningSummary")}
    given = {name: value for name, value in wanted.items() if value is not None}
    asked = options.get("include")
    more = [name for name in asked if isinstance(name, str)] if isinstance(asked, list) else []
    # OpenCode asks for this with some providers only, and loses the thread of thought with the others.
    include = list(dict.fromkeys([ENCRYPTED, *more]))
    return ({"reasoning": given} if given else {}) | {"include": include}


def _tool(tool: ToolSpec) -> Json:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.about,
        "parameters": tool.schema,
        "strict": False,
    }
