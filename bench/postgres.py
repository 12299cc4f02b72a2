"""Measure a Postgres store: `python bench/postgres.py postgres://…?schema=NAME`. The schema is created, and stays."""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from decimal import Decimal

from weft.model.event import Durable, MessageUpdated, PartUpdated, SessionCreated
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.message import AssistantMessage, AssistantTime
from weft.model.part import AnyPart, CallTime, CompletedState, TextPart, ToolPart
from weft.model.session import SessionInfo, SessionTime
from weft.model.session_query import SessionQuery
from weft.store.postgres.store import PostgresStore
from weft.store.url import open_store

NOW = 1_790_000_000_000
PROJECT = ProjectID("bench")
SESSIONS = 10_000
TURNS = 500
TEXT = "The quick brown fox jumps over the lazy dog. " * 20


def make_session(number: int) -> SessionInfo:
    return SessionInfo(
        id=SessionID(f"ses_{number:06}"),
        project_id=PROJECT,
        directory="/work",
        title=f"Session number {number}",
        time=SessionTime(created=NOW + number, updated=NOW + number),
    )


def make_turn(session: str, number: int) -> list[Durable]:
    """Return an answer with ten parts."""
    message = MessageID(f"msg_{number:06}")
    info = AssistantMessage(
        id=message,
        session_id=SessionID(session),
        time=AssistantTime(created=NOW + number, completed=NOW + number),
        provider_id="p",
        model_id="m",
        cost=Decimal("0.01"),
    )
    return [
        MessageUpdated(info=info),
        *(PartUpdated(part=make_part(session, message, each)) for each in range(10)),
    ]


def make_part(session: str, message: MessageID, number: int) -> AnyPart:
    id = PartID(f"prt_{number:02}")
    if number % 2:
        return TextPart(id=id, session_id=SessionID(session), message_id=message, text=TEXT)
    state = CompletedState(
        input={"path": "a.py"}, output=TEXT, title="read", metadata={}, time=CallTime(start=1, end=2)
    )
    return ToolPart(
        id=id,
        session_id=SessionID(session),
        message_id=message,
        call_id=f"c{number}",
        tool="read",
        state=state,
    )


async def measure(name: str, work: Callable[[int], Awaitable[object]], times: int) -> None:
    taken = []
    for number in range(times):
        begin = time.perf_counter()
        await work(number)
        taken.append((time.perf_counter() - begin) * 1000)
    taken.sort()
    print(
        f"{name:<44} median {statistics.median(taken):7.2f} ms   p95 {taken[int(times * 0.95)]:7.2f} ms   best {taken[0]:7.2f} ms"
    )


async def main(url: str) -> None:
    async with open_store(url) as store:
        for start in range(0, SESSIONS, 500):
            await store.apply(
                *(SessionCreated(info=make_session(number)) for number in range(start, start + 500))
            )
        if isinstance(store, PostgresStore):  # the server does so by itself within a minute
            await store.database.fetch("ANALYZE {schema}.session")
        await measure(
            "append of a turn with 10 parts",
            lambda number: store.apply(*make_turn("ses_000001", number)),
            TURNS,
        )
        async with store.lease(SessionID("ses_000002"), "bench") as token:
            await measure(
                "the same under a lease",
                lambda number: store.apply(*make_turn("ses_000002", number), leases=[token]),
                TURNS,
            )
        page = SessionQuery(project_id=PROJECT, limit=100)
        await measure(f"page of 100 among {SESSIONS:,}", lambda _: store.query_sessions(page), 100)
        deep = SessionQuery(limit=100, after=f"{NOW + SESSIONS // 2}.ses_{SESSIONS // 2:06}")
        await measure("page of 100 in the middle, all projects", lambda _: store.query_sessions(deep), 100)
        named = SessionQuery(search="number 77", limit=100)
        await measure("title that contains words", lambda _: store.query_sessions(named), 50)
        await measure(f"list of {SESSIONS:,}", lambda _: store.list_sessions(), 5)
        await measure(
            f"load of {TURNS} messages with 10 parts",
            lambda _: store.list_messages(SessionID("ses_000001")),
            5,
        )
        await measure("last 20 messages", lambda _: store.list_messages(SessionID("ses_000001"), last=20), 50)
        await measure(
            "edit of a session", lambda _: store.edit(SessionID("ses_000001"), lambda known: known), 100
        )
        await measure(
            "create a session",
            lambda number: store.apply(SessionCreated(info=make_session(SESSIONS + number))),
            200,
        )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
