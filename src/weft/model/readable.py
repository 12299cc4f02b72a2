"""Words for people: counts with their plural, and tool output without the tags that are meant for models."""

import re
from typing import Final

from weft.model.part import CompletedState, ErrorState, ToolPart

# What a call becomes that cannot be carried out as the model wrote it.
INVALID: Final = "invalid"
_NOTES: Final = re.compile(r"\s*<(bash_metadata|metadata)>\n(.*?)\n</\1>\s*\Z", re.DOTALL)
_CHILD: Final = re.compile(r"\s*<task_metadata>.*?</task_metadata>\s*\Z", re.DOTALL)
_REMINDER: Final = re.compile(r"\s*<system-reminder>.*?</system-reminder>\s*\Z", re.DOTALL)
_FILE: Final = re.compile(r"\A<file>\n(.*?)\n</file>", re.DOTALL)
_DIAGNOSTICS: Final = re.compile(r'<diagnostics file="([^"\n]*)">\n(.*?)\n</diagnostics>', re.DOTALL)


def readable(tool: str, output: str) -> str:
    """The output of a tool without its tags. Only tags that the tool itself writes go: its output may hold any others."""
    match tool:
        case "bash":
            found = _NOTES.search(output)
            if found is None:
                return output
            said, notes = output[: found.start()], "; ".join(found[2].splitlines())
            return f"{said}\n({notes})" if said else f"({notes})"
        case "task":
            return _CHILD.sub("", output)
        case "read":
            return _FILE.sub(r"\1", _REMINDER.sub("", output))
        case "edit" | "write" | "multiedit" | "patch" | "apply_patch":
            return _DIAGNOSTICS.sub(r"\1:\n\2", output)
        case _:
            return output


def name_of(part: ToolPart) -> str:
    """The tool that was called. A call that made no sense names the one that was meant."""
    meant = part.state.input.get("tool") if part.tool == INVALID else None
    return meant if isinstance(meant, str) and meant else part.tool


def fault_of(part: ToolPart) -> str | None:
    """Why a call did nothing: it failed, or it made no sense. None if it did what it was to do, or is under way."""
    match part.state:
        case ErrorState(error=error):
            return readable(part.tool, error)
        case CompletedState(input=input, output=output) if part.tool == INVALID:
            wrong = input.get("error")
            return wrong if isinstance(wrong, str) else output
        case _:
            return None


def plural(number: int, one: str, many: str = "") -> str:
    """`1 file`, `2 files`, `1,200 files`; `many` is the plural of a noun that takes no `s`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
