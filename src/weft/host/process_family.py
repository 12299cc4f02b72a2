"""The processes of a child: it, everything that it started, and how all of it is ended."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from msgspec import Struct

MARK: Final = "WEFT_CHILD"
# No process has this id.
NO_PROCESS: Final = -1
GRACE_SECONDS: Final = 0.2
POLL_SECONDS: Final = 0.01
# Bubblewrap outlives the process that it contains for a moment. It is ended, but not counted.
BUBBLEWRAP: Final = b"bwrap"
# A process may fork faster than it is found; the search is repeated, but not for ever.
MAX_KILL_ROUNDS: Final = 50
# The kernel thread that is the parent of all others.
KTHREADD: Final = 2


class _Process(Struct, frozen=True):
    pid: int
    state: str
    parent: int
    group: int
    session: int


def end_all(leader: int, token: str) -> int:
    """End all processes of a child, with SIGTERM first, and return their number. This blocks: call it from a thread."""
    if not sys.platform.startswith("linux"):
        _signal_group(leader, signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
        _signal_group(leader, signal.SIGKILL)
        return 0
    counted = _end_family(leader, token)
    _end_watcher(leader)
    return counted


def end_marked(token: str) -> int:
    """End all processes that have this token in their environment, also those whose parent is gone. Return their number."""
    return _end_family(NO_PROCESS, token) if sys.platform.startswith("linux") else 0


def _end_family(leader: int, token: str) -> int:
    family = list_family(leader, token)
    counted = sum(_read_proc(pid, "comm").strip() != BUBBLEWRAP for pid in family)
    _send_signal(family, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while (remaining := list_family(leader, token)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for _ in range(MAX_KILL_ROUNDS):
        if not remaining:
            break
        _send_signal(remaining, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
        remaining = list_family(leader, token)
    return counted


def _end_watcher(leader: int) -> None:
    """End the watcher, and do not count it. It comes last: while it lives, the id of the process group stays ours."""
    _signal_group(leader, signal.SIGKILL)
    for _ in range(MAX_KILL_ROUNDS):
        if not any(process.group == leader for process in _iterate_living()):
            return
        time.sleep(POLL_SECONDS / 10)


def list_family(leader: int, token: str) -> set[int]:
    """Return the living processes of a child, except its watcher: its session, those with the token, and descendants."""
    processes = {process.pid: process for process in _iterate_living()}
    family = {pid for pid, process in processes.items() if _is_member(process, leader, token)}
    has_grown = True
    while has_grown:
        children = {pid for pid, process in processes.items() if process.parent in family} - family
        family |= children
        has_grown = bool(children)
    return {pid for pid in family if not _is_watcher(pid, token)}


def _is_member(process: _Process, leader: int, token: str) -> bool:
    if leader in (process.pid, process.group, process.session):
        return True
    return f"{MARK}={token}".encode() in _read_environment(process).split(b"\0")


def _read_environment(process: _Process) -> bytes:
    """Return the environment of a process. While it executes a program it has none for a moment: wait until it has one."""
    environment = _read_proc(process.pid, "environ")
    for _ in range(MAX_KILL_ROUNDS):
        if environment or process.parent == KTHREADD or not _is_executing(process.pid):
            break
        time.sleep(POLL_SECONDS / 10)
        environment = _read_proc(process.pid, "environ")
    return environment


def _is_executing(pid: int) -> bool:
    """Return True if a process is about to get its arguments and its environment from `execve`."""
    if _read_proc(pid, "cmdline"):
        # It has arguments now; so it has its environment too, unless that is empty.
        return bool(_read_proc(pid, "environ"))
    return _read_proc(pid, "stat").rpartition(b")")[2].split()[:1] not in ([], [b"Z"], [b"X"])


def _is_watcher(pid: int, token: str) -> bool:
    # Before the starter becomes the child it looks the same, but then it leads the session.
    arguments = _read_proc(pid, "cmdline").split(b"\0")
    return f"weft:{token}".encode() in arguments and not _is_leader(pid)


def _is_leader(pid: int) -> bool:
    with suppress(OSError):
        return os.getsid(pid) == pid
    return False


def _iterate_living() -> Iterator[_Process]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (text := _read_proc(int(name), "stat")):
            # The name in parentheses may contain anything, even parentheses.
            state, parent, group, session = text.rpartition(b")")[2].split()[:4]
            if state not in (b"Z", b"X"):
                yield _Process(int(name), state.decode(), int(parent), int(group), int(session))


def _read_proc(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""  # it has ended, or we may not read it


def _send_signal(pids: set[int], which: signal.Signals) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, which)


def _signal_group(leader: int, which: signal.Signals) -> None:
    with suppress(OSError):
        os.killpg(leader, which)


def list_descendants(pid: int) -> dict[int, str]:
    """Return the living descendants of a process with their names. Empty on systems that cannot list them."""
    if not sys.platform.startswith("linux"):
        return {}
    processes = {process.pid: process for process in _iterate_living()}
    names: dict[int, str] = {}
    pending = [pid]
    while pending:
        parent = pending.pop()
        for child in processes.values():
            if child.parent == parent and child.pid not in names:
                names[child.pid] = _read_proc(child.pid, "comm").decode(errors="replace").strip()
                pending.append(child.pid)
    return names
