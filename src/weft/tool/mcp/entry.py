"""The configuration of an MCP server, and the names of its tools, prompts and resources."""

import re
from collections.abc import Container, Mapping
from typing import Final

from msgspec import Struct

from weft.tool.mcp.contract import CALL_TIMEOUT_SECONDS, CONNECT_TIMEOUT_SECONDS


class LocalEntry(Struct, frozen=True, kw_only=True):
    """A server that we start as a program and talk to over standard input and output.

    `environment` is its whole environment. With a `refusal`, it may not be run.
    """

    name: str
    argv: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    connect: float = CONNECT_TIMEOUT_SECONDS
    call: float = CALL_TIMEOUT_SECONDS
    refusal: str = ""


class OAuthSettings(Struct, frozen=True, kw_only=True):
    """How to log in: as a registered client, or without a `client_id` as one that is registered first."""

    client_id: str = ""
    client_secret: str = ""
    scope: str = ""

    def __repr__(self) -> str:
        return f"OAuthSettings(client_id={self.client_id!r})"


class RemoteEntry(Struct, frozen=True, kw_only=True):
    """A server that we reach over HTTP. Without `oauth`, no login is attempted."""

    name: str
    url: str
    headers: Mapping[str, str] = {}
    oauth: OAuthSettings | None = None
    connect: float = CONNECT_TIMEOUT_SECONDS
    call: float = CALL_TIMEOUT_SECONDS

    def __repr__(self) -> str:
        return f"RemoteEntry(name={self.name!r}, url={self.url!r})"


AnyEntry = LocalEntry | RemoteEntry


# The limit of the strictest API for the name of a tool.
MAX_NAME_LENGTH: Final = 64
ELLIPSIS: Final = " … "
_INVALID_CHARACTER: Final = re.compile(r"[^A-Za-z0-9_-]")


def sanitize_name(name: str) -> str:
    """Replace every character that APIs do not accept by an underscore, as OpenCode does."""
    return _INVALID_CHARACTER.sub("_", name)


def make_tool_prefix(server: str) -> str:
    """Return the prefix of the names of all tools of a server."""
    return f"{sanitize_name(server)}_"


def make_tool_key(server: str, tool: str, taken: Container[str]) -> str:
    """Return `<server>_<tool>`, by which models and rules know a tool. Add a number if the name is taken.

    In OpenCode, a later tool replaces an earlier one of the same name, even a built-in one.
    """
    return _make_unique(f"{make_tool_prefix(server)}{sanitize_name(tool)}", taken)


def make_prompt_key(server: str, prompt: str, taken: Container[str]) -> str:
    return _make_unique(f"{sanitize_name(server)}:{sanitize_name(prompt)}", taken)


def make_resource_key(server: str, resource: str, taken: Container[str]) -> str:
    return _make_unique(f"{sanitize_name(server)}:{sanitize_name(resource)}", taken)


def _make_unique(name: str, taken: Container[str]) -> str:
    unique, number = name[:MAX_NAME_LENGTH], 1
    while unique in taken:
        number += 1
        suffix = f"_{number}"
        unique = name[: MAX_NAME_LENGTH - len(suffix)] + suffix
    return unique


def to_single_line(text: str, max_length: int) -> str:
    """Make a server's text safe to show: one line, printable characters only, cut to a length."""
    line = _join_lines(text[: max_length * 4])
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def cut_middle(text: str, max_length: int) -> str:
    """Like `to_single_line`, but cut the middle: an error starts with its cause and ends with a program's last output."""
    line = _join_lines(
        text if len(text) <= max_length * 8 else text[: max_length * 4] + text[-max_length * 4 :]
    )
    if len(line) <= max_length:
        return line
    head = max_length // 4
    return f"{line[:head]}{ELLIPSIS}{line[head + len(ELLIPSIS) - max_length :]}"


def _join_lines(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
