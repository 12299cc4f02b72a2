"""Names for what MCP servers bring (pure)."""

import re
from collections.abc import Container
from typing import Final

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
