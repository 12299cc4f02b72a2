"""Full-text search and statistics of a store in a SQLite database."""

from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from given.small_vfs import SmallVfs
from weft.model.event import (
    Durable,
    MessageRemoved,
    MessageUpdated,
    PartRemoved,
    PartUpdated,
    SessionCreated,
    SessionDeleted,
    SessionUpdated,
)
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.part import CallTime, CompletedState, ErrorState, Tokens, ToolPart
from weft.model.search import Hit, ToolUse
from weft.model.spending import Spent
from weft.store.reader import open_reader
from weft.store.sqlite.connection import SqliteOptions
from weft.store.sqlite.database import DatabaseFile
from weft.store.sqlite.events import MANY_MESSAGES
from weft.store.sqlite.reader import SqliteReader
from weft.store.sqlite.search import MAX_RANKED
from weft.store.sqlite.store import SqliteStore, open_sqlite_store
from weft.store.statistics import StatisticsQuery
from weft.testing.store_samples import (
    ANSWER,
    HOSTILE,
    NOW,
    PROJECT,
    PROMPT,
    SESSION,
    answer,
    growth,
    prompt,
    session,
    text,
)

OTHER = SessionID("ses_2")


@pytest.fixture
def small_disk() -> Iterator[SmallVfs]:
    vfs = SmallVfs("weft-small")
    yield vfs
    vfs.unregister()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with open_sqlite_store(str(tmp_path / "sessions.db")) as opened:
        yield opened


def make_events(
    words: str, *, message: str = PROMPT, of: str = SESSION, part: str = "prt_1"
) -> list[Durable]:
    return [
        MessageUpdated(info=prompt(message, of=of)),
        PartUpdated(part=text(part, words, of=message, session=of)),
    ]


async def find(store: SqliteStore, words: str, **given: ProjectID) -> list[tuple[str, str | None]]:
    """Return the session and the message of each hit."""
    return [(hit.session_id, hit.message_id) for hit in await store.search(words, limit=10, **given)]


async def test_the_best_match_of_each_session_is_found_with_its_text(store: SqliteStore) -> None:
    await store.apply(
        SessionCreated(info=session(title="Mend the loom")),
        SessionCreated(info=session(OTHER, created=NOW + 1)),
        *make_events("what does the Shuttle do?"),
        *make_events("the shuttle again", message="msg_9", of=OTHER),
        *make_events("nothing", message="msg_8", of=OTHER),
    )
    assert await store.search('shuttle "what does"', limit=10) == [
        Hit(
            session_id=SESSION,
            project_id=PROJECT,
            message_id=PROMPT,
            title="Mend the loom",
            updated=NOW,
            archived=False,
            at=NOW,
            snippet="what does the Shuttle do?",
            marks=((0, 9), (14, 21)),
        )
    ]
    assert await find(store, "shutt") == [(OTHER, "msg_9"), (SESSION, PROMPT)]
    assert await find(store, "LOOM") == [(SESSION, None)]
    assert await find(store, "shuttle", project=ProjectID("p2")) == []
    assert await find(store, "") == []
    assert await store.search("shuttle", limit=1) == (await store.search("shuttle", limit=10))[:1]
    [title] = await store.search("loom", limit=10)
    assert (title.snippet, title.marks, title.at) == ("Mend the loom", ((9, 13),), NOW)


async def test_a_search_finds_what_was_changed_and_not_what_was_removed(store: SqliteStore) -> None:
    gone = PartRemoved(session_id=SESSION, message_id=PROMPT, part_id=PartID("prt_2"))
    await store.apply(
        SessionCreated(info=session()), *make_events("warp"), *make_events("heddle", part="prt_2")
    )
    assert await find(store, "warp heddle") == [(SESSION, PROMPT)]
    await store.apply(PartUpdated(part=text("prt_1", "weft")), gone)
    assert [await find(store, each) for each in ("warp", "heddle", "weft")] == [[], [], [(SESSION, PROMPT)]]
    await store.apply(growth("prt_1", " shed", 4))
    assert await find(store, "shed") == [(SESSION, PROMPT)]
    await store.apply(MessageRemoved(session_id=SESSION, message_id=PROMPT))
    assert await find(store, "weft") == []
    await store.apply(SessionUpdated(info=session(title="Treadle")))
    assert await find(store, "treadle") == [(SESSION, None)]
    await store.apply(SessionUpdated(info=session(title="Selvedge")))
    assert [await find(store, each) for each in ("treadle", "selvedge")] == [[], [(SESSION, None)]]
    await store.apply(SessionDeleted(info=session()))
    assert await find(store, "selvedge") == []


async def test_sessions_in_the_trash_are_not_found_until_they_are_restored(store: SqliteStore) -> None:
    await store.apply(SessionCreated(info=session(title="Loom")), *make_events("shuttle"))
    assert await find(store, "shuttle") == [(SESSION, PROMPT)]
    bundle = await store.discard([SESSION], at=1)
    assert [await find(store, each) for each in ("shuttle", "loom")] == [[], []]
    assert (await store.figures(StatisticsQuery(day_of=str))).messages == 0
    await store.restore(bundle.id)
    assert [await find(store, each) for each in ("shuttle", "loom")] == [
        [(SESSION, PROMPT)],
        [(SESSION, None)],
    ]
    assert (await store.figures(StatisticsQuery(day_of=str))).messages == 1


async def test_no_write_splits_text_into_words(store: SqliteStore) -> None:
    def count(connection: apsw.Connection) -> list[int]:
        tables = ("words_docsize", "stale_message", "stale_title")
        return [connection.execute(f"SELECT count(*) FROM {each}").fetchall()[0][0] for each in tables]

    await store.apply(SessionCreated(info=session()), *make_events("shuttle"))
    assert await store.writer.run(count) == [0, 0, 1]  # a new message needs no mark
    await store.update_index({})
    assert await store.writer.run(count) == [2, 0, 0]
    await store.apply(*make_events("heddle"))
    assert await store.writer.run(count) == [2, 1, 0]
    await store.update_index({})
    await store.apply(SessionUpdated(info=replace(session(), time=replace(session().time, updated=NOW + 5))))
    assert await store.writer.run(count) == [2, 0, 0]


async def test_a_message_with_the_number_of_a_deleted_one_is_indexed(store: SqliteStore) -> None:
    await store.apply(SessionCreated(info=session()), *make_events("shuttle"))
    assert await find(store, "shuttle") == [(SESSION, PROMPT)]
    await store.apply(MessageRemoved(session_id=SESSION, message_id=PROMPT))
    await store.apply(*make_events("heddle", message="msg_9"))
    assert await store.writer.run(
        lambda connection: connection.execute("SELECT number FROM message").fetchall()
    ) == [(1,)]
    assert [await find(store, each) for each in ("shuttle", "heddle")] == [[], [(SESSION, "msg_9")]]


async def test_a_new_session_whose_messages_get_numbers_of_deleted_ones_is_indexed(
    store: SqliteStore,
) -> None:
    await store.apply(SessionCreated(info=session()), *make_events("shuttle"))
    assert await find(store, "shuttle") == [(SESSION, PROMPT)]
    await store.apply(SessionDeleted(info=session()))
    await store.apply(SessionCreated(info=session(OTHER)), *make_events("heddle", of=OTHER))
    assert [await find(store, each) for each in ("shuttle", "heddle")] == [[], [(OTHER, PROMPT)]]


async def test_very_many_messages_that_change_at_once_are_indexed_again(store: SqliteStore) -> None:
    ids = [f"msg_{number}" for number in range(MANY_MESSAGES + 1)]
    for words in ("shuttle", "heddle"):
        said = [make_events(f"{words} {id}", message=id, part=f"prt_{id}") for id in ids]
        await store.apply(SessionCreated(info=session()), *(event for events in said for event in events))
        assert [await find(store, f"{words} {id}") for id in ids] == [[(SESSION, id)] for id in ids]


async def test_a_database_that_marks_every_message_is_upgraded(tmp_path: Path) -> None:
    path = str(tmp_path / "sessions.db")
    async with open_sqlite_store(path) as store:
        await store.apply(SessionCreated(info=session()), *make_events("shuttle"))
        assert await find(store, "shuttle") == [(SESSION, PROMPT)]
        await store.apply(*make_events("heddle", message="msg_9", part="prt_9"))
    first_version = apsw.Connection(path)
    first_version.execute("INSERT INTO stale_message SELECT history, id FROM message WHERE id = 'msg_9'")
    first_version.execute(
        "DROP TABLE indexed; DROP TABLE chain; DROP TABLE event; DROP TABLE event_server; PRAGMA user_version = 1"
    )
    first_version.close()
    reader = open_reader(f"sqlite:{path}")  # a command that only searches upgrades it too
    assert [hit.message_id for hit in reader.search("heddle", limit=5)] == ["msg_9"]
    reader.close()
    async with open_sqlite_store(path) as store:
        await store.apply(*make_events("treadle", message="msg_10", part="prt_10"))
        assert await find(store, "shuttle") == [(SESSION, PROMPT)]
        assert await find(store, "treadle") == [(SESSION, "msg_10")]


async def test_hostile_text_can_be_indexed_and_searched_for(store: SqliteStore) -> None:
    await store.apply(
        SessionCreated(info=session(title=HOSTILE[0])),
        *(event for number, each in enumerate(HOSTILE) for event in make_events(each, part=f"prt_{number}")),
    )
    assert await find(store, "emoji") == [(SESSION, PROMPT)]
    for words in (*HOSTILE[:5], '"', "''", "AND OR NOT", "title:x", "a* ^b", "\ud83d", "(((", "x" * 100_000):
        await store.search(words, limit=3)


async def test_a_word_in_very_many_messages_is_found_in_the_newest(store: SqliteStore) -> None:
    many = range(MAX_RANKED + 100)
    await store.apply(
        SessionCreated(info=session(title="shuttle")),
        SessionCreated(info=session(OTHER)),
        *(event for number in many for event in make_events("shuttle", message=f"msg_{number}")),
        *make_events("shuttle", message="msg_last", of=OTHER),
    )
    assert sorted(await find(store, "shuttle")) == [(SESSION, None), (OTHER, "msg_last")]


async def test_the_reader_indexes_what_it_searches_and_reports_its_progress(store: SqliteStore) -> None:
    await store.apply(
        SessionCreated(info=session()),
        *(event for number in range(100) for event in make_events("shuttle", message=f"msg_{number}")),
    )
    reader, progress = open_reader(f"sqlite:{store.file.path}"), list[tuple[int, int]]()
    assert isinstance(reader, SqliteReader)
    hits = reader.search("shuttle", limit=5, progress=lambda done, total: progress.append((done, total)))
    assert [hit.session_id for hit in hits] == [SESSION]
    assert progress == [(1, 101), (65, 101), (101, 101)]
    assert reader.figures(StatisticsQuery(day_of=str)).messages == 100
    assert progress[3:] == []
    reader.close()


async def test_on_a_full_disk_a_reader_finds_what_was_indexed(tmp_path: Path, small_disk: SmallVfs) -> None:
    path, options = str(tmp_path / "sessions.db"), SqliteOptions(vfs="weft-small")
    async with open_sqlite_store(path, options=options) as store:
        await store.apply(SessionCreated(info=session(title="shuttle")))
        assert await find(store, "shuttle") == [(SESSION, None)]
        await store.apply(*make_events("later", message="msg_1"))
        small_disk.full = True
        reader = SqliteReader(DatabaseFile(path, options))
        assert [hit.session_id for hit in reader.search("shuttle", limit=5)] == [SESSION]
        assert reader.search("later", limit=5) == []
        assert reader.figures(StatisticsQuery(day_of=str)).messages == 0
        reader.close()
        small_disk.full = False


async def test_figures_add_up_cost_tokens_and_calls_without_what_a_fork_copied(store: SqliteStore) -> None:
    tool = ToolPart(
        id=PartID("prt_t"),
        session_id=SESSION,
        message_id=ANSWER,
        call_id="c",
        tool="bash",
        state=CompletedState(input={}, output="o", title="", metadata={}, time=CallTime(start=1, end=2)),
    )
    failed = replace(
        tool, id=PartID("prt_u"), state=ErrorState(input={}, error="e", time=CallTime(start=1, end=2))
    )
    spent = replace(
        answer(), cost=Decimal("0.1"), tokens=Tokens(input=10, output=5), provider_id="p", model_id="m"
    )
    copied = replace(spent, id=MessageID("msg_c"), session_id=OTHER)
    await store.apply(
        SessionCreated(info=session()),
        SessionCreated(info=session(OTHER, created=NOW + 1000)),
        MessageUpdated(info=prompt()),
        MessageUpdated(info=spent),
        MessageUpdated(info=copied),
        PartUpdated(part=tool),
        PartUpdated(part=failed),
    )
    figures = await store.figures(StatisticsQuery(day_of=lambda _: "today"))
    assert (figures.sessions, figures.messages, figures.average_tokens) == (2, 2, 15)
    assert figures.spent == Spent(cost=Decimal("0.1"), input=10, output=5)
    assert [(share.name, share.messages) for share in figures.models] == [("p/m", 1)]
    assert figures.tools == (ToolUse(name="bash", calls=2, failed=1),)
    assert (await store.figures(StatisticsQuery(day_of=str, project=ProjectID("p2")))).messages == 0
    assert (await store.figures(StatisticsQuery(day_of=str, since=NOW + 1))).messages == 1
