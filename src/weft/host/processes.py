"""Child processes: started in a session of their own, read in pieces, and never left behind."""

import asyncio
import errno
import os
import secrets
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import BinaryIO, Final, NamedTuple

from msgspec import Struct

from weft.host.tasks import undivided

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


Hear = Callable[[bytes], Awaitable[None]]

DRAIN_SECONDS: Final = 0.1
REAP_SECONDS: Final = 5.0
PIECE: Final = 1 << 16
# More than any pipe holds: what a child wrote before it ended fits in, what a grandchild goes on writing does not.
PIPE_HOLDS: Final = 1 << 20
FILE_LIMIT: Final = 128 << 20

# The mark is set after the watcher has forked, so that the watcher never finds itself. The doubled parentheses leave
# it without a parent that might wait for it.
_STARTER: Final = f"""
exec 3<&0 </dev/null
( (
    trap '' HUP INT TERM
    read -r _ <&3
    for found in $(grep -lszF "{MARK}=$1" /proc/[0-9]*/environ); do
        found=${{found#/proc/}}
        kill -KILL "${{found%/environ}}"
    done
    kill -KILL -- -$$
) >/dev/null 2>&1 & )
exec 3<&-
{MARK}=$1
export {MARK}
shift
exec "$@"
"""

# What a tool's child is told of the world it runs in. Never a provider's key, never our own password.
_ALLOWED_NAMES = """
PATH HOME LANG LANGUAGE LC_* TERM COLORTERM NO_COLOR TMPDIR TZ USER LOGNAME SHELL HOSTNAME DISPLAY EDITOR PAGER
XDG_* SSH_AUTH_SOCK VIRTUAL_ENV CONDA_PREFIX PYENV_ROOT UV_CACHE_DIR NVM_DIR NVM_BIN VOLTA_HOME BUN_INSTALL
JAVA_HOME GOPATH GOROOT CARGO_HOME RUSTUP_HOME SDKROOT SSL_CERT_FILE SSL_CERT_DIR NO_PROXY no_proxy HTTP_PROXY
HTTPS_PROXY http_proxy https_proxy
"""
ALLOWED: Final = frozenset(_ALLOWED_NAMES.split())


class Command(Struct, frozen=True, kw_only=True):
    """What to run, where, with which environment (all of it), and for how many seconds at most."""

    argv: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    timeout: float | None = None


class Exit(Struct, frozen=True, kw_only=True):
    """How it ended: minus the signal's number when one killed it; `leftovers` is how many it started and left."""

    code: int | None
    timed_out: bool = False
    leftovers: int = 0


class Output:
    """What a child says: its beginning in memory, and all of it in a file once that is not enough.

    `path` gives the file's place when it is needed. The file has an end too: past `limit` nothing is kept.
    """

    def __init__(self, path: Callable[[], str], *, memory: int, limit: int = FILE_LIMIT) -> None:
        self._new_path = path
        self._memory = memory
        self._limit = limit
        self._file: BinaryIO | None = None
        self.head = bytearray()
        self.size = 0
        self.path: str | None = None

    async def hear(self, piece: bytes) -> None:
        before = self.size
        self.size += len(piece)
        if self.size > self._memory and before < self._limit:
            # To the end, also when cancelled: the thread would write on into a file that is being closed.
            try:
                await undivided(asyncio.to_thread(self._write, piece[: self._limit - before]))
            except OSError:
                # A full disk costs the rest of the output, not the command.
                self._limit = max(before, self._memory)
        self.head.extend(piece[: max(0, self._memory - len(self.head))])

    def _write(self, piece: bytes) -> None:
        if self._file is None:
            self.path = self._new_path()
            self._file = open(self.path, "xb", opener=_for_owner)  # noqa: SIM115  closed by `close`
            self._file.write(self.head)
        self._file.write(piece)
        self._file.flush()  # who reads it meanwhile sees all that was said

    @property
    def lost(self) -> int:
        """How many bytes were said and not kept."""
        return max(0, self.size - self._limit)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class Captured(Struct, frozen=True, kw_only=True):
    """What a short command said, cut at a limit."""

    code: int | None
    output: bytes
    errors: str
    cut: bool = False


def tool_environment(source: Mapping[str, str], also: Collection[str] = ()) -> dict[str, str]:
    """Those variables that a tool's child may see: the allowed ones (`LC_*` is a prefix), and what is named besides."""
    names = {*ALLOWED, *also}
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    return {name: value for name, value in source.items() if name in names or name.startswith(prefixes)}


async def run(command: Command, hear: Hear, hear_errors: Hear | None = None) -> Exit:
    """Run to the end, with no input; both outputs go to `hear`, or the errors apart.

    Returns when the child has ended and what it said is heard: who still holds its pipe is not waited for. On return,
    on a timeout and on cancelling, everything it started is ended. What `hear` raises ends it too, and is raised.
    """
    with ExitStack() as held:
        pipes = [(_Pipe(held), hear), *([(_Pipe(held), hear_errors)] if hear_errors else [])]
        child = _Child(held)
        try:
            # Undivided: cancelled half way, it would be running with nobody to end it.
            await undivided(child.start(command, pipes[0][0].writer, pipes[-1][0].writer))
            for pipe, _ in pipes:
                pipe.close_writer()
            timed_out = await _listen(child, pipes, command.timeout)
        finally:
            leftovers = await undivided(child.end())
        for pipe, each in pipes:
            await pipe.drain(each)
        return Exit(code=child.code, timed_out=timed_out, leftovers=0 if timed_out else leftovers)


async def capture(command: Command, *, limit: int) -> Captured:
    """Run a short command and keep what it says, up to `limit` bytes; past that it is ended."""
    output, errors = bytearray(), bytearray()
    try:
        exit = await run(command, _keep_in(output, limit), _keep_in(errors, limit))
    except _EnoughError:
        said = errors.decode(errors="replace")
        return Captured(code=None, output=bytes(output), errors=said, cut=True)
    said = errors.decode(errors="replace")
    return Captured(code=exit.code, output=bytes(output), errors=said, cut=exit.timed_out)


class _EnoughError(Exception):
    """More was said than is wanted."""


def _keep_in(kept: bytearray, limit: int) -> Hear:
    async def hear(piece: bytes) -> None:
        kept.extend(piece[: limit - len(kept)])
        if len(kept) >= limit:
            raise _EnoughError

    return hear


class _Child:
    """A process, its mark, and the lifeline that its watcher holds on to; our end closes with the stack."""

    def __init__(self, held: ExitStack) -> None:
        self._token = secrets.token_hex(16)
        self._lifeline, our_end = os.pipe()
        held.callback(os.close, our_end)
        held.callback(os.close, self._lifeline)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, command: Command, output: int, errors: int) -> None:
        # The name in the watcher's command line is how it is told from what the child left behind.
        try:
            self._process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", _STARTER, f"weft:{self._token}", self._token, *command.argv),
                cwd=command.directory,
                env=dict(command.environment),
                stdin=self._lifeline,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        except ValueError as error:  # a NUL, or half a character, in a word
            raise OSError(errno.EINVAL, str(error)) from error

    @property
    def code(self) -> int | None:
        return self._process.returncode if self._process else None

    async def wait(self) -> None:
        if self._process is not None:
            await self._process.wait()

    async def end(self) -> int:
        """End it and all it started; gives how many those were."""
        if self._process is None:
            return 0
        leftovers = await asyncio.to_thread(end_all, self._process.pid, self._token)
        # A process stuck in the kernel cannot even be killed; nobody is to wait for it for ever.
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), REAP_SECONDS)
        return leftovers


async def _listen(child: _Child, pipes: "list[tuple[_Pipe, Hear]]", seconds: float | None) -> bool:
    """Hear it until it ends, and a moment longer. Gives whether time ran out."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit, asyncio.TaskGroup() as tasks:
            pumps = [tasks.create_task(pipe.pump(hear)) for pipe, hear in pipes]
            await child.wait()
            await asyncio.wait(pumps, timeout=DRAIN_SECONDS)
            for pump in pumps:
                pump.cancel()
    except TimeoutError:
        if not limit.expired():
            raise
        return True
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return False


class _Pipe:
    """A pipe whose reading end we listen to without blocking; both ends close with the stack."""

    def __init__(self, held: ExitStack) -> None:
        self.reader, self.writer = os.pipe()
        self._writing = True
        held.callback(self._close)
        os.set_blocking(self.reader, False)

    def close_writer(self) -> None:
        if self._writing:
            self._writing = False
            os.close(self.writer)

    def _close(self) -> None:
        self.close_writer()
        os.close(self.reader)

    async def pump(self, hear: Hear) -> None:
        """Hear all that comes, until nobody is left to write."""
        while True:
            try:
                piece = os.read(self.reader, PIECE)
            except BlockingIOError:
                await self._readable()
                continue
            if not piece:
                return
            await hear(piece)
            await asyncio.sleep(0)  # a child that never pauses must not keep everybody else from the loop

    async def drain(self, hear: Hear) -> None:
        """Hear what is in the pipe by now, and wait for nothing."""
        left = PIPE_HOLDS
        while left > 0:
            try:
                piece = os.read(self.reader, min(PIECE, left))
            except BlockingIOError:
                return
            if not piece:
                return
            left -= len(piece)
            await hear(piece)

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()

        def tell() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_reader(self.reader, tell)
        try:
            await ready
        finally:
            loop.remove_reader(self.reader)
