"""Find a way to put up a wall, by trying: what a kernel allows depends on its version, its settings and who asks."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from weft.host.sandbox import launch
from weft.host.sandbox.bubblewrap import find_bubblewrap, to_words
from weft.host.sandbox.wall import Sandbox, Wall

SECONDS = 10.0
NOTHING = ("/bin/sh", "-c", ":")
LACKING = (
    "hooks and settings of the repository can be changed",
    "permissions of files elsewhere can be changed",
    "sockets of other programs, such as Docker's, can be reached",
)


class Sought(Struct, frozen=True, kw_only=True):
    """What was found: a sandbox, or why there is none."""

    sandbox: Sandbox | None = None
    why: str = ""


def find_sandbox(wall: Wall, environment: Mapping[str, str]) -> Sought:
    """The best there is. Blocks: it runs a command that does nothing behind each wall it tries."""
    if not sys.platform.startswith("linux"):
        return Sought(why="there is none for this system yet")
    tried = (_by_bubblewrap(wall, environment), _by_landlock(wall, environment))
    found = next((each for each in tried if each.sandbox), None)
    return found or Sought(why="; ".join(each.why for each in tried))


def _by_bubblewrap(wall: Wall, environment: Mapping[str, str]) -> Sought:
    program = find_bubblewrap(environment.get("PATH", ""))
    if program is None:
        return Sought(why="bubblewrap is not installed")
    before = to_words(program, wall)
    ended = _try((*before, *NOTHING), environment)
    if ended is None or ended.returncode != 0:
        return Sought(why=f"bubblewrap does not work here ({_said(ended)})")
    return Sought(sandbox=Sandbox(kind="bubblewrap", before=before, kept=wall.kept))


def _by_landlock(wall: Wall, environment: Mapping[str, str]) -> Sought:
    ended = _try(_launched(wall, mounted=False), environment)
    if ended is None or ended.returncode != 0:
        return Sought(why=f"Landlock does not work here ({_said(ended)})")
    told: dict[str, Any] = json.loads(ended.stdout)
    mounted = bool(told["mounted"])
    before, lacks = _launched(wall, mounted=mounted), () if mounted else LACKING
    return Sought(sandbox=Sandbox(kind="landlock", before=before, lacks=lacks, kept=wall.kept))


def _launched(wall: Wall, *, mounted: bool) -> tuple[str, ...]:
    plain = {
        "hidden": wall.hidden,
        "readable": wall.readable,
        "writable": wall.writable,
        "kept": wall.kept,
        "network": wall.network,
        "mounted": mounted,
    }
    # Isolated, and without packages: nothing of the project or the person has a say in how the wall is built.
    return sys.executable, "-I", "-S", launch.__file__, json.dumps(plain)


def _try(
    argv: tuple[str, ...], environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[bytes] | None":
    try:
        return subprocess.run(
            argv,
            cwd="/",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def _said(ended: "subprocess.CompletedProcess[bytes] | None") -> str:
    if ended is None:
        return "it cannot be started"
    words = os.fsdecode(ended.stderr).strip().splitlines()
    return words[-1].removeprefix("weft: ") if words else f"it ended with {ended.returncode}"
