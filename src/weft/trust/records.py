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


class TrustRecord(Wire, frozen=True, kw_only=True):
    """The decision of a person about a project, by its real path. `files` are those that mattered, with their hashes.

    A `refused` project is not asked about again while it stays the same.
    """

    path: str
    time: int
    files: dict[str, str]
    refused: bool = False


class TrustRecords:
    """The decisions of a person, one file for each project."""

    def __init__(self, paths: Paths) -> None:
        self._directory = os.path.join(paths.data, "trust")

    def find(self, root: str) -> TrustRecord | None:
        found = self._read(self._file(root))
        # The file name is a hash, so the content decides which project it is.
        return found if found is not None and found.path == _to_text(root) else None

    def list_all(self) -> list[TrustRecord]:
        """Return all decisions by path. Unreadable ones are skipped: they trust nothing."""
        try:
            names = os.listdir(self._directory)
        except OSError:
            return []
        found = (self._read(os.path.join(self._directory, name)) for name in names if name.endswith(".json"))
        return sorted((each for each in found if each is not None), key=lambda each: each.path)

    def put(self, root: str, *, files: dict[str, str], time: int, refused: bool = False) -> TrustRecord:
        record = TrustRecord(path=_to_text(root), time=time, files=files, refused=refused)
        file = self._file(root)
        write_atomic(file, encode(record), temp=f"{file}.{secrets.token_hex(8)}.tmp", flush=True)
        return record

    def remove(self, root: str) -> bool:
        """Remove a decision. Return False if there was none."""
        with suppress(FileNotFoundError):
            os.unlink(self._file(root))
            return True
        return False

    def _file(self, root: str) -> str:
        return os.path.join(self._directory, f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json")

    def _read(self, file: str) -> TrustRecord | None:
        try:
            return decode(read_file(file, limit=LIMIT)[0], TrustRecord, where=file)
        except (OSError, DocumentError):
            return None


def _to_text(path: str) -> str:
    """Return a path as text; it may contain bytes that are not."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
