"""The `lsp` tool: ask a language server about a position in the code."""

import asyncio
from typing import Any, Final

from weft.errors import ToolError
from weft.model.wire import encode_pretty
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.files import find_text
from weft.tool.inputs import LspInput
from weft.tool.language_servers import to_uri
from weft.tool.paths import ToolPath, format_title, resolve_path

REQUEST_TIMEOUT_SECONDS: Final = 20.0
# As many symbols of a workspace are returned, and as many results of any operation are put into the metadata.
MAX_SYMBOLS: Final = 10

_METHODS: Final = {
    "goToDefinition": "textDocument/definition",
    "findReferences": "textDocument/references",
    "hover": "textDocument/hover",
    "documentSymbol": "textDocument/documentSymbol",
    "workspaceSymbol": "workspace/symbol",
    "goToImplementation": "textDocument/implementation",
    "prepareCallHierarchy": "textDocument/prepareCallHierarchy",
    "incomingCalls": "callHierarchy/incomingCalls",
    "outgoingCalls": "callHierarchy/outgoingCalls",
}


async def lsp(arguments: LspInput, ctx: ToolContext) -> ToolResult:
    place = await resolve_path(arguments.file_path, ctx)
    await ctx.ask("lsp", "*", always=("*",))
    file = await find_text(place.real)
    if file is None:
        raise ToolError(f"File not found: {place.path}")
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
            result = await _request_results(arguments, place, file.content, ctx)
    except TimeoutError:
        raise ToolError(
            f"The language server did not answer within {REQUEST_TIMEOUT_SECONDS:g} seconds."
        ) from None
    if result is None:
        raise ToolError("No LSP server available for this file type.")
    title = f"{arguments.operation} {format_title(place, ctx)}:{arguments.line}:{arguments.character}"
    output = encode_pretty(result).decode() if result else f"No results found for {arguments.operation}"
    return ToolResult(title=title, output=output, metadata={"result": result[:MAX_SYMBOLS]})


async def _request_results(
    arguments: LspInput, place: ToolPath, text: str, ctx: ToolContext
) -> list[Any] | None:
    """Return the results, or None if no server serves the file."""
    request, path = ctx.resources.language_servers.request, place.path
    method = _METHODS[arguments.operation]
    document_position = {
        "textDocument": {"uri": to_uri(path)},
        "position": {"line": arguments.line - 1, "character": arguments.character - 1},
    }
    match arguments.operation:
        case "documentSymbol":
            return await request(path, method, {"textDocument": document_position["textDocument"]})
        case "workspaceSymbol":
            # OpenCode sends an empty query, for which most servers return nothing.
            symbols = await request(path, method, {"query": _find_name_at(text, arguments)})
            return None if symbols is None else symbols[:MAX_SYMBOLS]
        case "findReferences":
            return await request(path, method, {**document_position, "context": {"includeDeclaration": True}})
        case "incomingCalls" | "outgoingCalls":
            items = await request(path, _METHODS["prepareCallHierarchy"], document_position)
            if not items:  # no server, or nothing that can be called is there
                return items
            return await request(path, method, {"item": items[0]})
        case "goToDefinition" | "hover" | "goToImplementation" | "prepareCallHierarchy":
            return await request(path, method, document_position)


def _find_name_at(text: str, arguments: LspInput) -> str:
    """Return the name at a position."""
    lines = text.split("\n")
    line = lines[arguments.line - 1] if arguments.line <= len(lines) else ""
    start = end = min(arguments.character - 1, len(line))
    while start > 0 and _is_name_character(line[start - 1]):
        start -= 1
    while end < len(line) and _is_name_character(line[end]):
        end += 1
    return line[start:end]


def _is_name_character(character: str) -> bool:
    return character.isalnum() or character in "_$"
