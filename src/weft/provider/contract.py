"""The provider: a model's API, as one method; and what it is asked with."""

from collections.abc import AsyncGenerator
from typing import Any, Literal, Protocol

from msgspec import Struct

from weft.model.catalog import Model
from weft.provider.chunk import AnyChunk

Metadata = dict[str, Any]


class TextContent(Struct, frozen=True, kw_only=True, tag="text"):
    text: str
    metadata: Metadata | None = None


class ReasoningContent(Struct, frozen=True, kw_only=True, tag="reasoning"):
    text: str
    metadata: Metadata | None = None


class FileContent(Struct, frozen=True, kw_only=True, tag="file"):
    """A picture, a PDF …: a `data:` URL, or one the provider can fetch."""

    url: str
    mime: str
    filename: str | None = None


class CallContent(Struct, frozen=True, kw_only=True, tag="call"):
    call_id: str
    tool: str
    input: dict[str, Any]
    metadata: Metadata | None = None


class ResultContent(Struct, frozen=True, kw_only=True, tag="result"):
    """What came of a call; `error` when it failed. Files follow the text."""

    call_id: str
    tool: str
    output: str
    error: bool = False
    files: tuple[FileContent, ...] = ()
    metadata: Metadata | None = None


UserContent = TextContent | FileContent
AssistantContent = TextContent | ReasoningContent | CallContent


class UserTurn(Struct, frozen=True, kw_only=True, tag="user", tag_field="role", weakref=True):
    content: tuple[UserContent, ...]


class AssistantTurn(Struct, frozen=True, kw_only=True, tag="assistant", tag_field="role", weakref=True):
    content: tuple[AssistantContent, ...]


class ToolTurn(Struct, frozen=True, kw_only=True, tag="tool", tag_field="role", weakref=True):
    """The results of the calls in the assistant's turn before it, one each, in order."""

    content: tuple[ResultContent, ...]


ModelMessage = UserTurn | AssistantTurn | ToolTurn


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as the model is told of it: name, what it is for, the JSON schema of its input."""

    name: str
    about: str
    schema: dict[str, Any]


class OutputFormat(Struct, frozen=True, kw_only=True):
    """The shape of the answer's text: JSON that keeps to a schema, whose value is an object.

    It is `strict` if the schema keeps to what OpenAI's APIs can enforce.
    """

    name: str
    schema: dict[str, Any]
    strict: bool = False


class Parameters(Struct, frozen=True, kw_only=True):
    """How the model is to answer. What is None is left to the provider."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_output: int | None = None
    options: dict[str, Any] = {}
    headers: dict[str, str] = {}


class ModelRequest(Struct, frozen=True, kw_only=True):
    """Everything one call of a model carries. The history is valid: every call has its one result.

    With `tool_choice` "required", `forced` may name the one tool that is to be called.
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

    * `stream` makes exactly one request and yields `Started` first and `Finished` last, once each;
    * what is streamed in pieces is opened before it grows and closed before the end; a call is whole when told;
    * a failure is raised as `ProviderError` with status, headers and body as far as known; nothing is retried here;
    * closing the stream closes the connection at once.
    """

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]: ...
