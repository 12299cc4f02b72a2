"""Hooks for people who write shell and no Python: a command for each event, one JSON object in, at most one out.

exit 0     all is well; `{"now": {…}}` on standard output names what is to be otherwise
exit 2     no: what was asked about does not happen, and standard error says why
otherwise  a fault
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from msgspec import Struct

from weft.errors import BlockedError, InvalidInputError, WeftError
from weft.host.private_files import open_scratch
from weft.host.processes import Captured, Command, capture
from weft.model.event_wire import event_to_plain
from weft.model.permission import PermissionRequest
from weft.model.wire import encode, parse, to_plain
from weft.plugin.chain import Voice, judge
from weft.plugin.hooks import CallTold, CommandTold, Happened, Hook
from weft.plugin.worker import Failed, Gave, Outcome, to_failed

BLOCKS: Final = 2
LIMIT: Final = 4 << 20
SHOWN: Final = 2000

# From a file and not by a pipe: one that never reads what it is told is no fault, and nobody waits for it.
FROM_FILE: Final = ("/bin/sh", "-c", 'exec "$@" <"$0"')


class CommandHook(Struct, frozen=True, kw_only=True):
    """A command to be asked at a hook; with a `matcher` only about the tools, events … it fits: `bash|edit*`."""

    hook: str
    argv: tuple[str, ...]
    matcher: str | None = None
    seconds: float


class Surroundings(Struct, frozen=True, kw_only=True):
    """Where commands run, and all that they see of the environment."""

    directory: str
    environment: Mapping[str, str]


def voice_of(command: CommandHook, around: Surroundings) -> Voice:
    async def ask(hook: Hook[Any, Any], told: Any, now: Any) -> Outcome:
        if not fits(command.matcher, told):
            return Gave(now)
        said = encode({"hook": hook.name, "told": _plain(told), "now": to_plain(now)})
        try:
            return Gave(read(hook, now, await _run(command.argv, said, around)))
        except (WeftError, OSError) as error:
            return to_failed(error) if isinstance(error, WeftError) else _unstarted(error)

    return Voice(hook=command.hook, plugin=" ".join(command.argv), ask=ask, seconds=command.seconds)


def fits(matcher: str | None, told: Any) -> bool:
    """Whether a command wants to hear of this."""
    subject = subject_of(told)
    if matcher is None or subject is None:
        return True
    return any(fnmatchcase(subject, pattern.strip()) for pattern in matcher.split("|"))


def subject_of(told: Any) -> str | None:
    """The name that a matcher is held against: of the tool, the event, the command, the permission."""
    match told:
        case CallTold(tool=name) | CommandTold(command=name) | PermissionRequest(permission=name):
            return name
        case Happened(event=event):
            return str(event_to_plain(event)["type"])
        case _:
            return None


def read(hook: Hook[Any, Any], now: Any, said: Captured) -> Any:
    """What a command means by how it ended. Raises `BlockedError` for a no, and another `WeftError` for what means nothing."""
    if said.code == BLOCKS:
        raise BlockedError(said.errors.strip()[:SHOWN])
    if said.code != 0 or said.cut:
        ended = "said too much" if said.cut else f"ended with code {said.code}"
        last = said.errors.strip().splitlines()[-1:]
        raise InvalidInputError("the command", ": ".join((ended, *last))[:SHOWN])
    if not said.output.strip():
        return now
    given = parse(said.output, where="what it printed")
    if not isinstance(given, dict) or not given.keys() <= {"now"}:
        raise InvalidInputError("what it printed", 'is not an object with a "now"')
    changes = given.get("now")
    if changes is not None and not isinstance(changes, dict):
        raise InvalidInputError("what it printed", '"now" is not an object')
    return judge(hook, now, changes)


def _plain(told: Any) -> Any:
    return {"event": event_to_plain(told.event)} if isinstance(told, Happened) else to_plain(told)


async def _run(argv: tuple[str, ...], said: bytes, around: Surroundings) -> Captured:
    async with open_scratch("weft-hook-", said) as path:
        command = Command(
            argv=(*FROM_FILE, path, *argv), directory=around.directory, environment=around.environment
        )
        return await capture(command, limit=LIMIT)


def _unstarted(error: OSError) -> Failed:
    return Failed(error, f"the command could not be run: {error.strerror or error}")
