"""What only the Postgres store does: opening, round trips, leases, lost connections, and servers that refuse."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from given.postgres import get_server, make_url
from given.postgres_proxy import PostgresProxy, open_postgres_proxy
from weft.cli.main import run_command
from weft.errors import (
    ConflictError,
    LeaseLostError,
    MissingPackageError,
    NewerFormatError,
    NotFoundError,
    SessionBusyError,
    StoreError,
    WeftError,
)
from weft.model.damage import Damage
from weft.model.event import (
    MessageRemoved,
    MessageUpdated,
    PartUpdated,
    SessionCreated,
    SessionDeleted,
    SessionUpdated,
)
from weft.model.ids import ProjectID, SessionID
from weft.model.part import TextPart
from weft.model.session import SessionInfo
from weft.model.session_query import SessionQuery
from weft.store.contract import Store
from weft.store.lease import LeaseToken
from weft.store.maintenance import open_maintenance
from weft.store.postgres.documents import DIALECT
from weft.store.postgres.migration import get_newest_version
from weft.store.postgres.reader import PostgresReader
from weft.store.postgres.store import PostgresStore, open_postgres_store
from weft.store.reader import open_reader
from weft.store.rows import build_session_query
from weft.store.url import open_store, store_exists
from weft.testing.clock import HandClock
from weft.testing.store_samples import (
    NOW,
    PROMPT,
    SESSION,
    growth,
    many_parts,
    prompt,
    session,
    text,
    with_parts,
)

SECRET = "s3cr3t/w@rd"
SECRET_IN_URL = "s3cr3t%2Fw%40rd"
HOLDER = Path(__file__).parents[1] / "given" / "lease_holder.py"
# Other transactions that have read or written a table of the schema and are still open.
SELECT_OPEN = """SELECT DISTINCT relation::regclass::text FROM pg_locks
WHERE pid <> pg_backend_pid() AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace($1))"""


@pytest.fixture
def url() -> str:
    return make_url(get_server().get_url())


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    async with open_postgres_store(url) as opened:
        yield opened


@pytest.fixture
async def proxy(url: str) -> AsyncIterator[PostgresProxy]:
    async with open_store(url):
        pass  # the schema exists before anything is cut
    async with open_postgres_proxy(url) as opened:
        yield opened


def touch(known: SessionInfo) -> SessionInfo:
    return replace(known, time=replace(known.time, updated=known.time.updated + 1))


# --- opening ---


async def test_ten_nodes_that_start_on_an_empty_database_share_one_store(url: str) -> None:
    assert not await asyncio.to_thread(store_exists, url)

    async def start(number: int) -> list[str]:
        async with open_store(url) as store:
            await store.apply(SessionCreated(info=session(f"ses_{number}")))
            return [each.id for each in await store.list_sessions()]

    listed = await asyncio.gather(*(start(number) for number in range(10)))
    assert all(f"ses_{number}" in ids for number, ids in enumerate(listed))
    async with open_store(url) as store:
        assert len(await store.list_sessions()) == 10
    assert await asyncio.to_thread(store_exists, url)


def test_storage_init_creates_the_schema_and_does_not_show_the_password(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with_password = url.replace("weft@", f"weft:{SECRET_IN_URL}@")
    for _ in range(2):
        assert run_command(["storage", "init", "--store", with_password]) == 0
        assert capsys.readouterr().out == f"{url.replace('weft@', '')} is ready\n"
    assert store_exists(url)


async def test_a_schema_used_by_something_else_is_refused_and_unchanged(url: str) -> None:
    schema = url.partition("schema=")[2]
    get_server().query(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.session (mine text)")
    with pytest.raises(StoreError, match="belongs to something else") as refused:
        async with open_store(url):
            pass
    assert "schema=" in refused.value.hint
    listed = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'"
    assert get_server().query(listed) == ["session"]


async def test_an_existing_empty_schema_is_used(url: str) -> None:
    get_server().query(f"CREATE SCHEMA {url.partition('schema=')[2]}")
    async with open_store(url) as store:
        assert await store.list_sessions() == []


async def test_other_tables_of_the_database_are_left_alone(url: str, store: PostgresStore) -> None:
    schema = url.partition("schema=")[2]
    outside = f"""SELECT count(*) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE relkind IN ('r', 'i', 'S') AND nspname NOT IN ('{schema}') AND nspname NOT LIKE 'pg\\_%'
    AND nspname NOT LIKE 'test\\_%' AND nspname <> 'information_schema'"""
    assert get_server().query(outside) == ["0"]


async def test_a_newer_version_is_refused(url: str, store: PostgresStore) -> None:
    get_server().query(f"UPDATE {url.partition('schema=')[2]}.weft_store SET version = 99, needs = 99")
    known = get_newest_version()

    async def open_again() -> None:
        async with open_store(url):
            pass

    for attempt in (
        open_again(),
        asyncio.to_thread(lambda: open_reader(url).list_projects()),
        asyncio.to_thread(lambda: open_maintenance(url).check_format()),
    ):
        with pytest.raises(NewerFormatError) as refused:
            await attempt
        assert (refused.value.found, refused.value.known) == (99, known)


async def test_without_the_driver_the_command_to_install_it_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(MissingPackageError, match=r"pip install '\.\[postgres\]'"):
        async with open_store(url):
            pass


# --- round trips ---


async def test_an_apply_is_one_round_trip(proxy: PostgresProxy) -> None:
    events = [
        SessionCreated(info=session()),
        MessageUpdated(info=prompt()),
        *(PartUpdated(part=part) for part in many_parts(PROMPT)),
        PartUpdated(part=text("prt_9", "a")),
    ]

    async def count(store: Store, *work: Any) -> list[int]:
        counts = []
        for each in work:
            before = proxy.round_trips
            await each()
            counts.append(proxy.round_trips - before)
        return counts

    async with open_store(proxy.url) as store, store.lease(SESSION, "us") as token:
        work = (
            lambda: store.apply(*events, leases=[token]),
            lambda: store.apply(growth("prt_9", "b", 1), leases=[token]),
            lambda: store.edit(SESSION, touch, leases=[token]),
            lambda: store.update_value(("a",), lambda known: (known or 0) + 1, leases=[token]),
            lambda: store.list_messages(SESSION),
        )
        for _ in range(
            2
        ):  # a connection is opened, and each statement is prepared: to read all, and to read what changed
            await count(store, *work)
        assert await count(store, *work) == [1, 1, 2, 2, 1]


async def test_no_transaction_is_open_while_a_callback_runs(url: str, store: PostgresStore) -> None:
    await store.apply(SessionCreated(info=session()))
    reader, found = PostgresReader(url), list[list[str]]()

    def look(known: Any) -> Any:
        rows = reader.run(lambda documents: documents.database.fetch(SELECT_OPEN, reader.schema))
        found.append([row[0] for row in rows])
        return known

    await store.edit(SESSION, lambda known: touch(look(known)))
    await store.update_value(("a",), lambda _: look(1))
    await store.append_log(("a",), lambda _: look([b"line"]))
    assert found == [[], [], []]


@pytest.mark.parametrize(
    ("pooled", "setting", "kept"),
    [(False, "", True), (False, "&pgbouncer=1", False), (True, "", False), (True, "&pgbouncer=1", False)],
)
async def test_prepared_statements_are_kept_only_without_a_pooler(
    pooled: bool, setting: str, kept: bool
) -> None:
    async with open_postgres_store(f"{make_url(pgbouncer=pooled)}{setting}") as store:
        for _ in range(3):
            await store.list_projects()
        found = await store.database.fetch(
            "SELECT * FROM pg_prepared_statements WHERE statement LIKE '%.project%'"
        )
        assert bool(found) == kept


# --- leases ---


async def expire(store: PostgresStore) -> None:
    """Let the time of all leases pass."""
    await store.database.fetch("UPDATE {schema}.lease SET till = clock_timestamp() - interval '1 second'")


async def list_writes(store: Store, *, of: Any) -> list[str]:
    """Try every way to write with a token. Return who is said to hold the lease instead."""
    owners = []
    for attempt in (
        store.apply(SessionUpdated(info=session(title="late")), leases=[of]),
        store.apply(growth("prt_1", "late", 0), leases=[of]),
        store.edit(SESSION, touch, leases=[of]),
        store.update_value(("late",), lambda _: 1, leases=[of]),
    ):
        with pytest.raises(LeaseLostError) as lost:
            await attempt
        owners.append(lost.value.owner)
    return owners


async def test_an_expired_lease_is_taken_over_and_the_old_holder_can_no_longer_write(
    url: str, store: PostgresStore
) -> None:
    await store.apply(
        SessionCreated(info=session()), MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", ""))
    )
    clock = HandClock()
    async with open_postgres_store(url, clock=clock) as paused, paused.lease(SESSION, "the paused") as old:
        with pytest.raises(SessionBusyError, match="busy"):
            async with store.lease(SESSION, "the next"):
                pass
        await expire(store)
        assert await store.find_holder(SESSION) is None
        assert await store.list_abandoned() == [SESSION]
        await paused.apply(SessionUpdated(info=session(title="nobody took it")), leases=[old])
        async with store.lease(SESSION, "the next") as new:
            assert new.generation > old.generation
            assert await list_writes(paused, of=old) == ["the next"] * 4
            clock.turn(60_000)  # it wakes up, and its heartbeat renews nothing
            assert await store.find_holder(SESSION) == "the next"
            await store.apply(SessionUpdated(info=session(title="ours")), leases=[new])
        assert await list_writes(paused, of=old) == [""] * 4
    assert await store.get_session(SESSION) == session(title="ours")
    assert await store.list_messages(SESSION) == [with_parts(prompt(), text("prt_1", ""))]
    assert (await store.find_holder(SESSION), await store.list_abandoned()) == (None, [])


async def test_only_one_of_many_concurrent_requests_gets_the_lease(url: str, store: PostgresStore) -> None:
    decided = asyncio.Barrier(20)

    async def ask(asked: PostgresStore, name: str) -> str:
        try:
            async with asked.lease(SESSION, name):
                await decided.wait()
                return name
        except SessionBusyError as busy:
            await decided.wait()
            return busy.owner

    async with open_postgres_store(url) as other:
        answers = await asyncio.gather(
            *(ask((store, other)[number % 2], f"{number}") for number in range(20))
        )
    assert len(set(answers)) == 1


async def test_no_write_of_the_old_holder_is_stored_once_another_has_the_lease(
    url: str, store: PostgresStore
) -> None:
    await store.apply(SessionCreated(info=session()))

    async def write(old: PostgresStore, token: LeaseToken) -> None:
        for number in range(100_000):
            await old.apply(SessionUpdated(info=session(title=f"{number}")), leases=[token])

    async with open_postgres_store(url, clock=HandClock()) as old, old.lease(SESSION, "the old") as token:
        writers = [asyncio.create_task(write(old, token)) for _ in range(5)]
        while (await store.get_session(SESSION)).title == "":
            pass
        await expire(store)
        async with store.lease(SESSION, "the new"):
            seen = await store.get_session(SESSION)
            ends = await asyncio.gather(*writers, return_exceptions=True)
            assert [type(end) for end in ends] == [LeaseLostError] * 5
            assert await store.get_session(SESSION) == seen


async def test_a_heartbeat_renews_every_lease_before_it_runs_out(url: str) -> None:
    clock = HandClock()
    async with open_postgres_store(f"{url}&lease=9", clock=clock) as store:
        async with store.lease(SESSION, "us"), store.lease(SessionID("ses_2"), "us"):
            await expire(store)
            await clock.somebody_sleeps(3)
            clock.turn(3_000)
            while len(await store.list_running()) < 2:
                pass
        assert await store.list_running() == set()


async def test_checking_for_a_lost_lease_before_an_edit_writes_nothing(
    url: str, store: PostgresStore
) -> None:
    ended, other = SessionID("ses_ended"), SessionID("ses_other")
    async with store.lease(SESSION, "me") as held, store.lease(other, "somebody") as theirs:
        async with store.lease(ended, "me") as given_back:
            pass
        lost = LeaseToken(other, theirs.generation + 9)
        for tokens in ([held], [held, lost], [held, given_back], [LeaseToken(SessionID("ses_new"), 1)], []):
            values = [token.session for token in tokens], [token.generation for token in tokens]
            ((seen, written),) = await store.database.fetch(
                "SELECT {schema}.see_lost_lease($1, $2), pg_current_xact_id_if_assigned()::text", *values
            )
            found = await store.database.fetch_value("SELECT {schema}.find_lost_lease($1, $2)", *values)
            assert (seen, written) == (found, None)


async def test_an_urgent_statement_does_not_wait_behind_all_the_others(url: str) -> None:
    async with open_postgres_store(f"{url}&pool=3") as store:
        async with store.database.open_transaction():
            waiting = asyncio.create_task(store.database.fetch_value("SELECT 1"))
            assert await store.database.fetch_value("SELECT 2", urgent=True) == 2
            assert not waiting.done()
        assert await waiting == 1


async def test_the_generation_of_a_lease_is_never_used_again(store: PostgresStore) -> None:
    generations = []
    for _ in range(3):
        async with store.lease(SESSION, "us") as token:
            generations.append(token.generation)
        await store.database.fetch("DELETE FROM {schema}.lease")
    assert sorted(set(generations)) == generations


async def test_a_killed_holder_leaves_a_session_that_another_node_settles(
    url: str, store: PostgresStore
) -> None:
    await store.apply(SessionCreated(info=session()))
    holder = await asyncio.create_subprocess_exec(
        sys.executable, str(HOLDER), f"{url}&lease=3", stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    assert await store.find_holder(SESSION) == "the killed"
    holder.kill()
    await holder.wait()
    while await store.list_abandoned() != [SESSION]:
        assert await store.find_holder(SESSION) in ("the killed", None)
    async with store.lease(SESSION, "the next"):
        assert await store.list_abandoned() == []
    assert await store.list_abandoned() == []


async def test_an_abandoned_session_that_is_deleted_is_no_longer_listed(store: PostgresStore) -> None:
    await store.apply(SessionCreated(info=session()))
    async with store.lease(SESSION, "us"):
        await expire(store)
        assert await store.list_abandoned() == [SESSION]
        await store.discard([SESSION], at=NOW)
        assert await store.list_abandoned() == []


# --- lost connections ---


async def test_an_apply_whose_answer_is_lost_is_repeated_with_one_effect(proxy: PostgresProxy) -> None:
    async with open_store(proxy.url) as store:
        await store.apply(
            SessionCreated(info=session()),
            MessageUpdated(info=prompt()),
            PartUpdated(part=text("prt_1", "a")),
        )
        await store.list_messages(SESSION)
        proxy.cut_after(0)
        await store.apply(growth("prt_1", "b", 1))
        proxy.cut_after(0)
        assert await store.list_messages(SESSION) == [with_parts(prompt(), text("prt_1", "ab"))]
    assert proxy.cuts == 2


async def test_an_edit_whose_answer_is_lost_is_applied_once(proxy: PostgresProxy) -> None:
    async with open_store(proxy.url) as store:
        await store.apply(SessionCreated(info=session()))
        await store.edit(SESSION, touch)
        for answers in (0, 1):  # that of the read, and that of the write
            proxy.cut_after(answers)
            await store.edit(SESSION, touch)
        assert (await store.get_session(SESSION)).time.updated == NOW + 3
        await store.update_value(("count",), lambda known: (known or 0) + 1)
        proxy.cut_after(1)
        assert await store.update_value(("count",), lambda known: known + 1) == 2
        await store.append_log(("log",), lambda _: [b"1"])
        proxy.cut_after(1)
        await store.append_log(("log",), lambda last: [(last or b"") + b"2"])
        assert await store.read_log(("log",)) == [b"1", b"12"]
    assert proxy.cuts == 4


async def test_a_discard_whose_answer_is_lost_is_done_once(proxy: PostgresProxy) -> None:
    async with open_store(proxy.url) as store:
        await store.apply(SessionCreated(info=session()))
        for at in range(2):  # the first time, statements are prepared and nothing is cut
            if at:
                proxy.cut_after(1)
            trashed = await store.discard([SESSION], at=at)
            if at:
                proxy.cut_after(1)
            assert await store.restore(trashed.id) == trashed
        trashed = await store.discard([SESSION], at=2)
        await store.purge(trashed.id)
        await store.apply(SessionCreated(info=session()))
        trashed = await store.discard([SESSION], at=3)
        proxy.cut_after(0)
        await store.purge(trashed.id)
        assert (await store.list_trash(), await store.list_sessions()) == ([], [])
    assert proxy.cuts == 3


async def test_a_lease_whose_answer_is_lost_is_held(proxy: PostgresProxy) -> None:
    async with open_store(proxy.url) as store:
        async with store.lease(SESSION, "us"):
            pass
        proxy.cut_after(0)
        async with store.lease(SESSION, "us") as token:
            await store.apply(SessionCreated(info=session()), leases=[token])
            proxy.cut_after(0)
        assert await store.find_holder(SESSION) is None
    assert proxy.cuts == 2


async def test_a_repeated_change_that_somebody_overwrote_is_reported(
    proxy: PostgresProxy, url: str, store: PostgresStore
) -> None:
    await store.apply(SessionCreated(info=session()))
    clock = HandClock()
    async with open_postgres_store(proxy.url, clock=clock) as cut:
        await cut.edit(SESSION, touch)
        proxy.cut_after(1)
        editing = asyncio.create_task(cut.edit(SESSION, touch))
        await proxy.cut.wait()
        await store.edit(SESSION, touch)
        while not editing.done():
            clock.turn(100)
            await asyncio.sleep(0)
        with pytest.raises(StoreError, match="somebody else changed the same document meanwhile"):
            await editing


async def test_a_server_restart_loses_nothing_acknowledged(url: str) -> None:
    acknowledged: list[str] = []
    wrote, is_back = asyncio.Semaphore(0), asyncio.Event()

    async def write(number: int) -> None:
        async with open_store(f"{url}&retry=60") as store:
            for count in range(10_000):
                id = f"ses_{number}_{count}"
                await store.apply(SessionCreated(info=session(id)))
                acknowledged.append(id)
                wrote.release()
                if is_back.is_set():
                    return

    async def restart() -> None:
        for _ in range(2):
            for _ in range(20):
                await wrote.acquire()
            await asyncio.to_thread(get_server().stop)
            await asyncio.to_thread(get_server().start)
        is_back.set()

    await asyncio.gather(restart(), *(write(number) for number in range(3)))
    async with open_store(url) as store:
        found = {each.id for each in await store.list_sessions()}
    assert [id for id in acknowledged if id not in found] == []


async def test_a_server_that_stays_unreachable_is_an_error_with_a_hint(url: str) -> None:
    async with open_postgres_proxy(url) as proxy, AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(f"{proxy.url}&retry=0.2"))
        await store.apply(SessionCreated(info=session()))
        proxy.refuses = True
        await proxy.cut_all()
        for attempt in (store.apply(SessionUpdated(info=session(title="lost"))), store.get_session(SESSION)):
            with pytest.raises(StoreError, match=r"connection to|no Postgres server") as lost:
                await attempt
            assert "server runs" in lost.value.hint
        proxy.refuses = False
        assert await store.get_session(SESSION) == session()


async def test_only_the_first_statement_waits_for_a_server_that_stays_unreachable(url: str) -> None:
    async with open_postgres_proxy(url) as proxy, AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(f"{proxy.url}&retry=1.5"))
        await store.apply(SessionCreated(info=session()))
        proxy.refuses = True
        await proxy.cut_all()
        refused: list[int] = []
        for _ in range(3):
            before = proxy.refused
            with pytest.raises(StoreError):
                await store.get_session(SESSION)
            refused.append(proxy.refused - before)
        first, *others = refused
        assert all(2 <= each < first for each in others), refused
        proxy.refuses = False
        assert await store.get_session(SESSION) == session()
        proxy.refuses = True
        await proxy.cut_all()
        before = proxy.refused
        with pytest.raises(StoreError):
            await store.get_session(SESSION)
        assert proxy.refused - before > max(others), "after a success the next one waits again"


# --- servers that refuse ---


def full_text_of(error: BaseException | None) -> str:
    """Return all words of an error and of what caused it."""
    said = ""
    while error is not None:
        said += f"{error} {error!r} {getattr(error, 'hint', '')} {error.__notes__ if hasattr(error, '__notes__') else ''}"
        error = error.__cause__ or error.__context__
    return said


@pytest.fixture
def locked_url() -> str:
    """Return the beginning of the URL of a user with a password."""
    server = get_server()
    if not server.query("SELECT 1 FROM pg_roles WHERE rolname = 'locked'"):
        server.query(f"CREATE ROLE locked LOGIN PASSWORD '{SECRET}'")
    return "postgres://locked:{}@127.0.0.1:" + str(server.port)


@pytest.mark.parametrize(
    ("form", "said", "way_out"),
    [
        ("postgres://locked:wrong-{}@HOST/postgres", "password authentication failed", "PGPASSWORD"),
        ("postgres://weft:{}@HOST/nowhere", "does not exist", "createdb"),
        ("postgres://weft:{}@127.0.0.1:1/postgres", "no Postgres server answers at postgres://127.0.0.1:1/postgres", "server runs"),
        ("postgres://locked:{}@HOST/postgres", "permission denied", "GRANT CREATE"),
        ("postgres://weft:{}@HOST:nonsense/postgres", "is not the URL of a Postgres database", "%40"),
        ("postgres://weft:s3cr3t/w@rd@HOST/postgres", "is not the URL of a Postgres database", "%2F"),
        ("postgres://weft:{}@HOST/postgres?sslmode=nonsense", "sslmode", "postgres://"),
        ("postgres://weft:{}@HOST/postgres?schema=Dröhn", "schema", "small letters"),
        ("postgres://weft:{}@HOST/postgres?lease=never", "lease: 'never'", ""),
        ("postgres://weft:{}@HOST/postgres?pool=0", "pool: '0'", ""),
        ("postgres://weft:{}@HOST/postgres?shema=typo", "shema", ""),
        ("postgre://weft:{}@HOST/postgres", "is not the URL of a store", "postgres://"),
        ("postgre:weft:{}@HOST", "is not the URL of a store", "postgres://"),
    ],
)  # fmt: skip
async def test_an_invalid_address_is_reported_without_the_password(
    locked_url: str, form: str, said: str, way_out: str
) -> None:
    url = form.format(SECRET_IN_URL).replace("HOST", f"127.0.0.1:{get_server().port}")
    with pytest.raises(WeftError) as refused:
        async with open_store(url):
            pass
    words = full_text_of(refused.value)
    assert said in str(refused.value)
    assert way_out in refused.value.hint
    assert "s3cr3t" not in words
    assert "w@rd" not in words
    assert "w%40rd" not in words


async def test_the_right_password_opens_the_store(locked_url: str, url: str) -> None:
    schema = url.partition("schema=")[2]
    get_server().query(f"CREATE SCHEMA {schema} AUTHORIZATION locked")
    async with open_store(f"{locked_url.format(SECRET_IN_URL)}/postgres?schema={schema}") as store:
        assert await store.list_sessions() == []


# --- documents ---


async def test_an_unreadable_document_is_reported_once_and_skipped(url: str) -> None:
    told: list[Damage] = []
    async with open_postgres_store(url, damaged=told.append) as store:
        await store.apply(
            SessionCreated(info=session()),
            SessionCreated(info=session("ses_2", created=NOW + 1)),
            MessageUpdated(info=prompt()),
            PartUpdated(part=text("prt_1", "a")),
            PartUpdated(part=text("prt_2", "b")),
        )
        await store.database.fetch("UPDATE {schema}.session SET document = 'no JSON' WHERE id = 'ses_2'")
        await store.database.fetch("UPDATE {schema}.part SET document = '{}' WHERE id = 'prt_2'")
        for _ in range(2):
            assert await store.list_sessions() == [session()]
            assert await store.list_messages(SESSION) == [with_parts(prompt(), text("prt_1", "a"))]
        places = ["part/ses_1/msg_1/prt_2", "session/ses_2"]
        assert [each.where for each in await store.damage()] == places
        await asyncio.sleep(0)
        assert sorted(each.where for each in told) == places
        with pytest.raises(NotFoundError, match="ses_2") as unreadable:
            await store.get_session(SessionID("ses_2"))
        assert "cannot be read" in unreadable.value.hint


async def test_a_bundle_of_the_same_name_is_not_replaced(store: PostgresStore) -> None:
    await store.apply(SessionCreated(info=session(title="first")))
    first = await store.discard([SESSION], at=NOW)
    await store.apply(SessionCreated(info=session(title="second")))
    with pytest.raises(ConflictError, match="exists already"):
        await store.discard([SESSION], at=NOW)
    assert await store.list_trash() == [first]
    assert await store.list_sessions() == [session(title="second")]


async def test_numbers_and_ids_that_no_column_can_hold_are_kept_in_documents(store: PostgresStore) -> None:
    far = replace(session(created=2**70), parent_id=SessionID("ses_\x00\ud83d"))
    await store.apply(SessionCreated(info=far), MessageUpdated(info=prompt(created=2**70)))
    assert await store.list_sessions() == [far]
    assert await store.list_messages(SESSION) == [with_parts(prompt(created=2**70))]
    with pytest.raises(NotFoundError):
        await store.get_session(SessionID("ses_\x00"))


# --- reading without an event loop ---


PAGE_QUERY = SessionQuery(project_id=ProjectID("p1"), order="updated", limit=5)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (PAGE_QUERY, "session_project_updated"),
        (replace(PAGE_QUERY, order="created"), "session_project_created"),
        (replace(PAGE_QUERY, project_id=None), "session_updated"),
        (replace(PAGE_QUERY, project_id=None, order="created"), "session_created"),
        (replace(PAGE_QUERY, start=1, end=2), "session_project_updated"),
        (replace(PAGE_QUERY, search="loom"), "session_project_updated"),
        (SessionQuery(parent_id=SESSION), "session_parent"),
    ],
)
async def test_a_page_of_sessions_is_read_in_the_order_of_an_index(
    store: PostgresStore, query: SessionQuery, index: str
) -> None:
    # Postgres reads a small table whole whatever its indexes are.
    many = [
        SessionCreated(info=session(f"ses_{number:05}", project=f"p{number % 20}", created=number))
        for number in range(3000)
    ]
    await store.apply(*many)
    await store.database.fetch("ANALYZE {schema}.session")
    built = build_session_query(query, DIALECT)
    plan = await store.database.fetch(
        f"EXPLAIN SELECT id, document FROM {{schema}}.session {built.sql}", *built.values
    )
    assert any(f"using {index} on session" in row[0] for row in plan), plan


async def test_a_reader_works_in_a_thread_whose_event_loop_runs(url: str, store: PostgresStore) -> None:
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    reader = open_reader(url)
    assert reader.find_session(SESSION) == session()
    assert reader.list_messages(SESSION) == [with_parts(prompt())]
    assert reader.address == url.partition("?")[0].replace("weft@", "") + "?" + url.partition("?")[2]
    async with store.lease(SESSION, "us"):
        assert reader.list_running() == {SESSION}
    [stamp] = reader.list_stamps().values()
    assert reader.find_sure_stamp(session().project_id, SESSION) == stamp
    await store.edit(SESSION, touch)
    assert reader.list_stamps() != {(session().project_id, SESSION): stamp}


def test_a_process_that_only_reads_ends_without_warnings(url: str) -> None:
    script = f"from weft.store.reader import open_reader; print(open_reader({url!r}).list_projects())"
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("[]\n", "", 0)


# --- transcripts ---


async def test_messages_that_did_not_change_are_not_fetched_again_and_those_of_another_node_are_seen(
    store: PostgresStore, url: str
) -> None:
    first, second, third = (prompt(f"msg_{number}", created=number) for number in (1, 2, 3))
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=first), MessageUpdated(info=second))
    await store.apply(MessageUpdated(info=third), PartUpdated(part=text("prt_1", "a", of=second.id)))
    before = await store.list_messages(SESSION)
    async with open_postgres_store(url) as other:
        await other.list_messages(SESSION)
        await other.apply(PartUpdated(part=text("prt_1", "b", of=second.id)))
        await other.apply(growth("prt_1", "c", 1, of=second.id))
        after = await store.list_messages(SESSION)
        await other.apply(growth("prt_1", "d", 2, of=second.id))
        later = await store.list_messages(SESSION)
        await other.apply(
            PartUpdated(part=text("prt_1", "e", of=second.id)),
            MessageRemoved(session_id=SESSION, message_id=third.id),
        )
        last = await store.list_messages(SESSION)
        assert last == await other.list_messages(SESSION)
        await other.apply(growth("prt_1", "f", 1, of=second.id))  # which the chain does not record
        grown = await store.list_messages(SESSION)
    assert [each[0] is before[0] for each in (after, later, last, grown)] == [True] * 4
    assert [each[1].parts for each in (before, after, later, last, grown)] == [
        (text("prt_1", said, of=second.id),) for said in ("a", "bc", "bcd", "e", "ef")
    ]
    assert [len(each) for each in (before, after, later, last, grown)] == [3, 3, 3, 2, 2]


async def test_a_session_that_was_deleted_and_created_again_is_fetched_again(
    store: PostgresStore, url: str
) -> None:
    message = prompt("msg_1")
    async with open_postgres_store(url) as other:
        for words_said in ("a", "b"):
            await other.apply(SessionCreated(info=session()), MessageUpdated(info=message))
            await other.apply(PartUpdated(part=text("prt_1", words_said, of=message.id)))
            # The chain of the second session has as many entries as that of the first.
            [found] = await store.list_messages(SESSION)
            assert found.parts == (text("prt_1", words_said, of=message.id),)
            await other.apply(SessionDeleted(info=session()))
    assert await store.list_messages(SESSION) == []


async def test_a_session_whose_chain_is_damaged_is_fetched_again(store: PostgresStore) -> None:
    message = prompt("msg_1")
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=message))
    await store.list_messages(SESSION)
    await store.apply(PartUpdated(part=text("prt_1", "a", of=message.id)))
    await store.database.send("UPDATE {schema}.chain SET body = 'no json'::bytea WHERE number = 2")
    [found] = await store.list_messages(SESSION)
    assert found.parts == (text("prt_1", "a", of=message.id),)


async def test_a_read_during_writes_never_sees_half_a_write(store: PostgresStore, url: str) -> None:
    """Each message is written with its part, so that a read between both writes would be noticed."""
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt("msg_0", created=0)))
    async with open_postgres_store(url) as other:

        async def write() -> None:
            for number in range(1, 30):
                message = prompt(f"msg_{number}", created=number)
                await other.apply(
                    MessageUpdated(info=message),
                    PartUpdated(part=text(f"prt_{number}", "whole", of=message.id)),
                    PartUpdated(part=text("prt_0", f"{number}", of="msg_0")),
                )

        writing = asyncio.ensure_future(write())
        while not writing.done():
            messages = await store.list_messages(SESSION)
            assert all(len(message.parts) == 1 for message in messages[1:])
            told = [part.text for part in messages[0].parts if isinstance(part, TextPart)]
            assert told == ([str(len(messages) - 1)] if len(messages) > 1 else [])
        await writing


async def test_a_damaged_message_is_reported_by_each_read(url: str) -> None:
    found: list[Damage] = []
    async with open_postgres_store(url, damaged=found.append) as store:
        await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
        await store.database.send("UPDATE {schema}.message SET document = 'no json'::bytea")
        assert await store.list_messages(SESSION) == []
        assert await store.list_messages(SESSION) == []
        await store.apply(MessageUpdated(info=prompt()))
        assert [each.info for each in await store.list_messages(SESSION)] == [prompt()]
    assert [damage.where for damage in found] == [f"message/{SESSION}/{PROMPT}"]
