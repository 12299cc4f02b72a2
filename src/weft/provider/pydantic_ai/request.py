"""Import pydantic-ai, and build a request for it that is valid for any history."""

import base64
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from weft.errors import InvalidInputError, ProviderAuthError
from weft.provider.catalog.access import make_missing_key_error
from weft.provider.contract import (
    AssistantModelMessage,
    CallContent,
    MediaContent,
    ModelRequest,
    ReasoningContent,
    ResultContent,
    TextContent,
    UserModelMessage,
)
from weft.provider.endpoint import ModelEndpoint
from weft.provider.media import MediaLimits, adapt_files, find_modality, parse_data_url
from weft.provider.normalise import (
    NO_OUTPUT,
    NOOP_TOOL,
    ensure_user_messages,
    get_own_metadata,
    has_calls,
    has_content,
    limit_id,
    pair_calls,
    to_tool_name,
)

INSTALL_COMMAND: Final = "pip install '.[pydantic-ai]'"
NAME_HINT: Final = 'name the provider and the model as pydantic-ai does: "groq:llama-3.3-70b-versatile"'
_KEY_VARIABLE: Final = re.compile(r"\b[A-Z][A-Z0-9_]*_(?:KEY|TOKEN)\b")


class PydanticAiLibrary:
    """The parts of pydantic-ai that we use. Importing it takes about a second, so it is imported when it is first used."""

    def __init__(self, provider: str) -> None:
        try:
            self.direct: Any = import_module("pydantic_ai.direct")
        except ImportError as error:
            raise InvalidInputError(
                f"provider.{provider}.npm",
                "pydantic-ai is not installed",
                hint=f"in weft's checkout: {INSTALL_COMMAND}",
            ) from error
        self.messages: Any = import_module("pydantic_ai.messages")
        self.models: Any = import_module("pydantic_ai.models")
        self.tools: Any = import_module("pydantic_ai.tools")
        self.errors: Any = import_module("pydantic_ai.exceptions")
        self._providers: Any = import_module("pydantic_ai.providers")

    def get_model(self, name: str, endpoint: ModelEndpoint) -> Any:
        """Return a model by its pydantic-ai name, such as `mistral:mistral-large-latest`.

        Our key and address are used if there are any; else the library finds its own. Raise `InvalidInputError` or
        `ProviderAuthError`.
        """
        where = f"provider.{endpoint.provider_id}"
        try:
            return self.models.infer_model(name, provider_factory=self._make_factory(endpoint))
        except ImportError as error:
            raise InvalidInputError(
                f"{where}.options.model", f"{name!r} needs another package", hint=str(error)
            ) from error
        except self.errors.UserError as error:
            missing_key = find_missing_key(error, endpoint.provider_id)
            raise missing_key or InvalidInputError(
                f"{where}.options.model", str(error), hint=NAME_HINT
            ) from error
        except (ValueError, TypeError) as error:
            raise InvalidInputError(f"{where}.options", f"pydantic-ai refuses them: {error}") from error

    def _make_factory(self, endpoint: ModelEndpoint) -> Callable[[str], Any]:
        options = {
            name: value
            for name, value in (("api_key", endpoint.api_key), ("base_url", endpoint.base_url))
            if value
        }

        def make(provider: str) -> Any:
            try:
                provider_class = self._providers.infer_provider_class(provider)
            except ValueError as error:
                raise self.errors.UserError(str(error)) from error
            return provider_class(**options)

        return make


def find_missing_key(error: Exception, provider: str) -> ProviderAuthError | None:
    """Return an error that names the missing key if pydantic-ai complains about one, else None."""
    names = list(dict.fromkeys(_KEY_VARIABLE.findall(str(error))))
    return make_missing_key_error(provider, names, login_type="") if names else None


METADATA_KEY: Final = "pydantic-ai"
MAX_ID_LENGTH: Final = 40
MEDIA_LIMITS: Final = MediaLimits()
# Options for pydantic-ai itself, in addition to the sampling. Other options are sent in the body unchanged.
LIBRARY_SETTINGS: Final = ("parallel_tool_calls", "seed", "service_tier", "stop_sequences", "thinking")
UNSENT_OPTIONS: Final = frozenset(
    {"model", "store", "promptCacheKey", "setCacheKey", "timeout", "litellmProxy"}
)


def to_settings(request: ModelRequest) -> dict[str, Any]:
    """Return the settings of a request. The libraries below must not retry: the caller decides that."""
    parameters, options = request.parameters, request.parameters.options
    fields = {
        "max_tokens": parameters.max_output,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "top_k": parameters.top_k,
        "extra_headers": parameters.headers or None,
        "tool_choice": request.tool_choice if request.tools else None,
    }
    settings = {name: value for name, value in fields.items() if value is not None}
    settings |= {name: options[name] for name in LIBRARY_SETTINGS if name in options}
    unsent = {*LIBRARY_SETTINGS, *UNSENT_OPTIONS}
    body = {name: value for name, value in options.items() if name not in unsent}
    return settings | ({"extra_body": body} if body else {}) | {"max_retries": 0}


def to_parameters(request: ModelRequest, ai: PydanticAiLibrary) -> Any:
    tools = request.tools or ((NOOP_TOOL,) if has_calls(request.messages) else ())
    definitions = [
        ai.tools.ToolDefinition(
            name=to_tool_name(spec.name), description=spec.about, parameters_json_schema=spec.schema
        )
        for spec in tools
    ]
    return ai.models.ModelRequestParameters(function_tools=definitions, allow_text_output=True)


def to_messages(request: ModelRequest, ai: PydanticAiLibrary) -> list[Any]:
    """Return the conversation. Results and the next prompt are one request; the system prompt is in the first request."""
    paired = pair_calls(request.messages, limit_id(MAX_ID_LENGTH))
    adapted = adapt_files(paired, request.model, _accepts_file, MEDIA_LIMITS)
    # Many servers accept only one system message, and only as the first message.
    system = "\n\n".join(text for text in request.system if text.strip())
    system_parts = [ai.messages.SystemPromptPart(content=system)] if system else []
    messages: list[Any] = [ai.messages.ModelRequest(parts=system_parts)]
    for message in ensure_user_messages([message for message in adapted if has_content(message)]):
        if isinstance(message, AssistantModelMessage):
            messages.append(
                ai.messages.ModelResponse(parts=[_to_response_part(item, ai) for item in message.content])
            )
            continue
        parts = (
            _to_user_parts(message, ai)
            if isinstance(message, UserModelMessage)
            else [_to_result(item, ai) for item in message.content]
        )
        if messages[-1].kind == "request":
            messages[-1].parts.extend(parts)
        else:
            messages.append(ai.messages.ModelRequest(parts=parts))
    return messages


def _to_user_parts(message: UserModelMessage, ai: PydanticAiLibrary) -> list[Any]:
    items = [item for item in message.content if isinstance(item, MediaContent) or item.text.strip()]
    texts = [item.text for item in items if isinstance(item, TextContent)]
    if len(texts) == len(items):  # not every server accepts a list instead of a string
        return [ai.messages.UserPromptPart(content="\n\n".join(texts))]
    content = [item.text if isinstance(item, TextContent) else _to_file(item, ai) for item in items]
    return [ai.messages.UserPromptPart(content=content)]


def _to_response_part(item: TextContent | ReasoningContent | CallContent, ai: PydanticAiLibrary) -> Any:
    metadata = get_own_metadata(item.metadata, METADATA_KEY)
    details = {
        name: metadata[name] for name in ("id", "provider_name", "provider_details") if name in metadata
    }
    match item:
        case TextContent(text=text):
            return ai.messages.TextPart(content=text, **details)
        case ReasoningContent(text=text):
            # The signature covers every character, but the store trims the end of a text. `tail` holds what it trims.
            text = text + str(metadata.get("tail") or "")
            return ai.messages.ThinkingPart(content=text, signature=metadata.get("signature"), **details)
        case CallContent():
            return ai.messages.ToolCallPart(
                tool_name=item.tool, args=item.input, tool_call_id=item.call_id, **details
            )


def _to_result(item: ResultContent, ai: PydanticAiLibrary) -> Any:
    text = item.output if item.output.strip() else NO_OUTPUT
    content = [text, *(_to_file(file, ai) for file in item.files)] if item.files else text
    return ai.messages.ToolReturnPart(
        tool_name=item.tool,
        content=content,
        tool_call_id=item.call_id,
        outcome="failed" if item.error else "success",
    )


def _accepts_file(file: MediaContent) -> bool:
    data = parse_data_url(file.url)
    if data is None:
        return file.url.startswith("https://") and find_modality(file.mime) in {"image", "pdf"}
    return find_modality(data.mime) is not None


def _to_file(file: MediaContent, ai: PydanticAiLibrary) -> Any:
    data = parse_data_url(file.url)
    if data is not None:
        return ai.messages.BinaryContent(data=base64.b64decode(data.base64), media_type=data.mime)
    if find_modality(file.mime) == "image":
        return ai.messages.ImageUrl(url=file.url, media_type=file.mime)
    return ai.messages.DocumentUrl(url=file.url, media_type=file.mime)
