"""The workspace of a session: project, agents, tools, files, terminals and worktrees."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from weft.model.agent import AgentInfo, Skill
from weft.model.damage import Damage
from weft.model.health import DoctorFinding, StorageReport
from weft.model.ids import ProjectID, PtyID
from weft.model.part import ModelRef
from weft.model.project import Project
from weft.model.trust import TrustReport
from weft.model.workspace import (
    AnyMcpStatus,
    FileChange,
    FileContent,
    FileNode,
    FormatterStatus,
    Kind,
    LspStatus,
    ProjectChange,
    Pty,
    PtyChange,
    PtyInput,
    Symbol,
    TextMatch,
    ToolInfo,
    Vcs,
    WorkspacePaths,
    WorktreeInfo,
)


class Workspace(Protocol):
    """The project, and what sessions in it can use.

    * `list_agents` lists the default agent first.
    * `list_tools` describes the tools as `model` sees them, or without regard to a model.
    * `list_lsp` lists the language servers that were started. `list_formatters` lists all formatters and whether they
      are used here. `list_mcp` connects the enabled MCP servers first, as `Mcp.list_servers` does with `connect`.
    * `update_project` changes the stored project and publishes `project.updated`.
    * `check_store` raises `StoreError` if the store cannot be written.
    * `list_damage` reads every stored document and returns those that cannot be read.
    * `list_findings` examines machine, configuration and store as `weft doctor` does, and changes nothing. `measure_storage`
      adds up what the store takes. Both cover the whole store, whatever the directory.
    * `get_trust` says whether the project is trusted, and what is held back if it is not. `trust` takes the fingerprint of such
      a report, and raises `ConflictError` if the project has changed since. It and `revoke_trust` take effect when the
      directory is opened again.
    """

    async def check_store(self) -> None: ...

    async def list_damage(self) -> list[Damage]: ...

    async def list_findings(self) -> list[DoctorFinding]: ...

    async def measure_storage(self) -> StorageReport: ...

    async def get_trust(self) -> TrustReport: ...

    async def trust(self, fingerprint: str) -> TrustReport: ...

    async def revoke_trust(self) -> TrustReport: ...

    async def get_paths(self) -> WorkspacePaths: ...

    async def get_vcs(self) -> Vcs: ...

    async def list_projects(self) -> list[Project]: ...

    async def update_project(self, id: ProjectID, change: ProjectChange) -> Project: ...

    async def list_agents(self) -> list[AgentInfo]: ...

    async def list_skills(self) -> list[Skill]: ...

    async def list_tools(self, model: ModelRef | None = None) -> list[ToolInfo]: ...

    async def list_lsp(self) -> list[LspStatus]: ...

    async def list_formatters(self) -> list[FormatterStatus]: ...

    async def list_mcp(self) -> dict[str, AnyMcpStatus]: ...


class Files(Protocol):
    """Read and search the project's files.

    * Paths are relative to the working directory. A path that leaves the project, also through a link, raises
      `OutsideError`.
    * A file or directory that is too large raises `InvalidInputError`.
    * `find_files` returns the best match first. Directories end with a slash.
    """

    async def list_directory(self, path: str) -> list[FileNode]: ...

    async def read_file(self, path: str) -> FileContent: ...

    async def list_changed(self) -> list[FileChange]: ...

    async def find_text(self, pattern: str, *, limit: int = 10) -> list[TextMatch]: ...

    async def find_files(self, query: str, *, kind: Kind | None = None, limit: int = 100) -> list[str]: ...

    async def find_symbols(self, query: str) -> list[Symbol]: ...


class Screen(Protocol):
    """The screen of a terminal. `read` returns the earlier output first, and empty bytes after the program has ended."""

    async def read(self) -> bytes: ...

    async def write(self, typed: bytes) -> None: ...


class Terminals(Protocol):
    """Programs that run in terminals.

    * No terminal outlives the `Api`. Removing a terminal ends all processes that it started.
    * Output that nobody reads is kept up to a limit; the oldest output is dropped first.
    """

    async def list_ptys(self) -> list[Pty]: ...

    async def create_pty(self, input: PtyInput) -> Pty: ...

    async def get_pty(self, id: PtyID) -> Pty: ...

    async def update_pty(self, id: PtyID, change: PtyChange) -> Pty: ...

    async def remove_pty(self, id: PtyID) -> None: ...

    def open_screen(self, id: PtyID) -> AbstractAsyncContextManager[Screen]: ...


class Worktrees(Protocol):
    """Checkouts of the project that are made for sessions, each with its own branch.

    * `create_worktree` makes a worktree from the checked-out commit. With `start`, it then runs the start command of the
      project, if the project is trusted, and after it `also`, a command of the person.
    * Worktrees that a person made, and the main checkout, cannot be removed or reset: `NotFoundError`.
    * A worktree with work that is not merged, committed or not, raises `ConflictError` unless `force` is set.
      `remove_worktree` and `reset_worktree` return the commit that keeps its old contents, or "" if there was nothing
      to keep.
    * `reset_worktree` sets the worktree to the main branch. Ignored files stay. A worktree that is in use raises
      `ConflictError`.
    """

    async def list_worktrees(self) -> list[WorktreeInfo]: ...

    async def create_worktree(
        self, name: str | None = None, *, start: bool = True, also: str = ""
    ) -> WorktreeInfo: ...

    async def remove_worktree(self, directory: str, *, force: bool = False) -> str: ...

    async def reset_worktree(self, directory: str, *, force: bool = False) -> str: ...
