"""Read projects, sessions, diffs and todos from the JSON tree without an event loop."""

import os
from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace

from weft.errors import NewerFormatError, StoreError
from weft.model.damage import Damage
from weft.model.diff import FileDiff
from weft.model.ids import MessageID, ProjectID, SessionID, check_file_name
from weft.model.part import AnyPart
from weft.model.project import Project
from weft.model.session import Session, Todo, newest_sort_key
from weft.store.files.documents import Documents
from weft.store.files.layout import SUFFIX, Layout

FORMAT = 2


class Tree:
    """Reads one tree. Unreadable documents are skipped and reported by `problems`."""

    def __init__(self, root: str, *, remembered: int = 0) -> None:
        self.layout = Layout(root)
        self.documents = Documents(cache_bytes=remembered)

    def format(self) -> int:
        """Return the number in the file `migration`, 0 if there is none.

        Raise `NewerFormatError` if it is above `FORMAT`.
        """
        try:
            with open(self.layout.migration, "rb") as file:
                found = int(file.read(20))
        except (FileNotFoundError, ValueError):
            return 0
        except OSError as error:
            raise StoreError(
                f"{self.layout.migration} cannot be read: {error.strerror}",
                hint="change its permissions, or point --store at another place",
            ) from error
        if found > FORMAT:
            raise NewerFormatError(self.layout.root, found, FORMAT)
        return max(found, 0)

    def is_settled(self) -> bool:
        """Return True if the tree needs neither an upgrade nor recovery from a crash before it is read."""
        if self.format() == FORMAT:
            return not self._has_entries(self.layout.redos)
        return not (os.path.isdir(self.layout.root) or os.path.isdir(self.layout.oldest))

    def _has_entries(self, directory: str) -> bool:
        try:
            with os.scandir(directory) as entries:
                return next(entries, None) is not None
        except FileNotFoundError:
            return False

    def find_newer_home(self) -> str | None:
        """Return the database of OpenCode 1.2 or later if it is next to this tree and the tree has no sessions."""
        database = self.layout.database
        if not os.path.isfile(database):
            return None
        return None if any(self._sessions_of(project) for project in self._projects()) else database

    def list_projects(self) -> list[Project]:
        names = self.documents.names(self.layout.collection("project"))
        found = [project for name in names if (project := self.find_project(ProjectID(name))) is not None]
        return sorted(found, key=lambda project: (project.time.created, project.id))

    def find_project(self, id: ProjectID) -> Project | None:
        project = self.documents.find(self.layout.project(id), Project)
        return project if project is None or project.id == id else replace(project, id=id)

    def list_sessions(self, project: ProjectID | None = None) -> list[Session]:
        """Return the sessions of a project, or of all projects, oldest first."""
        projects = self._projects() if project is None else [project]
        newest: dict[str, Session] = {}
        for each in projects:
            for session in self._sessions_of(each):
                known = newest.get(session.id)
                newest[session.id] = session if known is None else _choose_later(known, session)
        return sorted(newest.values(), key=newest_sort_key, reverse=True)

    def find_session(self, id: SessionID) -> Session | None:
        found: Session | None = None
        for project in self.projects_of(id):
            session = self._session(self.layout.sessions(project), project, id)
            if session is not None:
                found = session if found is None else _choose_later(found, session)
        return found

    def projects_of(self, id: SessionID) -> list[ProjectID]:
        """Return the projects that have a document of this session: several if OpenCode was interrupted moving it."""
        check_file_name("session", id)
        return [each for each in self._projects() if os.path.lexists(self.layout.session(each, id))]

    def is_gone(self, id: SessionID) -> bool:
        """Return True if the session has no document, not even an unreadable one, and no messages."""
        return not self.projects_of(id) and not self.documents.names(self.layout.messages(id))

    def list_diff(self, session: SessionID) -> list[FileDiff]:
        return list(self.documents.find(self.layout.diff(session), tuple[FileDiff, ...]) or ())

    def list_todos(self, session: SessionID) -> list[Todo]:
        return list(self.documents.find(self.layout.todo(session), tuple[Todo, ...]) or ())

    def find_value(self, key: tuple[str, ...]) -> Any:
        return self.documents.find(self.layout.find_value(key), Any)

    def problems(self) -> list[Damage]:
        """Return the documents that could not be read so far."""
        return self.documents.problems()

    def _projects(self) -> list[ProjectID]:
        return [ProjectID(name) for name in self.documents.directories(self.layout.collection("session"))]

    def _sessions_of(self, project: ProjectID) -> list[Session]:
        directory = self.layout.sessions(project)
        names = self.documents.names(directory)
        return [found for name in names if (found := self._session(directory, project, SessionID(name)))]

    def _session(self, directory: str, project: ProjectID, id: SessionID) -> Session | None:
        session = self.documents.find(f"{directory}/{id}{SUFFIX}", Session)
        if session is None or (session.id == id and session.project_id == project):
            return session
        return replace(session, id=id, project_id=project)


def _choose_later(one: Session, other: Session) -> Session:
    return other if other.time.updated > one.time.updated else one


def list_part_owners(tree: Tree, sessions: Collection[SessionID]) -> list[MessageID]:
    """Return the messages whose parts are deleted together with these sessions.

    That includes parts of messages that no longer exist, because OpenCode leaves them behind when it removes a message.
    A message that another session has too keeps its parts.
    """
    layout, documents = tree.layout, tree.documents
    collection = layout.collection("message")
    own = {name for session in sessions for name in documents.names(layout.messages(session))}
    others: set[str] = set()
    for name in documents.directories(collection):
        if name not in sessions:
            others.update(documents.names(f"{collection}/{name}"))
    stray = [
        name
        for name in documents.directories(layout.collection("part"))
        if name not in own and name not in others and _find_owner(tree, name) in sessions
    ]
    return [MessageID(name) for name in (*sorted(own - others), *stray)]


def _find_owner(tree: Tree, message: str) -> SessionID | None:
    directory = tree.layout.parts(MessageID(message))
    for name in tree.documents.names(directory):
        part: AnyPart | None = tree.documents.find(f"{directory}/{name}{SUFFIX}", AnyPart)
        if part is not None:
            return part.session_id
    return None


def list_owners(tree: Tree, messages: Sequence[MessageID]) -> dict[MessageID, SessionID]:
    """Return the session of each of these messages that is stored.

    Messages without parts are ignored: they cannot clash.
    """
    layout = tree.layout
    taken = [message for message in messages if os.path.isdir(layout.parts(message))]
    if not taken:
        return {}
    sessions = [SessionID(name) for name in tree.documents.directories(layout.collection("message"))]
    return {
        message: session
        for session in sessions
        for message in taken
        if os.path.exists(layout.message(session, message))
    }
