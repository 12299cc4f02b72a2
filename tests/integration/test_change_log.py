"""The change log of a SQLite store: how it is trimmed, and what servers make of it."""

import asyncio
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from weft.errors import CursorLostError
from weft.model.diff import FileDiff
from weft.model.event import (
    MessageUpdated,
    PartUpdated,
    ProjectUpdated,
    SessionCreated,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.project import Project, ProjectTime
from weft.server.feed import COUNT_BITS, EventCounter, parse_number
from weft.store.change_log import PublishedPosition
from weft.store.sqlite.store import open_sqlite_store
from weft.testing.store_samples import PROJECT, SESSION, prompt, session, text


async def test_the_change_log_keeps_the_last_rows_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.store.sqlite.change_log.LOG_ROWS", 20)
    monkeypatch.setattr("weft.store.sqlite.change_log.TRIM_ROWS", 5)
    path = tmp_path / "sessions.db"
    async with open_sqlite_store(str(path)) as store:
        await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
        await store.change_log.register("loom")
        start = store.change_log.position
        for number in range(30):
            await store.apply(PartUpdated(part=text("prt_1", f"{number}")))
        (last,) = await store.change_log.read("loom", 10)
        assert last.event == PartUpdated(part=text("prt_1", "29"))
        with pytest.raises(CursorLostError):
            await store.change_log.read("loom", start)
    async with open_sqlite_store(str(path)) as store:
        await store.change_log.register("next")
        assert store.change_log.position == 31
        assert len(await store.change_log.read("loom", 10)) == 1


async def test_whoever_missed_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.store.sqlite.change_log_reader.MAX_NAMED", 3)
    async with open_sqlite_store(str(tmp_path / "sessions.db")) as store:
        await store.change_log.register("loom")
        await store.apply(SessionCreated(info=session()))
        await store.apply(*(PartUpdated(part=text(f"prt_{number}", "a")) for number in range(3)))
        with pytest.raises(CursorLostError):
            await store.change_log.read("loom", 0)


async def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    damaged: list[str] = []
    async with open_sqlite_store(str(path), damaged=lambda each: damaged.append(each.where)) as store:
        await store.change_log.register("loom")
        project = Project(id=PROJECT, worktree="/work", time=ProjectTime(created=1, updated=1))
        await store.apply(
            ProjectUpdated(info=project),
            SessionCreated(info=session()),
            SessionDiffed(session_id=SESSION, diff=(FileDiff(file="f", additions=1, deletions=0),)),
            TodoUpdated(session_id=SESSION, todos=()),
        )
        await store.apply(
            SessionDiffed(session_id=SESSION, diff=()), TodoUpdated(session_id=SESSION, todos=())
        )
        with closing(apsw.Connection(str(path))) as connection:
            for table in ("project", "diff", "todo"):
                connection.execute(f"UPDATE {table} SET document = x'7b'")
        found = [each.event for each in await store.change_log.read("loom", 0)]
        assert found == [SessionCreated(info=session()), SessionUpdated(info=session())]
        assert damaged == [f"{path}#{place}" for place in ("project/p1", "diff/ses_1", "todo/ses_1")]
        with closing(apsw.Connection(str(path))) as connection:
            connection.execute("UPDATE chain SET body = x'7b'")
        with pytest.raises(CursorLostError):  # nobody knows what changed
            await store.change_log.read("loom", 0)


def test_a_write_that_ends_later_holds_back_those_that_began_after_it() -> None:
    published = PublishedPosition()
    published.note_stored(7)
    with published.publishing():
        with published.publishing():
            published.note_stored(9)
            assert published.find() == 7
        assert published.find() == 7
    assert published.find() == 9


async def test_numbers_of_events_begin_with_a_position_that_all_feeds_have_reached(tmp_path: Path) -> None:
    async with open_sqlite_store(str(tmp_path / "sessions.db")) as store:
        await store.apply(SessionCreated(info=session()))
        counter = EventCounter("loom")
        await counter.open_log(store.change_log)
        assert parse_number(counter.make_id()) == ("loom", 1 << COUNT_BITS)
        await store.apply(PartUpdated(part=text("prt_1", "a")))
        counter.note_published()
        # Another feed may lack an event that was published before.
        assert counter.next() == (1 << COUNT_BITS) + 1
        await asyncio.sleep(0)
        assert [counter.next(), counter.next()] == [2 << COUNT_BITS, (2 << COUNT_BITS) + 1]
