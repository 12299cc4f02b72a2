"""Row-level security in Postgres: what a statement sees that skips our own queries."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

from given.postgres import make_url
from weft.errors import ConflictError, StoreError
from weft.host.clock import SystemClock
from weft.local.open import OpenOptions, open_directory
from weft.model.event import MessageUpdated, PartUpdated, SessionCreated
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.principal import Caller, Principal
from weft.model.session import with_owner
from weft.store.cluster import NewDelivery
from weft.store.event_log import LogBatch, LogEntry
from weft.store.ownership import OwnedStore
from weft.store.postgres.address import parse_address
from weft.store.postgres.connection import Database, open_database
from weft.store.postgres.migration import bind_owner
from weft.store.url import open_store
from weft.testing.store_samples import PROMPT, prompt, session, text

TABLES = (
    "session", "message", "part", "detail", "growth", "entry", "call", "dirty", "lease", "value", "log", "log_line",
    "event", "delivery", "idempotency", "principal_log", "bundle", "trashed_session", "trashed_message", "trashed_part", "trashed_growth", "trashed_detail", "session_owner",
)  # fmt: skip
ROLE = "weft_principal"
IS_SLEEPING = (
    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(2)')"
)
COUNT_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counted'"
CLOSED = ("project", "backup", "weft_store", "event_log")


async def _fill(url: str, owner: str) -> None:
    async with open_store(url, principal=owner or None) as opened:
        store = OwnedStore(opened, owner) if owner else opened
        for name in ("kept", "binned"):
            id = SessionID(f"ses_{owner}{name}")
            await store.apply(
                SessionCreated(info=session(id=id, title=f"of {owner}")),
                MessageUpdated(info=prompt(of=id)),
                PartUpdated(part=text("prt_1", "words", of=PROMPT, session=id)),
            )
        await store.discard([SessionID(f"ses_{owner}binned")], at=1)
        await store.put_value(("secret",), owner)
        await store.append_log(("decisions",), lambda _: [owner.encode()])
        await store.update_index({SessionID(f"ses_{owner}kept"): [PROMPT]})
        await store.search("words", limit=1)
        async with store.lease(SessionID(f"ses_{owner}kept"), owner):
            pass
        log = store.event_log
        assert log is not None
        kept = SessionID(f"ses_{owner}kept")
        await log.apply(log=LogBatch("/work", [LogEntry(kept, b"{}"), LogEntry(None, owner.encode())]))
        await log.inbox.put(NewDelivery(f"{kept}/prompt/1", kept, "/work", "prompt", True, b"{}"))
        await log.inbox.claim_key(kept, "key", PROMPT)
        await opened.place()  # type: ignore[attr-defined]  of the store in Postgres


class BoundConnection:
    """A connection that is bound to an owner, and to nothing else of ours."""

    def __init__(self, connection: Any, schema: str) -> None:
        self._connection = connection
        self.schema = schema

    async def fetch(self, sql: str, *values: Any) -> list[Any]:
        rows: list[Any] = await self._connection.fetch(sql.replace("{schema}", self.schema), *values)
        return rows


@asynccontextmanager
async def _connect(url: str, owner: str | None) -> AsyncIterator[BoundConnection]:
    address = parse_address(url)
    connection = await asyncpg.connect(address.dsn, statement_cache_size=0)
    try:
        async with connection.transaction():
            if owner is not None:
                await connection.execute("SET LOCAL ROLE weft_principal")
                await connection.execute("SELECT set_config('weft.owner', $1, true)", owner)
            yield BoundConnection(connection, address.schema)
    finally:
        await connection.close()


@pytest.fixture(params=[False, True], ids=["postgres", "pgbouncer"])
async def url(request: pytest.FixtureRequest) -> str:
    made = make_url(pgbouncer=request.param)
    for owner in ("", "ada", "ben"):
        await _fill(made, owner)
    return made


async def test_a_statement_sees_the_rows_of_its_owner_only(url: str) -> None:
    for owner, other in (("ada", "ben"), ("ben", "ada")):
        async with _connect(url, owner) as bound:
            seen = {
                table: await bound.fetch(f"SELECT {table}::text FROM {{schema}}.{table}") for table in TABLES
            }
        kept = {table: len(rows) for table, rows in seen.items()}
        assert [
            table
            for table in (
                "session",
                "message",
                "part",
                "value",
                "log",
                "log_line",
                "bundle",
                "delivery",
                "idempotency",
                "principal_log",
            )
            if kept[table] != 1
        ] == []
        assert (kept["trashed_session"], kept["trashed_message"], kept["session_owner"]) == (1, 1, 2)
        assert kept["event"] == 3  # two for a directory, and one that notifies nodes of the delivery
        assert not any(f"ses_{other}" in row[0] for rows in seen.values() for row in rows)


async def test_a_principal_cannot_read_tables_without_an_owner(url: str) -> None:
    for table in CLOSED:
        async with _connect(url, "ada") as bound:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await bound.fetch(f"SELECT FROM {{schema}}.{table}")


async def test_without_an_owner_the_role_sees_nothing(url: str) -> None:
    for owner in ("", "nobody", "ada'; --"):
        async with _connect(url, owner) as bound:
            for table in TABLES:
                assert await bound.fetch(f"SELECT FROM {{schema}}.{table}") == [], table


async def test_rows_of_others_are_neither_changed_nor_taken_over(url: str) -> None:
    async with _connect(url, "ada") as bound:
        for statement in (
            "UPDATE {schema}.session SET title = '' RETURNING id",
            "UPDATE {schema}.message SET document = '' RETURNING session",
            "DELETE FROM {schema}.part RETURNING session",
            "UPDATE {schema}.value SET document = '' RETURNING key[2]",
        ):
            assert {
                row[0].replace("ses_", "").replace("kept", "") for row in await bound.fetch(statement)
            } == {"ada"}
    for statement in (
        "INSERT INTO {schema}.message (session, id, created, number, document) VALUES ('ses_benkept', 'msg_x', 0, 0, '')",
        "INSERT INTO {schema}.value (key, document, revision) VALUES ('{principal,ben,secret2}', '', 1)",
        "INSERT INTO {schema}.value (key, document, revision) VALUES ('{token,list}', '', 1)",
        "UPDATE {schema}.message SET session = 'ses_benkept'",
        "INSERT INTO {schema}.event (batch, number, writer, directory, body, owner) VALUES (1, 1, '', '', '', 'ben')",
        "INSERT INTO {schema}.delivery (key, session, directory, kind, repeatable, body) VALUES ('x', 'ses_benkept', '', '', true, '')",
        "INSERT INTO {schema}.node SELECT * FROM {schema}.node",
        "INSERT INTO {schema}.session_owner VALUES ('ses_new', 'ada')",
        "UPDATE {schema}.session_owner SET owner = 'ada'",
        *(
            "INSERT INTO {schema}.session (id, project, directory, title, tags, archived, pinned, created, updated,"
            f" document, revision) VALUES ('{id}', '', '', '', '', false, false, 0, 0, '', 1)"
            for id in (
                "ses_benbinned",
                "ses_binned",
            )  # in the trash of somebody else, and of the administrator
        ),
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with _connect(url, "ada") as bound:
                await bound.fetch(statement)


async def test_the_administrator_sees_everything_without_a_role(url: str) -> None:
    async with _connect(url, None) as free:
        assert len(await free.fetch("SELECT FROM {schema}.session")) == 3
        plan = await free.fetch("EXPLAIN SELECT FROM {schema}.message WHERE session = 'ses_kept'")
        assert not any("session_owner" in row[0] for row in plan)


async def _tell_who(database: Database) -> tuple[str, str]:
    """Return as whom a statement runs, and whose rows it sees."""
    ((user, owner),) = await database.fetch(
        "SELECT current_user::text, coalesce(current_setting('weft.owner', true), '')"
    )
    return user, owner


async def test_a_connection_is_returned_to_the_pool_unbound(url: str) -> None:
    address, clock = parse_address(f"{url}&pool=1"), SystemClock()
    async with open_database(address, clock) as database:
        free = await _tell_who(database)
        ada, ben = await bind_owner(database, "ada"), await bind_owner(database, "ben")
        assert [await _tell_who(each) for each in (ada, ben, database)] == [
            (ROLE, "ada"),
            (ROLE, "ben"),
            free,
        ]
        with pytest.raises(ConflictError):
            await ada.fetch("SELECT FROM {schema}.project")
        assert [await _tell_who(each) for each in (database, ben)] == [free, (ROLE, "ben")]
    assert (free[0] != ROLE, free[1]) == (True, "")


async def test_a_statement_that_is_cancelled_leaves_no_connection_bound(url: str) -> None:
    address, clock = parse_address(f"{url}&pool=1"), SystemClock()
    async with AsyncExitStack() as stack:
        watcher = await asyncpg.connect(address.dsn, statement_cache_size=0)
        stack.push_async_callback(watcher.close)
        database = await stack.enter_async_context(open_database(address, clock))
        free, ada, ben = (
            await _tell_who(database),
            await bind_owner(database, "ada"),
            await bind_owner(database, "ben"),
        )
        for steps in (1, 2, 3, 5, 8, None):
            task = asyncio.create_task(ada.fetch("SELECT pg_sleep(2)"))
            for _ in range(steps or 0):
                await asyncio.sleep(0)
            while steps is None and not await watcher.fetchval(IS_SLEEPING):
                pass
            task.cancel()
            await asyncio.wait([task])
            assert [await _tell_who(each) for each in (database, ben)] == [free, (ROLE, "ben")]


async def test_principals_use_the_connections_of_the_store_that_is_open(tmp_path: Path) -> None:
    url = f"{make_url()}&pool=3&application_name=counted"
    names = [f"person-{number}" for number in range(6)]
    async with AsyncExitStack() as stack:
        whole = await stack.enter_async_context(open_store(url))
        apis = []
        for name in names:
            directory = tmp_path / name
            directory.mkdir()
            caller = Caller(scope="run", principal=Principal(name=name, directories=(str(directory),)))
            options = OpenOptions(directory=str(directory), store=url, caller=caller, opened_store=whole)
            apis.append(await stack.enter_async_context(open_directory(options)))
        created = [
            api.create_session(SessionInput(title=name)) for api, name in zip(apis, names, strict=True)
        ]
        await asyncio.gather(*created)
        seen = await asyncio.gather(*(api.list_sessions() for api in apis for _ in range(5)))
        watcher = await asyncpg.connect(parse_address(url.replace("counted", "watcher")).dsn)
        stack.push_async_callback(watcher.close)
        connections = await watcher.fetchval(COUNT_CONNECTIONS)
    assert [[each.title for each in page] for page in seen] == [[name] for name in names for _ in range(5)]
    assert connections <= 3


async def test_ownership_is_kept_in_copies_by_an_administrator() -> None:
    made = make_url()
    async with open_store(made) as store:
        await store.apply(SessionCreated(info=with_owner(session(id=SessionID("ses_1")), "ada")))
    async with open_store(made, principal="ada") as bound:
        assert [each.id for each in await bound.list_sessions()] == ["ses_1"]
    async with open_store(made, principal="ben") as bound:
        assert await bound.list_sessions() == []


async def test_a_user_that_may_not_create_roles_gets_instructions() -> None:
    made = make_url()
    async with open_store(made):
        pass
    address = parse_address(made)
    connection = await asyncpg.connect(address.dsn)
    await connection.execute("DROP ROLE IF EXISTS plain_user; CREATE ROLE plain_user LOGIN")
    try:
        await connection.execute(f"GRANT ALL ON SCHEMA {address.schema} TO plain_user")
        await connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {address.schema} TO plain_user")
        with pytest.raises(StoreError) as refused:
            async with open_store(made.replace("//weft@", "//plain_user@"), principal="ada"):
                pass
        assert "principals cannot be kept apart" in str(refused.value)
        assert "weft_principal" in refused.value.hint
    finally:
        await connection.execute("DROP OWNED BY plain_user; DROP ROLE plain_user")
        await connection.close()
