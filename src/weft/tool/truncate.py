"""Truncate a tool's output for the model, and keep the whole output in a file."""

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from weft.tool.contract import ToolResult
from weft.tool.spill import Spill

# How much of an output a model is shown. `read` and `grep` stop at as many bytes themselves; how many lines `read` shows is one of its
# arguments. Models are told the limits: git grep -nE '2000 lines|50 KB' src/weft/tool/about
MAX_LINES: Final = 2000
MAX_BYTES: Final = 51200

_SEARCH_HINT = "Search it with Grep, or look at parts of it with Read, using offset and limit."


class TruncatedText(Struct, frozen=True, kw_only=True):
    """The text that fits, and how much was removed: in lines or in bytes, depending on the limit that was reached."""

    preview: str
    removed: int = 0
    unit: Literal["lines", "bytes"] = "lines"


def truncate(text: str, *, lines: int = MAX_LINES, size: int = MAX_BYTES) -> TruncatedText:
    """Keep as many whole lines from the start as fit into `lines` lines and `size` bytes."""
    total_bytes = len(text.encode(errors="replace"))
    all_lines = text.split("\n")
    if len(all_lines) <= lines and total_bytes <= size:
        return TruncatedText(preview=text)
    kept: list[str] = []
    kept_bytes = 0
    for line in all_lines:
        line_bytes = len(line.encode(errors="replace")) + bool(kept)
        if len(kept) == lines or kept_bytes + line_bytes > size:
            break
        kept.append(line)
        kept_bytes += line_bytes
    is_size_limited = len(kept) < lines
    removed = total_bytes - kept_bytes if is_size_limited else len(all_lines) - len(kept)
    return TruncatedText(
        preview="\n".join(kept), removed=removed, unit="bytes" if is_size_limited else "lines"
    )


def format_truncation_note(removed: int, unit: str, path: str) -> str:
    """Return the note that replaces the removed output."""
    notice = f"The tool call succeeded but the output was truncated. Full output saved to: {path}"
    return f"...{removed} {unit} truncated...\n\n{notice}\n{_SEARCH_HINT}"


async def truncate_result(result: ToolResult, spill: Spill) -> ToolResult:
    """Truncate the output of a result for the model.

    A tool that sets `truncated` in its metadata has done this itself, and its result is returned unchanged.
    """
    if "truncated" in result.metadata:
        return result
    truncated = truncate(result.output)
    if not truncated.removed:
        return replace(result, metadata={**result.metadata, "truncated": False})
    path = await spill.store(result.output)
    output = f"{truncated.preview}\n\n{format_truncation_note(truncated.removed, truncated.unit, path)}"
    return replace(result, output=output, metadata={**result.metadata, "truncated": True, "outputPath": path})
