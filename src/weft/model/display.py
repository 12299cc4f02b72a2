"""Text for people: counts with their plural, and tool output without the tags that are meant for models."""

import re
from typing import Final

from weft.model.part import CompletedState, ErrorState, ToolPart

# The tool that stands for a call which cannot be run as the model wrote it.
INVALID: Final = "invalid"
_NOTES: Final = re.compile(r"\s*<(bash_metadata|metadata)>\n(.*?)\n</\1>\s*\Z", re.DOTALL)
_CHILD: Final = re.compile(r"\s*<task_metadata>.*?</task_metadata>\s*\Z", re.DOTALL)
_REMINDER: Final = re.compile(r"\s*<system-reminder>.*?</system-reminder>\s*\Z", re.DOTALL)
_FILE: Final = re.compile(r"\A<file>\n(.*?)\n</file>", re.DOTALL)
_DIAGNOSTICS: Final = re.compile(r'<diagnostics file="([^"\n]*)">\n(.*?)\n</diagnostics>', re.DOTALL)


def strip_tags(tool: str, output: str) -> str:
    """Remove the tags that a tool adds to its output. Other tags stay, because they may be part of the output."""
    match tool:
        case "bash":
            found = _NOTES.search(output)
            if found is None:
                return output
            text, notes = output[: found.start()], "; ".join(found[2].splitlines())
            return f"{text}\n({notes})" if text else f"({notes})"
        case "task":
            return _CHILD.sub("", output)
        case "read":
            return _FILE.sub(r"\1", _REMINDER.sub("", output))
        case "edit" | "write" | "multiedit" | "patch" | "apply_patch":
            return _DIAGNOSTICS.sub(r"\1:\n\2", output)
        case _:
            return output


def called_tool(part: ToolPart) -> str:
    """Return the tool that was called. For an invalid call, return the tool that the model meant."""
    meant = part.state.input.get("tool") if part.tool == INVALID else None
    return meant if isinstance(meant, str) and meant else part.tool


def find_call_error(part: ToolPart) -> str | None:
    """Return the error of a failed or invalid call. Return None if the call succeeded or is still running."""
    match part.state:
        case ErrorState(error=error):
            return strip_tags(part.tool, error)
        case CompletedState(input=input, output=output) if part.tool == INVALID:
            wrong = input.get("error")
            return wrong if isinstance(wrong, str) else output
        case _:
            return None


def format_count(number: int, one: str, many: str = "") -> str:
    """Return `1 file`, `2 files`, `1,200 files`. `many` is an irregular plural."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
