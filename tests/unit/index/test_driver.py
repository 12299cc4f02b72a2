"""Both drivers do: apsw, and the SQLite that Python has."""

from pathlib import Path

import pytest

from given.conversation import SESSION, asked, text
from weft.errors import IndexFailedError
from weft.model.session import Session, SessionTime
from weft.search import database
from weft.search.database import Database, connect, furnish
from weft.search.index import UNSURE, Found, put_whole, to_entry
from weft.search.query import search


def connect_with(name: str, path: str, *, writes: bool = True) -> Database:
    return (
        connect(path, writes=writes) if name == "apsw" else database._connect_to_pythons(path, writes=writes)
    )


@pytest.fixture(params=["apsw", "sqlite3"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_words_are_put_in_and_found(name: str) -> None:
    database = connect_with(name, ":memory:")
    furnish(database, "/")
    session = Session(id=SESSION, title="The loom", time=SessionTime(created=1, updated=1))
    for _ in range(2):
        words = asked("msg_1", 1, text("msg_1", "mend the shuttle"))
        put_whole(database, Found(session, UNSURE, [to_entry(words)]))
    assert [hit.snippet for hit in search(database, "shuttle", limit=5)] == ["mend the shuttle"]
    database.close()


def test_a_path_may_hold_what_an_address_may_not(name: str, tmp_path: Path) -> None:
    path = tmp_path / "100% of #1?.db"
    database = connect_with(name, str(path))
    database.run("CREATE TABLE loom (x)")
    database.close()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    again = connect_with(name, str(path), writes=False)
    assert again.rows("SELECT count(*) FROM loom") == [(0,)]
    with pytest.raises(IndexFailedError) as refused:
        again.run("CREATE TABLE warp (x)")
    again.close()
    assert not refused.value.broken


def test_a_bad_file_is_called_broken_and_a_missing_one_is_not(name: str, tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_bytes(b"no database" * 1000)
    with pytest.raises(IndexFailedError) as bad:
        connect_with(name, str(tmp_path / "bad.db"), writes=False).rows("SELECT * FROM sqlite_master")
    with pytest.raises(IndexFailedError) as missing:
        connect_with(name, str(tmp_path / "none.db"), writes=False)
    assert (bad.value.broken, missing.value.broken) == (True, False)


def test_a_change_is_made_whole_or_not_at_all(name: str) -> None:
    database = connect_with(name, ":memory:")
    database.run("CREATE TABLE loom (x)")
    with pytest.raises(ValueError, match="stop"):
        put_and_stop(database)
    assert database.rows("SELECT * FROM loom") == []
    database.close()


def put_and_stop(database: Database) -> None:
    with database.writing():
        database.run("INSERT INTO loom VALUES (1)")
        raise ValueError("stop")
