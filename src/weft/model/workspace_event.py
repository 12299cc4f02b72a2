"""Events about language servers, MCP servers, terminals, the server itself and its front ends."""

from typing import Any, ClassVar, Literal

from weft.model.event import Event
from weft.model.ids import PtyID, SessionID


class LspUpdated(Event, frozen=True, kw_only=True):
    """A language server started or ended."""

    type: ClassVar[str] = "lsp.updated"


class LspDiagnosed(Event, frozen=True, kw_only=True):
    """A language server reported diagnostics of a file."""

    type: ClassVar[str] = "lsp.client.diagnostics"

    server_id: str
    path: str


class McpToolsChanged(Event, frozen=True, kw_only=True):
    """The tools of an MCP server changed."""

    type: ClassVar[str] = "mcp.tools.changed"

    server: str


class McpBrowserFailed(Event, frozen=True, kw_only=True):
    """No browser could be opened for a login. Clients show the address to the person."""

    type: ClassVar[str] = "mcp.browser.open.failed"

    mcp_name: str
    url: str


class ServerConnected(Event, frozen=True, kw_only=True):
    """The first event of every stream."""

    type: ClassVar[str] = "server.connected"


class ServerHeartbeat(Event, frozen=True, kw_only=True):
    """The stream is alive. weft sends it every 10 seconds without events."""

    type: ClassVar[str] = "server.heartbeat"


class InstanceDisposed(Event, frozen=True, kw_only=True):
    """The server closed a directory."""

    type: ClassVar[str] = "server.instance.disposed"

    directory: str


class GlobalDisposed(Event, frozen=True, kw_only=True):
    """The server shuts down."""

    type: ClassVar[str] = "global.disposed"


class InstallationUpdated(Event, frozen=True, kw_only=True):
    """OpenCode updated itself; weft never sends it."""

    type: ClassVar[str] = "installation.updated"

    version: str


class UpdateAvailable(Event, frozen=True, kw_only=True):
    """OpenCode found an update; weft never sends it."""

    type: ClassVar[str] = "installation.update-available"

    version: str


class IdeInstalled(Event, frozen=True, kw_only=True):
    """OpenCode installed its editor extension; weft never sends it."""

    type: ClassVar[str] = "ide.installed"

    ide: str


class PtyCreated(Event, frozen=True, kw_only=True):
    """A terminal was opened."""

    type: ClassVar[str] = "pty.created"

    info: dict[str, Any]


class PtyUpdated(Event, frozen=True, kw_only=True):
    """The title or the size of a terminal changed."""

    type: ClassVar[str] = "pty.updated"

    info: dict[str, Any]


class PtyExited(Event, frozen=True, kw_only=True):
    """The program in a terminal ended."""

    type: ClassVar[str] = "pty.exited"

    id: PtyID
    exit_code: int


class PtyDeleted(Event, frozen=True, kw_only=True):
    """A terminal was removed."""

    type: ClassVar[str] = "pty.deleted"

    id: PtyID


class TuiPromptAppended(Event, frozen=True, kw_only=True):
    """A client asked OpenCode's terminal UI to add text to its input."""

    type: ClassVar[str] = "tui.prompt.append"

    text: str


class TuiCommandExecuted(Event, frozen=True, kw_only=True):
    """A client asked OpenCode's terminal UI to run a command."""

    type: ClassVar[str] = "tui.command.execute"

    command: str


class TuiToastShown(Event, frozen=True, kw_only=True):
    """A client asked OpenCode's terminal UI to show a message."""

    type: ClassVar[str] = "tui.toast.show"

    title: str | None = None
    message: str
    variant: Literal["info", "success", "warning", "error"]
    duration: int | float | None = None


class TuiSessionSelected(Event, frozen=True, kw_only=True):
    """A client asked OpenCode's terminal UI to show a session."""

    type: ClassVar[str] = "tui.session.select"

    session_id: SessionID
