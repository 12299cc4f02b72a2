"""The workspace over HTTP: project, configuration, files, MCP servers, worktrees, trials, sharing, data and moves."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from msgspec import convert
from msgspec.structs import replace

from weft.api.sharing import SharePages
from weft.client.http import (
    Method,
    ServerConnection,
    ServerRequest,
    delete,
    get,
    patch,
    post,
    put,
    quote_name,
    require_weft,
    session_path,
    to_query,
    weft_path,
)
from weft.errors import (
    InvalidInputError,
    NotFoundError,
    ServerError,
    StoreError,
    UnreachableError,
    UnsupportedError,
)
from weft.model.agent import AgentInfo, Skill
from weft.model.damage import Damage
from weft.model.data import ContextReport, FileBlame, FileLog, QueryInput, QueryResult
from weft.model.health import DoctorFinding, StorageReport
from weft.model.ids import ProjectID, SessionID, check_id
from weft.model.move import MoveOffer, MovePiece, MoveProgress, MoveResult
from weft.model.part import ModelRef
from weft.model.project import Project
from weft.model.proof import SessionProof
from weft.model.provider import AnyAuth, AuthMethod, LoginInstructions, ProviderList
from weft.model.session import SessionInfo
from weft.model.share import (
    DEFAULT_SHARE_TERMS,
    Share,
    SharedSession,
    ShareItem,
    SharePreview,
    ShareTerms,
    ShareTicket,
)
from weft.model.trial import (
    AdoptInput,
    BisectInput,
    BisectReport,
    CompareInput,
    Comparison,
    DiscardedWorktree,
    ReplayInput,
    ReplayReport,
    Trial,
    TrialAdoption,
    TrialInput,
)
from weft.model.trust import TrustReport
from weft.model.wire import to_plain
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
    Symbol,
    TextMatch,
    ToolInfo,
    Vcs,
    WorkspacePaths,
    WorktreeInfo,
)

McpStatuses = dict[str, AnyMcpStatus]
STATUS_REQUEST: Final = ServerRequest(method="GET", path="/mcp", repeatable=True, long=True)


class RemoteMcp:
    """The `Mcp` of a server."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def list_servers(self, *, connect: bool = False) -> McpStatuses:
        del connect  # the server always connects them first
        found: McpStatuses = await self._connection.send(STATUS_REQUEST, McpStatuses)
        return found

    async def list_resources(self) -> dict[str, McpResource]:
        return await self._connection.send(get("/experimental/resource"), dict[str, McpResource])

    async def add_server(self, name: str, config: dict[str, Any]) -> AnyMcpStatus:
        body = {"name": name, "config": config}
        found: McpStatuses = await self._connection.send(post("/mcp", body, long=True), McpStatuses)
        if name not in found:
            raise NotFoundError("MCP server", name)
        return found[name]

    async def connect(self, name: str) -> bool:
        return await self._connection.send(
            post(_server_path(name, "connect"), long=True, repeatable=True), bool
        )

    async def disconnect(self, name: str) -> bool:
        return await self._connection.send(post(_server_path(name, "disconnect"), repeatable=True), bool)

    async def start_login(self, name: str) -> str:
        found: dict[str, str] = await self._connection.send(post(_server_path(name, "auth")), dict[str, str])
        return found.get("authorizationUrl", "")

    async def finish_login(self, name: str, code: str | None = None) -> AnyMcpStatus:
        if code is None:
            raise UnsupportedError(
                "waiting for a browser over HTTP", hint="use log_in, which waits on the server"
            )
        status: AnyMcpStatus = await self._connection.send(
            post(_server_path(name, "auth", "callback"), {"code": code}, long=True), AnyMcpStatus
        )
        return status

    async def log_in(self, name: str) -> AnyMcpStatus:
        status: AnyMcpStatus = await self._connection.send(
            post(_server_path(name, "auth", "authenticate"), long=True), AnyMcpStatus
        )
        return status

    async def remove_login(self, name: str) -> None:
        await self._connection.send(delete(_server_path(name, "auth")), None)


def _server_path(name: str, *rest: str) -> str:
    return "/".join(("/mcp", quote_name(name), *rest))


MAX_FILES = 200


class RemoteWorkspace:
    """The `Workspace` of a server."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def get_paths(self) -> WorkspacePaths:
        found: dict[str, Any] = await self._connection.send(get("/path"), dict[str, Any])
        # OpenCode does not send its data directory.
        known = {
            name: str(found.get(name, "")) for name in WorkspacePaths.__struct_fields__ if name != "extra_"
        }
        return convert(known, WorkspacePaths)

    async def get_vcs(self) -> Vcs:
        return await self._connection.send(get("/vcs"), Vcs)

    async def list_projects(self) -> list[Project]:
        return await self._connection.send(get("/project"), list[Project])

    async def update_project(self, id: ProjectID, change: ProjectChange) -> Project:
        return await self._connection.send(patch(f"/project/{quote_name(id)}", change), Project)

    async def list_agents(self) -> list[AgentInfo]:
        return await self._connection.send(get("/agent"), list[AgentInfo])

    async def list_skills(self) -> list[Skill]:
        return await self._connection.send(get("/skill"), list[Skill])

    async def list_tools(self, model: ModelRef | None = None) -> list[ToolInfo]:
        if model is None:
            require_weft(
                self._connection,
                "listing tools without a model",
                hint="name a model: list_tools(ModelRef(…))",
            )
            return await self._connection.send(get(weft_path("/tool")), list[ToolInfo])
        request = get("/experimental/tool", provider=model.provider_id, model=model.model_id)
        return await self._connection.send(request, list[ToolInfo])

    async def list_lsp(self) -> list[LspStatus]:
        return await self._connection.send(get("/lsp"), list[LspStatus])

    async def list_formatters(self) -> list[FormatterStatus]:
        return await self._connection.send(get("/formatter"), list[FormatterStatus])

    async def list_mcp(self) -> dict[str, AnyMcpStatus]:
        return await self._connection.send(STATUS_REQUEST, McpStatuses)

    async def check_store(self) -> None:
        require_weft(self._connection, "checking the store")
        try:
            await self._connection.send(ServerRequest(method="GET", path=weft_path("/ready")), None)
        except UnreachableError:
            raise
        except ServerError as error:
            raise StoreError(f"the server is not ready: {error}") from error

    async def list_damage(self) -> list[Damage]:
        require_weft(self._connection, "listing damaged documents")
        return await self._connection.send(get(weft_path("/damage")), list[Damage])

    async def list_findings(self) -> list[DoctorFinding]:
        require_weft(self._connection, "examining the store")
        return await self._connection.send(replace(get(weft_path("/doctor")), long=True), list[DoctorFinding])

    async def measure_storage(self) -> StorageReport:
        require_weft(self._connection, "measuring the store")
        return await self._connection.send(replace(get(weft_path("/storage")), long=True), StorageReport)

    async def get_trust(self) -> TrustReport:
        require_weft(self._connection, "trusting a project")
        return await self._connection.send(get(weft_path("/trust")), TrustReport)

    async def trust(self, fingerprint: str) -> TrustReport:
        require_weft(self._connection, "trusting a project")
        body = {"fingerprint": fingerprint}
        return await self._connection.send(post(weft_path("/trust"), body, repeatable=True), TrustReport)

    async def revoke_trust(self) -> TrustReport:
        require_weft(self._connection, "trusting a project")
        return await self._connection.send(delete(weft_path("/trust")), TrustReport)


class RemoteConfiguration:
    """The `Configuration` of a server."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def get(self, *, own: bool = False) -> dict[str, Any]:
        return await self._connection.send(get(self._path(own=own)), dict[str, Any])

    async def update(self, change: dict[str, Any], *, own: bool = False) -> dict[str, Any]:
        return await self._connection.send(patch(self._path(own=own), change), dict[str, Any])

    def _path(self, *, own: bool) -> str:
        if own:
            require_weft(self._connection, "the person's own configuration")
        return "/global/config" if own else "/config"

    async def list_providers(self) -> ProviderList:
        return await self._connection.send(get("/provider"), ProviderList)

    async def list_auth_methods(self) -> dict[str, list[AuthMethod]]:
        return await self._connection.send(get("/provider/auth"), dict[str, list[AuthMethod]])

    async def authorize(
        self, provider: str, method: int, *, inputs: Mapping[str, str] | None = None
    ) -> LoginInstructions:
        body = {"method": method} | ({"inputs": dict(inputs)} if inputs else {})
        return await self._connection.send(
            post(f"/provider/{quote_name(provider)}/oauth/authorize", body), LoginInstructions
        )

    async def finish_authorizing(self, provider: str, method: int, *, code: str | None = None) -> None:
        body = {"method": method} | ({} if code is None else {"code": code})
        await self._connection.send(
            post(f"/provider/{quote_name(provider)}/oauth/callback", body, long=True), bool
        )

    async def store_auth(self, provider: str, auth: AnyAuth) -> None:
        await self._connection.send(put(f"/auth/{quote_name(provider)}", auth), bool)

    async def remove_auth(self, provider: str) -> None:
        require_weft(self._connection, "removing a credential")
        await self._connection.send(delete(f"/auth/{quote_name(provider)}"), bool)


class RemoteFiles:
    """The `Files` of a server."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def list_directory(self, path: str) -> list[FileNode]:
        found = await self._connection.send(get("/file", path=path), list[FileNode] | dict[str, Any])
        if isinstance(found, dict):  # for a file, the server sends its content, as clients of 2025 expect
            raise InvalidInputError("path", f"{path[:80]!r} is not a directory")
        nodes: list[FileNode] = found
        return nodes

    async def read_file(self, path: str) -> FileContent:
        return await self._connection.send(get("/file/content", path=path), FileContent)

    async def list_changed(self) -> list[FileChange]:
        return await self._connection.send(get("/file/status"), list[FileChange])

    async def find_text(self, pattern: str, *, limit: int = 10) -> list[TextMatch]:
        if limit < 1:
            return []
        request = get("/find", pattern=pattern, limit=min(limit, MAX_FILES))
        found: list[TextMatch] = await self._connection.send(request, list[TextMatch])
        return found[:limit]  # OpenCode 1.1.34 ignores the limit

    async def find_files(self, query: str, *, kind: Kind | None = None, limit: int = 100) -> list[str]:
        if limit < 1:
            return []
        request = get("/find/file", query=query, type=kind, limit=min(limit, MAX_FILES))
        return await self._connection.send(request, list[str])

    async def find_symbols(self, query: str) -> list[Symbol]:
        return await self._connection.send(get("/find/symbol", query=query), list[Symbol])


WORKTREE_PATH = "/experimental/worktree"


class RemoteWorktrees:
    """The `Worktrees` of a server."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def list_worktrees(self) -> list[WorktreeInfo]:
        require_weft(self._connection, "listing worktrees")
        return await self._connection.send(get(weft_path("/worktree")), list[WorktreeInfo])

    async def create_worktree(
        self, name: str | None = None, *, start: bool = True, also: str = ""
    ) -> WorktreeInfo:
        if not start:
            raise UnsupportedError(
                "creating a worktree without its start command over HTTP",
                hint="start the server with --no-shell",
            )
        fields = {"name": name, "startCommand": also or None}
        body = {field: value for field, value in fields.items() if value is not None}
        return await self._connection.send(post(WORKTREE_PATH, body, long=True), WorktreeInfo)

    async def remove_worktree(self, directory: str, *, force: bool = False) -> str:
        """Remove a worktree. Return "", because the server does not send the commit that keeps its contents."""
        await self._connection.send(
            _to_forced_request("DELETE", WORKTREE_PATH, directory, force=force),
            bool,
        )
        return ""

    async def reset_worktree(self, directory: str, *, force: bool = False) -> str:
        await self._connection.send(
            _to_forced_request("POST", f"{WORKTREE_PATH}/reset", directory, force=force), bool
        )
        return ""


def _to_forced_request(method: Method, path: str, directory: str, *, force: bool) -> ServerRequest:
    query = to_query({"force": force or None})
    return ServerRequest(method=method, path=path, query=query, body={"directory": directory}, long=True)


BROWSER_HINT = "open the address of the share in a browser"


class RemoteSharing:
    """The `Sharing` of a server."""

    pages: SharePages

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self.pages = RemoteSharePages(connection)

    async def share(self, session: SessionID, terms: ShareTerms = DEFAULT_SHARE_TERMS) -> SessionInfo:
        if self._connection.is_weft:
            return await self._connection.send(
                post(weft_path(session_path(session, "share")), terms), SessionInfo
            )
        if terms != DEFAULT_SHARE_TERMS:
            require_weft(self._connection, "share options")
        return await self._connection.send(post(session_path(session, "share")), SessionInfo)

    async def preview_share(
        self, session: SessionID, terms: ShareTerms = DEFAULT_SHARE_TERMS
    ) -> SharePreview:
        path = session_path(session, "share", "preview")
        require_weft(self._connection, "previewing a share")
        return await self._connection.send(post(weft_path(path), terms), SharePreview)

    async def unshare(self, session: SessionID, *, forget: bool = False) -> SessionInfo:
        if self._connection.is_weft:
            return await self._connection.send(
                delete(weft_path(session_path(session, "share")), forget=forget), SessionInfo
            )
        if forget:
            require_weft(self._connection, "forgetting a share")
        return await self._connection.send(delete(session_path(session, "share")), SessionInfo)

    async def list_shares(self) -> list[Share]:
        require_weft(self._connection, "listing shares")
        return await self._connection.send(get(weft_path("/share")), list[Share])

    async def revoke_share(self, id: str, *, forget: bool = False) -> None:
        require_weft(self._connection, "revoking a share by its id")
        await self._connection.send(delete(weft_path(f"/share/{quote_name(id)}"), forget=forget), bool)

    async def catch_up(self) -> None:
        """Do nothing: the server updates its remote shares itself."""


class RemoteSharePages:
    """The share pages of a server. Reading a share is not supported over HTTP: use a browser."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def get_share(self, id: str) -> SharedSession:
        raise UnsupportedError(f"reading the share {id[:80]!r} over HTTP", hint=BROWSER_HINT)

    async def get_revision(self, id: str) -> str:
        raise UnsupportedError(f"watching the share {id[:80]!r} over HTTP", hint=BROWSER_HINT)

    async def receive(self, session: SessionID, *, expires: int | None = None) -> ShareTicket:
        require_weft(self._connection, "receiving a share")
        body = {"sessionID": session} | ({} if expires is None else {"expires": expires})
        return await self._connection.send(post("/api/share", body), ShareTicket)

    async def add_items(self, id: str, secret: str, items: tuple[ShareItem, ...]) -> None:
        require_weft(self._connection, "receiving a share")
        body = {"secret": secret, "data": items}
        await self._connection.send(post(f"/api/share/{quote_name(id)}/sync", body, repeatable=True), None)

    async def remove(self, id: str, secret: str) -> None:
        require_weft(self._connection, "receiving a share")
        await self._connection.send(delete(f"/api/share/{quote_name(id)}", body={"secret": secret}), None)


class RemoteData:
    """The `Data` of a server."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def query(self, query: QueryInput) -> QueryResult:
        require_weft(self._connection, "querying sessions")
        return await self._connection.send(post(weft_path("/sql"), to_plain(query), long=True), QueryResult)

    async def blame(self, path: str, *, lines: tuple[int, int] | None = None) -> FileBlame:
        require_weft(self._connection, "finding the authors of lines")
        first, last = lines or (None, None)
        request = get(weft_path("/blame"), path=path, first=first, last=last)
        return await self._connection.send(replace(request, long=True), FileBlame)

    async def get_file_log(self, path: str) -> FileLog:
        require_weft(self._connection, "listing the changes of a file")
        request = get(weft_path("/file-log"), path=path)
        return await self._connection.send(replace(request, long=True), FileLog)

    async def verify(self, session: SessionID) -> SessionProof:
        require_weft(self._connection, "verifying sessions")
        id = check_id("session", session)
        return await self._connection.send(
            replace(get(weft_path(f"/session/{id}/proof")), long=True), SessionProof
        )

    async def get_trajectory(self, session: SessionID) -> dict[str, object]:
        require_weft(self._connection, "exporting trajectories")
        id = check_id("session", session)
        return await self._connection.send(get(weft_path(f"/session/{id}/atif")), dict[str, object])

    async def get_context(self, session: SessionID) -> ContextReport:
        require_weft(self._connection, "showing what fills a context")
        id = check_id("session", session)
        return await self._connection.send(get(weft_path(f"/session/{id}/context")), ContextReport)


class RemoteMoves:
    """The `Moves` of a server."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def offer(self, offer: MoveOffer) -> MoveProgress:
        require_weft(self._connection, "taking over a session")
        request = post(weft_path("/move"), offer, repeatable=True, long=True)
        try:
            return await self._connection.send(request, MoveProgress)
        except NotFoundError as error:
            raise UnsupportedError(
                f"taking over a session on a server with weft {self._connection.health.version}",
                hint="upgrade the server, or start it without --no-files",
            ) from error

    async def add_piece(self, move: str, piece: MovePiece) -> MoveProgress:
        return await self._connection.send(put(self._path(move, "piece"), piece), MoveProgress)

    async def accept(self, move: str) -> MoveResult:
        return await self._connection.send(post(self._path(move, "accept"), long=True), MoveResult)

    async def cancel(self, move: str, session: SessionID) -> bool:
        return await self._connection.send(delete(self._path(move), session=session), bool)

    def _path(self, move: str, *rest: str) -> str:
        return "/".join((weft_path("/move"), quote_name(move), *rest))


T = TypeVar("T")


class RemoteTrials:
    """The `Trials` of a server. Long operations have no time limit while the server is alive."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def create(self, input: TrialInput) -> list[Trial]:
        return await self._send("/try", input, list[Trial], start="false")

    async def compare(self, input: CompareInput) -> Comparison:
        return await self._send("/compare", input, Comparison)

    async def adopt(self, input: AdoptInput) -> TrialAdoption:
        return await self._send("/adopt", input, TrialAdoption)

    async def undo_adoption(self) -> TrialAdoption:
        return await self._send("/adopt/undo", None, TrialAdoption)

    async def discard(self, session: SessionID) -> list[DiscardedWorktree]:
        return await self._send(session_path(session, "discard"), None, list[DiscardedWorktree])

    async def replay(self, session: SessionID, input: ReplayInput) -> ReplayReport:
        return await self._send(session_path(session, "replay"), input, ReplayReport)

    async def bisect(self, session: SessionID, input: BisectInput) -> BisectReport:
        return await self._send(session_path(session, "bisect"), input, BisectReport)

    async def _send(self, path: str, body: Any, kind: type[T], **query: str) -> T:
        require_weft(self._connection, "comparing sessions")
        return await self._connection.send(post(weft_path(path), body, long=True, query=query), kind)
