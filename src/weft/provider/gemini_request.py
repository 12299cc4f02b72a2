"""A request in the words of Google's `generateContent`, valid whatever the history holds (pure)."""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any, Final

from weft.provider.contract import (
    AssistantTurn,
    CallContent,
    FileContent,
    Metadata,
    ModelRequest,
    ReasoningContent,
    ResultContent,
    TextContent,
    ToolSpec,
    ToolTurn,
    UserTurn,
)
from weft.provider.gemini_schema import to_parameters

KEY: Final = "google"
# Google's own word for a call whose signature is not at hand: made by another model, or cut off before it came.
UNSIGNED: Final = "skip_thought_signature_validator"
CHOICES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}

Json = dict[str, Any]


def to_body(request: ModelRequest) -> Json:
    """The conversation comes last: as it grows, what was sent before stays a prefix of what is sent next."""
    body: Json = {}
    if system := [{"text": words} for words in request.system if words]:
        body["systemInstruction"] = {"parts": system}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_tool(tool) for tool in request.tools]}]
        body["toolConfig"] = {"functionCallingConfig": {"mode": CHOICES[request.tool_choice]}}
    if generation := _generation(request):
        body["generationConfig"] = generation
    body |= {
        name: request.parameters.options[name]
        for name in ("safetySettings", "cachedContent", "labels")
        if request.parameters.options.get(name) is not None
    }
    body["contents"] = to_contents(request)
    return body
