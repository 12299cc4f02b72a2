"""Truncate a tool's output for the model, and keep the whole output in a file."""

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from weft.tool.contract import ToolResult
from weft.tool.spill import Spill

MAX_LINES: Final = 2000
MAX_BYTES: Final = 51200

_DELEGATE_HINT = (
    "Have a subagent of type explore look through this file with the Task tool (Grep, and Read with offset and "
    "limit). Do not read all of it yourself: only what you need belongs in this conversation."
)
_SEARCH_HINT = "Search it with Grep, or look at parts of it with Read, using offset and limit."


class TruncatedText(Struct, frozen=True, kw_only=True):
    """The text that fits, and how much was removed: in lines or in bytes, depending on the limit that was reached."""

    preview: str
    left: int = 0
    unit: Literal["lines", "bytes"] = "lines"


def truncate(
    text: str, *, lines: int = MAX_LINES, size: int = MAX_BYTES, tail: bool = False
) -> TruncatedText:
    """Keep as many whole lines from the start (with `tail`, from the end) as fit both limits."""
    total = len(text.encode(errors="replace"))
    every = text.split("\n")
    if len(every) <= lines and total <= size:
        return TruncatedText(preview=text)
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
    return TruncatedText(preview="\n".join(taken), left=left, unit="bytes" if by_size else "lines")


def format_truncation_note(left: int, unit: str, path: str, *, delegate: bool = False) -> str:
    """Return the note that replaces the removed output. `delegate` suggests a subagent."""
    saved = f"The tool call succeeded but the output was truncated. Full output saved to: {path}"
    return f"...{left} {unit} truncated...\n\n{saved}\n{_DELEGATE_HINT if delegate else _SEARCH_HINT}"


async def truncate_result(result: ToolResult, spill: Spill, *, delegate: bool = False) -> ToolResult:
    """Truncate the output of a result for the model. Set `delegate` if its agent may start subagents.

    A tool that sets `truncated` in its metadata has done this itself, and its result is returned unchanged.
    """
    if "truncated" in result.metadata:
        return result
    short = truncate(result.output)
    if not short.left:
        return replace(result, metadata={**result.metadata, "truncated": False})
    path = await spill.store(result.output)
    output = f"{short.preview}\n\n{format_truncation_note(short.left, short.unit, path, delegate=delegate)}"
    return replace(result, output=output, metadata={**result.metadata, "truncated": True, "outputPath": path})
