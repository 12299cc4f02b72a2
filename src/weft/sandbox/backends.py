"""Find a way to enforce a sandbox policy by trying the ways this kernel may allow."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from weft.sandbox import launch
from weft.sandbox.launch import SOCKETS, STILL_THERE
from weft.sandbox.policy import Sandbox, Wall


def find_bubblewrap(path: str) -> str | None:
    """Where it is installed; never in the project, to which a relative entry of PATH leads."""
    found = shutil.which("bwrap", path=path)
    return found if found and os.path.isabs(found) else None


def to_words(program: str, wall: Wall) -> tuple[str, ...]:
    network = () if wall.network else ("--unshare-net",)
    return (
        *(program, "--die-with-parent", "--unshare-pid", "--unshare-ipc", *network),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *(word for words in _mounts(wall) for word in words),
        "--",
    )


def _mounts(wall: Wall) -> Iterator[tuple[str, ...]]:
    """What is above comes first: a mount hides whatever was mounted below its place before."""
    hidden = [path for path in (*wall.hidden, SOCKETS) if os.path.isdir(path)]
    above = dict.fromkeys(os.path.dirname(path) for path in wall.kept)
    wanted: dict[str, tuple[str, ...]] = {path: ("--tmpfs", path) for path in hidden}
    wanted |= {path: ("--ro-bind-try", path, path) for path in (*STILL_THERE, *wall.readable)}
    # A directory with a mount in it can be moved away and made anew; one that is a mount cannot.
    wanted |= {path: ("--bind-try", path, path) for path in (*above, *wall.writable)}
    wanted |= {path: ("--ro-bind-try", path, path) for path in wall.kept}
    yield from (wanted[path] for path in sorted(wanted, key=lambda path: (path.count("/"), path)))
    # Not before all is in place. What is written there would be gone with the command, unnoticed.
    yield from (("--remount-ro", path) for path in hidden)


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
