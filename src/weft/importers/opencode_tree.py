"""Sessions of another JSON tree of OpenCode (or of weft): one that lies in another data directory."""

import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial

from weft.errors import DocumentError
from weft.importers.transcript import Found, Read, Trouble
from weft.model.ids import MessageID
from weft.model.parcel import Counts, Parcel
from weft.model.project import Project
from weft.model.session import Session
from weft.store.files.layout import SUFFIX
from weft.store.files.messages import Messages
from weft.store.files.reader import Tree
from weft.store.files.upgrade import keep_up
from weft.transfer.document import sound

RootCommit = Callable[[str], str | None]
PLACES = ("", "storage", "opencode/storage", ".local/share/opencode/storage")


class OpenCodeTree:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._messages = Messages(tree)
        self._troubles: list[Trouble] = []

    def projects(self) -> list[Project]:
        return self._tree.list_projects()

    def found(self) -> list[Found]:
        self._tree.documents.forget_problems()
        sessions = sorted(self._tree.list_sessions(), key=lambda session: session.parent_id is not None)
        self._troubles = self._problems()
        return [Found(name=session.id, read=partial(self._read, session)) for session in sessions]

    def troubles(self) -> Iterator[Trouble]:
        yield from self._troubles

    def _read(self, session: Session) -> Read:
        self._tree.documents.forget_problems()
        parcel = Parcel(
            info=session,
            messages=tuple(self._messages.list_messages(session.id)),
            todos=tuple(self._tree.list_todos(session.id)),
            diff=tuple(self._tree.list_diff(session.id)),
        )
        counted = self._count(session, parcel)
        return Read(parcel=sound(parcel, where=session.id), counted=counted, troubles=tuple(self._problems()))

    def _count(self, session: Session, parcel: Parcel) -> Counts:
        """Files are counted, not what could be read of them."""
        ids = self._messages.list_ids(session.id)
        parts = sum(len(self._part_files(id)) for id in ids)
        return Counts(messages=len(ids), parts=parts, todos=len(parcel.todos), diffs=len(parcel.diff))

    def _part_files(self, message: MessageID) -> list[str]:
        try:
            names = os.listdir(self._tree.layout.parts(message))
        except FileNotFoundError:
            return []
        return [name for name in names if name.endswith(SUFFIX)]

    def _problems(self) -> list[Trouble]:
        return [Trouble(where=each.where, reason=each.reason) for each in self._tree.problems()]


@contextmanager
def open_opencode_tree(path: str, root_commit: RootCommit) -> Generator[OpenCodeTree]:
    """The tree in a storage directory, or in the data directory or the home it lies in.

    One of an older format is brought up to date first, in a copy: theirs stays as it is.
    """
    root = _storage(path)
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
        keep_up(tree, root_commit)
        yield OpenCodeTree(tree)


def _storage(path: str) -> str:
    for place in PLACES:
        root = os.path.join(path, place).rstrip("/")
        if os.path.isdir(os.path.join(root, "session")) and os.path.isdir(os.path.join(root, "message")):
            return root
    raise DocumentError(path, "there is no tree of OpenCode here: no directories `session` and `message`")
