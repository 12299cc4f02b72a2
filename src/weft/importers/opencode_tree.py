"""Read sessions from another JSON tree of OpenCode or weft, in another data directory."""

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial

from weft.errors import DocumentError
from weft.importers.transcript import FoundSession, ImportedSession, ImportTrouble
from weft.model.ids import MessageID
from weft.model.project import Project
from weft.model.session import Session
from weft.model.transfer import ExportCounts, SessionExport
from weft.store.files.layout import SUFFIX
from weft.store.files.messages import MessageReader
from weft.store.files.tree import Tree
from weft.store.files.upgrade import RootCommit, upgrade_tree
from weft.transfer.document import check_export

TREE_PATHS = ("", "storage", "opencode/storage", ".local/share/opencode/storage")


class OpenCodeTree:
    """Reads the sessions of one tree."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._messages = MessageReader(tree)
        self._troubles: list[ImportTrouble] = []

    def list_projects(self) -> list[Project]:
        return self._tree.list_projects()

    def list_sessions(self) -> list[FoundSession]:
        self._tree.documents.forget_problems()
        sessions = sorted(self._tree.list_sessions(), key=lambda session: session.parent_id is not None)
        self._troubles = self._list_problems()
        return [FoundSession(name=session.id, read=partial(self._read, session)) for session in sessions]

    def list_troubles(self) -> Iterator[ImportTrouble]:
        yield from self._troubles

    def _read(self, session: Session) -> ImportedSession:
        self._tree.documents.forget_problems()
        export = SessionExport(
            info=session,
            messages=tuple(self._messages.list_messages(session.id)),
            todos=tuple(self._tree.list_todos(session.id)),
            diff=tuple(self._tree.list_diff(session.id)),
        )
        counted = self._count(session, export)
        return ImportedSession(
            export=check_export(export, where=session.id),
            counted=counted,
            troubles=tuple(self._list_problems()),
        )

    def _count(self, session: Session, export: SessionExport) -> ExportCounts:
        """Count files, whether or not they can be read."""
        ids = self._messages.list_ids(session.id)
        parts = sum(len(self._list_part_files(id)) for id in ids)
        return ExportCounts(messages=len(ids), parts=parts, todos=len(export.todos), diffs=len(export.diff))

    def _list_part_files(self, message: MessageID) -> list[str]:
        try:
            names = os.listdir(self._tree.layout.parts(message))
        except FileNotFoundError:
            return []
        return [name for name in names if name.endswith(SUFFIX)]

    def _list_problems(self) -> list[ImportTrouble]:
        return [ImportTrouble(where=each.where, reason=each.reason) for each in self._tree.problems()]


@contextmanager
def open_opencode_tree(path: str, root_commit: RootCommit) -> Generator[OpenCodeTree]:
    """Open the tree in a storage directory, or in the data or home directory that contains it.

    A tree of an older format is copied first, and the copy is upgraded. The original does not change.
    """
    root = _find_storage(path)
    tree = Tree(root)
    if tree.is_settled():
        yield OpenCodeTree(tree)
        return
    with tempfile.TemporaryDirectory(prefix="weft-import-") as scratch:
        copy = os.path.join(scratch, "storage")
        shutil.copytree(root, copy, symlinks=True)
        if os.path.isdir(tree.layout.oldest):
            shutil.copytree(tree.layout.oldest, os.path.join(scratch, "project"), symlinks=True)
        tree = Tree(copy)
        upgrade_tree(tree, root_commit)
        yield OpenCodeTree(tree)


def _find_storage(path: str) -> str:
    for place in TREE_PATHS:
        root = os.path.join(path, place).rstrip("/")
        if os.path.isdir(os.path.join(root, "session")) and os.path.isdir(os.path.join(root, "message")):
            return root
    raise DocumentError(path, "this is not a tree of OpenCode: it has no directories `session` and `message`")
