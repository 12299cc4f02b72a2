"""Bound what a tool gives the model, and keep the rest in a file."""

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from weft.tool.contract import ToolResult
from weft.tool.spill import Spill

MAX_LINES: Final = 2000
MAX_BYTES: Final = 51200

_DELEGATE = (
    "Have a subagent of type explore look through this file with the Task tool (Grep, and Read with offset and "
    "limit). Do not read all of it yourself: only what you need belongs in this conversation."
)
_LOOK = "Search it with Grep, or look at parts of it with Read, using offset and limit."


class Cut(Struct, frozen=True, kw_only=True):
    """What fits, and how much does not, in lines or in bytes, whichever limit was met."""

    preview: str
    left: int = 0
    unit: Literal["lines", "bytes"] = "lines"


def cut(text: str, *, lines: int = MAX_LINES, size: int = MAX_BYTES, tail: bool = False) -> Cut:
    """As many whole lines from the head (or the tail) as fit both limits."""
    total = len(text.encode(errors="replace"))
    every = text.split("\n")
    if len(every) <= lines and total <= size:
        return Cut(preview=text)
    taken: list[str] = []
    used = 0
    for line in reversed(every) if tail else every:
        more = len(line.encode(errors="replace")) + bool(taken)
        if len(taken) == lines or used + more > size:
            break
        taken.append(line)
        used += more
    if tail:
        taken.reverse()
    by_size = len(taken) < lines
    left = total - used if by_size else len(every) - len(taken)
    return Cut(preview="\n".join(taken), left=left, unit="bytes" if by_size else "lines")


def note(left: int, unit: str, path: str, *, delegate: bool = False) -> str:
    """The words that stand where output is missing."""
    saved = f"The tool call succeeded but the output was truncated. Full output saved to: {path}"
    return f"...{left} {unit} truncated...\n\n{saved}\n{_DELEGATE if delegate else _LOOK}"


async def bound(result: ToolResult, spill: Spill, *, delegate: bool = False) -> ToolResult:
    """The result with its output cut to what a model is given; `delegate` if its agent may start subagents.

    A tool that says in its metadata whether it truncated has seen to it itself.
    """
    if "truncated" in result.metadata:
        return result
    short = cut(result.output)
    if not short.left:
        return replace(result, metadata={**result.metadata, "truncated": False})
    path = await spill.keep(result.output)
    output = f"{short.preview}\n\n{note(short.left, short.unit, path, delegate=delegate)}"
    return replace(result, output=output, metadata={**result.metadata, "truncated": True, "outputPath": path})
