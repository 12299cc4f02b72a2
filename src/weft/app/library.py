"""The library: sessions of a store of files, looked through by way of an index that follows the files.

The index is never the source of truth. If it cannot be kept in its place, one is made in memory for the question.
"""

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TypeVar

from weft.errors import IndexFailedError
from weft.host.files import is_settled, stamp_of
from weft.index.driver import Database, connect
from weft.index.entry import to_entry
from weft.index.figures import Wanted, figures
from weft.index.place import discard, furnish, index_path, reading, writing
from weft.index.put import UNSURE, Place, Stamp, drop_messages, drop_session, put_messages, put_session
from weft.index.refresh import File, Found, Progress, put_all, quiet, refresh
from weft.index.search import search
from weft.model.finding import Figures, Hit
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.store.layout import SUFFIX
from weft.store.messages import Messages
from weft.store.tree import Tree

T = TypeVar("T")


def _ignore(_: IndexFailedError) -> None:
    pass


class FileSource:
    """Sessions and their stamps, as the tree has them."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._messages = Messages(tree)

    def stamps(self) -> dict[Place, Stamp]:
        found: dict[Place, Stamp] = {}
        for project in self._tree.list_homes():
            for name, stamp in stamps_in(self._tree.layout.sessions(project)).items():
                found[project, SessionID(name)] = stamp
        return found

    def read(self, place: Place) -> Found | None:
        project, id = place
        path = self._tree.layout.session(project, id)
        stamp = sure_stamp(path)
        session = self._tree.find_session(id)
        if session is None or session.project_id != project:
            return None  # gone, or it lies in two projects, and the other one is the later
        return Found(session, stamp, [to_entry(each) for each in self._messages.list_messages(id)])

    def read_some(self, place: Place, ids: Iterable[MessageID]) -> Found | None:
        """The same with these messages only."""
        found = [self._messages.find_message(place[1], id) for id in ids]
        session = self._tree.find_session(place[1])
        if session is None or session.project_id != place[0]:
            return None
        stamp = sure_stamp(self._tree.layout.session(*place))
        return Found(session, stamp, [to_entry(each) for each in found if each is not None])

    def list_ids(self, session: SessionID) -> list[MessageID]:
        return self._messages.list_ids(session)


class Library:
    """Looks through all sessions. `warn` hears why the index could not be kept, if it could not."""

    def __init__(self, tree: Tree, cache: str, *, warn: Callable[[IndexFailedError], None] = _ignore) -> None:
        self.file = File(index_path(cache, tree.layout.root), tree.layout.root)
        self._source = FileSource(tree)
        self._warn = warn

    def search(
        self, words: str, *, limit: int, project: ProjectID | None = None, progress: Progress = quiet
    ) -> list[Hit]:
        return self._ask(lambda database: search(database, words, project=project, limit=limit), progress)

    def figures(self, wanted: Wanted, *, progress: Progress = quiet) -> Figures:
        return self._ask(lambda database: figures(database, wanted), progress)

    def refresh(self, progress: Progress = quiet) -> bool:
        return refresh(self.file, self._source, progress)

    def note(self, session: SessionID, messages: Iterable[MessageID]) -> None:
        """Something happened to these messages of a session: put them in, and any others that are missing."""
        place = self._place(session)
        if place is None:
            self._forget(session)
            return
        ids = set(self._source.list_ids(session))
        with writing(*self.file) as database:
            rows = database.rows(
                "SELECT message.id FROM message JOIN session ON session.number = message.session"
                " WHERE session.project = ? AND session.id = ?", *place,
            )  # fmt: skip
            known = {MessageID(id) for (id,) in rows}
            found = self._source.read_some(place, sorted((ids - known) | (ids & set(messages))))
            if found is None:
                return
            settled = not any(entry.open for entry in found.entries)
            number = put_session(database, found.session, found.stamp, settled=settled)
            drop_messages(database, number, known - ids)
            put_messages(database, number, found.entries)

    def _place(self, session: SessionID) -> Place | None:
        found = self._source.find(session)
        return None if found is None else (found.project_id, session)

    def _forget(self, session: SessionID) -> None:
        with writing(*self.file) as database:
            rows = database.rows("SELECT project FROM session WHERE id = ?", session)
            for (project,) in rows:
                drop_session(database, (ProjectID(project), session))

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
                    found[name[: -len(SUFFIX)]] = stamp_of(os.stat(name, dir_fd=fd))
                except OSError:
                    continue  # gone meanwhile
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
