"""HTTP for files: to look at, and to find things in."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from weft.errors import InvalidInputError
from weft.model.wire import Wire
from weft.model.workspace import FileChange, FileContent, FileNode, Kind, Symbol, TextMatch
from weft.server.route import Call, route

FOUND = 10
MOST = 200


class PathQuery(Struct, frozen=True, kw_only=True):
    path: str


class PatternQuery(Struct, frozen=True, kw_only=True):
    pattern: str
    limit: Annotated[int, Meta(ge=1, le=MOST)] | None = None


class FileQuery(Struct, frozen=True, kw_only=True):
    """`dirs=false` leaves directories out; `type` asks for one kind."""

    query: str
    dirs: Literal["true", "false"] | None = None
    type: Kind | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST)] | None = None


class SymbolQuery(Struct, frozen=True, kw_only=True):
    query: str


class RawContent(Wire, frozen=True, kw_only=True):
    """What is in a file, as the Python package of OpenCode wants it."""

    type: Literal["raw", "patch"]
    content: str


async def list_directory(call: Call) -> list[FileNode] | RawContent:
    """What is in a directory; of a file, what is in it, as clients of 2025 ask for it."""
    asked: PathQuery = call.query
    try:
        return await call.api.files.list_directory(asked.path)
    except InvalidInputError:
        found = await call.api.files.read_file(asked.path)
    return RawContent(type="patch" if found.diff else "raw", content=found.diff or found.content)


async def read_file(call: Call) -> FileContent:
    """What is in a file, and how that differs from what was committed."""
    asked: PathQuery = call.query
    return await call.api.files.read_file(asked.path)


async def list_changed(call: Call) -> list[FileChange]:
    """The files that are not as committed."""
    return await call.api.files.list_changed()


async def find_text(call: Call) -> list[TextMatch]:
    """Lines in which a pattern is found."""
    asked: PatternQuery = call.query
    return await call.api.files.find_text(asked.pattern, limit=asked.limit or FOUND)


async def find_files(call: Call) -> list[str]:
    """Files and directories by a few letters of their names, the likeliest first."""
    asked: FileQuery = call.query
    kind: Kind | None = asked.type or ("file" if asked.dirs == "false" else None)
    return await call.api.files.find_files(asked.query, kind=kind, limit=asked.limit or FOUND)


async def find_symbols(call: Call) -> list[Symbol]:
    """Things that have a name in code."""
    asked: SymbolQuery = call.query
    return await call.api.files.find_symbols(asked.query)


ROUTES = (
    route("GET", "/find", "find.text", find_text, query=PatternQuery),
    route("GET", "/find/file", "find.files", find_files, query=FileQuery),
    route("GET", "/find/symbol", "find.symbols", find_symbols, query=SymbolQuery),
    route("GET", "/file", "file.list", list_directory, query=PathQuery),
    route("GET", "/file/content", "file.read", read_file, query=PathQuery),
    route("GET", "/file/status", "file.status", list_changed),
)
