"""The workspace over HTTP: configuration, files, MCP servers, worktrees and sharing."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import convert

from weft.api import Showing
from weft.client.http import (
    Asked,
    Line,
    delete,
    get,
    need_weft,
    own,
    patch,
    post,
    put,
    quoted,
    session_at,
    to_query,
)
from weft.errors import (
    InvalidInputError,
    NotFoundError,
    ServerError,
    StoreError,
    UnreachableError,
    UnsupportedError,
)
from weft.model.agent import Agent, Skill
from weft.model.damage import Damage
from weft.model.ids import ProjectID, SessionID
from weft.model.part import ModelRef
from weft.model.project import Project
from weft.model.provider import AnyAuth, AuthMethod, Authorization, ProviderList
from weft.model.session import Session
from weft.model.share import USUAL_SHARE, Share, ShareItem, SharePreview, ShareTerms, ShareTicket, Shown
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
    Whereabouts,
    WorktreeInfo,
)

Statuses = dict[str, AnyMcpStatus]
STATUS: Final = Asked(method="GET", path="/mcp", twice=True, long=True)


class RemoteMcp:
    def __init__(self, line: Line) -> None:
        self._line = line

    async def list_servers(self, *, connect: bool = False) -> Statuses:
        del connect  # whoever serves connects them before it answers
        found: Statuses = await self._line.ask(STATUS, Statuses)
        return found

    async def list_resources(self) -> dict[str, McpResource]:
        return await self._line.ask(get("/experimental/resource"), dict[str, McpResource])

    async def add_server(self, name: str, config: dict[str, Any]) -> AnyMcpStatus:
        body = {"name": name, "config": config}
        found: Statuses = await self._line.ask(post("/mcp", body, long=True), Statuses)
        if name not in found:
            raise NotFoundError("MCP server", name)
        return found[name]

    async def connect(self, name: str) -> bool:
        return await self._line.ask(post(_at(name, "connect"), long=True, twice=True), bool)

    async def disconnect(self, name: str) -> bool:
        return await self._line.ask(post(_at(name, "disconnect"), twice=True), bool)

    async def start_login(self, name: str) -> str:
        found: dict[str, str] = await self._line.ask(post(_at(name, "auth")), dict[str, str])
        return found.get("authorizationUrl", "")

    async def finish_login(self, name: str, code: str | None = None) -> AnyMcpStatus:
        if code is None:
            raise UnsupportedError("waiting for a browser over HTTP", hint="log_in does so at the server")
        status: AnyMcpStatus = await self._line.ask(
            post(_at(name, "auth", "callback"), {"code": code}, long=True), AnyMcpStatus
        )
        return status

    async def log_in(self, name: str) -> AnyMcpStatus:
        status: AnyMcpStatus = await self._line.ask(
            post(_at(name, "auth", "authenticate"), long=True), AnyMcpStatus
        )
        return status

    async def remove_login(self, name: str) -> None:
        await self._line.ask(delete(_at(name, "auth")), None)


def _at(name: str, *rest: str) -> str:
    return "/".join(("/mcp", quoted(name), *rest))


MOST_FILES = 200


class RemoteSurroundings:
    def __init__(self, line: Line) -> None:
        self._line = line

    async def get_whereabouts(self) -> Whereabouts:
        found: dict[str, Any] = await self._line.ask(get("/path"), dict[str, Any])
        # OpenCode says nothing of where its data is.
        known = {name: str(found.get(name, "")) for name in Whereabouts.__struct_fields__ if name != "extra_"}
        return convert(known, Whereabouts)

    async def get_vcs(self) -> Vcs:
        return await self._line.ask(get("/vcs"), Vcs)

    async def list_projects(self) -> list[Project]:
        return await self._line.ask(get("/project"), list[Project])

    async def update_project(self, id: ProjectID, change: ProjectChange) -> Project:
        return await self._line.ask(patch(f"/project/{quoted(id)}", change), Project)

    async def list_agents(self) -> list[Agent]:
        return await self._line.ask(get("/agent"), list[Agent])

    async def list_skills(self) -> list[Skill]:
        return await self._line.ask(get("/skill"), list[Skill])

    async def list_tools(self, model: ModelRef | None = None) -> list[ToolInfo]:
        if model is None:
            need_weft(self._line, "listing tools for no model", hint="name one: list_tools(ModelRef(…))")
            return await self._line.ask(get(own("/tool")), list[ToolInfo])
        asked = get("/experimental/tool", provider=model.provider_id, model=model.model_id)
        return await self._line.ask(asked, list[ToolInfo])

    async def list_lsp(self) -> list[LspStatus]:
        return await self._line.ask(get("/lsp"), list[LspStatus])

    async def list_formatters(self) -> list[FormatterStatus]:
        return await self._line.ask(get("/formatter"), list[FormatterStatus])

    async def list_mcp(self) -> dict[str, AnyMcpStatus]:
        return await self._line.ask(STATUS, Statuses)

    async def check_store(self) -> None:
        need_weft(self._line, "saying whether anything can be stored")
        try:
            await self._line.ask(Asked(method="GET", path=own("/ready")), None)
        except UnreachableError:
            raise
        except ServerError as error:
            raise StoreError(f"the server says that it is not ready: {error}") from error

    async def list_damage(self) -> list[Damage]:
        need_weft(self._line, "naming documents that cannot be read")
        return await self._line.ask(get(own("/damage")), list[Damage])


class RemoteConfiguration:
    def __init__(self, line: Line) -> None:
        self._line = line

    async def get(self, *, own: bool = False) -> dict[str, Any]:
        return await self._line.ask(get(self._path(own=own)), dict[str, Any])

    async def update(self, change: dict[str, Any], *, own: bool = False) -> dict[str, Any]:
        return await self._line.ask(patch(self._path(own=own), change), dict[str, Any])

    def _path(self, *, own: bool) -> str:
        if own:
            need_weft(self._line, "the person's own configuration")
        return "/global/config" if own else "/config"

    async def list_providers(self) -> ProviderList:
        return await self._line.ask(get("/provider"), ProviderList)

    async def list_auth_methods(self) -> dict[str, list[AuthMethod]]:
        return await self._line.ask(get("/provider/auth"), dict[str, list[AuthMethod]])

    async def authorize(
        self, provider: str, method: int, *, inputs: Mapping[str, str] | None = None
    ) -> Authorization:
        asked = {"method": method} | ({"inputs": dict(inputs)} if inputs else {})
        return await self._line.ask(
            post(f"/provider/{quoted(provider)}/oauth/authorize", asked), Authorization
        )

    async def finish_authorizing(self, provider: str, method: int, *, code: str | None = None) -> None:
        asked = {"method": method} | ({} if code is None else {"code": code})
        await self._line.ask(post(f"/provider/{quoted(provider)}/oauth/callback", asked, long=True), bool)

    async def store_auth(self, provider: str, auth: AnyAuth) -> None:
        await self._line.ask(put(f"/auth/{quoted(provider)}", auth), bool)

    async def remove_auth(self, provider: str) -> None:
        need_weft(self._line, "forgetting a key")
        await self._line.ask(delete(f"/auth/{quoted(provider)}"), bool)


class RemoteFiles:
    def __init__(self, line: Line) -> None:
        self._line = line

    async def list_directory(self, path: str) -> list[FileNode]:
        found = await self._line.ask(get("/file", path=path), list[FileNode] | dict[str, Any])
        if isinstance(found, dict):  # of a file a server gives the content, for clients of 2025
            raise InvalidInputError("path", f"{path[:80]!r} is not a directory")
        nodes: list[FileNode] = found
        return nodes

    async def read_file(self, path: str) -> FileContent:
        return await self._line.ask(get("/file/content", path=path), FileContent)

    async def list_changed(self) -> list[FileChange]:
        return await self._line.ask(get("/file/status"), list[FileChange])

    async def find_text(self, pattern: str, *, limit: int = 10) -> list[TextMatch]:
        found: list[TextMatch] = await self._line.ask(get("/find", pattern=pattern), list[TextMatch])
        return found[:limit]

    async def find_files(self, query: str, *, kind: Kind | None = None, limit: int = 100) -> list[str]:
        if limit < 1:
            return []
        asked = get("/find/file", query=query, type=kind, limit=min(limit, MOST_FILES))
        return await self._line.ask(asked, list[str])

    async def find_symbols(self, query: str) -> list[Symbol]:
        return await self._line.ask(get("/find/symbol", query=query), list[Symbol])


WORKTREE = "/experimental/worktree"


class RemoteWorktrees:
    def __init__(self, line: Line) -> None:
        self._line = line

    async def list_worktrees(self) -> list[WorktreeInfo]:
        need_weft(self._line, "describing worktrees")
        return await self._line.ask(get(own("/worktree")), list[WorktreeInfo])

    async def create_worktree(
        self, name: str | None = None, *, start: bool = True, also: str = ""
    ) -> WorktreeInfo:
        if not start:
            raise UnsupportedError(
                "making a worktree and not making it ready, over HTTP",
                hint="a server does so that was started with --no-shell",
            )
        given = {"name": name, "startCommand": also or None}
        body = {field: value for field, value in given.items() if value is not None}
        return await self._line.ask(post(WORKTREE, body, long=True), WorktreeInfo)

    async def remove_worktree(self, directory: str, *, force: bool = False) -> str:
        """A server does not say where what stood in it is kept."""
        await self._line.ask(_forced(Asked(method="DELETE", path=WORKTREE), directory, force=force), bool)
        return ""

    async def reset_worktree(self, directory: str, *, force: bool = False) -> str:
        await self._line.ask(_forced(post(f"{WORKTREE}/reset"), directory, force=force), bool)
        return ""


def _forced(asked: Asked, directory: str, *, force: bool) -> Asked:
    query = to_query({"force": force or None})
    return Asked(method=asked.method, path=asked.path, query=query, body={"directory": directory}, long=True)


FOR_BROWSERS = "a share is for those who have no password: open its address"


class RemoteSharing:
    showing: Showing

    def __init__(self, line: Line) -> None:
        self._line = line
        self.showing = RemoteShowing(line)

    async def share(self, session: SessionID, terms: ShareTerms = USUAL_SHARE) -> Session:
        if self._line.ours:
            return await self._line.ask(post(own(session_at(session, "share")), terms), Session)
        if terms != USUAL_SHARE:
            need_weft(self._line, "sharing on terms")
        return await self._line.ask(post(session_at(session, "share")), Session)

    async def preview_share(self, session: SessionID, terms: ShareTerms = USUAL_SHARE) -> SharePreview:
        path = session_at(session, "share", "preview")
        need_weft(self._line, "saying what a share would show")
        return await self._line.ask(post(own(path), terms), SharePreview)

    async def unshare(self, session: SessionID, *, forget: bool = False) -> Session:
        if self._line.ours:
            return await self._line.ask(delete(own(session_at(session, "share")), forget=forget), Session)
        if forget:
            need_weft(self._line, "forgetting a share")
        return await self._line.ask(delete(session_at(session, "share")), Session)

    async def list_shares(self) -> list[Share]:
        need_weft(self._line, "listing shares")
        return await self._line.ask(get(own("/share")), list[Share])

    async def revoke_share(self, id: str, *, forget: bool = False) -> None:
        need_weft(self._line, "taking a share back by its id")
        await self._line.ask(delete(own(f"/share/{quoted(id)}"), forget=forget), bool)

    async def catch_up(self) -> None:
        """Nothing is to be done here: the server itself keeps up to date what is shown elsewhere."""


class RemoteShowing:
    """What others send to a server to be shown. What is shown is looked at with a browser."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def get_shown(self, id: str) -> Shown:
        raise UnsupportedError(f"reading the share {id[:80]!r} over HTTP", hint=FOR_BROWSERS)

    async def feel_pulse(self, id: str) -> str:
        raise UnsupportedError(f"watching the share {id[:80]!r} over HTTP", hint=FOR_BROWSERS)

    async def receive(self, session: SessionID, *, expires: int | None = None) -> ShareTicket:
        need_weft(self._line, "receiving a share")
        body = {"sessionID": session} | ({} if expires is None else {"expires": expires})
        return await self._line.ask(post("/api/share", body), ShareTicket)

    async def take_in(self, id: str, secret: str, items: tuple[ShareItem, ...]) -> None:
        need_weft(self._line, "receiving a share")
        body = {"secret": secret, "data": items}
        await self._line.ask(post(f"/api/share/{quoted(id)}/sync", body, twice=True), None)

    async def drop(self, id: str, secret: str) -> None:
        need_weft(self._line, "receiving a share")
        await self._line.ask(delete(f"/api/share/{quoted(id)}", body={"secret": secret}), None)
