"""The tool: what an agent may do, and what it is given to do it with."""

from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from weft.errors import ToolError
from weft.host.clock import Clock
from weft.model.ids import MessageID, SessionID
from weft.tool.desk import Desk

Input = TypeVar("Input", bound=Struct)


class Attachment(Struct, frozen=True, kw_only=True):
    """A file handed back beside the text, as a `data:` URL."""

    mime: str
    url: str
    filename: str | None = None


class ToolResult(Struct, frozen=True, kw_only=True):
    """What came of a call: a title for people, the output for the model, metadata for screens."""

    title: str
    output: str
    metadata: dict[str, Any] = {}
    attachments: tuple[Attachment, ...] = ()


class Ask(Protocol):
    """May I? Returns when allowed, raises `NotPermittedError` when not."""

    async def __call__(
        self,
        permission: str,
        *patterns: str,
        always: tuple[str, ...] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None: ...


class Report(Protocol):
    """Tell how a call is getting on, while it runs."""

    async def __call__(self, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> None: ...


class ToolContext(Struct, frozen=True, kw_only=True):
    """All that a tool may touch. Cancelling its task is how a call is aborted."""

    session_id: SessionID
    message_id: MessageID
    call_id: str
    agent: str
    directory: str
    worktree: str
    clock: Clock
    ask: Ask
    report: Report
    desk: Desk


class Tool(Struct, Generic[Input], frozen=True, kw_only=True):
    """A struct of what it takes, a function that does it, and a text that tells the model when to use it."""

    name: str
    about: str
    takes: type[Input]
    run: Callable[[Input, ToolContext], Awaitable[ToolResult]]


AnyTool = Tool[Any]


def schema_of(tool: AnyTool) -> dict[str, Any]:
    """The JSON schema of what the tool takes, as the model is told it."""
    (root,), components = msgspec.json.schema_components([tool.takes], ref_template="#/$defs/{name}")
    own = components.pop(root["$ref"].rpartition("/")[2])
    return {**own, "additionalProperties": False} | ({"$defs": components} if components else {})


def to_input(tool: Tool[Input], given: dict[str, Any]) -> Input:
    """The model's arguments as what the tool takes, or an error the model can act on."""
    try:
        return msgspec.convert(given, tool.takes)
    except msgspec.ValidationError as error:
        raise ToolError(
            f"The {tool.name} tool was called with invalid arguments: {error}.\n"
            "Please rewrite the input so it satisfies the expected schema."
        ) from error
