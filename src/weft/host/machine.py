"""This machine: facts for diagnosis, its browser, and how a process that runs for days uses its memory."""

import gc
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from typing import Final

from weft.host.processes import ProcessCommand, capture_output

# Of malloc.h.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
M_ARENA_MAX: Final = -8
ARENAS: Final = 2
KEPT_FREE_BYTES: Final = 256 << 10
SERVER_COLLECT_AFTER: Final = 10_000  # new objects
GIT_SECONDS = 10.0
PUBLIC_BITS = stat.S_IRWXG | stat.S_IRWXO


def find_git_version(env: Mapping[str, str]) -> str:
    """Return the version of git, such as `2.43.0`; "" if git does not run."""
    try:
        process = subprocess.run(
            ["git", "--version"],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    words = os.fsdecode(process.stdout).split()
    return next((word for word in words if word[:1].isdigit()), "") if process.returncode == 0 else ""


@cache
def identify_machine() -> str:
    """Return a unique name for this machine, which reveals nothing about it."""
    try:
        with open("/etc/machine-id", encoding="ascii") as file:
            id = file.read().strip()
    except (OSError, ValueError):
        id = ""
    return hashlib.sha256(f"{os.uname().nodename} {id}".encode()).hexdigest()[:16]


def find_boot_time(now: int) -> int | None:
    """Return when this machine was started (ms), None if the system does not say. `now` is the current time."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    return now - int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)


def get_free_space(path: str) -> int:
    """Return the free bytes on the file system of a path, which need not exist yet."""
    status = os.statvfs(find_existing(path))
    return status.f_bavail * status.f_frsize


def get_public_mode(path: str) -> int:
    """Return the permission bits of group and others; 0 for none, or for a missing path."""
    try:
        return os.stat(path).st_mode & PUBLIC_BITS
    except OSError:
        return 0


def find_existing(path: str) -> str:
    """Return the path, or its nearest parent that exists."""
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


BROWSER_SECONDS: Final = 10.0


async def open_browser(url: str, env: Mapping[str, str]) -> bool:
    """Open a page in the browser. Return True if that worked.

    A browser that runs in the terminal is not used, because it would take over ours.
    """
    if not url.startswith(("https://", "http://")):
        return False
    program = _find_opener(env)
    if program is None:
        return False
    command = ProcessCommand(argv=(program, url), directory="/", environment=env, timeout=BROWSER_SECONDS)
    try:
        return (await capture_output(command, limit=4096)).code == 0
    except OSError:
        return False


def _find_opener(env: Mapping[str, str]) -> str | None:
    if sys.platform == "darwin":
        return shutil.which("open", path=env.get("PATH"))
    has_screen = env.get("DISPLAY") or env.get("WAYLAND_DISPLAY")
    return shutil.which("xdg-open", path=env.get("PATH")) if has_screen else None


def limit_free_memory(env: Mapping[str, str]) -> None:
    """Let the allocator of glibc keep less memory that nobody uses, except where the environment sets a limit.

    It makes up to eight arenas for each core, and memory that is freed in an arena can be used by the threads of that arena only.
    So a server would grow until each of its arenas has had its busiest moment. Also, once a large block was freed (a request of a
    long session has three megabytes), it takes blocks of that size from an arena, and keeps twice as much free memory in each.
    """
    import ctypes  # noqa: PLC0415  takes some milliseconds, and only a server runs for days

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other systems allocate differently
    if mallopt is None:
        return
    for variable, parameter, value in (
        ("MALLOC_ARENA_MAX", M_ARENA_MAX, ARENAS),
        ("MALLOC_TRIM_THRESHOLD_", M_TRIM_THRESHOLD, KEPT_FREE_BYTES),
        ("MALLOC_MMAP_THRESHOLD_", M_MMAP_THRESHOLD, KEPT_FREE_BYTES),
    ):
        if variable not in env:
            mallopt(parameter, value)


def release_free_memory() -> None:
    """Give memory that nobody uses back to the system, also between blocks that are in use. glibc alone can do that."""
    import ctypes  # noqa: PLC0415  takes some milliseconds, and few processes need it

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def collect_more_often() -> None:
    """Let Python collect garbage often enough for a process that runs for days. Objects that exist now are never examined again.

    A command has to start fast, so it collects rarely (`COLLECT_AFTER` in `weft/__main__.py`). In a server, old objects would then
    be examined a hundred times more rarely, and connections and aborted runs leave cycles among them.
    """
    gc.freeze()
    gc.set_threshold(SERVER_COLLECT_AFTER, *gc.get_threshold()[1:])
