"""Bringing the index up to date with the store: what changed is read again, what is gone is taken out.

What changed is told by the stamps of the session documents. A session that was being answered when it was read is
read again whatever its stamp says. Two processes may do this at once: each puts in what it read, whole.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import NamedTuple, Protocol

from weft.errors import IndexFailedError
from weft.index.driver import Database
from weft.index.place import discard, reading, writing
from weft.index.put import UNSURE, Found, Place, Stamp, drop_session, put_whole

BATCH = 64


class Source(Protocol):
    """Where sessions are read from. `read` leaves out what is no longer there."""

    def stamps(self) -> Mapping[Place, Stamp]: ...

    def read(self, place: Place) -> Found | None: ...


class File(NamedTuple):
    """The index of the store at `root`, in the file at `path`."""

    path: str
    root: str


Progress = Callable[[int, int], None]


def quiet(_done: int, _of: int) -> None:
    pass


def refresh(file: File, source: Source, progress: Progress = quiet) -> bool:
    """Bring it up to date; a bad file is made anew, once. Says whether anything had changed."""
    try:
        return _refresh(file, source, progress)
    except IndexFailedError as error:
        if not error.broken:
            raise
    discard(file.path)
    return _refresh(file, source, progress)


def _refresh(file: File, source: Source, progress: Progress) -> bool:
    known, stamps = _known(file), source.stamps()
    gone = [place for place in known if place not in stamps]
    stale = [place for place, stamp in stamps.items() if known.get(place) != stamp]
    waiting, done = iter(stale), 0
    if gone:
        with writing(*file) as database:
            for place in gone:
                drop_session(database, place)
    while batch := list(islice(waiting, BATCH)):
        found = [(place, source.read(place)) for place in batch]
        with writing(*file) as database:
            put_all(database, found)
        done += len(batch)
        progress(done, len(stale))
    return bool(gone or stale)


def put_all(database: Database, found: Iterable[tuple[Place, Found | None]]) -> None:
    for place, each in found:
        if each is None:
            drop_session(database, place)
        else:
            put_whole(database, each)


def _known(file: File) -> dict[Place, Stamp]:
    """The stamps that are up to date; none if there is no index yet."""
    try:
        with reading(*file) as database:
            rows = database.rows("SELECT project, id, mtime, size, inode FROM session WHERE settled")
            rest = database.rows("SELECT project, id FROM session WHERE NOT settled")
    except IndexFailedError as error:
        if error.broken:
            raise
        return {}
    unsettled = dict.fromkeys(((project, id) for project, id in rest), UNSURE)
    return {**unsettled, **{(project, id): (mtime, size, inode) for project, id, mtime, size, inode in rows}}
