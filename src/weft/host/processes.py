"""Child processes: started in their own session, read in pieces, and ended with everything they started."""

import asyncio
import errno
import hashlib
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from typing import BinaryIO, Final

from msgspec import Struct

from weft.host.process_family import MARK, end_all
from weft.host.tasks import run_to_completion

# When a process started, in /proc/PID/stat, counted after its name.
START_TIME_FIELD: Final = 19

OnOutput = Callable[[bytes], Awaitable[None]]

DRAIN_SECONDS: Final = 0.1
REAP_SECONDS: Final = 5.0
READ_BYTES: Final = 1 << 16
# More than any pipe holds: it covers what a child wrote before it ended, but not endless output of a grandchild.
MAX_PIPE_BYTES: Final = 1 << 20
MAX_FILE_BYTES: Final = 128 << 20

# What every starter's watcher does when we die: kill the processes that carry the mark with the token `$1`, then the
# whole process group.
KILL_SCRIPT: Final = f"""\
    for found in $(grep -lszF "{MARK}=$1" /proc/[0-9]*/environ); do
        found=${{found#/proc/}}
        kill -KILL "${{found%/environ}}"
    done
    kill -KILL -- -$$"""

# The mark is set after the watcher has forked, so that the watcher never finds itself. The double parentheses detach
# the watcher from any parent that might wait for it.
_STARTER: Final = f"""
exec 3<&0 </dev/null
( (
    trap '' HUP INT TERM
    read -r _ <&3
{KILL_SCRIPT}
) >/dev/null 2>&1 & )
exec 3<&-
{MARK}=$1
export {MARK}
shift
exec "$@"
"""

# Like the starter, but it stays the parent of the command, to record in the file `$2` that the command starts and with which code
# it ends. If we die, it is killed before the command is: else it would take that for the command's own end. It outlives the signals
# that end a command, and says nothing itself. A record that exists already was settled by somebody: then the command does not start.
_SUPERVISOR: Final = f"""
exec 3<&0 </dev/null
( (
    trap '' HUP INT TERM
    read -r _ <&3
    kill -KILL $$
{KILL_SCRIPT}
) >/dev/null 2>&1 & )
exec 3<&-
{MARK}=$1
export {MARK}
_weft_record=$2
shift 2
set -C
: >"$_weft_record" || exit 125
set +C
trap : HUP INT QUIT TERM
exec 4>&2 2>/dev/null
( exec 2>&4 4>&-; exec "$@" )
_weft_code=$?
echo "$_weft_code" >>"$_weft_record"
exit "$_weft_code"
"""

# The variables that a tool's process may see. Never a provider's key or our own password. `SSH_AUTH_SOCK` lets git push as the
# user; it shows no key, but whoever has it can log in with them.
_ALLOWED_NAMES = """
PATH HOME LANG LANGUAGE LC_* TERM COLORTERM NO_COLOR TMPDIR TZ USER LOGNAME SHELL HOSTNAME DISPLAY EDITOR PAGER
XDG_* SSH_AUTH_SOCK VIRTUAL_ENV CONDA_PREFIX PYENV_ROOT UV_CACHE_DIR NVM_DIR NVM_BIN VOLTA_HOME BUN_INSTALL
JAVA_HOME GOPATH GOROOT CARGO_HOME RUSTUP_HOME SDKROOT SSL_CERT_FILE SSL_CERT_DIR NO_PROXY no_proxy HTTP_PROXY
HTTPS_PROXY http_proxy https_proxy
"""
ALLOWED_VARIABLES: Final = frozenset(_ALLOWED_NAMES.split())
# The address of a proxy often contains a name and a password, which are no business of a tool.
PROXY_VARIABLES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"})
SCHEME: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")


class ProcessCommand(Struct, frozen=True, kw_only=True):
    """What to run, where, with which environment (all of it), and for how many seconds at most.

    With a `record`, a new path, a supervisor writes there how the command ends, even if we die. It reports a signal as shells do:
    as 128 and its number. With a `token`, the processes of the command can be found and ended later.
    """

    argv: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    timeout: float | None = None
    record: str = ""
    token: str = ""


# As shells do, so that a command has the same code with a supervisor, which is a shell, and without one.
SIGNAL_CODE: Final = 128


class ProcessExit(Struct, frozen=True, kw_only=True):
    """How a process ended. If a signal ended it, `code` is 128 and the number of the signal, as in every shell. `leftovers` is
    the number of processes that it started and left."""

    code: int | None
    timed_out: bool = False
    leftovers: int = 0


class ProcessOutput:
    """The output of a child: its first `memory` bytes in `head`, and all of it in a file if there are more.

    `path` is called for the path of the file when it is needed. What exceeds `limit` bytes is dropped.
    """

    def __init__(self, path: Callable[[], str], *, memory: int, limit: int = MAX_FILE_BYTES) -> None:
        self._new_path = path
        self._memory = memory
        self._limit = limit
        self._file: BinaryIO | None = None
        self.head = bytearray()
        self.size = 0
        self.path: str | None = None

    async def add(self, piece: bytes) -> None:
        """Add a piece of output."""
        before = self.size
        self.size += len(piece)
        if self.size > self._memory and before < self._limit:
            # Not cancellable: the thread would go on writing to a file that is being closed.
            try:
                await run_to_completion(asyncio.to_thread(self._write, piece[: self._limit - before]))
            except OSError:
                # If the disk is full, drop the rest of the output and let the command run on.
                self._limit = max(before, self._memory)
            finally:
                self._extend_head(piece)  # also if we were cancelled: the piece is in the file by now
        else:
            self._extend_head(piece)

    def _extend_head(self, piece: bytes) -> None:
        self.head.extend(piece[: max(0, self._memory - len(self.head))])

    def _write(self, piece: bytes) -> None:
        if self._file is None:
            self.path = self._new_path()
            self._file = open(self.path, "xb", opener=_open_private)  # noqa: SIM115  closed by `close`
            self._file.write(self.head)
        self._file.write(piece)
        self._file.flush()  # so that readers of the file see everything so far

    @property
    def lost(self) -> int:
        """Return the number of bytes that were dropped."""
        return max(0, self.size - self._limit)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class CapturedOutput(Struct, frozen=True, kw_only=True):
    """The output of a short command. `cut` says that it is incomplete."""

    code: int | None
    output: bytes
    errors: str
    cut: bool = False


NOT_BEGUN: Final = b"not begun"


class CommandRecord(Struct, frozen=True, kw_only=True):
    """What a supervisor recorded: whether the command began, and its exit code if it ended."""

    began: bool
    code: int | None = None


def claim_record(path: str) -> CommandRecord:
    """Return what is recorded of a command whose starter is dead. A command that has not begun never will.

    Raise `OSError` if the record cannot be read.
    """
    try:
        with open(path, "x+b", opener=_open_private) as file:
            file.write(NOT_BEGUN)
            return CommandRecord(began=False)
    except FileExistsError:
        # A record after this line does not count: somebody else has ended the command by then.
        with open(path, "a+b") as file:
            file.write(b"\n")
            file.seek(0)
            first = file.readline().strip()
    return CommandRecord(began=first != NOT_BEGUN, code=int(first) if first.isdigit() else None)


def remove_record(path: str) -> None:
    """Remove the record of a command whose result is stored."""
    with suppress(OSError):
        os.unlink(path)


def describe_process() -> str:
    """Name this process, for others that wait for it. No other process has this name, not even one in another container with the
    same host name and number."""
    return f"process {os.getpid()} on {os.uname().nodename} ({_identify_process()})"


def _identify_process() -> str:
    """Return an identity that no other process with this number has: the boot, the container, and the start time."""
    facts = [os.uname().nodename]
    with suppress(OSError):  # not on Linux, where each machine has one set of numbers
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            facts.append(file.read().strip())
        facts.append(os.readlink("/proc/self/ns/pid"))
        with open("/proc/self/stat", "rb") as status:
            facts.append(status.read().rpartition(b")")[2].split()[START_TIME_FIELD].decode())
    return hashlib.sha256(" ".join(facts).encode()).hexdigest()[:8]


def tool_environment(source: Mapping[str, str], extra: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that a tool's process may see: the allowed ones, proxies without name and password, and those in `extra`.

    `LC_*` names a prefix.
    """
    names = {*ALLOWED_VARIABLES, *extra}
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    return {
        name: strip_userinfo(value) if name in PROXY_VARIABLES else value
        for name, value in source.items()
        if name in names or name.startswith(prefixes)
    }


def strip_userinfo(url: str) -> str:
    """Return the address of a proxy without name and password. The scheme may be missing."""
    scheme = SCHEME.match(url)
    head = scheme[0] if scheme else ""
    return head + url[len(head) :].rpartition("@")[2]


async def run_command(
    command: ProcessCommand, on_output: OnOutput, on_errors: OnOutput | None = None
) -> ProcessExit:
    """Run a command to its end, without input. Its output goes to `on_output`, and its errors to `on_errors` if given.

    Return when the child has ended and its output is read; a grandchild that holds the pipe open is not waited for. On
    return, timeout and cancellation, everything that it started is ended. If `on_output` raises, the command is ended
    and the error is raised.
    """
    with ExitStack() as stack:
        pipes = [(_Pipe(stack), on_output), *([(_Pipe(stack), on_errors)] if on_errors else [])]
        child = _Child(stack, command.token)
        try:
            # Not cancellable: a half-started process would have nobody to end it.
            await run_to_completion(child.start(command, pipes[0][0].writer, pipes[-1][0].writer))
            for pipe, _ in pipes:
                pipe.close_writer()
            timed_out = await _read_output(child, pipes, command.timeout)
        finally:
            leftovers = await run_to_completion(child.end())
        for pipe, handle in pipes:
            await pipe.drain(handle)
        return ProcessExit(code=child.code, timed_out=timed_out, leftovers=0 if timed_out else leftovers)


async def capture_output(command: ProcessCommand, *, limit: int) -> CapturedOutput:
    """Run a short command and return up to `limit` bytes of its output; beyond that it is ended."""
    output, errors = bytearray(), bytearray()
    try:
        exit = await run_command(command, _make_collector(output, limit), _make_collector(errors, limit))
    except _OutputLimitError:
        text = errors.decode(errors="replace")
        return CapturedOutput(code=None, output=bytes(output), errors=text, cut=True)
    text = errors.decode(errors="replace")
    return CapturedOutput(code=exit.code, output=bytes(output), errors=text, cut=exit.timed_out)


class _OutputLimitError(Exception):
    """The output exceeds the limit."""


def _make_collector(buffer: bytearray, limit: int) -> OnOutput:
    async def collect(piece: bytes) -> None:
        buffer.extend(piece[: limit - len(buffer)])
        if len(buffer) >= limit:
            raise _OutputLimitError

    return collect


def new_token() -> str:
    """Return a token that marks every process of a command."""
    return secrets.token_hex(16)


class _Child:
    """A process, its token, and the lifeline pipe of its watcher; our end closes with the stack."""

    def __init__(self, stack: ExitStack, token: str) -> None:
        self._token = token or new_token()
        self._lifeline, our_end = os.pipe()
        stack.callback(os.close, our_end)
        stack.callback(os.close, self._lifeline)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, command: ProcessCommand, output: int, errors: int) -> None:
        # The token in the watcher's command line distinguishes it from what the child left behind.
        script = (_SUPERVISOR, f"weft:{self._token}", self._token, command.record)
        starter = script if command.record else (_STARTER, f"weft:{self._token}", self._token)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", *starter, *command.argv),
                cwd=command.directory,
                env=dict(command.environment),
                stdin=self._lifeline,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        except ValueError as error:  # a NUL byte or half a surrogate pair in an argument
            raise OSError(errno.EINVAL, str(error)) from error

    @property
    def code(self) -> int | None:
        code = self._process.returncode if self._process else None
        return SIGNAL_CODE - code if code is not None and code < 0 else code

    async def wait(self) -> None:
        if self._process is not None:
            await self._process.wait()

    async def end(self) -> int:
        """End it with everything it started; return the number of those."""
        if self._process is None:
            return 0
        leftovers = await asyncio.to_thread(end_all, self._process.pid, self._token)
        # A process stuck in the kernel cannot be killed; do not wait for it for ever.
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), REAP_SECONDS)
        return leftovers


async def _read_output(child: _Child, pipes: "list[tuple[_Pipe, OnOutput]]", seconds: float | None) -> bool:
    """Read the output until the child ends and a moment longer. Return True on a timeout."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit, asyncio.TaskGroup() as tasks:
            pumps = [tasks.create_task(pipe.pump(on_output)) for pipe, on_output in pipes]
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
    """A pipe that we read without blocking; both ends close with the stack."""

    def __init__(self, stack: ExitStack) -> None:
        self.reader, self.writer = os.pipe()
        self._writing = True
        stack.callback(self._close)
        os.set_blocking(self.reader, False)

    def close_writer(self) -> None:
        if self._writing:
            self._writing = False
            os.close(self.writer)

    def _close(self) -> None:
        self.close_writer()
        os.close(self.reader)

    async def pump(self, on_output: OnOutput) -> None:
        """Read until no writer is left."""
        while True:
            try:
                piece = os.read(self.reader, READ_BYTES)
            except BlockingIOError:
                await self._wait_until_readable()
                continue
            if not piece:
                return
            await on_output(piece)
            await asyncio.sleep(0)  # let other tasks run, even if the child never pauses

    async def drain(self, on_output: OnOutput) -> None:
        """Read what is in the pipe now, without waiting."""
        bytes_left = MAX_PIPE_BYTES
        while bytes_left > 0:
            try:
                piece = os.read(self.reader, min(READ_BYTES, bytes_left))
            except BlockingIOError:
                return
            if not piece:
                return
            bytes_left -= len(piece)
            await on_output(piece)

    async def _wait_until_readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()

        def set_ready() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_reader(self.reader, set_ready)
        try:
            await ready
        finally:
            loop.remove_reader(self.reader)
