"""The roll of jobs: which commands go on in the background, told to other processes.

Each is a file that is locked as long as the process lives that runs the job, however that ends.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress

import msgspec
from msgspec import Struct

from weft.model.ids import SessionID
from weft.model.wire import encode
from weft.tool.job import Job


class Entry(Struct, frozen=True, kw_only=True):
    """A line of the roll in our hands."""

    path: str
    fd: int


def enter(directory: str, job: Job) -> Entry:
    """Put a job on the roll. Blocks."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = os.path.join(directory, f"{job.session_id}.{job.id}.json")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.write(fd, encode(job))
    return Entry(path=path, fd=fd)


def strike(entry: Entry) -> None:
    """Take it off."""
    with suppress(OSError):
        os.unlink(entry.path)
    os.close(entry.fd)


def list_running(directory: str, session: SessionID | None = None) -> list[Job]:
    """The jobs that run right now, of one session or of all, oldest first."""
    found = [job for path in _paths(directory) if (job := _read(path)) is not None]
    return sorted((job for job in found if session in (None, job.session_id)), key=lambda job: job.started)


def _paths(directory: str) -> Iterator[str]:
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        yield from (entry.path for entry in entries if entry.name.endswith(".json"))


def _read(path: str) -> Job | None:
    """None when nobody holds it any more; such a line goes."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        with suppress(msgspec.DecodeError, OSError):
            return msgspec.json.decode(os.pread(fd, 1 << 20, 0), type=Job)
        return None
    else:
        with suppress(OSError):
            os.unlink(path)
        return None
    finally:
        os.close(fd)
