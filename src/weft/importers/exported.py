"""Sessions out of files that were exported: OpenCode's document of one session, or a bundle."""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial

from weft.errors import DocumentError
from weft.host.files import read_file
from weft.importers.transcript import Found, Read, Trouble
from weft.model.parcel import count
from weft.model.project import Project
from weft.transfer.bundle import Bundle, BundledSession, is_bundle, open_bundle
from weft.transfer.document import from_document

LIMIT = 1 << 30
HEAD = 4


class ExportedFile:
    """A file that was opened, and is sound: every session of it is there to be read."""

    def __init__(self, found: list[Found]) -> None:
        self._found = found

    def projects(self) -> list[Project]:
        return []

    def found(self) -> list[Found]:
        return self._found

    def troubles(self) -> Iterator[Trouble]:
        yield from ()


@contextmanager
def open_exported(path: str) -> Generator[ExportedFile]:
    """Whichever of the two it is. `DocumentError` says what is wrong with it, before anything is taken from it."""
    head = _head(path)
    if is_bundle(head):
        with open_bundle(path) as bundle:
            sessions = bundle.manifest.sessions
            yield ExportedFile(
                [Found(name=each.id, read=partial(_bundled, bundle, each)) for each in sessions]
            )
        return
    try:
        raw = read_file(path, limit=LIMIT)[0]
    except OSError as error:
        raise DocumentError(path, error.strerror or str(error)) from error
    parcel = from_document(raw, where=path)
    read = Read(parcel=parcel, counted=count(parcel))
    yield ExportedFile([Found(name=parcel.info.id, read=lambda: read)])


def _head(path: str) -> bytes:
    if os.path.isdir(path):
        hint = "to import all there is in a directory, say whose: --from opencode, claude or codex"
        raise DocumentError(path, f"it is a directory; {hint}")
    try:
        with open(path, "rb") as file:
            return file.read(HEAD)
    except OSError as error:
        raise DocumentError(path, error.strerror or str(error)) from error


def _bundled(bundle: Bundle, session: BundledSession) -> Read:
    return Read(parcel=bundle.read(session), counted=session.counts)
