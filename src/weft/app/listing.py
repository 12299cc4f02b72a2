"""Sessions for a list, from the shelf where there is one; nothing is written.

A document whose stamp is the one on the shelf need not be read; all others are. The directory alone would not tell:
OpenCode writes over a document without its directory showing it.
"""

from weft.app.stamps import stamps_in
from weft.index.shelf import find_shelf
from weft.model.ids import ProjectID, SessionID
from weft.model.session import Session, newest_first
from weft.store.tree import Tree


def list_shelved(tree: Tree, cache: str, project: ProjectID) -> list[Session] | None:
    """All sessions of a project, oldest first; None if there is no shelf worth looking at."""
    shelf = find_shelf(cache, tree.layout.root, project)
    if shelf is None:
        return None
    stamps = stamps_in(tree.layout.sessions(project))
    true = [
        session
        for id, mtime, size, inode, session in shelf.sessions
        if stamps.get(id) == (mtime, size, inode)
    ]
    missing = len(stamps) - len(true)
    if missing > len(true):
        return None  # most would have to be read, and reading them all in one go is faster
    return _with_others(tree, project, true) if missing else true


def _with_others(tree: Tree, project: ProjectID, true: list[Session]) -> list[Session]:
    known = {session.id for session in true}
    names = tree.documents.names(tree.layout.sessions(project))
    read = [tree.find_session(SessionID(name)) for name in names if name not in known]
    others = [session for session in read if session is not None and session.project_id == project]
    return sorted(true + others, key=newest_first, reverse=True)
