"""Reading the sessions of a directory without an event loop."""

import asyncio
import os
from pathlib import Path

from weft.local.reader import SessionReader
from weft.model.event import SessionCreated
from weft.model.ids import GLOBAL_PROJECT, SessionID
from weft.model.session import SessionInfo, SessionTime, WeftSessionData
from weft.model.session_query import SessionQuery
from weft.session.selection import LAST_USED
from weft.store.files.store import FileStore


def make_session(number: int, directory: Path, **more: object) -> SessionInfo:
    fields = {"time": SessionTime(created=number, updated=number), **more}
    return SessionInfo(
        id=SessionID(f"ses_{number:04}"),
        project_id=GLOBAL_PROJECT,
        directory=str(directory),
        title=f"Number {number}",
        **fields,  # type: ignore[arg-type]
    )


def open_reader_in(directory: Path, root: Path, *sessions: SessionInfo) -> SessionReader:
    """Store sessions, and return a reader for a directory."""
    asyncio.run(FileStore(str(root)).apply(*(SessionCreated(info=each) for each in sessions)))
    return SessionReader(str(directory), os.environ, store=str(root))


def test_the_last_session_is_neither_a_child_nor_archived_nor_elsewhere(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for directory in (here, there):
        directory.mkdir()
    last = make_session(3, here)
    others = [
        make_session(1, here),
        make_session(4, here, parent_id=last.id),
        make_session(5, here, time=SessionTime(created=5, updated=5, archived=6)),
        *(make_session(number, there) for number in range(100, 100 + 2 * (LAST_USED.limit or 0))),
    ]
    reader = open_reader_in(here, tmp_path / "store", last, *others)
    assert reader.find_last_session() == reader.get_last_session() == last
    assert SessionReader(str(tmp_path), os.environ, store=str(tmp_path / "store")).find_last_session() is None


def test_descendants_come_after_their_parents_and_oldest_first(tmp_path: Path) -> None:
    root = make_session(1, tmp_path)
    old, new = (make_session(number, tmp_path, parent_id=root.id) for number in (2, 3))
    grandchild = make_session(4, tmp_path, parent_id=old.id, weft=WeftSessionData(pinned=True))
    reader = open_reader_in(
        tmp_path, tmp_path / "store", root, old, new, grandchild, make_session(5, tmp_path)
    )
    assert reader.list_descendants(root.id) == [old, new, grandchild]
    assert reader.query_sessions(SessionQuery(pinned=True)) == [grandchild]
