"""Hooks as commands, for people who write shell and not Python: one JSON object in, at most one out.

exit 0     success; `{"now": {…}}` on standard output names the fields to change
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
MAX_OUTPUT: Final = 4 << 20
MAX_REASON: Final = 2000

# From a file and not through a pipe: a command that never reads its input is not at fault, and nobody waits for it.
FROM_FILE: Final = ("/bin/sh", "-c", 'exec "$@" <"$0"')


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


def register_command(command: HookCommand, place: CommandEnvironment) -> RegisteredHook:
    """Return the hook of a command."""

    async def ask(hook: Hook[Any, Any], told: Any, now: Any) -> CallResult:
        if not matches_subject(command.matcher, told):
            return Returned(now)
        output = encode({"hook": hook.name, "told": _to_plain(told), "now": to_plain(now)})
        try:
            return Returned(read_result(hook, now, await _run(command.argv, output, place)))
        except (WeftError, OSError) as error:
            return to_failed(error) if isinstance(error, WeftError) else _to_start_failure(error)

    return RegisteredHook(hook=command.hook, plugin=" ".join(command.argv), ask=ask, seconds=command.seconds)


def matches_subject(matcher: str | None, told: Any) -> bool:
    """Return True if the matcher of a command matches what it would be told."""
    subject = find_subject(told)
    if matcher is None or subject is None:
        return True
    return any(fnmatchcase(subject, pattern.strip()) for pattern in matcher.split("|"))


def find_subject(told: Any) -> str | None:
    """Return the name for a matcher: of the tool, the event, the command or the permission; None if there is none."""
    match told:
        case CallHookInput(tool=name) | CommandHookInput(command=name) | PermissionRequest(permission=name):
            return name
        case Happened(event=event):
            return str(event_to_plain(event)["type"])
        case _:
            return None


def read_result(hook: Hook[Any, Any], now: Any, output: CapturedOutput) -> Any:
    """Return the value that a command's exit code and output stand for.

    Raise `BlockedError` if it refused, another `WeftError` if the output makes no sense.
    """
    if output.code == EXIT_BLOCKED:
        raise BlockedError(output.errors.strip()[:MAX_REASON])
    if output.code != 0 or output.cut:
        ended = "said too much" if output.cut else f"ended with code {output.code}"
        last = output.errors.strip().splitlines()[-1:]
        raise InvalidInputError("the command", ": ".join((ended, *last))[:MAX_REASON])
    if not output.output.strip():
        return now
    parsed = parse(output.output, where="what it printed")
    if not isinstance(parsed, dict) or not parsed.keys() <= {"now"}:
        raise InvalidInputError("what it printed", 'is not an object with a "now"')
    changes = parsed.get("now")
    if changes is not None and not isinstance(changes, dict):
        raise InvalidInputError("what it printed", '"now" is not an object')
    return check_result(hook, now, changes)


def _to_plain(told: Any) -> Any:
    return {"event": event_to_plain(told.event)} if isinstance(told, Happened) else to_plain(told)


async def _run(argv: tuple[str, ...], output: bytes, place: CommandEnvironment) -> CapturedOutput:
    async with open_temporary("weft-hook-", output) as path:
        command = ProcessCommand(
            argv=(*FROM_FILE, path, *argv), directory=place.directory, environment=place.environment
        )
        return await capture_output(command, limit=MAX_OUTPUT)


def _to_start_failure(error: OSError) -> Failed:
    return Failed(error, f"the command could not be run: {error.strerror or error}")
