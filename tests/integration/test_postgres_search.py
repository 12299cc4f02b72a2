"""Search and figures of a Postgres store."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from msgspec.structs import replace

from given.postgres import make_url
from weft.model.event import (
    Durable,
    MessageRemoved,
    MessageUpdated,
    PartUpdated,
    SessionCreated,
    SessionUpdated,
)
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.message import AssistantTime
from weft.model.part import CacheTokens, CallTime, CompletedState, ErrorState, TextPart, Tokens, ToolPart
from weft.model.search import Hit
from weft.store.postgres.store import PostgresStore, open_postgres_store
from weft.store.reader import open_reader
from weft.store.statistics import StatisticsQuery
from weft.testing.store_samples import NOW, PROJECT, SESSION, answer, growth, prompt, session, text

OTHER = SessionID("ses_2")


@pytest.fixture
def url() -> str:
    return make_url()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    async with open_postgres_store(url) as opened:
        yield opened


def call(id: str, tool: str, output: str, *, of: str, session: str, failed: bool = False) -> PartUpdated:
    time = CallTime(start=1, end=2)
    state = (
        ErrorState(input={"path": "a.py"}, error=output, time=time)
        if failed
        else CompletedState(input={"path": "a.py"}, output=output, title="t", metadata={}, time=time)
    )
    part = ToolPart(
        id=PartID(id),
        session_id=SessionID(session),
        message_id=MessageID(of),
        call_id=id,
        tool=tool,
        state=state,
    )
    return PartUpdated(part=part)


def make_history() -> list[Durable]:
    """Return two sessions of two projects, with costs, tokens and calls, and messages that a fork copied."""
    tokens = Tokens(input=100, output=10, reasoning=1, cache=CacheTokens(read=50, write=5))
    events: list[Durable] = [
        SessionCreated(info=session(title="Weave a carpet")),
        SessionCreated(info=session(OTHER, project="p2", created=NOW + 10, title="Naïve dyeing")),
    ]
    for owner, number, cost, model in (
        (SESSION, 1, "0.1", "m"),
        (SESSION, 20, "0.000000000000000001", "n"),
        (OTHER, 5, "7", "m"),  # older than its session: copied by a fork
        (OTHER, 30, "0.2", "m"),
    ):
        made = replace(
            answer(f"msg_{number}", of=owner, created=NOW + number),
            time=AssistantTime(created=NOW + number, completed=NOW + number),
            provider_id="p",
            model_id=model,
            cost=Decimal(cost),
            tokens=tokens,
        )
        events += [
            MessageUpdated(info=made),
            PartUpdated(
                part=text(
                    f"prt_{number}", f"Loom number {number} of src/weft/loom.py", of=made.id, session=owner
                )
            ),
            call(
                f"prt_c{number}", "bash", "threads everywhere", of=made.id, session=owner, failed=number == 20
            ),
            call(f"prt_d{number}", "read", "warp_and_weft", of=made.id, session=owner),
        ]
    return events


def shorten(hits: list[Hit]) -> list[tuple[str, str | None]]:
    return [(hit.session_id, hit.message_id) for hit in hits]


def list_marked(hit: Hit) -> list[str]:
    return [hit.snippet[start:end] for start, end in hit.marks]


@pytest.mark.parametrize(
    ("words", "expected", "marks"),
    [
        ("carpet", [(SESSION, None)], ["carpet"]),
        ("CARP", [(SESSION, None)], ["carpet"]),
        ("weave carpet", [(SESSION, None)], ["Weave", "carpet"]),
        ("naive", [(OTHER, None)], ["Naïve"]),
        ('"number 30"', [(OTHER, "msg_30")], ["number 30"]),
        ('"number 3"', [], []),
        ("loom.py 30", [(OTHER, "msg_30")], ["30", "loom.py"]),
        ("loom 30 absent", [], []),
        ("warp_and", [(OTHER, "msg_30"), (SESSION, "msg_20")], ["warp_and"]),
        ("'; DROP TABLE x; --", [], []),
        ("& | ! <-> :*", [], []),
        ("", [], []),
    ],
)
async def test_words_phrases_and_prefixes_are_found_and_marked(
    store: PostgresStore, words: str, expected: list[tuple[str, str | None]], marks: list[str]
) -> None:
    await store.apply(*make_history())
    hits = await store.search(words, limit=10)
    assert sorted(shorten(hits), key=str) == sorted(expected, key=str)
    if hits:
        assert list_marked(hits[0]) == marks
        assert (hits[0].title, hits[0].at > 0) == (
            "Weave a carpet" if hits[0].session_id == SESSION else "Naïve dyeing",
            True,
        )


async def test_a_search_is_limited_and_may_be_of_one_project(store: PostgresStore) -> None:
    await store.apply(*make_history())
    assert shorten(await store.search("loom", limit=1, project=ProjectID("p2"))) == [(OTHER, "msg_30")]
    assert len(await store.search("loom", limit=10)) == 2
    assert len(await store.search("loom", limit=1)) == 1
    assert await store.search("loom", limit=0) == []
    assert await store.search("loom", limit=9, project=ProjectID("p3")) == []


async def test_the_index_follows_every_change(store: PostgresStore) -> None:
    async def find(words: str) -> list[tuple[str, str | None]]:
        return shorten(await store.search(words, limit=10))

    await store.apply(
        SessionCreated(info=session()), MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "one"))
    )
    assert await find("one") == [(SESSION, "msg_1")]
    await store.apply(growth("prt_1", " two", 3))
    assert await find("two") == [(SESSION, "msg_1")]
    await store.apply(PartUpdated(part=text("prt_1", "three")))
    assert (await find("two"), await find("three")) == ([], [(SESSION, "msg_1")])
    await store.apply(SessionUpdated(info=session(title="four")))
    assert await find("four") == [(SESSION, None)]
    trashed = await store.discard([SESSION], at=NOW)
    assert (await find("three"), await find("four")) == ([], [])
    await store.restore(trashed.id)
    assert (await find("three"), await find("four")) == ([(SESSION, "msg_1")], [(SESSION, None)])
    await store.apply(MessageRemoved(session_id=SESSION, message_id=MessageID("msg_1")))
    assert await find("three") == []
    await store.update_index({SESSION: {MessageID("msg_1")}})
    assert await store.database.fetch("SELECT * FROM {schema}.dirty") == []


async def test_a_message_that_changes_while_it_is_indexed_is_indexed_again(store: PostgresStore) -> None:
    await store.apply(
        SessionCreated(info=session()), MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "old"))
    )
    marks = await store.database.fetch("SELECT session, message, revision FROM {schema}.dirty")
    await store.apply(PartUpdated(part=text("prt_1", "new")))
    await store.update_index({SESSION: ()})
    found = await store.search("new", limit=1)
    # Somebody who read the message before it changed comes late.
    nothing: list[object] = [[] for _ in range(20)]
    await store.database.fetch(
        f"SELECT {{schema}}.put_entries({', '.join(f'${number}' for number in range(1, 24))})",
        *(list(column) for column in zip(*marks, strict=True)),
        *nothing,
    )
    assert await store.search("new", limit=1) == found != []


async def test_text_of_any_kind_never_fails_a_write_or_a_search(store: PostgresStore) -> None:
    many = " ".join(f"word{number}" for number in range(120_000))
    parts: list[TextPart] = [
        text("prt_1", many),
        text("prt_2", "x" * 3_000_000),
        text("prt_3", "nul \x00 half \ud83d \x02mark\x03 'quote' \\ back"),
        text("prt_4", "日本語 ﬁne ŉ ͅ İstanbul ² ½"),
    ]
    await store.apply(
        SessionCreated(info=session(title="nul \x00 \ud83d")),
        *(
            event
            for number, part in enumerate(parts)
            for event in (
                MessageUpdated(info=prompt(f"msg_{number}")),
                PartUpdated(part=replace(part, message_id=MessageID(f"msg_{number}"))),
            )
        ),
    )
    for words, expected in (
        ("word17", [(SESSION, "msg_0")]),
        ("xxxx", [(SESSION, "msg_1")]),
        ("mark quote", [(SESSION, "msg_2")]),
        ("日本", [(SESSION, "msg_3")]),
        ("istanbul", [(SESSION, "msg_3")]),
    ):
        assert shorten(await store.search(words, limit=5)) == expected, words


@pytest.mark.parametrize(
    ("since", "project", "counts", "cost", "failed"),
    [
        (0, None, (2, 3), "0.300000000000000001", 1),
        (0, "p1", (1, 2), "0.100000000000000001", 1),
        (0, "p2", (1, 1), "0.2", 0),
        (NOW + 10, None, (1, 2), "0.200000000000000001", 1),
        (NOW + 10**9, None, (0, 0), "0", 0),
        (0, "p3", (0, 0), "0", 0),
    ],
)
async def test_figures_of_a_store_and_its_reader_are_exact(
    url: str,
    store: PostgresStore,
    since: int,
    project: str | None,
    counts: tuple[int, int],
    cost: str,
    failed: int,
) -> None:
    await store.apply(*make_history())
    query = StatisticsQuery(
        day_of=lambda at: datetime.fromtimestamp(at / 1000, UTC).date().isoformat(),
        project=None if project is None else ProjectID(project),
        since=since,
    )
    figures = await store.figures(query)
    assert ((figures.sessions, figures.messages), figures.spent.cost) == (counts, Decimal(cost))
    assert sum(tool.failed for tool in figures.tools) == failed
    assert sum(tool.calls for tool in figures.tools) == 2 * counts[1]
    assert open_reader(url).figures(query) == figures


async def test_a_server_that_takes_no_writes_is_searched_for_what_was_indexed(
    url: str, store: PostgresStore
) -> None:
    await store.apply(SessionCreated(info=session(title="shuttle")))
    assert shorten(await store.search("shuttle", limit=5)) == [(SESSION, None)]
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "later")))
    reader = open_reader(f"{url}&default_transaction_read_only=on")
    assert shorten(reader.search("shuttle", limit=5)) == [(SESSION, None)]
    assert reader.search("later", limit=5) == []
    assert reader.figures(StatisticsQuery(day_of=str)).messages == 0


async def test_a_reader_searches_and_reports_progress(url: str, store: PostgresStore) -> None:
    await store.apply(
        SessionCreated(info=session()),
        *(MessageUpdated(info=prompt(f"msg_{number}")) for number in range(150)),
        PartUpdated(part=text("prt_1", "found", of="msg_149")),
    )
    reported: list[tuple[int, int]] = []
    hits = open_reader(url).search(
        "found", limit=5, progress=lambda done, total: reported.append((done, total))
    )
    assert shorten(hits) == [(SESSION, "msg_149")]
    assert reported == [(100, 151), (151, 151)]
    assert hits[0].project_id == PROJECT
