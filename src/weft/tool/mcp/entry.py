"""An MCP server as configured, and the names of what it brings."""

import re
from collections.abc import Container, Mapping
from typing import Final

from msgspec import Struct

CONNECT_SECONDS: Final = 30.0
CALL_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 5.0
LOGIN_SECONDS: Final = 300.0


class Patience(Struct, frozen=True, kw_only=True):
    """How many seconds a run waits for servers that are starting; None until each has connected or failed. After `notice`
    seconds it says that it waits."""

    wait: float | None = WAIT_SECONDS
    notice: float = WAIT_SECONDS


USUAL: Final = Patience()


class LocalEntry(Struct, frozen=True, kw_only=True):
    """A server that we start: a program that is talked with over its standard input and output.

    `environment` is all that it sees. With a `refusal` it may not be run at all.
    """

    name: str
    argv: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    connect: float = CONNECT_SECONDS
    call: float = CALL_SECONDS
    refusal: str = ""


class OAuthTerms(Struct, frozen=True, kw_only=True):
    """How to log in: as a client the server knows already, or else as one that is registered with it first."""

    client_id: str = ""
    client_secret: str = ""
    scope: str = ""

    def __repr__(self) -> str:
        return f"OAuthTerms(client_id={self.client_id!r})"


class RemoteEntry(Struct, frozen=True, kw_only=True):
    """A server that we call. Without `oauth` no login is tried."""

    name: str
    url: str
    headers: Mapping[str, str] = {}
    oauth: OAuthTerms | None = None
    connect: float = CONNECT_SECONDS
    call: float = CALL_SECONDS

    def __repr__(self) -> str:
        return f"RemoteEntry(name={self.name!r}, url={self.url!r})"


AnyEntry = LocalEntry | RemoteEntry


# What the strictest API takes for the name of a tool.
LONGEST: Final = 64
CUT: Final = " … "
_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")


def to_word(name: str) -> str:
    """A name in the letters that APIs take, the others a line each, as OpenCode has it."""
    return _ODD.sub("_", name)


def tool_prefix(server: str) -> str:
    """What the names of all tools of a server begin with."""
    return f"{to_word(server)}_"


def tool_key(server: str, tool: str, taken: Container[str]) -> str:
    """`<server>_<tool>`: what a tool is called, and what rules call it. One that is taken gets a number.

    OpenCode lets the later one take the place of the earlier, also of a tool of its own.
    """
    return _free(f"{tool_prefix(server)}{to_word(tool)}", taken)


def prompt_key(server: str, prompt: str, taken: Container[str]) -> str:
    return _free(f"{to_word(server)}:{to_word(prompt)}", taken)


def resource_key(server: str, resource: str, taken: Container[str]) -> str:
    return _free(f"{to_word(server)}:{to_word(resource)}", taken)


def _free(name: str, taken: Container[str]) -> str:
    short, number = name[:LONGEST], 1
    while short in taken:
        number += 1
        end = f"_{number}"
        short = name[: LONGEST - len(end)] + end
    return short


def legible(text: str, longest: int) -> str:
    """Words of a stranger for a screen: on one line, nothing that moves a cursor, no longer than that."""
    line = _on_one_line(text[: longest * 4])
    return line if len(line) <= longest else line[: longest - 1] + "…"


def cut_middle(text: str, longest: int) -> str:
    """The same, but cut in the middle: a reason begins with what happened and ends with the last words of a program."""
    line = _on_one_line(text if len(text) <= longest * 8 else text[: longest * 4] + text[-longest * 4 :])
    if len(line) <= longest:
        return line
    head = longest // 4
    return f"{line[:head]}{CUT}{line[head + len(CUT) - longest :]}"


def _on_one_line(text: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
