"""Build a request for pydantic-ai that is valid whatever the history holds (pure), and find the library."""

import base64
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from weft.errors import InvalidInputError, ProviderAuthError
from weft.provider.catalog.access import missing_key
from weft.provider.contract import (
    AssistantTurn,
    CallContent,
    FileContent,
    ModelRequest,
    ReasoningContent,
    ResultContent,
    TextContent,
    ToolTurn,
    UserTurn,
)
from weft.provider.endpoint import Endpoint
from weft.provider.media import MediaLimits, modality, show_files, to_data
from weft.provider.normalise import (
    NO_OUTPUT,
    NOOP,
    ends_with_question,
    has_calls,
    own_metadata,
    pair_calls,
    short_id,
    tool_name,
)

EXTRA: Final = 'pip install "weft[pydantic-ai]"'
NAMED: Final = 'name the provider and the model as pydantic-ai does: "groq:llama-3.3-70b-versatile"'
_KEY: Final = re.compile(r"\b[A-Z][A-Z0-9_]*_(?:KEY|TOKEN)\b")


class Library:
    """The parts of pydantic-ai we use. Importing it takes about a second: nobody pays for it who does not use it."""

    def __init__(self, provider: str) -> None:
        try:
            self.direct: Any = import_module("pydantic_ai.direct")
        except ImportError as error:
            raise InvalidInputError(
                f"provider.{provider}.npm", "pydantic-ai is not installed", hint=f"run: {EXTRA}"
            ) from error
        self.messages: Any = import_module("pydantic_ai.messages")
        self.models: Any = import_module("pydantic_ai.models")
        self.tools: Any = import_module("pydantic_ai.tools")
        self.errors: Any = import_module("pydantic_ai.exceptions")
        self._providers: Any = import_module("pydantic_ai.providers")

    def get_model(self, name: str, endpoint: Endpoint) -> Any:
        """A model by the name pydantic-ai has for it, `mistral:mistral-large-latest`; the key and the address are ours
        where we have them, else it looks for its own."""
        where = f"provider.{endpoint.provider_id}"
        try:
            return self.models.infer_model(name, provider_factory=self._maker(endpoint))
        except ImportError as error:
            raise InvalidInputError(
                f"{where}.options.model", f"{name!r} needs one more package", hint=str(error)
            ) from error
        except self.errors.UserError as error:
            keyless = find_missing_key(error, endpoint.provider_id)
            raise keyless or InvalidInputError(f"{where}.options.model", str(error), hint=NAMED) from error
        except (ValueError, TypeError) as error:
            raise InvalidInputError(f"{where}.options", f"pydantic-ai does not take them: {error}") from error

    def _maker(self, endpoint: Endpoint) -> Callable[[str], Any]:
        given = {
            name: value
            for name, value in (("api_key", endpoint.api_key), ("base_url", endpoint.base_url))
            if value
        }

        def make(provider: str) -> Any:
            try:
                found = self._providers.infer_provider_class(provider)
            except ValueError as error:
                raise self.errors.UserError(str(error)) from error
            return found(**given)

        return make


def find_missing_key(error: Exception, provider: str) -> ProviderAuthError | None:
    """What to set, where pydantic-ai complains of a key that is not there. It names the variable among much else."""
    names = list(dict.fromkeys(_KEY.findall(str(error))))
    return missing_key(provider, names, stored="") if names else None


KEY: Final = "pydantic-ai"
LONGEST_ID: Final = 40
LIMITS: Final = MediaLimits()
# What a person may set under `options` beside the sampling; the rest goes to the server in the body, as it is.
SETTINGS: Final = ("parallel_tool_calls", "seed", "service_tier", "stop_sequences", "thinking")
UNSENT: Final = frozenset({"model", "store", "promptCacheKey", "setCacheKey", "timeout", "litellmProxy"})


def to_settings(request: ModelRequest) -> dict[str, Any]:
    """No hidden retries underneath: who asks decides about that."""
    asked = request.parameters
    given = {
        "max_tokens": asked.max_output,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": asked.top_k,
        "extra_headers": asked.headers or None,
        "tool_choice": request.tool_choice if request.tools else None,
    }
    body = {name: value for name, value in asked.options.items() if name not in {*SETTINGS, *UNSENT}}
    own = {name: asked.options[name] for name in SETTINGS if name in asked.options}
    settings = {name: value for name, value in given.items() if value is not None} | own
    return settings | ({"extra_body": body} if body else {}) | {"max_retries": 0}


def to_parameters(request: ModelRequest, ai: Library) -> Any:
    tools = request.tools or ((NOOP,) if has_calls(request.messages) else ())
    made = [
        ai.tools.ToolDefinition(
            name=tool_name(spec.name), description=spec.about, parameters_json_schema=spec.schema
        )
        for spec in tools
    ]
    return ai.models.ModelRequestParameters(function_tools=made, allow_text_output=True)


def to_messages(request: ModelRequest, ai: Library) -> list[Any]:
    """Results of calls and what the person says next are one request; system entries stand in the first."""
    paired = pair_calls(request.messages, short_id(LONGEST_ID))
    shown = show_files(paired, request.model, _shows, LIMITS)
    # Many servers take one system message only, and only first.
    system = "\n\n".join(text for text in request.system if text.strip())
    first = [ai.messages.SystemPromptPart(content=system)] if system else []
    made: list[Any] = [ai.messages.ModelRequest(parts=first)]
    for turn in ends_with_question([turn for turn in shown if _says_something(turn)]):
        if isinstance(turn, AssistantTurn):
            made.append(ai.messages.ModelResponse(parts=[_said(item, ai) for item in turn.content]))
            continue
        parts = (
            _asked(turn, ai) if isinstance(turn, UserTurn) else [_result(item, ai) for item in turn.content]
        )
        if made[-1].kind == "request":
            made[-1].parts.extend(parts)
        else:
            made.append(ai.messages.ModelRequest(parts=parts))
    return made


def _says_something(turn: UserTurn | AssistantTurn | ToolTurn) -> bool:
    return any(
        item.text.strip() if isinstance(item, TextContent) else not isinstance(item, ReasoningContent)
        for item in turn.content
    )


def _asked(turn: UserTurn, ai: Library) -> list[Any]:
    said = [item for item in turn.content if isinstance(item, FileContent) or item.text.strip()]
    texts = [item.text for item in said if isinstance(item, TextContent)]
    if len(texts) == len(said):  # not every server takes a list where a string does
        return [ai.messages.UserPromptPart(content="\n\n".join(texts))]
    content = [item.text if isinstance(item, TextContent) else _file(item, ai) for item in said]
    return [ai.messages.UserPromptPart(content=content)]


def _said(item: TextContent | ReasoningContent | CallContent, ai: Library) -> Any:
    kept = own_metadata(item.metadata, KEY)
    details = {name: kept[name] for name in ("id", "provider_name", "provider_details") if name in kept}
    match item:
        case TextContent(text=text):
            return ai.messages.TextPart(content=text, **details)
        case ReasoningContent(text=text):
            # The end is kept beside: the store trims a text, and a signature holds for every letter of it.
            words = text + str(kept.get("tail") or "")
            return ai.messages.ThinkingPart(content=words, signature=kept.get("signature"), **details)
        case CallContent():
            return ai.messages.ToolCallPart(
                tool_name=item.tool, args=item.input, tool_call_id=item.call_id, **details
            )


def _result(item: ResultContent, ai: Library) -> Any:
    words = item.output if item.output.strip() else NO_OUTPUT
    content = [words, *(_file(file, ai) for file in item.files)] if item.files else words
    return ai.messages.ToolReturnPart(
        tool_name=item.tool,
        content=content,
        tool_call_id=item.call_id,
        outcome="failed" if item.error else "success",
    )


def _shows(file: FileContent) -> bool:
    data = to_data(file.url)
    if data is None:
        return file.url.startswith("https://") and modality(file.mime) in {"image", "pdf"}
    return modality(data.mime) is not None


def _file(file: FileContent, ai: Library) -> Any:
    data = to_data(file.url)
    if data is not None:
        return ai.messages.BinaryContent(data=base64.b64decode(data.base64), media_type=data.mime)
    if modality(file.mime) == "image":
        return ai.messages.ImageUrl(url=file.url, media_type=file.mime)
    return ai.messages.DocumentUrl(url=file.url, media_type=file.mime)
