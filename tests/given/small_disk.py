"""A disk with a limited capacity."""

import errno

from weft.host.files import Disk


class SmallDisk(Disk):
    """Counts the bytes that it wrote and has not removed, and refuses what exceeds its `capacity`."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._sizes: dict[str, int] = {}

    @property
    def used(self) -> int:
        return sum(self._sizes.values())

    def _put(self, path: str, size: int) -> None:
        if self.used - self._sizes.get(path, 0) + size > self.capacity:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        self._sizes[path] = size

    def prepare(self, temp: str, raw: bytes, *, flush: bool = False) -> None:
        self._put(temp, len(raw))
        super().prepare(temp, raw, flush=flush)

    def extend(self, path: str, at: int, raw: bytes) -> None:
        self._put(path, at + len(raw))
        super().extend(path, at, raw)

    def move(self, source: str, target: str) -> list[str]:
        made = super().move(source, target)
        for path in [path for path in self._sizes if path == source or path.startswith(f"{source}/")]:
            self._sizes[target + path[len(source) :]] = self._sizes.pop(path)
        return made

    def remove(self, path: str) -> None:
        super().remove(path)
        for each in [each for each in self._sizes if each == path or each.startswith(f"{path}/")]:
            del self._sizes[each]
