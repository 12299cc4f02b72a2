"""The rest of the promise: what is around conversations. Configuration, models, files, terminals."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from msgspec import Struct

from weft.model.agent import Agent, Skill
from weft.model.damage import Damage
from weft.model.ids import ProjectID, PtyID, SessionID
from weft.model.part import ModelRef
from weft.model.permission import CallRef
from weft.model.project import Project
from weft.model.provider import AnyAuth, AuthMethod, Authorization, ProviderList
from weft.model.workspace import (
    AnyMcpStatus,
    FileChange,
    FileContent,
    FileNode,
    FormatterStatus,
    Kind,
    LspStatus,
    McpResource,
    ProjectChange,
    Pty,
    PtyChange,
    PtyInput,
    Symbol,
    TextMatch,
    ToolInfo,
    Vcs,
    Whereabouts,
    WorktreeInfo,
)


class Surroundings(Protocol):
    """What is around a conversation.

    * agents come with the one that is used when none is named first;
    * `list_tools` gives them as a model is told of them, as any model is if none is named;
    * language servers are listed that were started; formatters all, and whether they are used here;
    * `update_project` changes a record and tells `project.updated`;
    * `check_store` raises `StoreError` when nothing can be stored;
    * `list_damage` reads every stored document, and names those that cannot be read.
    """

    async def check_store(self) -> None: ...

    async def list_damage(self) -> list[Damage]: ...

    async def get_whereabouts(self) -> Whereabouts: ...

    async def get_vcs(self) -> Vcs: ...

    async def list_projects(self) -> list[Project]: ...

    async def update_project(self, id: ProjectID, change: ProjectChange) -> Project: ...

    async def list_agents(self) -> list[Agent]: ...

    async def list_skills(self) -> list[Skill]: ...

    async def list_tools(self, model: ModelRef | None = None) -> list[ToolInfo]: ...

    async def list_lsp(self) -> list[LspStatus]: ...

    async def list_formatters(self) -> list[FormatterStatus]: ...

    async def list_mcp(self) -> dict[str, AnyMcpStatus]: ...


class EditorFiles(Protocol):
    """The text files that an editor has, with what a person typed into them and did not save.

    * `read` gives a file's text as the editor has it, None if it has none or cannot say;
    * `write` gives the editor a text to show and to save; gives whether it took it.
    """

    async def read(self, session: SessionID, path: str) -> str | None: ...

    async def write(self, session: SessionID, path: str, text: str) -> bool: ...


class TerminalEnd(Struct, frozen=True, kw_only=True):
    """How the command in a terminal ended: by itself, or by a signal of that name. Neither, if nobody knows."""

    code: int | None = None
    signal: str | None = None


class EditorTerminal(Protocol):
    """A command that runs in a terminal of the editor.

    * `read` gives all that it has said, as far as the editor keeps it;
    * `wait` returns when it has ended; `kill` ends it, `release` gives the terminal back. Neither fails if it is gone.
    """

    async def read(self) -> str: ...

    async def wait(self) -> TerminalEnd: ...

    async def kill(self) -> None: ...

    async def release(self) -> None: ...


class EditorTerminals(Protocol):
    """Terminals that a person sees in their editor. `open_terminal` starts a command for a call of a session's tool; None
    if the editor gives none."""

    async def open_terminal(
        self, session: SessionID, call: CallRef, argv: Sequence[str], directory: str
    ) -> EditorTerminal | None: ...


class EditorWorkspace(EditorFiles, EditorTerminals, Protocol):
    """What of an editor tools may use."""


class Mcp(Protocol):
    """MCP servers: programs and addresses that bring tools, prompts and things to read.

    * none is started before something is to be done; `list_servers` says how each stands, and with `connect` (over HTTP,
      always) connects those that are not off first;
    * a server that fails is a status, never an error; a name that nobody has raises `NotFoundError`;
    * `add_server` is for as long as this is open, and connects;
    * `start_login` gives the address a person logs in at, "" if none is needed; `finish_login` takes the code they come
      back with, or waits until their browser has brought it; `log_in` does both, with a browser on this machine. One that
      knows no such login raises `InvalidInputError`.
    """

    async def list_servers(self, *, connect: bool = False) -> dict[str, AnyMcpStatus]: ...

    async def list_resources(self) -> dict[str, McpResource]: ...

    async def add_server(self, name: str, config: dict[str, Any]) -> AnyMcpStatus: ...

    async def connect(self, name: str) -> bool: ...

    async def disconnect(self, name: str) -> bool: ...

    async def start_login(self, name: str) -> str: ...

    async def finish_login(self, name: str, code: str | None = None) -> AnyMcpStatus: ...

    async def log_in(self, name: str) -> AnyMcpStatus: ...

    async def remove_login(self, name: str) -> None: ...


class Configuration(Protocol):
    """What is configured, and which models that makes available.

    * no secret is ever given out: where one stands, it is covered;
    * `get` gives what is in force, every key binding included; with `own`, what the person's own files say;
    * `update` merges a change into the project's file, or with `own` into the person's: all of it or nothing, what the
      file says besides and its comments stay. It holds from the next opening on. A project that is not trusted cannot
      be given what would not be in force;
    * a credential is stored for its owner's eyes alone; removing one that is not there raises `NotFoundError`;
    * a `method` is a place in what `list_auth_methods` gives for a provider. `authorize` begins a login by a browser;
      `finish_authorizing` waits until the person has been there, or takes the code they bring, and stores what came of
      it. Without a beginning it raises `InvalidInputError`, and when it fails `ProviderAuthError`.
    """

    async def get(self, *, own: bool = False) -> dict[str, Any]: ...

    async def update(self, change: dict[str, Any], *, own: bool = False) -> dict[str, Any]: ...

    async def list_providers(self) -> ProviderList: ...

    async def list_auth_methods(self) -> dict[str, list[AuthMethod]]: ...

    async def authorize(
        self, provider: str, method: int, *, inputs: Mapping[str, str] | None = None
    ) -> Authorization: ...

    async def finish_authorizing(self, provider: str, method: int, *, code: str | None = None) -> None: ...

    async def store_auth(self, provider: str, auth: AnyAuth) -> None: ...

    async def remove_auth(self, provider: str) -> None: ...


class Files(Protocol):
    """The project's files, to look at.

    * a path is from the directory we work in; one that leaves the project, by a link too, raises `OutsideError`;
    * what is too large to be shown raises `InvalidInputError`;
    * `find_files` gives the likeliest first, directories with a slash at the end.
    """

    async def list_directory(self, path: str) -> list[FileNode]: ...

    async def read_file(self, path: str) -> FileContent: ...

    async def list_changed(self) -> list[FileChange]: ...

    async def find_text(self, pattern: str, *, limit: int = 10) -> list[TextMatch]: ...

    async def find_files(self, query: str, *, kind: Kind | None = None, limit: int = 100) -> list[str]: ...

    async def find_symbols(self, query: str) -> list[Symbol]: ...


class Screen(Protocol):
    """A terminal that somebody looks at. What it said before is said first; `read` gives nothing once it is over."""

    async def read(self) -> bytes: ...

    async def write(self, typed: bytes) -> None: ...


class Terminals(Protocol):
    """Programs at screens of their own.

    * none outlives its keeper; removing one ends all that it started;
    * what is said and not looked at is kept to a limit, the last of it.
    """

    async def list_ptys(self) -> list[Pty]: ...

    async def create_pty(self, input: PtyInput) -> Pty: ...

    async def get_pty(self, id: PtyID) -> Pty: ...

    async def update_pty(self, id: PtyID, change: PtyChange) -> Pty: ...

    async def remove_pty(self, id: PtyID) -> None: ...

    def open_screen(self, id: PtyID) -> AbstractAsyncContextManager[Screen]: ...


class Worktrees(Protocol):
    """Checkouts of the project that are made for sessions, each on a branch of its own.

    * `create_worktree` makes one from the commit that is checked out; then, with `start`, what the project says makes it
      ready is run in it, if the project is trusted, and after it `also`, a command of the person's own;
    * those that a person made themselves, and the main checkout, are neither removed nor reset: `NotFoundError`;
    * one with work that is nowhere else raises `ConflictError` unless it is done by `force`; both give a commit in which
      what stood in it is kept, "" if there was nothing;
    * `reset_worktree` puts it back to the main branch; what git ignores stays. One that is in use raises `ConflictError`.
    """

    async def list_worktrees(self) -> list[WorktreeInfo]: ...

    async def create_worktree(
        self, name: str | None = None, *, start: bool = True, also: str = ""
    ) -> WorktreeInfo: ...

    async def remove_worktree(self, directory: str, *, force: bool = False) -> str: ...

    async def reset_worktree(self, directory: str, *, force: bool = False) -> str: ...
