"""The provider contract: one model API behind one method, and the request that it takes."""

from collections.abc import AsyncGenerator
from typing import Any, Literal, Protocol

from msgspec import Struct

from weft.model.catalog import Model
from weft.provider.chunk import AnyChunk, Metadata


class TextContent(Struct, frozen=True, kw_only=True, tag="text"):
    """Plain text of a user or an assistant."""

    text: str
    metadata: Metadata | None = None


class ReasoningContent(Struct, frozen=True, kw_only=True, tag="reasoning"):
    """Text that the model wrote while thinking. `metadata` may hold the signature that an API wants back."""

    text: str
    metadata: Metadata | None = None


class MediaContent(Struct, frozen=True, kw_only=True, tag="file"):
    """An image, a PDF or another file, as a `data:` URL or a URL that the API can fetch."""

    url: str
    mime: str
    filename: str | None = None


class CallContent(Struct, frozen=True, kw_only=True, tag="call"):
    """A tool call that the model made."""

    call_id: str
    tool: str
    input: dict[str, Any]
    metadata: Metadata | None = None


class ResultContent(Struct, frozen=True, kw_only=True, tag="result"):
    """The result of one tool call. `error` is True if the call failed. `files` follow the text."""

    call_id: str
    tool: str
    output: str
    error: bool = False
    files: tuple[MediaContent, ...] = ()
    metadata: Metadata | None = None


UserContent = TextContent | MediaContent
AssistantContent = TextContent | ReasoningContent | CallContent


class UserModelMessage(Struct, frozen=True, kw_only=True, tag="user", tag_field="role", weakref=True):
    """What the user said, including attachments."""

    content: tuple[UserContent, ...]


class AssistantModelMessage(
    Struct, frozen=True, kw_only=True, tag="assistant", tag_field="role", weakref=True
):
    """What the model answered: text, reasoning and tool calls, in order."""

    content: tuple[AssistantContent, ...]


class ToolModelMessage(Struct, frozen=True, kw_only=True, tag="tool", tag_field="role", weakref=True):
    """The results of the tool calls in the answer before it: one for each call, in the same order."""

    content: tuple[ResultContent, ...]


ModelMessage = UserModelMessage | AssistantModelMessage | ToolModelMessage


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as described to the model: its name, its purpose and the JSON schema of its input."""

    name: str
    about: str
    schema: dict[str, Any]


class OutputFormat(Struct, frozen=True, kw_only=True):
    """A JSON schema that the text of the answer must match. The value is always an object.

    `strict` is True if the schema uses only what OpenAI's APIs can enforce.
    """

    name: str
    schema: dict[str, Any]
    strict: bool = False


class Parameters(Struct, frozen=True, kw_only=True):
    """Settings of one request. A value of None leaves the choice to the provider."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_output: int | None = None
    options: dict[str, Any] = {}
    headers: dict[str, str] = {}


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One request to a model. In a valid history every call has exactly one result.

    If `tool_choice` is "required", `forced` may name the tool that the model must call. Some APIs use `session`, the
    id of the session, as a cache key.
    """

    model: Model
    system: tuple[str, ...]
    messages: tuple[ModelMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Literal["auto", "none", "required"] = "auto"
    forced: str = ""
    format: OutputFormat | None = None
    parameters: Parameters = Parameters()
    session: str = ""


class Provider(Protocol):
    """One model API.

    * `stream` sends exactly one request. It yields `Started` first and `Finished` last, once each.
    * A block is opened before its first delta and closed before the end of the answer. A `ToolCall` chunk is
      complete.
    * Every failure is raised as `ProviderError`, with status, headers and body as far as they are known. Nothing
      is retried here.
    * Closing the stream closes the connection at once.
    """

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]: ...
