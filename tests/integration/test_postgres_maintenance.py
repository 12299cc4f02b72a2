"""What maintenance finds in a Postgres store, and what it repairs."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest

from given.postgres import make_url
from weft.cli.main import run_command
from weft.errors import StoreError
from weft.model.diff import FileDiff
from weft.model.event import (
    MessageUpdated,
    PartUpdated,
    SessionCreated,
    SessionDiffed,
    TodoUpdated,
)
from weft.model.ids import SessionID
from weft.model.session import Todo
from weft.store.findings import AbandonedLease, DocumentFault, SetAside
from weft.store.maintenance import open_maintenance
from weft.store.postgres.maintenance import PostgresMaintenance
from weft.store.postgres.store import PostgresStore, open_postgres_store
from weft.testing.maintenance_contract import fill
from weft.testing.store_samples import NOW, SESSION, growth, prompt, session, text, with_parts

T = TypeVar("T")

LATER = 1 << 50
OTHER = SessionID("ses_2")


@pytest.fixture
def url() -> str:
    return make_url()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    async with open_postgres_store(url) as opened:
        yield opened


@pytest.fixture
def maintenance(url: str, store: PostgresStore) -> PostgresMaintenance:
    return PostgresMaintenance(url)


async def lose_session(store: PostgresStore) -> None:
    """Store a session with something of every kind, and lose its own row, a message, and a part that grew."""
    await fill(store)
    await store.apply(
        SessionDiffed(session_id=SESSION, diff=(FileDiff(file="a", additions=1, deletions=0),)),
        TodoUpdated(session_id=SESSION, todos=(Todo(content="x", status="pending", priority="low"),)),
        MessageUpdated(info=prompt("msg_9", of=OTHER)),
        PartUpdated(part=text("prt_9", "z", of="msg_9", session=OTHER)),
        PartUpdated(part=text("prt_8", "z", of="msg_9", session=OTHER)),
    )
    await store.apply(growth("prt_1", "!", 30))
    await store.database.fetch("DELETE FROM {schema}.session WHERE id = $1", SESSION)
    await store.database.fetch("DELETE FROM {schema}.message WHERE session = $1", OTHER)


async def test_orphaned_rows_are_found_and_moved_to_a_backup(
    store: PostgresStore, maintenance: PostgresMaintenance
) -> None:
    await lose_session(store)
    assert [(each.where, each.reason) for each in maintenance.find_orphans()] == [
        (SESSION, "its session is gone, but its messages exist"),
        (SESSION, "its session is gone, but its diff exists"),
        (SESSION, "its session is gone, but its todo exists"),
        ("msg_9", "the message is gone, but its parts exist"),
    ]
    leftovers = maintenance.find_leftovers(before=LATER)
    assert [(each.kind, each.where) for each in leftovers] == [
        ("message", "message/ses_1"),
        ("part", "part/ses_1/msg_1"),
        ("part", "part/ses_2/msg_9"),
        ("diff", "detail/ses_1/diff"),
        ("todo", "detail/ses_1/todo"),
    ]
    assert all(each.bytes > 0 and each.keeping for each in leftovers)
    assert maintenance.find_leftovers(before=NOW - 10**9) == []
    repairer = maintenance.make_repairer("gc", now=NOW)
    assert repairer.remove_leftovers(leftovers, before=0).removed == ()  # all of them changed since
    removed = repairer.remove_leftovers(leftovers, before=LATER)
    assert (removed.removed, removed.failed, removed.backup) == (tuple(leftovers), (), f"backup/gc-{NOW}")
    assert maintenance.find_leftovers(before=NOW) == []
    saved = await store.database.fetch("SELECT place FROM {schema}.backup ORDER BY place")
    assert [place.rpartition("/")[0] if place.startswith("growth") else place for (place,) in saved] == [
        "detail/ses_1/diff",
        "detail/ses_1/todo",
        "growth/ses_1/msg_1/prt_1",
        "message/ses_1/msg_1",
        "part/ses_1/msg_1/prt_1",
        "part/ses_1/msg_1/prt_2",
        "part/ses_2/msg_9/prt_8",
        "part/ses_2/msg_9/prt_9",
    ]
    old = maintenance.find_leftovers(before=NOW + 31 * 24 * 3_600_000)
    assert [(each.kind, each.where) for each in old] == [("backup", f"backup/gc-{NOW}")]
    assert repairer.remove_leftovers(old, before=LATER).removed == tuple(old)


async def test_a_leftover_whose_session_is_back_is_left_alone(
    store: PostgresStore, maintenance: PostgresMaintenance
) -> None:
    await lose_session(store)
    leftovers = maintenance.find_leftovers(before=LATER)
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt("msg_9", of=OTHER)))
    removed = maintenance.make_repairer("gc", now=NOW).remove_leftovers(leftovers, before=LATER)
    assert (removed.removed, removed.backup) == ((), "")
    assert len(await store.list_messages(SESSION)) == 1


async def test_growth_without_a_part_and_leases_without_a_session_are_removed(
    store: PostgresStore, maintenance: PostgresMaintenance
) -> None:
    await fill(store)
    await store.apply(growth("prt_1", "!", 30))
    await store.database.fetch("DELETE FROM {schema}.part WHERE id = 'prt_1'")
    async with store.lease(SessionID("ses_gone"), "us"):
        assert [each.kind for each in maintenance.find_leftovers(before=LATER)] == ["growth"]
    leftovers = maintenance.find_leftovers(before=LATER)
    assert [each.where for each in leftovers] == ["growth/ses_1/msg_1/prt_1", "lease/ses_gone"]
    removed = maintenance.make_repairer("gc", now=NOW).remove_leftovers(leftovers, before=LATER)
    assert (removed.removed, removed.backup) == (tuple(leftovers), "")
    assert maintenance.find_leftovers(before=LATER) == []


async def test_a_damaged_document_is_moved_aside_and_the_rest_works(
    store: PostgresStore, maintenance: PostgresMaintenance
) -> None:
    await fill(store)
    await store.apply(MessageUpdated(info=prompt("msg_9", created=NOW + 1)))
    for table, id in (("session", SESSION), ("part", "prt_2"), ("message", "msg_9")):
        await store.database.fetch(f"UPDATE {{schema}}.{table} SET document = '{{' WHERE id = $1", id)
    places = ["message/ses_1/msg_9", "part/ses_1/msg_1/prt_2", "session/ses_1"]
    assert [(each.kind, each.where) for each in maintenance.find_damage()] == [
        ("unreadable", place) for place in places
    ]
    repairer = maintenance.make_repairer("doctor", now=NOW)
    assert [repairer.set_aside(place) for place in places] == [
        SetAside(with_parts=True),
        SetAside(),
        SetAside(rebuilt_from=1),
    ]
    assert [repairer.set_aside(place) for place in (*places[:2], "nonsense", "detail/ses_1/diff")] == [
        None
    ] * 4
    assert maintenance.find_damage() == []
    assert repairer.backup == f"backup/doctor-{NOW}"
    [rebuilt, _] = await store.list_sessions()
    assert rebuilt.title == "Recovered: saved as tool_abc and tool_def"
    expected = with_parts(prompt(), text("prt_1", "saved as tool_abc and tool_def"))
    assert await store.list_messages(SESSION) == [expected]


async def test_abandoned_leases_are_listed_and_dropped(
    store: PostgresStore, maintenance: PostgresMaintenance
) -> None:
    await store.apply(SessionCreated(info=session()))
    repairer = maintenance.make_repairer("doctor", now=NOW)
    async with store.lease(SESSION, "us"), store.lease(OTHER, "us"):
        assert maintenance.list_abandoned() == []
        assert not repairer.drop_lease(SESSION)
        await store.database.fetch("UPDATE {schema}.lease SET till = clock_timestamp() - interval '1 second'")
        assert maintenance.list_abandoned() == [
            AbandonedLease(session=SESSION, where="lease/ses_1", is_orphan=False),
            AbandonedLease(session=OTHER, where="lease/ses_2", is_orphan=True),
        ]
        assert repairer.drop_lease(SESSION)
        assert repairer.drop_lease(OTHER)
        assert maintenance.list_abandoned() == []


async def test_a_bundle_without_its_description_is_named(
    store: PostgresStore, maintenance: PostgresMaintenance
) -> None:
    await fill(store)
    bundle = await store.discard([SESSION], at=NOW)
    await store.database.fetch("UPDATE {schema}.bundle SET document = 'x'")
    assert maintenance.list_broken_bundles() == [f"bundle/{bundle.id}"]
    assert maintenance.find_damage() == [
        DocumentFault(
            kind="unreadable",
            where=f"bundle/{bundle.id}",
            reason="not JSON: Expecting value: line 1 column 1 (char 0)",
        )
    ]


async def test_growth_is_searched_too(store: PostgresStore, maintenance: PostgresMaintenance) -> None:
    await fill(store)
    await store.apply(growth("prt_2", "saved as tool_ab", 0))
    await store.apply(growth("prt_2", "x", 16))
    assert maintenance.find_in_parts("tool_[a-z]+") == {"tool_abc", "tool_def", "tool_abx"}


def test_a_database_without_a_store_is_distinguished_from_one_with_a_store(url: str) -> None:
    maintenance = open_maintenance(url)
    for read in (maintenance.list_session_ids, maintenance.upgrade):
        with pytest.raises(StoreError, match="there is no store") as missing:
            read()
        assert missing.value.hint == "weft storage init creates it"
    assert run_command(["storage", "init", "--store", url]) == 0
    assert maintenance.list_session_ids() == []
    assert not maintenance.is_outdated()


def test_du_gc_verify_and_prune_work_on_postgres(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def run(work: Callable[[PostgresStore], Awaitable[T]]) -> T:
        async with open_postgres_store(url) as store:
            return await work(store)

    asyncio.run(run(fill))
    for command in (["du"], ["gc", "--age", "0", "--compact-summaries"], ["verify"]):
        assert run_command(["storage", *command, "--store", url]) == 0
    assert "2 sessions, 1 message, 2 parts, 0 problems" in capsys.readouterr().out
    assert run_command(["storage", "prune", "--older-than", "0", "--yes", "--store", url]) == 0
    assert run_command(["session", "list", "--all", "--format", "json", "--store", url]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == []
    assert len(asyncio.run(run(lambda store: store.list_trash()))) == 2
