"""Text for people: counts with their plural, titles of calls, and tool output without the tags that are meant for models."""

import json
import re
from collections.abc import Mapping
from typing import Final

from weft.model.part import CompletedState, ErrorState, ToolPart

# The tool that stands for a call which cannot be run as the model wrote it.
INVALID: Final = "invalid"
_BASH_METADATA: Final = re.compile(r"\s*<(bash_metadata|metadata)>\n(.*?)\n</\1>\s*\Z", re.DOTALL)
_TASK_METADATA: Final = re.compile(r"\s*<task_metadata>.*?</task_metadata>\s*\Z", re.DOTALL)
_SYSTEM_REMINDER: Final = re.compile(r"\s*<system-reminder>.*?</system-reminder>\s*\Z", re.DOTALL)
_FILE_TAG: Final = re.compile(r"\A<file>\n(.*?)\n</file>", re.DOTALL)
_DIAGNOSTICS: Final = re.compile(r'<diagnostics file="([^"\n]*)">\n(.*?)\n</diagnostics>', re.DOTALL)


def strip_tags(tool: str, output: str) -> str:
    """Remove the tags that a tool adds to its output. Other tags stay, because they may be part of the output."""
    match tool:
        case "bash":
            metadata = _BASH_METADATA.search(output)
            if metadata is None:
                return output
            text, notes = output[: metadata.start()], "; ".join(metadata[2].splitlines())
            return f"{text}\n({notes})" if text else f"({notes})"
        case "task":
            return _TASK_METADATA.sub("", output)
        case "read":
            return _FILE_TAG.sub(r"\1", _SYSTEM_REMINDER.sub("", output))
        case "edit" | "write" | "multiedit" | "patch" | "apply_patch":
            return _DIAGNOSTICS.sub(r"\1:\n\2", output)
        case _:
            return output


def get_called_tool(part: ToolPart) -> str:
    """Return the tool that was called. For an invalid call, return the tool that the model meant."""
    name = part.state.input.get("tool") if part.tool == INVALID else None
    return name if isinstance(name, str) and name else part.tool


def find_call_error(part: ToolPart) -> str | None:
    """Return the error of a failed or invalid call. Return None if the call succeeded or is still running."""
    match part.state:
        case ErrorState(error=error):
            return strip_tags(part.tool, error)
        case CompletedState(input=input, output=output) if part.tool == INVALID:
            message = input.get("error")
            return message if isinstance(message, str) else output
        case _:
            return None


def format_count(number: int, singular: str, plural: str = "") -> str:
    """Return `1 file`, `2 files`, `1,200 files`. `plural` is an irregular plural."""
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"


TITLE_LENGTH: Final = 60


def make_call_title(input: Mapping[str, object]) -> str:
    """Return a short title for a call of a tool that weft does not know."""
    for key in ("description", "filePath", "path", "pattern", "command", "url", "query"):
        found = input.get(key)
        if isinstance(found, str) and found:
            return found.partition("\n")[0][:TITLE_LENGTH]
    return json.dumps(input, ensure_ascii=False, default=str)[:TITLE_LENGTH] if input else ""
