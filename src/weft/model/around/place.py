"""What is around a session: where things lie, what version control says, which tools and helping programs there are."""

from typing import Any, Literal

from weft.model.project import ProjectCommands, ProjectIcon
from weft.model.wire import Wire, always


class Whereabouts(Wire, frozen=True, kw_only=True):
    """Where we are, and where things are kept. `worktree` is the top of the checkout, `/` where there is none."""

    home: str
    state: str
    config: str
    data: str
    worktree: str
    directory: str


class Vcs(Wire, frozen=True, kw_only=True):
    """What version control says; nothing where there is none, or no branch is checked out."""

    branch: str | None = None


class ProjectChange(Wire, frozen=True, kw_only=True):
    """What of a project's record is to be another. What is not said stays."""

    name: str | None = None
    icon: ProjectIcon | None = None
    commands: ProjectCommands | None = None


class ToolInfo(Wire, frozen=True, kw_only=True):
    """A tool as a model is told of it; `parameters` is a JSON schema."""

    id: str
    description: str
    parameters: dict[str, Any] = always({})


class LspStatus(Wire, frozen=True, kw_only=True):
    """A language server that was started, and the directory it looks after."""

    id: str
    name: str
    root: str
    status: Literal["connected", "error"]


class FormatterStatus(Wire, frozen=True, kw_only=True):
    """A formatter, and whether it is used here: its program is there, and the project wants it."""

    name: str
    extensions: tuple[str, ...]
    enabled: bool


class McpStatus(Wire, frozen=True, kw_only=True, tag_field="status"):
    """How it stands with an MCP server; `note` is what else a person should know. (OpenCode has no notes.)"""

    note: str | None = None


class McpConnected(McpStatus, frozen=True, kw_only=True, tag="connected"):
    pass


class McpDisabled(McpStatus, frozen=True, kw_only=True, tag="disabled"):
    pass


class McpFailed(McpStatus, frozen=True, kw_only=True, tag="failed"):
    error: str


class McpNeedsAuth(McpStatus, frozen=True, kw_only=True, tag="needs_auth"):
    pass


class McpNeedsRegistration(McpStatus, frozen=True, kw_only=True, tag="needs_client_registration"):
    error: str


AnyMcpStatus = McpConnected | McpDisabled | McpFailed | McpNeedsAuth | McpNeedsRegistration


class McpResource(Wire, frozen=True, kw_only=True):
    """Something that an MCP server has for reading; `client` is the server."""

    name: str
    uri: str
    description: str | None = None
    mime_type: str | None = None
    client: str
