"""What each kind of store costs, side by side in one run: CPU of the whole process and wall time, in milliseconds.

    python bench/stores.py [--only file sqlite bare] [--postgres URL] [--sessions 10000] [--turns 200] [--clients 32]

Each cell is the median, and the best round in brackets: on a busy machine the best is nearer to the truth. CPU of a Postgres
server is not counted. `--postgres` names a scratch database; a schema is created in it, and stays. `bare` is plain `sqlite3` with three tables and no promises: what the machine can do. To measure another store, add a row to
`STORES`. A turn is a prompt and an answer with ten parts in all, about 8 KB, written in one durable step. The stores take
turns, so that a busy moment of the machine hits all of them.
"""

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from weft.host.machine import collect_more_often
from weft.model.event import Durable, MessageUpdated, PartUpdated, SessionCreated, SessionUpdated
from weft.model.ids import Mint, ProjectID, SessionID
from weft.model.message import AnyMessage, AssistantMessage, AssistantTime, UserMessage
from weft.model.part import (
    AnyPart,
    CallTime,
    CompletedState,
    ModelRef,
    Moment,
    ReasoningPart,
    Span,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.model.session import SessionInfo, SessionTime
from weft.model.session_query import SessionQuery
from weft.model.wire import encode
from weft.store.url import open_store

STORES = {
    "file": lambda place: f"file:{place}/storage",
    "sqlite": lambda place: f"sqlite:{place}/sessions.db",
}
BARE = "bare"
PROJECT = ProjectID("p1")
REF = ModelRef(provider_id="scripted", model_id="demo")
LONG_HISTORIES = (1000, 5000)
BATCH = 2000
BARE_SCHEMA = """PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
CREATE TABLE session (id TEXT PRIMARY KEY, title TEXT, updated INTEGER, data BLOB) WITHOUT ROWID;
CREATE INDEX session_updated ON session (updated DESC);
CREATE TABLE part (session TEXT, seq INTEGER, data BLOB, PRIMARY KEY (session, seq)) WITHOUT ROWID;"""


class Spent(NamedTuple):
    cpu: float
    wall: float


class Writer:
    """Makes sessions and messages with ids and times as if they had been lived."""

    def __init__(self) -> None:
        self.now = 1_780_000_000_000
        self.mint = Mint(lambda: self.now, os.urandom)

    def session(self, number: int) -> SessionInfo:
        self.now += 60_000
        return SessionInfo(
            id=self.mint.session(),
            slug="quiet-otter",
            version="1.1.34",
            project_id=PROJECT,
            directory="/srv/loom",
            title=f"Session number {number}: mend the loom",
            time=SessionTime(created=self.now, updated=self.now),
        )

    def prompt(self, session: SessionID) -> UserMessage:
        self.now += 1_000
        return UserMessage(
            id=self.mint.message(),
            session_id=session,
            time=Moment(created=self.now),
            agent="build",
            model=REF,
        )

    def answer(self, session: SessionID, asked: UserMessage) -> AssistantMessage:
        self.now += 1_000
        return AssistantMessage(
            id=self.mint.message(),
            session_id=session,
            time=AssistantTime(created=self.now, completed=self.now + 500),
            parent_id=asked.id,
            model_id=REF.model_id,
            provider_id=REF.provider_id,
            agent="build",
            mode="build",
            finish="stop",
            tokens=Tokens(input=1_000, output=20),
        )

    def text(self, message: AnyMessage, text: str) -> TextPart:
        return TextPart(id=self.mint.part(), session_id=message.session_id, message_id=message.id, text=text)

    def turn(self, session: SessionInfo, number: int) -> list[Durable]:
        asked = self.prompt(session.id)
        answer = self.answer(session.id, asked)
        here: Any = {"session_id": session.id, "message_id": answer.id}
        parts: list[AnyPart] = [self.text(asked, words(300, number))]
        parts.append(
            ReasoningPart(id=self.mint.part(), **here, text=words(800, number), time=Span(start=self.now))
        )
        for call in range(3):
            state = CompletedState(
                input={"filePath": words(120, call)},
                output=words(2000, number + call),
                title="loom.txt",
                metadata={},
                time=CallTime(start=self.now, end=self.now + 1),
            )
            parts.append(self.text(answer, words(100, number + call)))
            parts.append(
                ToolPart(id=self.mint.part(), **here, call_id=f"call_{call}", tool="read", state=state)
            )
        parts += [self.text(answer, words(400, number)), self.text(answer, words(300, number + 1))]
        touched = replace(session, time=replace(session.time, updated=self.now))
        return [
            SessionUpdated(info=touched),
            MessageUpdated(info=asked),
            MessageUpdated(info=answer),
            *(PartUpdated(part=part) for part in parts),
        ]

    def history(self, session: SessionID, messages: int) -> list[Durable]:
        """Return a conversation with that many `messages` of one part each."""
        events: list[Durable] = []
        for number in range(messages // 2):
            asked = self.prompt(session)
            answer = self.answer(session, asked)
            events += [
                MessageUpdated(info=asked),
                PartUpdated(
                    part=self.text(asked, f"Prompt {number}: what does the shuttle do? {number * 7919}")
                ),
                MessageUpdated(info=answer),
                PartUpdated(
                    part=self.text(answer, f"It carries the weft through the warp. {words(200, number)}")
                ),
            ]
        return events


def words(size: int, seed: int) -> str:
    vocabulary = ("loom", "durable", "append", "history", "branch", "token", "model", "stream")
    return " ".join(f"{vocabulary[(seed + n) % 8]}{(seed * 31 + n) % 97}" for n in range(size // 7))[:size]


class Bare:
    """The floor: rows without promises."""

    def __init__(self, place: str) -> None:
        self._db = sqlite3.connect(f"{place}/bare.db", isolation_level=None)
        self._db.executescript(BARE_SCHEMA)

    async def apply(self, *events: Durable) -> None:
        db, sequence = self._db, time.monotonic_ns()
        parts = [
            (event.part.session_id, sequence + number, json_of(event.part))
            for number, event in enumerate(events)
            if isinstance(event, PartUpdated)
        ]
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO part VALUES (?, ?, ?)", parts)
        for event in events:
            if isinstance(event, SessionCreated | SessionUpdated):
                info = event.info
                db.execute(
                    "INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?)",
                    (info.id, info.title, info.time.updated, json_of(info)),
                )
        db.execute("COMMIT")

    async def list_messages(self, session: SessionID) -> list[Any]:
        rows = self._db.execute("SELECT data FROM part WHERE session = ? ORDER BY seq", (session,))
        return [json.loads(data) for (data,) in rows]

    async def list_sessions(self, _project: ProjectID) -> list[Any]:
        return [json.loads(data) for (data,) in self._db.execute("SELECT data FROM session")]

    async def query_sessions(self, query: SessionQuery) -> list[Any]:
        sql = "SELECT data FROM session WHERE title LIKE ? ORDER BY updated DESC LIMIT ?"
        values = (f"%{query.search or ''}%", -1 if query.limit is None else query.limit)
        return [json.loads(data) for (data,) in self._db.execute(sql, values)]


def json_of(value: Any) -> bytes:
    return encode(value)


async def measure(work: Callable[[], Awaitable[object]]) -> Spent:
    cpu, wall = time.process_time(), time.perf_counter()
    await work()
    return Spent(1000 * (time.process_time() - cpu), 1000 * (time.perf_counter() - wall))


def show(label: str, found: dict[str, list[Spent]]) -> None:
    cells = [
        f"{name} {describe([each.cpu for each in spent])} CPU {describe([each.wall for each in spent])} wall"
        for name, spent in found.items()
    ]
    print(f"{label:<34} {'   '.join(cells)}", flush=True)


def describe(spent: list[float]) -> str:
    return f"{statistics.median(spent):8.2f} ({min(spent):.2f})"


async def compare(
    label: str, stores: dict[str, Any], work: Callable[[Any], Awaitable[object]], rounds: int = 9
) -> None:
    found: dict[str, list[Spent]] = {name: [] for name in stores}
    for _ in range(rounds):
        for name, store in stores.items():
            found[name].append(await measure(lambda store=store: work(store)))
    show(label, found)


async def measure_turns(stores: dict[str, Any], turns: int) -> None:
    writer = Writer()
    session = writer.session(0)
    for store in stores.values():
        await store.apply(SessionCreated(info=session))
    numbered = iter(range(turns * len(stores) + 1))

    async def append(store: Any) -> None:
        await store.apply(*events[0])

    found: dict[str, list[Spent]] = {name: [] for name in stores}
    for _ in range(turns):
        events = [writer.turn(session, next(numbered))]
        for name, store in stores.items():
            found[name].append(await measure(lambda store=store: append(store)))
    show("append a turn of 10 parts", found)


async def measure_histories(stores: dict[str, Any]) -> None:
    for messages in LONG_HISTORIES:
        loaded: dict[str, list[Spent]] = {name: [] for name in stores}
        forked: dict[str, list[Spent]] = {name: [] for name in stores}
        for _ in range(5):
            writer = Writer()
            session = writer.session(0)
            events = (SessionCreated(info=session), *writer.history(session.id, messages))
            for name, store in stores.items():
                forked[name].append(await measure(partial(store.apply, *events)))
            for name, store in stores.items():
                loaded[name].append(await measure(partial(store.list_messages, session.id)))
        show(f"fork of {messages:,} messages, stored", forked)
        show(f"load of {messages:,} messages", loaded)


async def measure_creation(stores: dict[str, Any], clients: int, each: int = 50, rounds: int = 5) -> None:
    """Create sessions at the store itself, without HTTP: each client waits for one to be on the disk before it creates the next.

    Sessions that wait at the same time may share a commit.
    """
    found: dict[str, list[Spent]] = {name: [] for name in stores}
    for _ in range(rounds):
        for name, store in stores.items():
            writer = Writer()

            async def create(store: Any = store, writer: Writer = writer) -> None:
                for number in range(each):
                    await store.apply(SessionCreated(info=writer.session(number)))

            async def create_all(create: Callable[[], Awaitable[None]] = create) -> None:
                await asyncio.gather(*(create() for _ in range(clients)))

            found[name].append(await measure(create_all))
    sessions = clients * each
    show(f"{sessions} sessions by {clients} clients", found)
    for name, spent in found.items():
        walls, cpu = [each.wall for each in spent], min(each.cpu for each in spent)
        print(
            f"    {name}: {1000 * sessions / statistics.median(walls):,.0f} sessions a second,"
            f" {1000 * sessions / min(walls):,.0f} in the best round; {1000 * sessions / cpu:,.0f} for a second of CPU"
        )


async def fill(stores: dict[str, Any], sessions: int, messages: int) -> None:
    writer, batch, found = Writer(), list[Durable](), {name: [Spent(0, 0)] for name in stores}
    for number in range(sessions):
        session = writer.session(number)
        batch += [SessionCreated(info=session), *writer.history(session.id, messages)]
        if len(batch) > BATCH or number == sessions - 1:
            for name, store in stores.items():
                events = batch
                spent = await measure(lambda store=store, events=events: store.apply(*events))
                found[name][0] = Spent(found[name][0].cpu + spent.cpu, found[name][0].wall + spent.wall)
            batch = []
    show(f"write {sessions:,} sessions of {messages}", found)


async def measure_lists(stores: dict[str, Any], sessions: int) -> None:
    page = SessionQuery(project_id=PROJECT, roots=True, archived=False, order="updated", limit=100)
    title = SessionQuery(project_id=PROJECT, search=f"number {sessions * 3 // 7}:", limit=100)
    await compare(f"list all {sessions:,} sessions", stores, lambda store: store.list_sessions(PROJECT), 5)
    await compare("page of 100, newest first", stores, lambda store: store.query_sessions(page))
    await compare(
        "page of 100 in all projects",
        stores,
        lambda store: store.query_sessions(replace(page, project_id=None)),
    )
    await compare("title search", stores, lambda store: store.query_sessions(title))


async def measure_search(stores: dict[str, Any]) -> None:
    await compare("first search, indexes all", stores, lambda store: store.search("shuttle", limit=20), 1)
    rare = str(7919)
    for label, text in (
        ("a rare word", rare),
        ("in every second message", "shuttle"),
        ("two words", "shuttle warp"),
    ):
        await compare(f"full text, {label}", stores, lambda store, text=text: store.search(text, limit=20))


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[*STORES, BARE])
    parser.add_argument("--postgres", metavar="URL")
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=4)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--clients", type=int, default=32)
    chosen = parser.parse_args()
    collect_more_often()  # as a server does; Python's own setting takes a third of a long list
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as place:
        async with AsyncExitStack() as stack:
            stores: dict[str, Any] = {}
            for name in chosen.only:
                if name in STORES:
                    stores[name] = await stack.enter_async_context(
                        open_store(STORES[name](place), cache=place)
                    )
            if chosen.postgres:
                separator = "&" if "?" in chosen.postgres else "?"
                url = f"{chosen.postgres}{separator}schema=bench_{os.urandom(4).hex()}"
                stores["postgres"] = await stack.enter_async_context(open_store(url))
            own = dict(stores)
            if BARE in chosen.only:
                stores[BARE] = Bare(place)
            await measure_turns(stores, chosen.turns)
            await measure_histories(stores)
            await measure_creation(own, chosen.clients)
            await fill(stores, chosen.sessions, chosen.messages)
            if chosen.postgres:  # the server does so by itself within a minute
                await stores["postgres"].database.fetch("ANALYZE {schema}.session")
            await measure_lists(stores, chosen.sessions)
            await measure_search({name: store for name, store in own.items() if hasattr(store, "search")})


if __name__ == "__main__":
    asyncio.run(main())
