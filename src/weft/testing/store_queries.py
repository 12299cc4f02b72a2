"""Checks of queries, keys and logs that every store must pass. Each is given an empty store."""

import asyncio

from msgspec.structs import replace

from weft.errors import InvalidInputError
from weft.model.event import SessionCreated, SessionDeleted
from weft.model.ids import ProjectID, SessionID
from weft.model.session import SessionInfo, WeftSessionData
from weft.model.session_query import SessionQuery, to_cursor
from weft.store.contract import Key, Store
from weft.testing.store_samples import NOW, PROJECT, SESSION, Check, session

THERE = ProjectID("p2")


def _make_sessions() -> list[SessionInfo]:
    """Return seven sessions, oldest first, that differ in everything that a query asks for."""
    made = [
        session(f"ses_{9 - number}", created=NOW + number, title=f"Number {number}") for number in range(7)
    ]
    made[1] = replace(made[1], parent_id=made[0].id)
    made[2] = replace(made[2], project_id=THERE, directory="/elsewhere")
    made[3] = replace(made[3], time=replace(made[3].time, archived=NOW), title="Straße 100%")
    made[4] = replace(made[4], weft=WeftSessionData(pinned=True, tags=("blue", "red")))
    made[5] = replace(made[5], weft=WeftSessionData(tags=("red",)), time=replace(made[5].time, archived=0))
    made[0] = replace(made[0], time=replace(made[0].time, updated=NOW + 100))
    return made


async def _put_sessions(store: Store) -> list[SessionInfo]:
    made = _make_sessions()
    await store.apply(
        *(SessionCreated(info=each) for each in made[::2]),
        *(SessionCreated(info=each) for each in made[1::2]),
    )
    return made


async def _list_numbers(store: Store, query: SessionQuery) -> list[int]:
    """Return which of the sessions a query finds, in its order."""
    return [9 - int(found.id[-1]) for found in await store.query_sessions(query)]


async def a_query_finds_sessions_by_any_of_their_properties(store: Store) -> None:
    await _put_sessions(store)
    for query, expected in (
        (SessionQuery(), [6, 5, 4, 3, 2, 1, 0]),
        (SessionQuery(project_id=PROJECT), [6, 5, 4, 3, 1, 0]),
        (SessionQuery(project_id=THERE), [2]),
        (SessionQuery(project_id=ProjectID("p3")), []),
        (SessionQuery(directory="/elsewhere"), [2]),
        (SessionQuery(directory="/else"), []),
        (SessionQuery(roots=True), [6, 5, 4, 3, 2, 0]),
        (SessionQuery(parent_id=SessionID("ses_9")), [1]),
        (SessionQuery(archived=True), [3]),
        (SessionQuery(archived=False), [6, 5, 4, 2, 1, 0]),
        (SessionQuery(pinned=True), [4]),
        (SessionQuery(pinned=False), [6, 5, 3, 2, 1, 0]),
        (SessionQuery(tags=("red",)), [5, 4]),
        (SessionQuery(tags=("red", "blue")), [4]),
        (SessionQuery(tags=("re",)), []),
        (SessionQuery(start=NOW + 5), [6, 5, 0]),
        (SessionQuery(end=NOW + 5), [4, 3, 2, 1]),
        (SessionQuery(start=NOW + 2, end=NOW + 4), [3, 2]),
        (SessionQuery(order="updated"), [0, 6, 5, 4, 3, 2, 1]),
        (SessionQuery(id_prefix="ses_9"), [0]),
        (SessionQuery(id_prefix="ses_"), [6, 5, 4, 3, 2, 1, 0]),
        (SessionQuery(id_prefix="ses_", project_id=THERE), [2]),
        (SessionQuery(id_prefix="ses_", limit=2), [6, 5]),
        (SessionQuery(id_prefix="es_9"), []),
        (SessionQuery(id_prefix="ses_99"), []),
        (SessionQuery(id_prefix="ses%"), []),
        (SessionQuery(id_prefix="ses_\x00\ud83d"), []),
        (SessionQuery(id_prefix=""), [6, 5, 4, 3, 2, 1, 0]),
        (SessionQuery(pinned_first=True), [4, 6, 5, 3, 2, 1, 0]),
        (SessionQuery(pinned_first=True, order="updated", limit=3), [4, 0, 6]),
        (SessionQuery(limit=2), [6, 5]),
        (SessionQuery(limit=0), []),
        (SessionQuery(roots=True, archived=False, project_id=PROJECT, order="updated", limit=2), [0, 6]),
    ):
        assert await _list_numbers(store, query) == expected, query


async def a_title_is_searched_literally_and_case_insensitively(store: Store) -> None:
    await _put_sessions(store)
    await store.apply(
        SessionCreated(info=session("ses_1", title="half \ud83d and nul \x00 end", created=NOW + 8))
    )
    for words, expected in (
        ("number", [6, 5, 4, 2, 1, 0]),
        ("NUMBER 4", [4]),
        ("STRASSE", [3]),
        ("straße", [3]),
        ("100%", [3]),
        ("%", [3]),
        ("_", []),
        ("\ud83d and nul \x00", [8]),
        ("nul   end", []),
        ("", [8, 6, 5, 4, 3, 2, 1, 0]),
    ):
        assert await _list_numbers(store, SessionQuery(search=words)) == expected, words


async def pages_visit_every_session_once(store: Store) -> None:
    made = await _put_sessions(store)
    same_time = [session(f"ses_a{number}", created=NOW + 3) for number in range(4)]
    await store.apply(*(SessionCreated(info=each) for each in same_time))
    for order in ("created", "updated"):
        whole = await store.query_sessions(SessionQuery(order=order))
        assert len(whole) == len(made) + len(same_time)
        visited: list[SessionInfo] = []
        while page := await store.query_sessions(
            SessionQuery(order=order, limit=2, after=to_cursor(visited[-1], order) if visited else None)
        ):
            visited += page
        assert visited == whole


async def a_page_continues_where_a_session_was_removed(store: Store) -> None:
    made = await _put_sessions(store)
    cursor = to_cursor(made[4], "created")
    await store.apply(SessionDeleted(info=made[4]))
    assert await _list_numbers(store, SessionQuery(after=cursor, limit=2)) == [3, 2]


async def an_invalid_cursor_is_refused(store: Store) -> None:
    refused: list[str] = []
    for cursor in ("", "ses_1", "x.ses_1", "١.ses_1", f"{'9' * 5000}.ses_1"):
        try:
            await store.query_sessions(SessionQuery(after=cursor))
        except InvalidInputError as error:
            refused.append(error.field)
    try:
        await store.query_sessions(SessionQuery(after=f"{NOW}.ses_1", pinned_first=True))
    except InvalidInputError as error:
        refused.append(error.field)
    assert refused == ["cursor"] * 6


async def keys_of_values_are_listed_by_prefix(store: Store) -> None:
    keys: list[Key] = [
        ("alone",),
        ("grant", "p1"),
        ("grant", "p1", "more"),
        ("grant", "p2"),
        ("session_share", SESSION),
    ]
    for key in reversed(keys):
        await store.put_value(key, {"of": list(key)})
    assert await store.list_keys() == keys
    assert await store.list_keys(("grant",)) == keys[1:4]
    assert await store.list_keys(("grant", "p1")) == keys[1:3]
    assert await store.list_keys(("gra",)) == []
    await store.put_value(("grant", "p1"), None)
    assert await store.list_keys(("grant",)) == keys[2:4]


async def a_log_is_extended_after_its_last_line(store: Store) -> None:
    seen: list[bytes | None] = []

    def extend(last: bytes | None) -> list[bytes]:
        seen.append(last)
        return [b"one", b"\x00\xff two"] if last is None else [b"three"]

    assert await store.read_log(("log", "a")) == []
    await store.append_log(("log", "a"), extend)
    await store.append_log(("log", "a"), extend)
    await store.append_log(("log", "a"), lambda _: [])
    assert seen == [None, b"\x00\xff two"]
    assert await store.read_log(("log", "a")) == [b"one", b"\x00\xff two", b"three"]
    assert await store.read_log(("log", "b")) == []
    await store.append_log(("other",), lambda _: [b""])
    assert await store.list_logs() == [("log", "a"), ("other",)]
    assert await store.list_logs(("log",)) == [("log", "a")]


async def appending_to_a_log_is_atomic(store: Store) -> None:
    def count(last: bytes | None) -> list[bytes]:
        return [b"%d" % (int(last or b"0") + 1)]

    await asyncio.gather(*(store.append_log(("log",), count) for _ in range(20)))
    assert await store.read_log(("log",)) == [b"%d" % number for number in range(1, 21)]


async def trimming_a_log_removes_its_oldest_lines(store: Store) -> None:
    await store.append_log(("log",), lambda _: [b"1", b"2", b"3", b"4"])
    assert [await store.trim_log(("log",), keep=keep) for keep in (10, 2, 2)] == [0, 2, 0]
    await store.append_log(("log",), lambda last: [(last or b"") + b"+"])
    assert await store.read_log(("log",)) == [b"3", b"4", b"4+"]
    assert await store.trim_log(("nothing",), keep=0) == 0


QUERIES: tuple[Check, ...] = (
    a_query_finds_sessions_by_any_of_their_properties,
    a_title_is_searched_literally_and_case_insensitively,
    pages_visit_every_session_once,
    a_page_continues_where_a_session_was_removed,
    an_invalid_cursor_is_refused,
    keys_of_values_are_listed_by_prefix,
    a_log_is_extended_after_its_last_line,
    appending_to_a_log_is_atomic,
    trimming_a_log_removes_its_oldest_lines,
)
