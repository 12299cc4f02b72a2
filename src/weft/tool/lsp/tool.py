"""The `lsp` tool: ask a language server about a position in the code."""

import asyncio
from typing import Any, Final

from weft.errors import ToolError
from weft.model.wire import encode_pretty
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.diagnostic import to_uri
from weft.tool.files import find_text
from weft.tool.inputs import LspInput
from weft.tool.paths import ToolPath, format_title, resolve_path

SECONDS: Final = 20.0
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


async def lsp(wanted: LspInput, ctx: ToolContext) -> ToolResult:
    place = await resolve_path(wanted.file_path, ctx)
    await ctx.ask("lsp", "*", always=("*",))
    found = await find_text(place.real)
    if found is None:
        raise ToolError(f"File not found: {place.path}")
    try:
        async with asyncio.timeout(SECONDS):
            result = await _find(wanted, place, found.content, ctx)
    except TimeoutError:
        raise ToolError(f"The language server did not answer within {SECONDS:g} seconds.") from None
    if result is None:
        raise ToolError("No LSP server available for this file type.")
    title = f"{wanted.operation} {format_title(place, ctx)}:{wanted.line}:{wanted.character}"
    output = encode_pretty(result).decode() if result else f"No results found for {wanted.operation}"
    return ToolResult(title=title, output=output, metadata={"result": result[:MAX_SYMBOLS]})


async def _find(wanted: LspInput, place: ToolPath, text: str, ctx: ToolContext) -> list[Any] | None:
    """Return the results, or None if no server serves the file."""
    ask, path = ctx.resources.language_servers.request, place.path
    method = _METHODS[wanted.operation]
    here = {
        "textDocument": {"uri": to_uri(path)},
        "position": {"line": wanted.line - 1, "character": wanted.character - 1},
    }
    match wanted.operation:
        case "documentSymbol":
            return await ask(path, method, {"textDocument": here["textDocument"]})
        case "workspaceSymbol":
            # OpenCode sends an empty query, for which most servers return nothing.
            found = await ask(path, method, {"query": _find_name(text, wanted)})
            return None if found is None else found[:MAX_SYMBOLS]
        case "findReferences":
            return await ask(path, method, {**here, "context": {"includeDeclaration": True}})
        case "incomingCalls" | "outgoingCalls":
            items = await ask(path, _METHODS["prepareCallHierarchy"], here)
            return None if items is None else await ask(path, method, {"item": items[0]}) if items else []
        case "goToDefinition" | "hover" | "goToImplementation" | "prepareCallHierarchy":
            return await ask(path, method, here)


def _find_name(text: str, wanted: LspInput) -> str:
    """Return the name at a position."""
    lines = text.split("\n")
    line = lines[wanted.line - 1] if wanted.line <= len(lines) else ""
    start = end = min(wanted.character - 1, len(line))
    while start > 0 and _is_name_character(line[start - 1]):
        start -= 1
    while end < len(line) and _is_name_character(line[end]):
        end += 1
    return line[start:end]


def _is_name_character(character: str) -> bool:
    return character.isalnum() or character in "_$"
