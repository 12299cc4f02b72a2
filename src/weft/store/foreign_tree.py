"""Read another JSON tree of OpenCode or weft, in another data directory. Nothing is ever written to it."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager

from weft.errors import DocumentError
from weft.model.damage import Damage
from weft.model.ids import SessionID
from weft.model.project import Project
from weft.model.session import SessionInfo
from weft.model.transfer import SessionExport
from weft.store.contract import RootCommit
from weft.store.files.layout import SUFFIX
from weft.store.files.reader import FileReader
from weft.store.files.upgrade import prepare_tree

TREE_PATHS = ("", "storage", "opencode/storage", ".local/share/opencode/storage")


class ForeignTree:
    """Reads sessions. Unreadable documents are skipped and reported by `take_problems`."""

    def __init__(self, reader: FileReader) -> None:
        self._reader = reader

    def list_projects(self) -> list[Project]:
        return self._reader.list_projects()

    def list_sessions(self) -> list[SessionInfo]:
        """Return all sessions, parents before children."""
        return sorted(self._reader.list_sessions(), key=lambda session: session.parent_id is not None)

    def read(self, session: SessionInfo) -> SessionExport:
        return SessionExport(
            info=session,
            messages=tuple(self._reader.list_messages(session.id)),
            todos=tuple(self._reader.list_todos(session.id)),
            diff=tuple(self._reader.list_diff(session.id)),
        )

    def count(self, session: SessionID) -> tuple[int, int]:
        """Return the numbers of messages and parts, counted as files, whether or not they can be read."""
        messages = self._reader.list_message_ids(session)
        return len(messages), sum(_count_documents(self._reader.layout.parts(id)) for id in messages)

    def take_problems(self) -> list[Damage]:
        """Return the documents that could not be read since the last call."""
        problems = self._reader.problems()
        self._reader.documents.forget_problems()
        return problems


def _count_documents(directory: str) -> int:
    try:
        return sum(name.endswith(SUFFIX) for name in os.listdir(directory))
    except OSError:
        return 0  # there is none, or it cannot be read, which is reported


@contextmanager
def open_foreign_tree(path: str, root_commit: RootCommit) -> Generator[ForeignTree]:
    """Open the tree in a storage directory, or in the data or home directory that contains it.

    A tree of an older format is copied first, and the copy is upgraded. The original does not change.
    Raise `DocumentError` if there is no tree.
    """
    root = _find_storage(path)
    reader = FileReader(root)
    if reader.is_ready():
        yield ForeignTree(reader)
        return
    with tempfile.TemporaryDirectory(prefix="weft-import-") as scratch:
        copy = os.path.join(scratch, "storage")
        shutil.copytree(root, copy, symlinks=True)
        if os.path.isdir(reader.layout.oldest):
            shutil.copytree(reader.layout.oldest, os.path.join(scratch, "project"), symlinks=True)
        reader = FileReader(copy)
        prepare_tree(reader, root_commit)
        yield ForeignTree(reader)


def _find_storage(path: str) -> str:
    for place in TREE_PATHS:
        root = os.path.join(path, place).rstrip("/")
        if os.path.isdir(os.path.join(root, "session")) and os.path.isdir(os.path.join(root, "message")):
            return root
    raise DocumentError(path, "this is not a tree of OpenCode: it has no directories `session` and `message`")
