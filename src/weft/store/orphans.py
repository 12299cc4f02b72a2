"""Orphans: parts whose message is gone. The tree files parts by message alone, so whose they are takes looking up."""

from collections.abc import Collection

from weft.model.ids import MessageID, SessionID
from weft.model.part import AnyPart
from weft.store.layout import SUFFIX
from weft.store.tree import Tree


def list_part_owners(tree: Tree, sessions: Collection[SessionID]) -> list[MessageID]:
    """The messages whose parts go when these sessions go, those too that are gone themselves.

    OpenCode leaves the parts of a removed message behind. A message that another session has as well keeps its parts.
    """
    layout, documents = tree.layout, tree.documents
    shelf = layout.shelf("message")
    own = {name for session in sessions for name in documents.names(layout.messages(session))}
    others: set[str] = set()
    for name in documents.directories(shelf):
        if name not in sessions:
            others.update(documents.names(f"{shelf}/{name}"))
    stray = [
        name
        for name in documents.directories(layout.shelf("part"))
        if name not in own and name not in others and _owner(tree, name) in sessions
    ]
    return [MessageID(name) for name in (*sorted(own - others), *stray)]


def _owner(tree: Tree, message: str) -> SessionID | None:
    directory = tree.layout.parts(MessageID(message))
    for name in tree.documents.names(directory):
        part: AnyPart | None = tree.documents.find(f"{directory}/{name}{SUFFIX}", AnyPart)
        if part is not None:
            return part.session_id
    return None
