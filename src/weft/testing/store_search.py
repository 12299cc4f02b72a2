"""Checks of searches and figures that every store must pass. Each is given an empty store."""

from decimal import Decimal

from msgspec.structs import replace

from weft.model.event import (
    Durable,
    MessageRemoved,
    MessageUpdated,
    PartUpdated,
    SessionCreated,
    SessionDeleted,
    SessionUpdated,
)
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.message import AssistantMessage, AssistantTime
from weft.model.part import CacheTokens, CallTime, CompletedState, ErrorState, Tokens, ToolPart
from weft.model.search import Figures, Hit, ToolUse, UsageShare
from weft.model.session import SessionInfo
from weft.model.spending import Spent
from weft.store.contract import Store
from weft.store.statistics import DAY_MS, StatisticsQuery
from weft.testing.store_samples import NOW, PROJECT, SESSION, Check, prompt, session, text

THERE = ProjectID("p2")
TWO = SessionID("ses_2")
THREE = SessionID("ses_3")

HOSTILE_QUERIES = (
    "",
    " ",
    '"',
    '""',
    "'",
    "a\0b",
    "NEAR(a b, 2)",
    "loom AND",
    "OR",
    "NOT loom",
    "said: loom",
    "-loom",
    "^loom",
    "loom*",
    "(((",
    '"loom',
    "loom:*",
    "loom & !mend | (",
    "\\",
    "\ud800",
    "\x02loom\x03",
    "; DROP TABLE session",
    "%",
    "x" * 100_000,
    "loom " * 20_000,
    "\u202e🧵",
)


def _say(id: str, words: str, *, of: SessionID = SESSION, at: int = NOW) -> list[Durable]:
    """Return a prompt with one text."""
    part = text(f"prt_{id}", words, of=f"msg_{id}", session=of)
    return [MessageUpdated(info=prompt(f"msg_{id}", of=of, created=at)), PartUpdated(part=part)]


def _answer(
    id: str, *, of: SessionID = SESSION, at: int = NOW, cost: str = "0", model: str = "m"
) -> AssistantMessage:
    tokens = Tokens(input=100, output=10, reasoning=1, cache=CacheTokens(read=50, write=5))
    return AssistantMessage(
        id=MessageID(f"msg_{id}"),
        session_id=of,
        time=AssistantTime(created=at, completed=at),
        provider_id="p",
        model_id=model,
        cost=Decimal(cost),
        tokens=tokens,
    )


def _call(id: str, message: AssistantMessage, tool: str, output: str, *, failed: bool = False) -> PartUpdated:
    time, input = CallTime(start=1, end=2), {"path": "src/shuttle.py"}
    state = (
        ErrorState(input=input, error=output, time=time)
        if failed
        else CompletedState(input=input, output=output, title="", metadata={}, time=time)
    )
    return PartUpdated(
        part=ToolPart(
            id=PartID(f"prt_{id}"),
            session_id=message.session_id,
            message_id=message.id,
            call_id=id,
            tool=tool,
            state=state,
        )
    )


async def _find(store: Store, words: str, *, project: ProjectID | None = None, limit: int = 20) -> list[str]:
    return [hit.session_id for hit in await store.search(words, limit=limit, project=project)]


async def a_hit_names_the_message_and_marks_the_words(store: Store) -> None:
    info = replace(session(title="Weaving"), time=replace(session().time, archived=NOW, updated=NOW + 9))
    await store.apply(SessionCreated(info=info))
    await store.apply(*_say("a", "Please mend the Shuttle, it is broken", at=NOW + 5))
    [hit] = await store.search("shuttle mend", limit=5)
    assert hit == Hit(
        session_id=SESSION,
        project_id=PROJECT,
        message_id=MessageID("msg_a"),
        title="Weaving",
        updated=NOW + 9,
        archived=True,
        at=NOW + 5,
        snippet=hit.snippet,
        marks=hit.marks,
    )
    assert [hit.snippet[start:end] for start, end in hit.marks] == ["mend", "Shuttle"]
    [titled] = await store.search("weaving", limit=5)
    assert (titled.message_id, titled.at) == (None, NOW)


async def titles_rank_above_conversation_and_that_above_tools(store: Store) -> None:
    looked = _answer("looked")
    await store.apply(
        SessionCreated(info=session()),
        SessionCreated(info=session(TWO)),
        SessionCreated(info=session(THREE, title="A loom")),
        MessageUpdated(info=looked),
        _call("c1", looked, "bash", "the loom is here"),
        *_say("b", "where is the loom now", of=TWO),
    )
    assert await _find(store, "loom") == [THREE, TWO, SESSION]
    assert await _find(store, "loom", limit=2) == [THREE, TWO]
    assert await _find(store, "loom", limit=0) == []
    assert await _find(store, "shuttle.py") == [SESSION]


async def all_words_must_be_in_one_message(store: Store) -> None:
    await store.apply(
        SessionCreated(info=session()),
        SessionCreated(info=session(TWO, project=THERE)),
        *_say("a", "warp and weft, threads of Lyon"),
        *_say("b", "the warp alone", of=TWO),
        *_say("c", "the weft alone", of=TWO),
    )
    for words, expected in (
        ("warp weft", {SESSION}),
        ("WEFT Warp", {SESSION}),
        ("thre", {SESSION}),
        ("hreads", set()),
        ('"warp and weft"', {SESSION}),
        ('"weft and warp"', set()),
        ('"thre"', set()),
        ("alone", {TWO}),
        ("warp", {SESSION, TWO}),
    ):
        assert set(await _find(store, words)) == expected, words
    assert await _find(store, "warp", project=THERE) == [TWO]
    assert await _find(store, "warp", project=ProjectID("p3")) == []


async def a_session_is_found_once_by_its_best_message(store: Store) -> None:
    await store.apply(SessionCreated(info=session()), SessionCreated(info=session(TWO)))
    for number in range(5):
        await store.apply(*_say(f"a{number}", "loom"), *_say(f"b{number}", "a loom of wood", of=TWO))
    assert sorted(await _find(store, "loom")) == [SESSION, TWO]


async def every_text_is_a_valid_search(store: Store) -> None:
    await store.apply(SessionCreated(info=session(title="The loom")), *_say("a", "mend \0 \ud800 the loom"))
    for words in HOSTILE_QUERIES:
        for hit in await store.search(words, limit=5):
            assert hit.session_id == SESSION, words
            assert all(0 <= start < end <= len(hit.snippet) for start, end in hit.marks), words


async def a_search_finds_what_is_stored_now(store: Store) -> None:
    await store.apply(SessionCreated(info=session(title="before")), *_say("a", "first"), *_say("b", "second"))
    assert [await _find(store, words) for words in ("before", "first", "second")] == [[SESSION]] * 3
    await store.apply(
        SessionUpdated(info=session(title="after")),
        PartUpdated(part=text("prt_a", "third", of="msg_a")),
        MessageRemoved(session_id=SESSION, message_id=MessageID("msg_b")),
    )
    await store.update_index({SESSION: {MessageID("msg_a"), MessageID("msg_b")}})
    found = [await _find(store, words) for words in ("before", "first", "second", "after", "third")]
    assert found == [[], [], [], [SESSION], [SESSION]]


async def discarded_and_deleted_sessions_are_not_found(store: Store) -> None:
    await store.apply(SessionCreated(info=session(title="loom")), *_say("a", "loom"))
    assert await _find(store, "loom") == [SESSION]
    trashed = await store.discard([SESSION], at=NOW)
    assert await _find(store, "loom") == []
    await store.restore(trashed.id)
    assert await _find(store, "loom") == [SESSION]
    await store.apply(SessionDeleted(info=session()))
    assert await _find(store, "loom") == []


async def indexing_a_missing_session_is_harmless(store: Store) -> None:
    await store.apply(SessionCreated(info=session()), *_say("a", "loom"))
    await store.update_index({SESSION: {MessageID("msg_none")}, SessionID("ses_none"): set()})
    await store.update_index({})
    assert await _find(store, "loom") == [SESSION]


async def _fill(store: Store) -> None:
    """Store two sessions with answers, calls, and a message that was copied from another session."""
    one: SessionInfo = session(created=NOW)
    two = session(TWO, project=THERE, created=NOW + DAY_MS)
    first, second = _answer("a1", cost="0.1"), _answer("a2", at=NOW + 1, cost="0.2")
    third = replace(
        _answer("a3", of=TWO, at=NOW + DAY_MS, cost="0.000000000000000001", model="n"), priced=False
    )
    await store.apply(
        SessionCreated(info=one),
        SessionCreated(info=two),
        *_say("copied", "from before the fork", at=NOW - 1),
        *_say("own", "of this session"),
        *(MessageUpdated(info=each) for each in (first, second, third)),
        _call("c1", first, "bash", "ok"),
        _call("c2", first, "bash", "no", failed=True),
        _call("c3", second, "read", "ok"),
    )


async def figures_add_up_exactly(store: Store) -> None:
    await _fill(store)
    one = Spent(cost=Decimal("0.3"), input=200, output=20, reasoning=2, cache_read=100, cache_write=10)
    two = Spent(
        cost=Decimal("1E-18"), input=100, output=10, reasoning=1, cache_read=50, cache_write=5, priced=False
    )
    both = Spent(
        cost=Decimal("0.300000000000000001"),
        input=300,
        output=30,
        reasoning=3,
        cache_read=150,
        cache_write=15,
        priced=False,
    )
    assert await store.figures(StatisticsQuery(day_of=_name_day)) == Figures(
        sessions=2,
        messages=4,
        days=1,
        spent=both,
        by_day=(
            UsageShare(name=_name_day(NOW), sessions=1, messages=3, spent=one),
            UsageShare(name=_name_day(NOW + DAY_MS), sessions=1, messages=1, spent=two),
        ),
        models=(
            UsageShare(name="p/m", sessions=1, messages=2, spent=one),
            UsageShare(name="p/n", sessions=1, messages=1, spent=two),
        ),
        projects=(
            UsageShare(name=PROJECT, sessions=1, messages=3, spent=one),
            UsageShare(name=THERE, sessions=1, messages=1, spent=two),
        ),
        tools=(ToolUse(name="bash", calls=2, failed=1), ToolUse(name="read", calls=1, failed=0)),
        average_tokens=(222 + 111) // 2,
        median_tokens=(222 + 111) // 2,
    )


async def figures_can_be_limited_to_a_project_or_to_some_days(store: Store) -> None:
    await _fill(store)
    there = await store.figures(StatisticsQuery(day_of=_name_day, project=THERE))
    assert (there.sessions, there.messages, there.tools) == (1, 1, ())
    recent = await store.figures(StatisticsQuery(day_of=_name_day, since=NOW + DAY_MS, days=7))
    assert (recent.sessions, recent.messages, recent.days) == (1, 1, 7)
    none = await store.figures(StatisticsQuery(day_of=_name_day, project=ProjectID("p3")))
    assert (none.sessions, none.messages, none.days, none.spent) == (0, 0, 0, Spent())


def _name_day(at: int) -> str:
    return f"day {at // DAY_MS}"


async def absurd_times_and_costs_can_be_searched_and_counted(store: Store) -> None:
    """A document from elsewhere may contain any number."""
    await _fill(store)
    for sign in (1, -1):
        id, at = SessionID(f"ses_{sign}"), sign * 10**30
        info = session(id, created=at, title="absurd")
        answers = [_answer(f"absurd_{sign}_{number}", of=id, at=at, cost="1e30") for number in range(20)]
        await store.apply(SessionCreated(info=info), *(MessageUpdated(info=each) for each in answers))
    assert sorted(await _find(store, "absurd")) == ["ses_-1", "ses_1"]
    for since in (0, 10**30, -(10**30)):
        await store.figures(StatisticsQuery(day_of=_name_day, since=since))


SEARCH: tuple[Check, ...] = (
    a_hit_names_the_message_and_marks_the_words,
    titles_rank_above_conversation_and_that_above_tools,
    all_words_must_be_in_one_message,
    a_session_is_found_once_by_its_best_message,
    every_text_is_a_valid_search,
    a_search_finds_what_is_stored_now,
    discarded_and_deleted_sessions_are_not_found,
    indexing_a_missing_session_is_harmless,
    figures_add_up_exactly,
    figures_can_be_limited_to_a_project_or_to_some_days,
    absurd_times_and_costs_can_be_searched_and_counted,
)
