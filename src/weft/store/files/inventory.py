"""List what lies in a tree: names, sizes, ages, and documents that are unreadable or misplaced."""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from weft.errors import InvalidIdError
from weft.model.damage import Damage
from weft.model.diff import FileDiff
from weft.model.ids import MessageID, ProjectID, SessionID, file_name
from weft.model.message import AnyMessage
from weft.model.part import AnyPart
from weft.model.project import Project
from weft.model.session import Session, Todo
from weft.store.files.documents import Documents
from weft.store.files.layout import KEPT_WITH_OPENCODE, SUFFIX, Layout
from weft.store.files.reader import Tree


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


class Heap(Struct, frozen=True):
    """What a file or directory comes to: bytes, when anything in it last changed (ms), whether all of it is known."""

    bytes: int
    changed: int
    known: bool


def weigh(path: str, *, any_name: bool = False) -> Heap:
    """A file, or a directory with all that is in it. Known are documents, and directories of documents."""
    try:
        found = os.lstat(path)
    except OSError:
        return Heap(0, 0, known=False)
    # The time of change too, not only that of writing: what was moved here just now is as old inside as it was before.
    changed = int(max(found.st_mtime, found.st_ctime) * 1000)
    if stat.S_ISREG(found.st_mode):
        return Heap(found.st_size, changed, known=True)
    if not stat.S_ISDIR(found.st_mode):
        return Heap(0, changed, known=False)
    size, known = 0, True
    for name in list_names(path):
        inner = weigh(f"{path}/{name}", any_name=any_name)
        size, changed = size + inner.bytes, max(changed, inner.changed)
        known = known and inner.known and (any_name or _is_document(f"{path}/{name}"))
    return Heap(size, changed, known=known)


def _is_document(path: str) -> bool:
    name = os.path.basename(path)
    return os.path.isfile(path) and name.endswith(SUFFIX) and is_id(name.removesuffix(SUFFIX))


def is_id(name: str) -> bool:
    try:
        file_name("document", name)
    except InvalidIdError:
        return False
    return True


def list_names(directory: str) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(directory))
    return []


TWIN = "this session is also in"


def find_misplaced(tree: Tree, inventory: Inventory, id: SessionID) -> list[Damage]:
    """What is wrong about where this session, its messages and their parts lie. They are read as they lie all the same."""
    return [
        *_session(tree, inventory, id),
        *(
            found
            for name in sorted(inventory.messages.get(id, ()))
            for found in _message(tree, inventory, id, MessageID(name))
        ),
    ]


def _session(tree: Tree, inventory: Inventory, id: SessionID) -> Iterator[Damage]:
    projects = inventory.sessions.get(id, ())
    for project in projects:
        path = tree.layout.session(ProjectID(project), id)
        session = tree.documents.find(path, Session)
        if session is not None and session.id != id:
            yield Damage(where=path, reason=f"it says it is session {session.id}")
        # Early versions wrote no project into the session: that is no fault of it.
        if session is not None and session.project_id not in ("", project):
            yield Damage(where=path, reason=f"it says its project is {session.project_id}")
    for project in sorted(projects)[1:]:
        path = tree.layout.session(ProjectID(project), id)
        yield Damage(where=path, reason=f"{TWIN} {', '.join(sorted(projects)[:1])}")


def _message(tree: Tree, inventory: Inventory, session: SessionID, id: MessageID) -> Iterator[Damage]:
    path = tree.layout.message(session, id)
    message: AnyMessage | None = tree.documents.find(path, AnyMessage)
    if message is not None and (message.id, message.session_id) != (id, session):
        yield Damage(where=path, reason=f"it says it is message {message.id} of {message.session_id}")
    others = [each for each in inventory.owners.get(id, ()) if each != session]
    if others:
        yield Damage(where=path, reason=f"the same message is in {', '.join(others)}: they share its parts")
    directory = tree.layout.parts(id)
    for name in sorted(tree.documents.names(directory) if id in inventory.parts else ()):
        part: AnyPart | None = tree.documents.find(f"{directory}/{name}{SUFFIX}", AnyPart)
        if part is not None and (part.id, part.message_id, part.session_id) != (name, id, session):
            said = f"it says it is part {part.id} of {part.message_id} in {part.session_id}"
            yield Damage(where=f"{directory}/{name}{SUFFIX}", reason=said)


FLAT: dict[str, Any] = {
    "project": Project,
    "session_diff": tuple[FileDiff, ...],
    "todo": tuple[Todo, ...],
    **dict.fromkeys(KEPT_WITH_OPENCODE, Any),
}
NESTED: dict[str, Any] = {"session": Session, "message": AnyMessage, "part": AnyPart}


def find_damage(tree: Tree) -> list[Damage]:
    tree.documents.forget_problems()
    for shelf, kind in FLAT.items():
        _read_all(tree, tree.layout.shelf(shelf), kind)
    for shelf, kind in NESTED.items():
        directory = tree.layout.shelf(shelf)
        for name in tree.documents.directories(directory):
            _read_all(tree, f"{directory}/{name}", kind)
    for place, _, _ in os.walk(f"{tree.layout.own}/kept"):
        _read_kept(tree, place)
    return tree.problems()


def _read_all(tree: Tree, directory: str, kind: Any) -> None:
    for name in tree.documents.names(directory):
        tree.documents.find(f"{directory}/{name}{SUFFIX}", kind)


def _read_kept(tree: Tree, directory: str) -> None:
    for name in sorted(os.listdir(directory)):
        if name.endswith(SUFFIX):
            tree.documents.find(f"{directory}/{name}", Any)
