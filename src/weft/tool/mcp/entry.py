"""The configuration of an MCP server, and the names of its tools, prompts and resources."""

import re
from collections.abc import Container, Mapping
from typing import Final

from msgspec import Struct

from weft.tool.mcp.contract import CALL_SECONDS, CONNECT_SECONDS


class LocalEntry(Struct, frozen=True, kw_only=True):
    """A server that we start as a program and talk to over standard input and output.

    `environment` is its whole environment. With a `refusal`, it may not be run.
    """

    name: str
    argv: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    connect: float = CONNECT_SECONDS
    call: float = CALL_SECONDS
    refusal: str = ""


class OAuthSettings(Struct, frozen=True, kw_only=True):
    """How to log in: as a client the server knows, or without a `client_id` as one that is registered first."""

    client_id: str = ""
    client_secret: str = ""
    scope: str = ""

    def __repr__(self) -> str:
        return f"OAuthTerms(client_id={self.client_id!r})"


class RemoteEntry(Struct, frozen=True, kw_only=True):
    """A server that we reach over HTTP. Without `oauth`, no login is attempted."""

    name: str
    url: str
    headers: Mapping[str, str] = {}
    oauth: OAuthSettings | None = None
    connect: float = CONNECT_SECONDS
    call: float = CALL_SECONDS

    def __repr__(self) -> str:
        return f"RemoteEntry(name={self.name!r}, url={self.url!r})"


AnyEntry = LocalEntry | RemoteEntry


# The limit of the strictest API for the name of a tool.
MAX_NAME_LENGTH: Final = 64
ELLIPSIS: Final = " … "
_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")


def sanitize_name(name: str) -> str:
    """Replace every character that APIs do not accept by an underscore, as OpenCode does."""
    return _ODD.sub("_", name)


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
    short, number = name[:MAX_NAME_LENGTH], 1
    while short in taken:
        number += 1
        end = f"_{number}"
        short = name[: MAX_NAME_LENGTH - len(end)] + end
    return short


def to_single_line(text: str, longest: int) -> str:
    """Make a server's text safe to show: one line, printable characters only, cut to a length."""
    line = _join_lines(text[: longest * 4])
    return line if len(line) <= longest else line[: longest - 1] + "…"


def cut_middle(text: str, longest: int) -> str:
    """Do the same, but cut the middle: an error starts with what happened and ends with a program's last output."""
    line = _join_lines(text if len(text) <= longest * 8 else text[: longest * 4] + text[-longest * 4 :])
    if len(line) <= longest:
        return line
    head = longest // 4
    return f"{line[:head]}{ELLIPSIS}{line[head + len(ELLIPSIS) - longest :]}"


def _join_lines(text: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
