"""Note when this process dies, however that is: a process beside it, with a pipe between them, outlives it."""

import fcntl
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from weft.host.files import try_lock

DISMISS_SECONDS: Final = 5.0
# Our end of its input closes when we die. It then writes to its output, which makes the change time of that file the time of our
# death, and runs a command whose output goes to the file `$1`. If it reads a line instead, it is dismissed. The double
# parentheses detach it from us.
_WITNESS: Final = """
exec 3<&0 </dev/null
( (
    trap '' HUP INT TERM
    read -r _ <&3 && exit
    echo
    output=$1
    shift
    "$@" >"$output~" && mv "$output~" "$output"
) & )
"""


class DeathWitness:
    """A process that writes to the file `path` when this one dies, and then runs `argv`, with its output in the file `output`.

    It holds the lock of `path` until it is done, so that whoever reads both can wait for it. Every method blocks.
    """

    def __init__(
        self, path: str, output: str, argv: Sequence[str], *, directory: str, environment: Mapping[str, str]
    ) -> None:
        self._path = path
        lifeline, self._our_end = os.pipe()
        try:
            with open(path, "xb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                # The disk may be full when we die, but the first block of this file is then there already.
                file.write(b".")
                file.flush()
                subprocess.run(
                    ("/bin/sh", "-c", _WITNESS, "weft", output, *argv),
                    cwd=directory,
                    env=dict(environment),
                    stdin=lifeline,
                    stdout=file,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    check=False,
                )
        except OSError:
            os.close(self._our_end)
            raise
        finally:
            os.close(lifeline)

    def show_life(self) -> None:
        """Set the change time of the file. If the witness is killed together with us, that is when we were last alive."""
        with suppress(OSError):
            os.utime(self._path)

    def dismiss(self) -> None:
        """End the witness, which then notes nothing, and wait for that."""
        with suppress(OSError):  # somebody killed it
            os.write(self._our_end, b"\n")
        with suppress(OSError), try_lock(self._path, seconds=DISMISS_SECONDS):
            pass

    def close(self) -> None:
        """Let go of the witness. Unless it was dismissed, it takes this for our death."""
        os.close(self._our_end)
