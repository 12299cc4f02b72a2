"""Trust records: which projects a person trusts, and the fingerprint each had then."""

import hashlib
import os
import secrets
from contextlib import suppress

from weft.errors import DocumentError
from weft.host.files import read_file, write_atomic
from weft.host.paths import Paths
from weft.model.wire import Wire, decode, encode

MAX_RECORD_BYTES = 16 << 20


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
        """Return the decision about a project, or None."""
        record = self._read(self._get_path(root))
        # The file name is a hash, so the content decides which project it is.
        return record if record is not None and record.path == _to_text(root) else None

    def list_all(self) -> list[TrustRecord]:
        """Return all decisions by path. Unreadable ones are skipped: they trust nothing."""
        try:
            names = os.listdir(self._directory)
        except OSError:
            return []
        records = (
            self._read(os.path.join(self._directory, name)) for name in names if name.endswith(".json")
        )
        return sorted((record for record in records if record is not None), key=lambda record: record.path)

    def put(self, root: str, *, files: dict[str, str], time: int, refused: bool = False) -> TrustRecord:
        """Store and return a decision about a project."""
        record = TrustRecord(path=_to_text(root), time=time, files=files, refused=refused)
        file = self._get_path(root)
        write_atomic(file, encode(record), temp=f"{file}.{secrets.token_hex(8)}.tmp", flush=True)
        return record

    def remove(self, root: str) -> bool:
        """Remove a decision. Return False if there was none."""
        with suppress(FileNotFoundError):
            os.unlink(self._get_path(root))
            return True
        return False

    def _get_path(self, root: str) -> str:
        return os.path.join(self._directory, f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json")

    def _read(self, file: str) -> TrustRecord | None:
        try:
            return decode(read_file(file, limit=MAX_RECORD_BYTES)[0], TrustRecord, where=file)
        except (OSError, DocumentError):
            return None


def _to_text(path: str) -> str:
    """Return a path as text. Bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
