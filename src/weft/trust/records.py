"""Trust records: which projects a person trusts, and the fingerprint each had then."""

import hashlib
import os
import secrets
from contextlib import suppress

from weft.errors import DocumentError
from weft.host.files import read_file, write_atomic
from weft.host.paths import Paths
from weft.model.wire import Wire, decode, encode

LIMIT = 16 << 20


class Vouched(Wire, frozen=True, kw_only=True):
    """What a person said of a project, by its real path: `files` are those that mattered, and the hash of each.

    One that was `refused` is not asked about again while it stays as it was.
    """

    path: str
    time: int
    files: dict[str, str]
    refused: bool = False


class Book:
    def __init__(self, paths: Paths) -> None:
        self._directory = os.path.join(paths.data, "trust")

    def find(self, root: str) -> Vouched | None:
        found = self._read(self._file(root))
        # The name is a hash: what stands inside says whose it is.
        return found if found is not None and found.path == _spelled(root) else None

    def list_all(self) -> list[Vouched]:
        """By path. What cannot be read is passed over: it vouches for nothing."""
        try:
            names = os.listdir(self._directory)
        except OSError:
            return []
        found = (self._read(os.path.join(self._directory, name)) for name in names if name.endswith(".json"))
        return sorted((each for each in found if each is not None), key=lambda each: each.path)

    def put(self, root: str, *, files: dict[str, str], time: int, refused: bool = False) -> Vouched:
        vouched = Vouched(path=_spelled(root), time=time, files=files, refused=refused)
        file = self._file(root)
        write_atomic(file, encode(vouched), temp=f"{file}.{secrets.token_hex(8)}.tmp", flush=True)
        return vouched

    def remove(self, root: str) -> bool:
        """Whether there was anything to remove."""
        with suppress(FileNotFoundError):
            os.unlink(self._file(root))
            return True
        return False

    def _file(self, root: str) -> str:
        return os.path.join(self._directory, f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json")

    def _read(self, file: str) -> Vouched | None:
        try:
            return decode(read_file(file, limit=LIMIT)[0], Vouched, where=file)
        except (OSError, DocumentError):
            return None


def _spelled(path: str) -> str:
    """A path may hold bytes that are no text."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
