"""The database of the search index: words, paths, damage and transactions."""

from pathlib import Path

import pytest

from given.conversation import SESSION, text, user_message
from weft.errors import IndexFailedError
from weft.model.session import SessionInfo, SessionTime
from weft.store.files.index import UNKNOWN_STAMP, StampedSession, replace_session
from weft.store.files.index_database import IndexDatabase, connect, create_tables
from weft.store.files.index_query import search_index
from weft.store.search import to_entry


def test_indexed_words_are_found() -> None:
    database = connect(":memory:", writes=True)
    create_tables(database, "/")
    session = SessionInfo(id=SESSION, title="The loom", time=SessionTime(created=1, updated=1))
    for _ in range(2):
        words = user_message("msg_1", 1, text("msg_1", "mend the shuttle"))
        replace_session(database, StampedSession(session, UNKNOWN_STAMP, [to_entry(words)]))
    assert [hit.snippet for hit in search_index(database, "shuttle", limit=5)] == ["mend the shuttle"]
    database.close()


def test_a_path_may_contain_characters_that_are_special_in_urls(tmp_path: Path) -> None:
    path = tmp_path / "100% of #1?.db"
    database = connect(str(path), writes=True)
    database.run("CREATE TABLE loom (x)")
    database.close()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    again = connect(str(path), writes=False)
    assert again.rows("SELECT count(*) FROM loom") == [(0,)]
    with pytest.raises(IndexFailedError) as refused:
        again.run("CREATE TABLE warp (x)")
    again.close()
    assert not refused.value.broken


def test_a_damaged_file_is_reported_as_broken_and_a_missing_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_bytes(b"no database" * 1000)
    with pytest.raises(IndexFailedError) as bad:
        connect(str(tmp_path / "bad.db"), writes=False).rows("SELECT * FROM sqlite_master")
    with pytest.raises(IndexFailedError) as missing:
        connect(str(tmp_path / "none.db"), writes=False)
    assert (bad.value.broken, missing.value.broken) == (True, False)


def test_a_transaction_is_all_or_nothing() -> None:
    database = connect(":memory:", writes=True)
    database.run("CREATE TABLE loom (x)")
    with pytest.raises(ValueError, match="stop"):
        put_and_stop(database)
    assert database.rows("SELECT * FROM loom") == []
    database.close()


def put_and_stop(database: IndexDatabase) -> None:
    with database.open_transaction():
        database.run("INSERT INTO loom VALUES (1)")
        raise ValueError("stop")
