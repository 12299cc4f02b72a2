"""A small MCP server that is a program: a shelf of notes in a file beside it."""

import json
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

SHELF = Path(__file__).with_name("notes.json")
server = MCPServer("notes")


def read() -> dict[str, str]:
    return json.loads(SHELF.read_text()) if SHELF.exists() else {}


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def find(words: str) -> str:
    """Find notes in which these words occur."""
    found = [f"{name}: {text}" for name, text in read().items() if words.lower() in f"{name} {text}".lower()]
    return "\n".join(found) or "There is no such note."


@server.tool()
def keep(name: str, text: str) -> str:
    """Keep a note under a name."""
    SHELF.write_text(json.dumps({**read(), name: text}, indent=2))
    return f"Kept {name}."


@server.resource("notes://all", name="all notes", mime_type="text/plain")
def everything() -> str:
    return "\n".join(f"{name}: {text}" for name, text in read().items()) or "There are no notes."


@server.prompt()
def tidy(topic: str) -> str:
    """Put the notes on a topic in order."""
    return f"Find all notes on {topic}, and keep one note that says what they come to."


if __name__ == "__main__":
    server.run("stdio")
