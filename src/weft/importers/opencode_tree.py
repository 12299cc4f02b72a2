"""Read sessions from another JSON tree of OpenCode or weft, in another data directory."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial

from weft.importers.transcript import FoundSession, ImportedSession, ImportTrouble
from weft.model.damage import Damage
from weft.model.project import Project
from weft.model.session import SessionInfo
from weft.model.transfer import ExportCounts
from weft.store.contract import RootCommit
from weft.store.foreign_tree import ForeignTree, open_foreign_tree
from weft.transfer.document import check_export


class OpenCodeTree:
    """The `SessionSource` of a tree. An unreadable document is reported and skipped; the rest of its session is imported."""

    def __init__(self, tree: ForeignTree) -> None:
        self._tree = tree
        self._unlisted: list[Damage] = []

    def list_projects(self, troubles: list[ImportTrouble]) -> list[Project]:
        self._tree.take_problems()
        projects = self._tree.list_projects()
        troubles += map(_to_trouble, self._tree.take_problems())
        return projects

    def list_sessions(self) -> list[FoundSession]:
        self._tree.take_problems()
        sessions = self._tree.list_sessions()
        self._unlisted = self._tree.take_problems()
        return [FoundSession(name=session.id, read=partial(self._read, session)) for session in sessions]

    def list_troubles(self) -> Iterator[ImportTrouble]:
        yield from map(_to_trouble, self._unlisted)

    def _read(self, session: SessionInfo) -> ImportedSession:
        self._tree.take_problems()
        export = self._tree.read(session)
        messages, parts = self._tree.count(session.id)
        counted = ExportCounts(
            messages=messages, parts=parts, todos=len(export.todos), diffs=len(export.diff)
        )
        return ImportedSession(
            export=check_export(export, where=session.id),
            counted=counted,
            troubles=tuple(map(_to_trouble, self._tree.take_problems())),
        )


def _to_trouble(damage: Damage) -> ImportTrouble:
    return ImportTrouble(where=damage.where, reason=damage.reason)


@contextmanager
def open_opencode_tree(path: str, root_commit: RootCommit) -> Generator[OpenCodeTree]:
    """Open the tree at a path without changing it. Raise `DocumentError` if there is none."""
    with open_foreign_tree(path, root_commit) as tree:
        yield OpenCodeTree(tree)
