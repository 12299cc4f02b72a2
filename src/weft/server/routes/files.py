"""HTTP routes to read files and to search in them."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from weft.errors import InvalidInputError
from weft.model.wire import Wire
from weft.model.workspace import FileChange, FileContent, FileNode, Kind, Symbol, TextMatch
from weft.server.route import DirectoryCall, route

DEFAULT_LIMIT = 10
MAX_LIMIT = 200


class PathQuery(Struct, frozen=True, kw_only=True):
    path: str


class PatternQuery(Struct, frozen=True, kw_only=True):
    pattern: str
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] | None = None


class FileQuery(Struct, frozen=True, kw_only=True):
    """`dirs=false` leaves directories out; `type` selects one kind."""

    query: str
    dirs: Literal["true", "false"] | None = None
    type: Kind | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] | None = None


class SymbolQuery(Struct, frozen=True, kw_only=True):
    query: str


class RawContent(Wire, frozen=True, kw_only=True):
    """The content of a file, in the form that OpenCode's Python package expects."""

    type: Literal["raw", "patch"]
    content: str


async def list_directory(call: DirectoryCall) -> list[FileNode] | RawContent:
    """List a directory. For a file, return its content, as clients of 2025 expect."""
    query: PathQuery = call.query
    try:
        return await call.api.files.list_directory(query.path)
    except InvalidInputError:
        file = await call.api.files.read_file(query.path)
    return RawContent(type="patch" if file.diff else "raw", content=file.diff or file.content)


async def read_file(call: DirectoryCall) -> FileContent:
    """Return the content of a file and its diff against the last commit."""
    query: PathQuery = call.query
    return await call.api.files.read_file(query.path)


async def list_changed(call: DirectoryCall) -> list[FileChange]:
    """List the files that differ from the last commit."""
    return await call.api.files.list_changed()


async def find_text(call: DirectoryCall) -> list[TextMatch]:
    """Find lines that match a pattern."""
    query: PatternQuery = call.query
    return await call.api.files.find_text(query.pattern, limit=query.limit or DEFAULT_LIMIT)


async def find_files(call: DirectoryCall) -> list[str]:
    """Find files and directories by letters of their names, best match first."""
    query: FileQuery = call.query
    kind: Kind | None = query.type or ("file" if query.dirs == "false" else None)
    return await call.api.files.find_files(query.query, kind=kind, limit=query.limit or DEFAULT_LIMIT)


async def find_symbols(call: DirectoryCall) -> list[Symbol]:
    """Find symbols in code."""
    query: SymbolQuery = call.query
    return await call.api.files.find_symbols(query.query)


ROUTES = (
    route("GET", "/find", "find.text", find_text, query=PatternQuery),
    route("GET", "/find/file", "find.files", find_files, query=FileQuery),
    route("GET", "/find/symbol", "find.symbols", find_symbols, query=SymbolQuery),
    route("GET", "/file", "file.list", list_directory, query=PathQuery),
    route("GET", "/file/content", "file.read", read_file, query=PathQuery),
    route("GET", "/file/status", "file.status", list_changed),
)
