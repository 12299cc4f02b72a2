"""Places: whether the documents of a session say of themselves what the place they lie in says of them."""

from collections.abc import Iterator

from weft.model.damage import Damage
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import AnyMessage
from weft.model.part import AnyPart
from weft.model.session import Session
from weft.store.files_care.inventory import Inventory
from weft.store.layout import SUFFIX
from weft.store.tree import Tree

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
