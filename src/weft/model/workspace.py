"""The workspace as front ends see it: paths, version control, tools, files, terminals and worktrees."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from weft.model.ids import PtyID
from weft.model.project import ProjectCommands, ProjectIcon
from weft.model.wire import Wire, always


class WorkspacePaths(Wire, frozen=True, kw_only=True):
    """The working directory, and the directories of weft. `worktree` is the top of the checkout, or `/`."""

    home: str
    state: str
    config: str
    data: str
    worktree: str
    directory: str


class Vcs(Wire, frozen=True, kw_only=True):
    """The checked-out branch. It is None without version control or without a branch."""

    branch: str | None = None


class ProjectChange(Wire, frozen=True, kw_only=True):
    """A change of a project. Fields that are not set stay as they are."""

    name: str | None = None
    icon: ProjectIcon | None = None
    commands: ProjectCommands | None = None


class ToolInfo(Wire, frozen=True, kw_only=True):
    """A tool as a model sees it. `parameters` is a JSON schema."""

    id: str
    description: str
    parameters: dict[str, Any] = always({})


class LspStatus(Wire, frozen=True, kw_only=True):
    """A language server that was started, and its root directory."""

    id: str
    name: str
    root: str
    status: Literal["connected", "error"]


class FormatterStatus(Wire, frozen=True, kw_only=True):
    """A formatter. `enabled` means that its program exists and the project uses it."""

    name: str
    extensions: tuple[str, ...]
    enabled: bool


class McpStatus(Wire, frozen=True, kw_only=True, tag_field="status"):
    """The status of an MCP server. `note` is further information for the person; OpenCode has no notes."""

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
    """A resource of an MCP server. `client` is the name of the server."""

    name: str
    uri: str
    description: str | None = None
    mime_type: str | None = None
    client: str


Kind = Literal["file", "directory"]


class FileNode(Wire, frozen=True, kw_only=True):
    """An entry of a directory. `path` is relative to the working directory; `ignored` means ignored by git."""

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
    """The difference between the committed file and the current one."""

    old_file_name: str
    new_file_name: str
    hunks: tuple[Hunk, ...]


class FileContent(Wire, frozen=True, kw_only=True):
    """The content of a file: text, or bytes in base64. `diff` and `patch` are set if it differs from the commit."""

    type: Literal["text"]
    content: str
    diff: str | None = None
    patch: FilePatch | None = None
    encoding: Literal["base64"] | None = None
    mime_type: str | None = None


class FileChange(Wire, frozen=True, kw_only=True):
    """A file that differs from the commit, and by how many lines."""

    path: str
    added: int
    removed: int
    status: Literal["added", "deleted", "modified"]


class MatchedText(Wire, frozen=True, kw_only=True):
    text: str


class Submatch(Wire, frozen=True, kw_only=True):
    """The range of a match in a line, in bytes."""

    match: MatchedText
    start: int
    end: int


class TextMatch(Wire, frozen=True, kw_only=True):
    """A line that matches a pattern, in the format of ripgrep."""

    path: MatchedText
    lines: MatchedText
    line_number: int = field(name="line_number")
    absolute_offset: int = field(name="absolute_offset")
    submatches: tuple[Submatch, ...] = always(())


class SymbolPosition(Wire, frozen=True, kw_only=True):
    line: int
    character: int


class SymbolRange(Wire, frozen=True, kw_only=True):
    start: SymbolPosition
    end: SymbolPosition


class SymbolLocation(Wire, frozen=True, kw_only=True):
    uri: str
    range: SymbolRange


class Symbol(Wire, frozen=True, kw_only=True):
    """A symbol in code, as language servers describe it."""

    name: str
    kind: int
    location: SymbolLocation


Side = Annotated[int, Meta(ge=1, le=1000)]


class PtySize(Wire, frozen=True, kw_only=True):
    rows: Side
    cols: Side


class Pty(Wire, frozen=True, kw_only=True):
    """A terminal and its program."""

    id: PtyID
    title: str
    command: str
    args: tuple[str, ...]
    cwd: str
    status: Literal["running", "exited"]
    pid: int
    exit_code: int | None = None


class PtyInput(Wire, frozen=True, kw_only=True):
    """A terminal to open. Without `command`, it runs the person's shell."""

    command: str | None = None
    args: tuple[str, ...] | None = None
    cwd: str | None = None
    title: str | None = None
    env: dict[str, str] | None = None


class PtyChange(Wire, frozen=True, kw_only=True):
    """A change of a terminal."""

    title: str | None = None
    size: PtySize | None = None


class WorktreeInfo(Wire, frozen=True, kw_only=True):
    """The name, the branch and the directory of a worktree."""

    name: str
    branch: str
    directory: str
