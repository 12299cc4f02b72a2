"""What a command may not bring into being, and did: it is set aside, where it has no effect, and that is said.

What is there can be mounted read-only; on what is not there nothing can be mounted, and no other rule of the kernel
goes by name.
"""

import os
from collections.abc import Iterable
from itertools import count

from weft.host.sandbox.wall import Sandbox

ENDING = ".set-aside"
REFUSALS = (b"Permission denied", b"Read-only file system", b"Operation not permitted")
BEHIND = (
    "this ran in a sandbox: it can write in the project and the temporary directory alone, not to git's hooks and settings,"
    " and cannot see the home directory"
)


def list_absent(sandbox: Sandbox) -> tuple[str, ...]:
    """Those of the paths it keeps that are not there yet."""
    return tuple(path for path in sandbox.kept if not os.path.lexists(path))


def explain(sandbox: Sandbox, said: bytes | bytearray) -> list[str]:
    """What a model has to know to make sense of a failure: these words may be the wall's."""
    if not sandbox.kind or not any(word in said for word in REFUSALS):
        return []
    return [BEHIND]


def set_aside(absent: Iterable[str]) -> list[str]:
    """Move away what has come to be there meanwhile; gives a note on each."""
    return [_moved(path) for path in absent if os.path.lexists(path)]


def _moved(path: str) -> str:
    names = (f"{path}{ENDING}{number or ''}" for number in count())
    free = next(name for name in names if not os.path.lexists(name))
    try:
        os.rename(path, free)
    except OSError as error:
        return f"{path} may not be made by a command, and could not be set aside: {error.strerror}"
    return f"{path} may not be made by a command: it was renamed to {free}"
