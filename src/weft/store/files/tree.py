"""Read projects, sessions, diffs and todos from the JSON tree without an event loop."""

import os
from collections.abc import Collection, Generator, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from weft.errors import NewerFormatError, StoreError
from weft.host.files import Stamp, has_final_stamp, stamp_of
from weft.model.damage import Damage
from weft.model.diff import FileDiff
from weft.model.ids import MessageID, ProjectID, SessionID, check_file_name
from weft.model.project import Project
from weft.model.session import SessionInfo, Todo, newest_sort_key
from weft.store.files.documents import Documents
from weft.store.files.layout import SUFFIX, Layout

FORMAT = 2
PERMISSION_FILES = ("asked.json", "grants.json", "log")


class Tree:
    """Reads one tree. Unreadable documents are skipped and reported by `problems`."""

    def __init__(self, root: str, *, cache_bytes: int = 0) -> None:
        self.layout = Layout(root)
        self.documents = Documents(cache_bytes=cache_bytes)
        self._names: dict[str, tuple[Stamp, list[str]]] = {}  # of sessions, by directory

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

    def is_ready(self) -> bool:
        """Return True if the tree needs neither an upgrade nor recovery from a crash before it is read."""
        if self.has_permission_files():
            return False
        if self.format() == FORMAT:
            return not self._has_entries(self.layout.notes)
        return not (os.path.isdir(self.layout.root) or os.path.isdir(self.layout.oldest))

    def has_permission_files(self) -> bool:
        """Return True if an earlier version left records of permissions next to the tree."""
        directory = self.layout.permission_files
        if not directory or not os.path.isdir(directory):
            return False
        return any(os.path.exists(f"{directory}/{name}") for name in PERMISSION_FILES)

    def _has_entries(self, directory: str) -> bool:
        try:
            with os.scandir(directory) as entries:
                return next(entries, None) is not None
        except FileNotFoundError:
            return False

    def find_opencode_database(self) -> str | None:
        """Return the database of OpenCode 1.2 or later if it is next to this tree and the tree has no sessions."""
        database = self.layout.database
        if not os.path.isfile(database):
            return None
        return (
            None if any(self._sessions_of(project) for project in self.list_session_projects()) else database
        )

    def list_projects(self) -> list[Project]:
        names = self.documents.list_names(self.layout.collection("project"))
        found = [project for name in names if (project := self.find_project(ProjectID(name))) is not None]
        return sorted(found, key=lambda project: (project.time.created, project.id))

    def find_project(self, id: ProjectID) -> Project | None:
        project = self.documents.find(self.layout.project(id), Project)
        return project if project is None or project.id == id else replace(project, id=id)

    def list_sessions(self, project: ProjectID | None = None, *, prefix: str = "") -> list[SessionInfo]:
        """Return the sessions of a project, or of all projects, oldest first. Only those whose id has the prefix are read."""
        return sorted(self.collect_sessions(project, prefix=prefix), key=newest_sort_key, reverse=True)

    def collect_sessions(
        self, project: ProjectID | None = None, *, prefix: str = ""
    ) -> Collection[SessionInfo]:
        """Like `list_sessions`, in no particular order."""
        if project is not None:
            return self._sessions_of(project, prefix)
        newest: dict[str, SessionInfo] = {}
        for each in self.list_session_projects():
            for session in self._sessions_of(each, prefix):
                known = newest.get(session.id)
                newest[session.id] = session if known is None else _choose_later(known, session)
        return newest.values()

    def find_session(self, id: SessionID) -> SessionInfo | None:
        found: SessionInfo | None = None
        for project in self.projects_of(id):
            session = self._session(self.layout.sessions(project), project, id)
            if session is not None:
                found = session if found is None else _choose_later(found, session)
        return found

    def projects_of(self, id: SessionID) -> list[ProjectID]:
        """Return the projects that have a document of this session: several if OpenCode was interrupted moving it."""
        check_file_name("session", id)
        return [
            each for each in self.list_session_projects() if os.path.lexists(self.layout.session(each, id))
        ]

    def is_gone(self, id: SessionID) -> bool:
        """Return True if the session has no document, not even an unreadable one, and no messages."""
        return not self.projects_of(id) and not self.documents.list_names(self.layout.messages(id))

    def list_message_ids(self, session: SessionID) -> list[MessageID]:
        return [MessageID(name) for name in self.documents.list_names(self.layout.messages(session))]

    def list_diff(self, session: SessionID) -> list[FileDiff]:
        return list(self.documents.find(self.layout.diff(session), tuple[FileDiff, ...]) or ())

    def list_todos(self, session: SessionID) -> list[Todo]:
        return list(self.documents.find(self.layout.todo(session), tuple[Todo, ...]) or ())

    def find_value(self, key: tuple[str, ...]) -> Any:
        return self.documents.find(self.layout.value_path(key), Any)

    def list_keys(self, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        """Return the keys of all values that begin with a prefix, sorted."""
        return sorted(
            key
            for directory, begin in self.layout.value_directories().items()
            for key in list_key_files(directory, begin, SUFFIX)
            if key[: len(prefix)] == prefix
        )

    def find_session_in(self, project: ProjectID, id: SessionID) -> SessionInfo | None:
        """Return the session as this project records it. An interrupted move leaves a session in two projects."""
        return self._session(self.layout.sessions(project), project, id)

    def list_stamps(self, project: ProjectID | None = None) -> dict[tuple[ProjectID, SessionID], Stamp]:
        """Return a stamp of every session document. It changes whenever the document changes."""
        names = self.documents.list_directories(self.layout.collection("session"))
        projects = [ProjectID(name) for name in names] if project is None else [project]
        return {
            (each, SessionID(name)): stamp
            for each in projects
            for name, stamp in _list_stamps(self.layout.sessions(each)).items()
        }

    def count_sessions(self, project: ProjectID) -> int:
        """Return about how many sessions a project has, without reading them."""
        with suppress(OSError):
            return len(os.listdir(self.layout.sessions(project)))
        return 0

    def find_sure_stamp(self, project: ProjectID, id: SessionID) -> Stamp | None:
        """Return the stamp of a session document; None if the document could change again without a new stamp."""
        try:
            found = os.stat(self.layout.session(project, id))
        except OSError:
            return None
        return stamp_of(found) if has_final_stamp(found) else None

    def problems(self) -> list[Damage]:
        """Return the documents that could not be read so far."""
        return self.documents.problems()

    def list_session_projects(self) -> list[ProjectID]:
        """Return the projects that have documents of sessions."""
        return [
            ProjectID(name) for name in self.documents.list_directories(self.layout.collection("session"))
        ]

    def _sessions_of(self, project: ProjectID, prefix: str = "") -> list[SessionInfo]:
        names, _ = self._scan_sessions(self.layout.sessions(project))
        return self._read_sessions(
            project, [name for name in names if name.startswith(prefix)] if prefix else names
        )

    def _read_sessions(self, project: ProjectID, names: Sequence[str]) -> list[SessionInfo]:
        """Return the sessions of a project whose documents have these names. Those that are missing or unreadable are skipped."""
        found = self.documents.find_all(self.layout.sessions(project), names, SessionInfo)
        return [_place(session, project, SessionID(name)) for name, session in found]

    def _scan_sessions(self, directory: str) -> tuple[list[str], bool]:
        """Like `Documents.scan`. The names stay the same as long as the stamp of the directory does."""
        try:
            status = os.stat(directory)
        except OSError:
            return self.documents.scan(directory)
        stamp, known = stamp_of(status), self._names.get(directory)
        if known is not None and known[0] == stamp:
            return known[1], False
        names, others = self.documents.scan(directory)
        # A file that is not a document is a problem, and has to be reported each time.
        if has_final_stamp(status) and not others:
            self._names[directory] = stamp, names
        return names, others

    def _session(self, directory: str, project: ProjectID, id: SessionID) -> SessionInfo | None:
        session = self.documents.find(f"{directory}/{id}{SUFFIX}", SessionInfo)
        return None if session is None else _place(session, project, id)


def _place(session: SessionInfo, project: ProjectID, id: SessionID) -> SessionInfo:
    """Return a session with the id and the project that the place of its document says."""
    if session.id == id and session.project_id == project:
        return session
    return replace(session, id=id, project_id=project)


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


def list_key_files(directory: str, begin: tuple[str, ...], suffix: str) -> Generator[tuple[str, ...]]:
    """Yield the keys of the files below a directory: `begin`, the names of directories, and the name without its suffix."""
    for path, _, names in os.walk(directory):
        between = tuple(path[len(directory) + 1 :].split("/")) if len(path) > len(directory) else ()
        for name in names:
            if name.endswith(suffix) and not name.startswith("."):
                yield (*begin, *between, name.removesuffix(suffix))


def _choose_later(one: SessionInfo, other: SessionInfo) -> SessionInfo:
    return other if other.time.updated > one.time.updated else one


def list_part_owners(tree: Tree, sessions: Collection[SessionID]) -> list[MessageID]:
    """Return the messages whose parts are deleted together with these sessions.

    That includes parts of messages that no longer exist, because OpenCode leaves them behind when it removes a message.
    A message that another session has too keeps its parts.
    """
    layout, documents = tree.layout, tree.documents
    collection = layout.collection("message")
    own = {name for session in sessions for name in documents.list_names(layout.messages(session))}
    others: set[str] = set()
    for name in documents.list_directories(collection):
        if name not in sessions:
            others.update(documents.list_names(f"{collection}/{name}"))
    stray = [
        name
        for name in documents.list_directories(layout.collection("part"))
        if name not in own and name not in others and _find_owner(tree, name) in sessions
    ]
    return [MessageID(name) for name in (*sorted(own - others), *stray)]


def _find_owner(tree: Tree, message: str) -> SessionID | None:
    from weft.model.part import AnyPart  # noqa: PLC0415  listing sessions must not load types that it does not use

    directory = tree.layout.parts(MessageID(message))
    for name in tree.documents.list_names(directory):
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
    sessions = [SessionID(name) for name in tree.documents.list_directories(layout.collection("message"))]
    return {
        message: session
        for session in sessions
        for message in taken
        if os.path.exists(layout.message(session, message))
    }
