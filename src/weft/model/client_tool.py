"""Tools of a client: the model calls them on the server, and the client runs them in its own process."""

from typing import Any

from msgspec import field

from weft.model.ids import MessageID, SessionID, ToolRequestID
from weft.model.wire import Wire


class ClientTool(Wire, frozen=True, kw_only=True):
    """A tool as the model sees it. `schema` is the JSON schema of its arguments, which are an object."""

    name: str
    description: str
    schema: dict[str, Any]


class ClientToolRequest(Wire, frozen=True, kw_only=True):
    """A call of a tool that waits for the `client` that offered it.

    `input` are the arguments as the model wrote them: the client checks them. `directory` and `worktree` are paths on the
    server's machine.
    """

    id: ToolRequestID
    session_id: SessionID
    message_id: MessageID
    call_id: str
    agent: str
    directory: str
    worktree: str
    client: str
    tool: str
    input: dict[str, Any]


class ClientToolAsk(Wire, frozen=True, kw_only=True):
    """A permission that a running tool asks for. The client chooses the `key`: asking twice with one key is one request."""

    key: str
    permission: str
    patterns: tuple[str, ...]


class ClientToolReport(Wire, frozen=True, kw_only=True):
    """The progress of a call: a title for people, metadata for clients. None leaves what was reported before."""

    title: str | None = None
    metadata: dict[str, Any] | None = None


class ClientToolResult(Wire, frozen=True, kw_only=True):
    """The result of a call: text for the model, a title for people, metadata for clients.

    An `error` fails the call. With `refused`, it says that a person refused a permission, which ends the run.
    """

    output: str = ""
    title: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    refused: bool = False
