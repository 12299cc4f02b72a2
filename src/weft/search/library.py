"""Search and list the sessions of a file store through an index that follows the files."""

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from typing import TypeVar

from msgspec.structs import replace

from weft.errors import IndexFailedError
from weft.host.files import Stamp, is_settled, stamp_of
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import MessageWithParts
from weft.model.search import Figures, Hit
from weft.model.session import Session, newest_first
from weft.search.database import Database, connect, discard, furnish, index_path, reading, writing
from weft.search.index import (
    UNSURE,
    File,
    Found,
    Place,
    Progress,
    drop_session,
    list_behind,
    list_documents,
    list_messages,
    list_places,
    note_shelved,
    put_all,
    put_some,
    quiet,
    refresh,
    to_entry,
)
from weft.search.list_cache import find_shelf, write_shelf
from weft.search.query import search
from weft.search.statistics import Wanted, figures
from weft.store.files.layout import SUFFIX
from weft.store.files.messages import Messages
from weft.store.files.reader import Tree


def stamps_in(directory: str) -> dict[str, Stamp]:
    """The stamp of every document in a directory, by name."""
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
                    continue  # gone meanwhile
                found[name[: -len(SUFFIX)]] = (at.st_mtime_ns, at.st_size, at.st_ino)
    finally:
        os.close(fd)
    return found


def sure_stamp(path: str) -> Stamp:
    """The stamp of a file, or one that matches none if the file may still change without showing it."""
    try:
        found = os.stat(path)
    except OSError:
        return UNSURE
    return stamp_of(found) if is_settled(found) else UNSURE


T = TypeVar("T")

# Reading and putting in so many messages takes a moment that nobody feels.
FEW = 100


def _ignore(_: IndexFailedError) -> None:
    pass


class FileSource:
    """Sessions and their stamps, as the tree has them."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._messages = Messages(tree)
        self._doubled: set[SessionID] = set()

    def stamps(self) -> dict[Place, Stamp]:
        found: dict[Place, Stamp] = {}
        homes: dict[SessionID, ProjectID] = {}
        for home in self._tree.documents.directories(self._tree.layout.shelf("session")):
            project = ProjectID(home)
            for name, stamp in stamps_in(self._tree.layout.sessions(project)).items():
                id = SessionID(name)
                found[project, id] = stamp
                if homes.setdefault(id, project) != project:
                    self._doubled.add(id)
        return found

    def read(self, place: Place) -> Found | None:
        return self._read(place, lambda: self._messages.list_messages(place[1]))

    def read_some(self, place: Place, ids: Iterable[MessageID]) -> Found | None:
        """The same with these messages only."""
        return self._read(
            place, lambda: [each for id in ids if (each := self._messages.find_message(place[1], id))]
        )

    def _read(self, place: Place, messages: Callable[[], list[MessageWithParts]]) -> Found | None:
        project, id = place
        path = self._tree.layout.session(project, id)
        stamp = sure_stamp(path)  # before reading: what changes meanwhile is read again
        session = self._tree.documents.find(path, Session)
        if session is None or (id in self._doubled and self.home_of(id) != project):
            return None  # gone, or it lies in two projects and the other one is the later
        placed = replace(session, id=id, project_id=project)
        return Found(placed, stamp, [to_entry(message) for message in messages()])

    def home_of(self, id: SessionID) -> ProjectID | None:
        session = self._tree.find_session(id)
        return None if session is None else session.project_id

    def list_ids(self, session: SessionID) -> set[MessageID]:
        return set(self._messages.list_ids(session))


class Library:
    """Looks through all sessions. `warn` hears why the index could not be kept, if it could not."""

    def __init__(self, tree: Tree, cache: str, *, warn: Callable[[IndexFailedError], None] = _ignore) -> None:
        self.file = File(index_path(cache, tree.layout.root), tree.layout.root)
        self._cache = cache
        self._source = FileSource(tree)
        self._warn = warn

    def search(
        self, words: str, *, limit: int, project: ProjectID | None = None, progress: Progress = quiet
    ) -> list[Hit]:
        return self._ask(lambda database: search(database, words, project=project, limit=limit), progress)

    def figures(self, wanted: Wanted, *, progress: Progress = quiet) -> Figures:
        return self._ask(lambda database: figures(database, wanted), progress)

    def refresh(self, progress: Progress = quiet) -> None:
        if refresh(self.file, self._source, progress):
            with suppress(IndexFailedError):  # a list reads the files then
                self.tidy()

    def tidy(self) -> None:
        """Bring the shelves up to date that too much has changed on since they were written."""
        with reading(*self.file) as database:
            behind = list_behind(database)
            for project in behind:
                write_shelf(self._cache, self.file.root, project, list_documents(database, project))
        if behind:
            with writing(*self.file) as database:
                note_shelved(database, behind)

    def note(self, id: SessionID, messages: set[MessageID]) -> None:
        """Something happened to these messages of a session: put them in, and any others that are missing. Of a long session
        that has just come only a few: the next search reads it whole, and nobody else waits meanwhile."""
        home = self._source.home_of(id)
        with writing(*self.file) as database:
            for place in list_places(database, id):
                if place[0] != home:
                    drop_session(database, place)
            if home is None:
                return
            there, known = self._source.list_ids(id), list_messages(database, (home, id))
            wanted = [*(there & messages), *(there - known - messages)]
            found = self._source.read_some((home, id), wanted[:FEW])
            if found is not None:
                stamp = found.stamp if len(wanted) <= FEW else UNSURE
                put_some(database, found._replace(stamp=stamp), gone=known - there)

    def _ask(self, question: Callable[[Database], T], progress: Progress) -> T:
        try:
            return self._answer(question, progress)
        except IndexFailedError as error:
            self._warn(error)
        with in_memory(self.file.root) as database:
            stamps = self._source.stamps()
            with database.writing():
                for number, place in enumerate(stamps):
                    put_all(database, [(place, self._source.read(place))])
                    progress(number + 1, len(stamps))
            return question(database)

    def _answer(self, question: Callable[[Database], T], progress: Progress) -> T:
        try:
            self.refresh(progress)
            with reading(*self.file) as database:
                return question(database)
        except IndexFailedError as error:
            if not error.broken:
                raise
        # It was found bad only by asking: made anew, once.
        discard(self.file.path)
        self.refresh(progress)
        with reading(*self.file) as database:
            return question(database)


@contextmanager
def in_memory(root: str) -> Generator[Database]:
    """An index that nobody else sees, and that is gone afterwards."""
    database = connect(":memory:", writes=True)
    try:
        furnish(database, root)
        yield database
    finally:
        database.close()


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
