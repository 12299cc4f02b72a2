"""Hooks as commands, for people who write shell and not Python: one JSON object in, at most one out.

exit 0     success; `{"output": {…}}` on standard output names the fields to change
exit 2     refused; standard error says why
otherwise  a fault
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from msgspec import Struct

from weft.errors import BlockedError, InvalidInputError, WeftError
from weft.host.private_files import open_temporary
from weft.host.processes import CapturedOutput, ProcessCommand, capture_output
from weft.model.event_wire import event_to_plain
from weft.model.permission import PermissionRequest
from weft.model.wire import encode, parse, to_plain
from weft.plugin.chain import RegisteredHook, check_result
from weft.plugin.hooks import CallHookInput, CommandHookInput, Happened, Hook
from weft.plugin.worker import CallResult, Failed, Returned, to_failed

EXIT_BLOCKED: Final = 2
MAX_OUTPUT_BYTES: Final = 4 << 20
MAX_REASON_CHARS: Final = 2000

# The input comes from a file and not through a pipe, so that nothing waits for a command that never reads its input.
READ_FROM_FILE: Final = ("/bin/sh", "-c", 'exec "$@" <"$0"')


class HookCommand(Struct, frozen=True, kw_only=True):
    """A command to run at a hook; with a `matcher` only for the tools, events … that match: `bash|edit*`."""

    hook: str
    argv: tuple[str, ...]
    matcher: str | None = None
    seconds: float


class CommandEnvironment(Struct, frozen=True, kw_only=True):
    """Where commands run, and their whole environment."""

    directory: str
    environment: Mapping[str, str]


def register_command(command: HookCommand, environment: CommandEnvironment) -> RegisteredHook:
    """Return the hook of a command."""

    async def ask(hook: Hook[Any, Any], input: Any, output: Any) -> CallResult:
        if not matches_subject(command.matcher, input):
            return Returned(output)
        body = encode({"hook": hook.name, "input": _to_plain(input), "output": to_plain(output)})
        try:
            return Returned(read_result(hook, output, await _run(command.argv, body, environment)))
        except (WeftError, OSError) as error:
            return to_failed(error) if isinstance(error, WeftError) else _to_start_failure(error)

    return RegisteredHook(hook=command.hook, plugin=" ".join(command.argv), ask=ask, seconds=command.seconds)


def matches_subject(matcher: str | None, input: Any) -> bool:
    """Return True if the matcher of a command matches the input of the hook, or if there is nothing to match."""
    subject = find_subject(input)
    if matcher is None or subject is None:
        return True
    return any(fnmatchcase(subject, pattern.strip()) for pattern in matcher.split("|"))


def find_subject(input: Any) -> str | None:
    """Return the name for a matcher: of the tool, the event, the command or the permission; None if there is none."""
    match input:
        case CallHookInput(tool=name) | CommandHookInput(command=name) | PermissionRequest(permission=name):
            return name
        case Happened(event=event):
            return str(event_to_plain(event)["type"])
        case _:
            return None


def read_result(hook: Hook[Any, Any], output: Any, printed: CapturedOutput) -> Any:
    """Return the value that a command's exit code and output stand for.

    Raise `BlockedError` if it refused, another `WeftError` if the output makes no sense.
    """
    if printed.code == EXIT_BLOCKED:
        raise BlockedError(printed.errors.strip()[:MAX_REASON_CHARS])
    if printed.code != 0 or printed.cut:
        ended = "said too much" if printed.cut else f"ended with code {printed.code}"
        last = printed.errors.strip().splitlines()[-1:]
        raise InvalidInputError("the command", ": ".join((ended, *last))[:MAX_REASON_CHARS])
    if not printed.output.strip():
        return output
    parsed = parse(printed.output, where="what it printed")
    if not isinstance(parsed, dict) or not parsed.keys() <= {"output"}:
        raise InvalidInputError("what it printed", 'is not an object with an "output"')
    changes = parsed.get("output")
    if changes is not None and not isinstance(changes, dict):
        raise InvalidInputError("what it printed", '"output" is not an object')
    return check_result(hook, output, changes)


def _to_plain(input: Any) -> Any:
    return {"event": event_to_plain(input.event)} if isinstance(input, Happened) else to_plain(input)


async def _run(argv: tuple[str, ...], body: bytes, environment: CommandEnvironment) -> CapturedOutput:
    async with open_temporary("weft-hook-", body) as path:
        command = ProcessCommand(
            argv=(*READ_FROM_FILE, path, *argv),
            directory=environment.directory,
            environment=environment.environment,
        )
        return await capture_output(command, limit=MAX_OUTPUT_BYTES)


def _to_start_failure(error: OSError) -> Failed:
    return Failed(error, f"the command could not be run: {error.strerror or error}")
