"""A disk that fails at a chosen call."""

import errno
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from weft.host.files import Disk


@contextmanager
def limit_file_size(size: int) -> Iterator[None]:
    """Have the system refuse writes beyond `size` bytes of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class FailingDisk(Disk):
    """Fails at one call after doing half of it; or, with `forever`, from that call on without doing anything."""

    def __init__(self, at: int, *, forever: bool = False) -> None:
        self._left = at
        self._for_ever = forever
        self.failed = False

    def _fails_now(self) -> bool:
        self._left -= 1
        fails = self._left <= 0 if self._for_ever else self._left == 0
        self.failed = self.failed or fails
        return fails

    def prepare(self, temp: str, raw: bytes, *, flush: bool = False) -> None:
        if self._fails_now():
            if not self._for_ever:
                super().prepare(temp, raw[: len(raw) // 2])
            raise OSError(errno.ENOSPC, "No space left on device", temp)
        super().prepare(temp, raw, flush=flush)

    def extend(self, path: str, at: int, raw: bytes) -> None:
        if self._fails_now():
            if not self._for_ever:
                super().extend(path, at, raw[: len(raw) // 2])
            raise OSError(errno.ENOSPC, "No space left on device", path)
        super().extend(path, at, raw)

    def append(self, path: str, raw: bytes, *, at: int, head: bytes = b"") -> None:
        if self._fails_now():
            if not self._for_ever:
                super().append(path, raw[: len(raw) // 2], at=at, head=head)
            raise OSError(errno.ENOSPC, "No space left on device", path)
        super().append(path, raw, at=at, head=head)

    def move(self, source: str, target: str) -> list[str]:
        if self._fails_now():
            raise OSError(errno.EROFS, "Read-only file system", target)
        return super().move(source, target)

    def remove(self, path: str) -> None:
        if self._fails_now():
            raise OSError(errno.EIO, "Input/output error", path)
        super().remove(path)

    def flush(self, path: str) -> None:
        if self._fails_now():
            raise OSError(errno.EIO, "Input/output error", path)
        super().flush(path)

    def flush_many(self, paths: Sequence[str]) -> None:
        self._flush_each(paths)  # in a thread, nobody could tell which one fails
