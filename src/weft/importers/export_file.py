"""Read sessions from exported files: OpenCode's document of one session, or a bundle."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

from weft.errors import DocumentError
from weft.host.files import read_file
from weft.importers.transcript import FoundSession, FoundSessions, ImportedSession
from weft.model.transfer import count_export
from weft.transfer.bundle import Bundle, BundledSession, is_bundle, open_bundle
from weft.transfer.document import from_document

LIMIT = 1 << 30
HEAD = 4
FILE_HINT = "name a file that weft export or opencode export wrote; with --from, other programs' data"


@contextmanager
def open_export_file(path: str) -> Generator[FoundSessions]:
    """Open a document or a bundle. Raise `DocumentError` if it is bad, before anything is imported."""
    head = _read_head(path)
    if is_bundle(head):
        with open_bundle(path) as bundle:
            sessions = bundle.manifest.sessions
            yield FoundSessions(
                [FoundSession(name=each.id, read=partial(_read_session, bundle, each)) for each in sessions]
            )
        return
    try:
        raw = read_file(path, limit=LIMIT)[0]
    except OSError as error:
        raise DocumentError(path, error.strerror or str(error), hint=FILE_HINT) from error
    try:
        export = from_document(raw, where=path)
    except DocumentError as error:
        error.hint = error.hint or FILE_HINT
        raise
    read = ImportedSession(export=export, counted=count_export(export))
    yield FoundSessions([FoundSession(name=export.info.id, read=lambda: read)])


def _read_head(path: str) -> bytes:
    if os.path.isdir(path):
        hint = "to import everything in a directory, pass --from opencode, claude or codex"
        raise DocumentError(path, "it is a directory", hint=hint)
    try:
        with open(path, "rb") as file:
            return file.read(HEAD)
    except OSError as error:
        raise DocumentError(path, error.strerror or str(error), hint=FILE_HINT) from error


def _read_session(bundle: Bundle, session: BundledSession) -> ImportedSession:
    return ImportedSession(export=bundle.read(session), counted=session.counts)
