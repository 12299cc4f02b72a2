"""List what a tree contains: names, sizes, ages, and documents that are unreadable, misplaced or orphaned."""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from weft.errors import InvalidIdError
from weft.model.damage import Damage
from weft.model.diff import FileDiff
from weft.model.ids import MessageID, ProjectID, SessionID, check_file_name
from weft.model.message import AnyMessage
from weft.model.part import AnyPart
from weft.model.project import Project
from weft.model.session import SessionInfo, Todo
from weft.store.files.documents import Documents
from weft.store.files.layout import KEPT_WITH_OPENCODE, SUFFIX, Layout
from weft.store.files.tree import Tree
from weft.store.findings import DocumentFault


class Inventory(Struct, frozen=True, kw_only=True):
    """The names of all documents in a tree by collection, including unreadable ones.

    `sessions` maps a session to the projects that hold it, `messages` a session to its messages, `owners` a message to
    its sessions. `parts` are the messages that have parts. `foreign` are files that are not documents.
    """

    projects: frozenset[str]
    sessions: Mapping[str, tuple[str, ...]]
    messages: Mapping[str, frozenset[str]]
    owners: Mapping[str, tuple[str, ...]]
    parts: frozenset[str]
    diffs: frozenset[str]
    todos: frozenset[str]
    foreign: tuple[Damage, ...]

    def is_there(self, session: str) -> bool:
        """Return True if the session has a document, or a file whose path contains its id.

        Such a file may be half renamed, or saved by hand.
        """
        return session in self.sessions or any(session in each.where for each in self.foreign)

    def is_reachable(self, message: str) -> bool:
        return any(self.is_there(session) for session in self.owners.get(message, ()))


def take_inventory(layout: Layout) -> Inventory:
    documents = Documents()
    sessions = _invert(_list_nested(documents, layout.collection("session")))
    messages = _list_nested(documents, layout.collection("message"))
    return Inventory(
        projects=frozenset(documents.list_names(layout.collection("project"))),
        sessions=sessions,
        messages=messages,
        owners=_invert(messages),
        parts=frozenset(documents.list_directories(layout.collection("part"))),
        diffs=frozenset(documents.list_names(layout.collection("session_diff"))),
        todos=frozenset(documents.list_names(layout.collection("todo"))),
        foreign=tuple(documents.problems()),
    )


def _list_nested(documents: Documents, collection: str) -> dict[str, frozenset[str]]:
    return {
        name: frozenset(documents.list_names(f"{collection}/{name}"))
        for name in documents.list_directories(collection)
    }


def _invert(nested: Mapping[str, frozenset[str]]) -> dict[str, tuple[str, ...]]:
    """Map each name to the directories that contain it."""
    turned: dict[str, tuple[str, ...]] = {}
    for directory, names in nested.items():
        for name in names:
            turned[name] = (*turned.get(name, ()), directory)
    return turned


class DiskUsage(Struct, frozen=True):
    """The size of a file or directory, its last change (ms), and whether it consists of documents only (`known`)."""

    bytes: int
    changed: int
    known: bool


def measure_usage(path: str, *, any_name: bool = False) -> DiskUsage:
    """Measure a file, or a directory with everything in it. With `any_name` every file name counts as known."""
    try:
        found = os.lstat(path)
    except OSError:
        return DiskUsage(0, 0, known=False)
    # Use ctime too: files that were just moved here keep their old mtime.
    changed = int(max(found.st_mtime, found.st_ctime) * 1000)
    if stat.S_ISREG(found.st_mode):
        return DiskUsage(found.st_size, changed, known=True)
    if not stat.S_ISDIR(found.st_mode):
        return DiskUsage(0, changed, known=False)
    size, known = 0, True
    for name in list_names(path):
        inner = measure_usage(f"{path}/{name}", any_name=any_name)
        size, changed = size + inner.bytes, max(changed, inner.changed)
        known = known and inner.known and (any_name or _is_document(f"{path}/{name}"))
    return DiskUsage(size, changed, known=known)


def _is_document(path: str) -> bool:
    name = os.path.basename(path)
    return os.path.isfile(path) and name.endswith(SUFFIX) and is_id(name.removesuffix(SUFFIX))


def is_id(name: str) -> bool:
    try:
        check_file_name("document", name)
    except InvalidIdError:
        return False
    return True


def list_names(directory: str) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(directory))
    return []


def find_misplaced(tree: Tree, inventory: Inventory, id: SessionID) -> list[DocumentFault]:
    """Return what is wrong with the location of a session, its messages and their parts."""
    return [
        *_check_session(tree, inventory, id),
        *(
            found
            for name in sorted(inventory.messages.get(id, ()))
            for found in _check_message(tree, inventory, id, MessageID(name))
        ),
    ]


def _check_session(tree: Tree, inventory: Inventory, id: SessionID) -> Iterator[DocumentFault]:
    projects = inventory.sessions.get(id, ())
    for project in projects:
        path = tree.layout.session(ProjectID(project), id)
        session = tree.documents.find(path, SessionInfo)
        if session is not None and session.id != id:
            yield _to_misplaced(id, path, f"it says it is session {session.id}")
        # Early versions did not write the project into the session, so a missing one is fine.
        if session is not None and session.project_id not in ("", project):
            yield _to_misplaced(id, path, f"it says its project is {session.project_id}")
    for project in sorted(projects)[1:]:
        path = tree.layout.session(ProjectID(project), id)
        reason = f"this session is also in {min(projects)}"
        yield DocumentFault(kind="duplicate", session=id, where=path, reason=reason)


def _check_message(
    tree: Tree, inventory: Inventory, session: SessionID, id: MessageID
) -> Iterator[DocumentFault]:
    path = tree.layout.message(session, id)
    message: AnyMessage | None = tree.documents.find(path, AnyMessage)
    if message is not None and (message.id, message.session_id) != (id, session):
        yield _to_misplaced(session, path, f"it says it is message {message.id} of {message.session_id}")
    others = [each for each in inventory.owners.get(id, ()) if each != session]
    if others:
        yield _to_misplaced(
            session, path, f"the same message is in {', '.join(others)}: they share its parts"
        )
    directory = tree.layout.parts(id)
    for name in sorted(tree.documents.list_names(directory) if id in inventory.parts else ()):
        part: AnyPart | None = tree.documents.find(f"{directory}/{name}{SUFFIX}", AnyPart)
        if part is not None and (part.id, part.message_id, part.session_id) != (name, id, session):
            reason = f"it says it is part {part.id} of {part.message_id} in {part.session_id}"
            yield _to_misplaced(session, f"{directory}/{name}{SUFFIX}", reason)


def _to_misplaced(session: SessionID, path: str, reason: str) -> DocumentFault:
    return DocumentFault(kind="misplaced", session=session, where=path, reason=reason)


def find_orphans(inventory: Inventory) -> list[DocumentFault]:
    """Return documents that nothing refers to: messages, diffs and todos without a session, parts without a message."""
    orphans = [
        (name, f"its session is gone, but its {kind} exist")
        for kind, names in (
            ("messages", inventory.messages),
            ("diff", inventory.diffs),
            ("todos", inventory.todos),
        )
        for name in sorted(names)
        if not inventory.is_there(name)
    ]
    orphans += [
        (message, "the message is gone, but its parts exist")
        for message in sorted(inventory.parts - inventory.owners.keys())
    ]
    return [DocumentFault(kind="orphan", where=where, reason=reason) for where, reason in orphans]


FLAT_KINDS: dict[str, Any] = {
    "project": Project,
    "session_diff": tuple[FileDiff, ...],
    "todo": tuple[Todo, ...],
    **dict.fromkeys(KEPT_WITH_OPENCODE, Any),
}
NESTED_KINDS: dict[str, Any] = {"session": SessionInfo, "message": AnyMessage, "part": AnyPart}


def find_damage(tree: Tree) -> list[Damage]:
    """Read every document of the tree and return the unreadable ones."""
    tree.documents.forget_problems()
    for collection, kind in FLAT_KINDS.items():
        _read_all(tree, tree.layout.collection(collection), kind)
    for collection, kind in NESTED_KINDS.items():
        directory = tree.layout.collection(collection)
        for name in tree.documents.list_directories(directory):
            _read_all(tree, f"{directory}/{name}", kind)
    for place, _, _ in os.walk(f"{tree.layout.own}/kept"):
        _read_values(tree, place)
    return tree.problems()


def _read_all(tree: Tree, directory: str, kind: Any) -> None:
    for name in tree.documents.list_names(directory):
        tree.documents.find(f"{directory}/{name}{SUFFIX}", kind)


def _read_values(tree: Tree, directory: str) -> None:
    for name in sorted(os.listdir(directory)):
        if name.endswith(SUFFIX):
            tree.documents.find(f"{directory}/{name}", Any)
