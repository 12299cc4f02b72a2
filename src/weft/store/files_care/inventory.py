"""Inventory: what lies in a tree, by name. Nothing is read and nothing judged, so it is quick, and cannot fail."""

from collections.abc import Mapping

from msgspec import Struct

from weft.model.damage import Damage
from weft.store.documents import Documents
from weft.store.layout import Layout


class Inventory(Struct, frozen=True, kw_only=True):
    """The names of what lies on each shelf. A document that cannot be read is there all the same.

    `sessions` tells the projects that hold each session, `messages` the messages of each session, `owners` the
    sessions of each message; `parts` are the messages that have parts. `strangers` is what is no document.
    """

    projects: frozenset[str]
    sessions: Mapping[str, tuple[str, ...]]
    messages: Mapping[str, frozenset[str]]
    owners: Mapping[str, tuple[str, ...]]
    parts: frozenset[str]
    diffs: frozenset[str]
    todos: frozenset[str]
    strangers: tuple[Damage, ...]

    def is_there(self, session: str) -> bool:
        """Whether there is a document for it, or a stranger that may be one: half renamed, or saved by hand."""
        return session in self.sessions or any(session in each.where for each in self.strangers)

    def is_reachable(self, message: str) -> bool:
        return any(self.is_there(session) for session in self.owners.get(message, ()))


def take_inventory(layout: Layout) -> Inventory:
    documents = Documents()
    sessions = _by_name(_nested(documents, layout.shelf("session")))
    messages = _nested(documents, layout.shelf("message"))
    return Inventory(
        projects=frozenset(documents.names(layout.shelf("project"))),
        sessions=sessions,
        messages=messages,
        owners=_by_name(messages),
        parts=frozenset(documents.directories(layout.shelf("part"))),
        diffs=frozenset(documents.names(layout.shelf("session_diff"))),
        todos=frozenset(documents.names(layout.shelf("todo"))),
        strangers=tuple(documents.problems()),
    )


def _nested(documents: Documents, shelf: str) -> dict[str, frozenset[str]]:
    return {name: frozenset(documents.names(f"{shelf}/{name}")) for name in documents.directories(shelf)}


def _by_name(nested: Mapping[str, frozenset[str]]) -> dict[str, tuple[str, ...]]:
    """Turned round: for each name the directories it is in."""
    turned: dict[str, tuple[str, ...]] = {}
    for directory, names in nested.items():
        for name in names:
            turned[name] = (*turned.get(name, ()), directory)
    return turned
