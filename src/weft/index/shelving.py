"""Which shelves are worth writing anew, and what is to stand on them."""

from collections.abc import Iterable, Iterator

from weft.index.driver import Database
from weft.index.put import Stamp
from weft.model.ids import ProjectID

# Fewer sessions than this are read from their files about as fast.
MANY = 500
# What changed is read from its file: a few of them cost a list less than a shelf costs whoever writes it.
SOME = 50

BEHIND = f"""SELECT shelf.project FROM shelf JOIN session ON session.project = shelf.project
GROUP BY shelf.project HAVING count(*) >= {MANY} AND shelf.behind > max({SOME}, count(*) / 100)"""
# Oldest first, and those of one time as they stand in a list that is read from files.
DOCUMENTS = """SELECT id, mtime, size, inode, document FROM session
WHERE project = ? ORDER BY created, id DESC"""


def list_behind(database: Database) -> list[ProjectID]:
    return [ProjectID(project) for (project,) in database.rows(BEHIND)]


def list_documents(database: Database, project: ProjectID) -> Iterator[tuple[str, Stamp, bytes]]:
    for id, mtime, size, inode, document in database.each(DOCUMENTS, project):
        yield id, (mtime, size, inode), document


def note_shelved(database: Database, projects: Iterable[ProjectID]) -> None:
    for project in projects:
        database.run("UPDATE shelf SET behind = 0 WHERE project = ?", project)
