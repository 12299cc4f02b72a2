"""Text for people: times, counts, costs, titles of calls, messages of failures, tool output without tags for models.

Text of a model or a file is escaped before it is printed (`sanitize`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from weft.model.permission import EDIT_TOOLS
from weft.model.wire import encode

if TYPE_CHECKING:  # listing sessions must not load types that it does not use
    from collections.abc import Mapping

    from weft.model.failure import AnyFailure
    from weft.model.part import ToolPart
    from weft.model.spending import Spent

# The tool that stands for a call which cannot be run as the model wrote it.
INVALID: Final = "invalid"
# The last day that Python's dates have, in every time zone.
LATEST_TIME: Final = 253_402_214_400_000
# Patterns that are compiled when first used: few commands show a tool's output.
_BASH_METADATA: Final = r"(?s)\s*<(bash_metadata|metadata)>\n(.*?)\n</\1>\s*\Z"
_TASK_METADATA: Final = r"(?s)\s*<task_metadata>.*?</task_metadata>\s*\Z"
_SYSTEM_REMINDER: Final = r"(?s)\s*<system-reminder>.*?</system-reminder>\s*\Z"
_FILE_TAG: Final = r"(?s)\A<file>\n(.*?)\n</file>"
_DIAGNOSTICS: Final = r'(?s)<diagnostics file="([^"\n]*)">\n(.*?)\n</diagnostics>'


def bound_time(ms: int) -> int:
    """Return the nearest time that can be shown as a date. A document may contain any number."""
    return min(max(ms, 0), LATEST_TIME)


def strip_tags(tool: str, output: str) -> str:
    """Remove the tags that a tool adds to its output. Other tags stay, because they may be part of the output."""
    match tool:
        case "bash":
            metadata = re.search(_BASH_METADATA, output)
            if metadata is None:
                return output
            text, notes = output[: metadata.start()], "; ".join(metadata[2].splitlines())
            return f"{text}\n({notes})" if text else f"({notes})"
        case "task":
            return re.sub(_TASK_METADATA, "", output)
        case "read":
            return re.sub(_FILE_TAG, r"\1", re.sub(_SYSTEM_REMINDER, "", output))
        case _ if tool in EDIT_TOOLS:
            return re.sub(_DIAGNOSTICS, r"\1:\n\2", output)
        case _:
            return output


def get_called_tool(part: ToolPart) -> str:
    """Return the tool that was called. For an invalid call, return the tool that the model meant."""
    name = part.state.input.get("tool") if part.tool == INVALID else None
    return name if isinstance(name, str) and name else part.tool


def find_call_error(part: ToolPart) -> str | None:
    """Return the error of a failed or invalid call. Return None if the call succeeded or is still running."""
    from weft.model.part import CompletedState, ErrorState  # noqa: PLC0415  who has a part has loaded it

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
MAX_INPUT_LENGTH: Final = 80
MAX_OUTPUT_LINES: Final = 12


def make_call_title(input: Mapping[str, object]) -> str:
    """Return a short title for a call that has none, made of its arguments."""
    match input.get("questions"):
        case [{"question": str() as question}, *_] if question:
            return question.partition("\n")[0][:TITLE_LENGTH]
        case _:
            pass
    for key in ("description", "filePath", "path", "pattern", "command", "url", "query"):
        found = input.get(key)
        if isinstance(found, str) and found:
            return found.partition("\n")[0][:TITLE_LENGTH]
    if not input:
        return ""
    from json import dumps  # noqa: PLC0415  few commands show a call, and fewer one without any of these keys

    return dumps(input, ensure_ascii=False, default=str)[:TITLE_LENGTH]


def sanitize(text: str) -> str:
    """Escape characters that would control the terminal, in text from a model or a file. Tab and newline are kept."""
    if text.isprintable():
        return text
    return "".join(char if char in "\t\n" or char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def format_tokens(spent: Spent) -> str:
    """Format the tokens that were used. An unknown value is never shown as 0."""
    read, written = spent.input + spent.cache_read + spent.cache_write, spent.output + spent.reasoning
    cached = f" ({spent.cache_read:,} cached)" if spent.cache_read else ""
    text = f"{read:,} tokens in{cached}, {written:,} out"
    if spent.counted:
        return text
    return f"{text} and more: not every answer was counted" if read or written else "tokens unknown"


def format_cost(spent: Spent) -> str:
    """Format the cost in dollars. An unknown value is never shown as 0."""
    if spent.priced:
        return f"${spent.cost:.4f}"
    return f"${spent.cost:.4f} and more: not all of the cost is known" if spent.cost else "cost unknown"


def strip_diff_header(diff: str) -> str:
    """Remove the lines of a unified diff that name the file, which is in the title already."""
    lines = diff.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("@@")), 0)
    return "\n".join(lines[start:])


def format_call(part: ToolPart) -> str:
    """Return the title of a call. Tools of MCP servers have none, so show their input instead."""
    from weft.model.part import CompletedState  # noqa: PLC0415  who has a part has loaded it

    state = part.state
    title = state.title if isinstance(state, CompletedState) else ""
    if title or not state.input:
        return title
    input = encode(state.input).decode()
    return input if len(input) <= MAX_INPUT_LENGTH else input[: MAX_INPUT_LENGTH - 1] + "…"


def shorten(text: str) -> str:
    """Keep the first lines of an output."""
    lines = text.strip("\n").splitlines()
    if len(lines) <= MAX_OUTPUT_LINES:
        return "\n".join(lines)
    return "\n".join(
        [*lines[:MAX_OUTPUT_LINES], f"… {format_count(len(lines) - MAX_OUTPUT_LINES, 'more line')}"]
    )


def describe_failure(failure: AnyFailure) -> str:
    """Return the message of a failure."""
    from weft.model.failure import AuthFailure, OtherFailure, OutputLengthFailure  # noqa: PLC0415  who has a failure has loaded it

    match failure:
        case OutputLengthFailure():
            return "the answer was cut off at its limit"
        case OtherFailure(data=data):
            return str((data or {}).get("message", "something went wrong"))
        case AuthFailure(data=data):
            return f"{data.provider_id}: {data.message}"
        case _:
            return failure.data.message
