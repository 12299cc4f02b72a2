"""Read the JSON tree without an event loop: the `StoreReader` of files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.host.files import Stamp, is_settled, stamp_of
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.session import Session
from weft.store.files.layout import SUFFIX
from weft.store.files.tree import Tree

if TYPE_CHECKING:  # a list of sessions reads no message
    from weft.model.message import MessageWithParts
    from weft.model.session import TrashBundle


class FileReader(Tree):
    """The tree with its messages, its trash and its leases. Their modules are loaded when they are first needed."""

    @property
    def address(self) -> str:
        return self.layout.root

    def find_session_in(self, project: ProjectID, id: SessionID) -> Session | None:
        session = self.documents.find(self.layout.session(project, id), Session)
        return None if session is None else replace(session, id=id, project_id=project)

    def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        from weft.store.files.messages import MessageReader  # noqa: PLC0415  a list of sessions reads none

        return MessageReader(self).list_messages(session, last=last, before=before)

    def list_message_ids(self, session: SessionID) -> list[MessageID]:
        return [MessageID(name) for name in self.documents.list_names(self.layout.messages(session))]

    def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None:
        from weft.store.files.messages import MessageReader  # noqa: PLC0415  a list of sessions reads none

        return MessageReader(self).find_message(session, id)

    def list_trash(self) -> list[TrashBundle]:
        from weft.store.files.trash import Trash  # noqa: PLC0415  few commands need it

        return Trash(self).list_bundles()

    def list_running(self) -> set[SessionID]:
        from weft.store.files.lock import list_abandoned, list_leased  # noqa: PLC0415  few commands need it

        return list_leased(self.layout) - set(list_abandoned(self.layout))

    def list_stamps(self, project: ProjectID | None = None) -> dict[tuple[ProjectID, SessionID], Stamp]:
        names = self.documents.list_directories(self.layout.collection("session"))
        projects = [ProjectID(name) for name in names] if project is None else [project]
        return {
            (each, SessionID(name)): stamp
            for each in projects
            for name, stamp in _list_stamps(self.layout.sessions(each)).items()
        }

    def find_sure_stamp(self, project: ProjectID, id: SessionID) -> Stamp | None:
        try:
            found = os.stat(self.layout.session(project, id))
        except OSError:
            return None
        return stamp_of(found) if is_settled(found) else None


def _list_stamps(directory: str) -> dict[str, Stamp]:
    """Return the stamps of all documents in a directory by name."""
    found: dict[str, Stamp] = {}
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return found
    try:
        for name in os.listdir(fd):
            if name.endswith(SUFFIX) and name[0] != ".":
                try:
                    at = os.stat(name, dir_fd=fd)
                except OSError:
                    continue  # removed meanwhile
                found[name[: -len(SUFFIX)]] = (at.st_mtime_ns, at.st_size, at.st_ino)
    finally:
        os.close(fd)
    return found
