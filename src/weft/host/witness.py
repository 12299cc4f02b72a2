"""Note when this process dies, however that is: a process beside it, with a pipe between them, outlives it."""

import fcntl
import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Final

from weft.host.files import is_locked, wait_briefly

DISMISS_MS: Final = 5_000
LOCK_ATTEMPTS: Final = 100
# Our end of its input closes when we die. It then writes to its output, which makes the change time of that file the time of our
# death, and runs a command in the directory `$2`, whose output goes to the file `$1`. If it reads a line instead, it is dismissed.
# The double parentheses detach it from us. It enters the directory only then, so that a disk can be unmounted meanwhile.
_WITNESS: Final = """
exec 3<&0 </dev/null
( (
    trap '' HUP INT TERM
    read -r _ <&3 && exit
    echo
    output=$1
    cd "$2" || exit
    shift 2
    "$@" >"$output~" 2>/dev/null && mv "$output~" "$output"
) & )
"""


class DeathWitness:
    """A process that writes to the file `path` when this one dies, and then runs `argv` in a directory, with its output in the file
    `output`. All paths are absolute.

    It holds the lock of `path` until it is done, so that whoever reads both can wait for it. Every method blocks.
    """

    def __init__(
        self, path: str, output: str, argv: Sequence[str], *, directory: str, environment: Mapping[str, str]
    ) -> None:
        self._path = path
        with ExitStack() as ours, ExitStack() as theirs:
            lifeline, self._lifeline = _open_pipe(theirs, ours)
            self._end, end = _open_pipe(ours, theirs)  # nobody writes to it: it closes when the witness ends
            file = theirs.enter_context(open(path, "xb"))
            fcntl.flock(file, fcntl.LOCK_EX)
            # The disk may be full when we die, but the first block of this file is then there already.
            file.write(b".")
            file.flush()
            subprocess.run(
                ("/bin/sh", "-c", _WITNESS, "weft", output, directory, *argv),
                cwd="/",
                env=dict(environment),
                stdin=lifeline,
                stdout=file,
                stderr=end,
                start_new_session=True,
                check=False,
            )
            self._ours = ours.pop_all()

    def show_life(self) -> None:
        """Set the change time of the file. If the witness is killed together with us, that is when we were last alive."""
        with suppress(OSError):
            os.utime(self._path)

    def dismiss(self) -> None:
        """End the witness, which then notes nothing, and wait for that."""
        with suppress(OSError):  # somebody killed it
            os.write(self._lifeline, b"\n")
        end = select.poll()
        end.register(self._end)
        end.poll(DISMISS_MS)
        # When a process ends, the system may close the pipe a moment before it releases the lock.
        for _ in range(LOCK_ATTEMPTS):
            if not is_locked(self._path):
                return
            wait_briefly()

    def close(self) -> None:
        """Let go of the witness. Unless it was dismissed, it takes this for our death."""
        self._ours.close()


def _open_pipe(reading: ExitStack, writing: ExitStack) -> tuple[int, int]:
    """Open a pipe, whose two ends close with these stacks."""
    reader, writer = os.pipe()
    reading.callback(os.close, reader)
    writing.callback(os.close, writer)
    return reader, writer
