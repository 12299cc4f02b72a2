"""What is around conversations, over HTTP: surroundings, configuration, files."""

from collections.abc import Mapping
from typing import Any

from msgspec import convert

from weft.client.asked import Asked, delete, get, patch, post, put, quoted
from weft.client.http import Line
from weft.client.mcp import STATUS, Statuses
from weft.client.paths import need_weft, own
from weft.errors import InvalidInputError, ServerError, StoreError, UnreachableError
from weft.model.agent import Agent, Skill
from weft.model.around.files import FileChange, FileContent, FileNode, Kind, Symbol, TextMatch
from weft.model.around.place import (
    AnyMcpStatus,
    FormatterStatus,
    LspStatus,
    ProjectChange,
    ToolInfo,
    Vcs,
    Whereabouts,
)
from weft.model.around.provider import AnyAuth, AuthMethod, Authorization, ProviderList
from weft.model.damage import Damage
from weft.model.ids import ProjectID
from weft.model.part import ModelRef
from weft.model.project import Project

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
