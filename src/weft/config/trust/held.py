"""Held back: one thing that a project brings along, and that does nothing until somebody vouches for the project."""

from typing import Literal

from msgspec import Struct

Kind = Literal[
    "provider",
    "mcp",
    "plugin",
    "hook",
    "tool",
    "command",
    "formatter",
    "lsp",
    "skill",
    "instructions",
    "setting",
    "substitution",
    "link",
]


class Held(Struct, frozen=True, kw_only=True):
    """`path` is the file it stands in, `does` what it would do. Neither says a secret: nothing of it was looked up."""

    kind: Kind
    name: str
    path: str
    does: str


def leads_out() -> str:
    return "leads out of the project"
