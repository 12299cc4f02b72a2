"""Everything a child process started, wherever it went: found and ended.

On Linux a process is kin when it is in the child's session or group, when it carries the child's mark in its
environment, or when its parent is kin. A process that took a session of its own *and* a bare environment *and* lost
its parent is not found; nothing short of a cgroup would. Elsewhere only the group is known.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

MARK: Final = "WEFT_CHILD"
# No process has this number.
NOBODY: Final = -1
GRACE_SECONDS: Final = 0.2
LOOK_SECONDS: Final = 0.01
# Bubblewrap, which stays a moment longer than what it keeps: it ends with the rest, and is not told of.
KEEPER: Final = b"bwrap"
# A process that forks faster than it is found is looked for again, but not for ever.
ROUNDS: Final = 50


class _Process(NamedTuple):
    pid: int
    state: str
    parent: int
    group: int
    session: int


def end_all(leader: int, token: str) -> int:
    """End them all, politely first, and give how many there were. Blocks: call it from a thread."""
    if not sys.platform.startswith("linux"):
        _signal_group(leader, signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
        _signal_group(leader, signal.SIGKILL)
        return 0
    counted = _end_kin(leader, token)
    _end_watcher(leader)
    return counted


def end_marked(token: str) -> int:
    """The same for those that somebody else has started, with our mark in their environment."""
    return _end_kin(NOBODY, token) if sys.platform.startswith("linux") else 0


def _end_kin(leader: int, token: str) -> int:
    found = kin(leader, token)
    counted = sum(_read(pid, "comm").strip() != KEEPER for pid in found)
    _signal(found, signal.SIGTERM)
    until = time.monotonic() + GRACE_SECONDS
    while (left := kin(leader, token)) and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
    for _ in range(ROUNDS):
        if not left:
            break
        _signal(left, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)
        left = kin(leader, token)
    return counted


def _end_watcher(leader: int) -> None:
    """Last, and not counted: it is what keeps the group's number ours."""
    _signal_group(leader, signal.SIGKILL)
    for _ in range(ROUNDS):
        if not any(process.group == leader for process in _living()):
            return
        time.sleep(LOOK_SECONDS / 10)


def kin(leader: int, token: str) -> set[int]:
    """The living processes that belong to a child, but for its watcher."""
    everyone = {process.pid: process for process in _living()}
    own = {pid for pid, process in everyone.items() if _belongs(process, leader, token)}
    grew = True
    while grew:
        children = {pid for pid, process in everyone.items() if process.parent in own} - own
        own |= children
        grew = bool(children)
    return {pid for pid in own if not _is_watcher(pid, token)}


def _belongs(process: _Process, leader: int, token: str) -> bool:
    if leader in (process.pid, process.group, process.session):
        return True
    return f"{MARK}={token}".encode() in _read(process.pid, "environ").split(b"\0")


def _is_watcher(pid: int, token: str) -> bool:
    # Before it becomes the child, the starter looks just the same; then it is the leader itself.
    words = _read(pid, "cmdline").split(b"\0")
    return f"weft:{token}".encode() in words and not _is_leader(pid)


def _is_leader(pid: int) -> bool:
    with suppress(OSError):
        return os.getsid(pid) == pid
    return False


def _living() -> Iterator[_Process]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (said := _read(int(name), "stat")):
            # The name in parentheses may hold anything, parentheses too.
            state, parent, group, session = said.rpartition(b")")[2].split()[:4]
            if state not in (b"Z", b"X"):
                yield _Process(int(name), state.decode(), int(parent), int(group), int(session))


def _read(pid: int, what: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:
            return file.read()
    except OSError:
        return b""  # it ended meanwhile, or is not ours to look into


def _signal(pids: set[int], which: signal.Signals) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, which)


def _signal_group(leader: int, which: signal.Signals) -> None:
    with suppress(OSError):
        os.killpg(leader, which)


def list_below(pid: int) -> dict[int, str]:
    """The living processes below one, by number, with the name of each. Nothing where they cannot be found out."""
    if not sys.platform.startswith("linux"):
        return {}
    everyone = {process.pid: process for process in _living()}
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        above = waiting.pop()
        for child in everyone.values():
            if child.parent == above and child.pid not in found:
                found[child.pid] = _read(child.pid, "comm").decode(errors="replace").strip()
                waiting.append(child.pid)
    return found
