"""The tree that sessions make: who is below whom. Pure, and at an end even where parents go round in a circle."""

from collections import defaultdict
from collections.abc import Iterable

from weft.model.ids import SessionID
from weft.model.session import Session, SessionTree, newest_first


def children_of(sessions: Iterable[Session], parent: SessionID) -> list[Session]:
    """Those right below it, oldest first."""
    found = [session for session in sessions if session.parent_id == parent]
    return sorted(found, key=newest_first, reverse=True)


def below(sessions: Iterable[Session], root: SessionID) -> list[Session]:
    """All that is below it, each after its parent."""
    by_parent = _by_parent(sessions)
    found: dict[SessionID, Session] = {}
    waiting = [root]
    while waiting:
        for child in by_parent[waiting.pop(0)]:
            if child.id != root and child.id not in found:
                found[child.id] = child
                waiting.append(child.id)
    return list(found.values())


def grow_tree(sessions: Iterable[Session], root: Session) -> SessionTree:
    kin = below(sessions, root.id)
    by_parent = _by_parent(kin)
    grown: dict[SessionID, SessionTree] = {}
    for session in (*reversed(kin), root):  # children first: each finds its own ready
        children = tuple(grown.pop(child.id) for child in by_parent[session.id] if child.id in grown)
        grown[session.id] = SessionTree(session=session, children=children)
    return grown[root.id]


def _by_parent(sessions: Iterable[Session]) -> defaultdict[SessionID, list[Session]]:
    found: defaultdict[SessionID, list[Session]] = defaultdict(list)
    for session in sorted(sessions, key=newest_first, reverse=True):
        if session.parent_id is not None:
            found[session.parent_id].append(session)
    return found
