"""The library: sessions of a store of files, looked through by way of an index that follows the files.

The index is never the source of truth. If it cannot be kept in its place, one is made in memory for the question.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from typing import TypeVar

from msgspec.structs import replace

from weft.app.stamps import stamps_in, sure_stamp
from weft.errors import IndexFailedError
from weft.index.driver import Database, connect
from weft.index.entry import to_entry
from weft.index.figures import Wanted, figures
from weft.index.place import discard, furnish, index_path, reading, writing
from weft.index.put import UNSURE, Found, Place, Stamp, drop_session, list_messages, list_places, put_some
from weft.index.refresh import File, Progress, put_all, quiet, refresh
from weft.index.search import search
from weft.index.shelf import write_shelf
from weft.index.shelving import list_behind, list_documents, note_shelved
from weft.model.finding import Figures, Hit
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import MessageWithParts
from weft.model.session import Session
from weft.store.messages import Messages
from weft.store.tree import Tree

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
