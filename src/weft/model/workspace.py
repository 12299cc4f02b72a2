"""Workspace values: paths, version control, tools, files, terminals and worktrees as a front end sees them."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from weft.model.ids import PtyID
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


Kind = Literal["file", "directory"]


class FileNode(Wire, frozen=True, kw_only=True):
    """An entry of a directory; `path` is from where we work, `ignored` says that version control passes it over."""

    name: str
    path: str
    absolute: str
    type: Kind
    ignored: bool


class Hunk(Wire, frozen=True, kw_only=True):
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: tuple[str, ...]


class FilePatch(Wire, frozen=True, kw_only=True):
    """The difference between a file as it was committed and as it is."""

    old_file_name: str
    new_file_name: str
    hunks: tuple[Hunk, ...]


class FileContent(Wire, frozen=True, kw_only=True):
    """What is in a file: text, or bytes in base64. `diff` and `patch` are there if it is not as committed."""

    type: Literal["text"]
    content: str
    diff: str | None = None
    patch: FilePatch | None = None
    encoding: Literal["base64"] | None = None
    mime_type: str | None = None


class FileChange(Wire, frozen=True, kw_only=True):
    """A file that is not as committed, and by how many lines."""

    path: str
    added: int
    removed: int
    status: Literal["added", "deleted", "modified"]


class Words(Wire, frozen=True, kw_only=True):
    text: str


class Submatch(Wire, frozen=True, kw_only=True):
    """Where in a line it is, in bytes."""

    match: Words
    start: int
    end: int


class TextMatch(Wire, frozen=True, kw_only=True):
    """A line in which a pattern was found, in the words of ripgrep."""

    path: Words
    lines: Words
    line_number: int = field(name="line_number")
    absolute_offset: int = field(name="absolute_offset")
    submatches: tuple[Submatch, ...] = always(())


class Position(Wire, frozen=True, kw_only=True):
    line: int
    character: int


class Stretch(Wire, frozen=True, kw_only=True):
    start: Position
    end: Position


class SymbolPlace(Wire, frozen=True, kw_only=True):
    uri: str
    range: Stretch


class Symbol(Wire, frozen=True, kw_only=True):
    """A thing that has a name in code, as language servers tell it."""

    name: str
    kind: int
    location: SymbolPlace


Side = Annotated[int, Meta(ge=1, le=1000)]


class PtySize(Wire, frozen=True, kw_only=True):
    rows: Side
    cols: Side


class Pty(Wire, frozen=True, kw_only=True):
    """A terminal and the program in it."""

    id: PtyID
    title: str
    command: str
    args: tuple[str, ...]
    cwd: str
    status: Literal["running", "exited"]
    pid: int
    exit_code: int | None = None


class PtyInput(Wire, frozen=True, kw_only=True):
    """A terminal to be opened; the person's shell if no program is named."""

    command: str | None = None
    args: tuple[str, ...] | None = None
    cwd: str | None = None
    title: str | None = None
    env: dict[str, str] | None = None


class PtyChange(Wire, frozen=True, kw_only=True):
    """What of a terminal is to be another."""

    title: str | None = None
    size: PtySize | None = None


class WorktreeInfo(Wire, frozen=True, kw_only=True):
    """What it is called, the branch it is on, and where it is."""

    name: str
    branch: str
    directory: str
