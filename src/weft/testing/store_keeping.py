"""What every store must do with an edit, and with what is kept and never told."""

import asyncio
from typing import Any

from msgspec.structs import replace

from weft.errors import SessionBusyError
from weft.model.event import PartUpdated, SessionCreated
from weft.model.ids import SessionID
from weft.model.session import Session
from weft.store.contract import Store
from weft.testing.store_values import NOW, PROJECT, SESSION, Check, growth, missing, session, text
from weft.testing.store_writing import deleting_a_session_takes_all_that_is_its_own


async def an_edit_gives_back_what_it_stored(store: Store) -> None:
    await store.apply(SessionCreated(info=session(title="one")))
    edited = await store.edit(SESSION, lambda known: replace(known, title=known.title + " two"))
    assert edited == session(title="one two")
    assert await store.get_session(SESSION) == edited


async def editing_what_is_not_there_says_so(store: Store) -> None:
    error = await missing(store.edit(SESSION, lambda known: known))
    assert (error.kind, error.id) == ("session", SESSION)
    assert await store.list_sessions() == []


async def an_edit_that_fails_changes_nothing(store: Store) -> None:
    def refuse(_: Session) -> Session:
        raise ValueError("no")

    await store.apply(SessionCreated(info=session()))
    try:
        await store.edit(SESSION, refuse)
    except ValueError:
        assert await store.get_session(SESSION) == session()
    else:
        raise AssertionError("no ValueError")


async def edits_at_once_are_all_kept(store: Store) -> None:
    def one_more(known: Session) -> Session:
        return replace(known, time=replace(known.time, updated=known.time.updated + 1))

    await store.apply(SessionCreated(info=session()))
    await asyncio.gather(*(store.edit(SESSION, one_more) for _ in range(20)))
    assert (await store.get_session(SESSION)).time.updated == NOW + 20


async def what_is_kept_comes_back_until_it_is_forgotten(store: Store) -> None:
    for key in (("session_share", SESSION), ("permission", PROJECT), ("lease", "runs", SESSION), ("alone",)):
        value: Any = {"id": SESSION, "secret": "s", "deep": [1, None, {"a": True}], "half": "\ud83d"}
        await store.keep(key, value)
        assert await store.kept(key) == value
        await store.keep(key, [])
        assert await store.kept(key) == []
        await store.keep(key, None)
        await store.keep(key, None)
        assert await store.kept(key) is None


async def what_is_kept_does_not_change_with_what_was_given(store: Store) -> None:
    given = {"list": [1]}
    await store.keep(("a", "b"), given)
    given["list"].append(2)
    found = await store.kept(("a", "b"))
    assert found == {"list": [1]}
    found["list"].append(3)
    assert await store.kept(("a", "b")) == {"list": [1]}


async def what_is_kept_is_reworked_in_one_step(store: Store) -> None:
    def one_more(known: Any) -> Any:
        return {"count": (known or {"count": 0})["count"] + 1}

    reworked = await asyncio.gather(*(store.rework(("a", "b"), one_more) for _ in range(20)))
    assert sorted(each["count"] for each in reworked) == list(range(1, 21))
    assert await store.kept(("a", "b")) == {"count": 20}
    assert await store.rework(("a", "b"), lambda _: None) is None
    assert await store.kept(("a", "b")) is None


async def a_rework_that_fails_changes_nothing(store: Store) -> None:
    def refuse(_: Any) -> Any:
        raise ValueError("no")

    await store.keep(("a", "b"), 1)
    try:
        await store.rework(("a", "b"), refuse)
    except ValueError:
        assert await store.kept(("a", "b")) == 1
    else:
        raise AssertionError("no ValueError")


async def a_sound_store_has_no_damage(store: Store) -> None:
    await deleting_a_session_takes_all_that_is_its_own(store)
    await store.keep(("a", "b"), 1)
    await store.apply(PartUpdated(part=text("prt_1", "")))
    await store.apply(growth("prt_1", "a", 0))
    assert await store.damage() == []


async def a_lease_has_one_holder_and_the_next_is_told_who_it_is(store: Store) -> None:
    async with store.lease(SESSION, "the first"):
        assert await _owner_in_the_way(store) == "the first"
        assert await store.find_holder(SESSION) == "the first"
        assert await store.find_holder(SessionID("ses_other")) is None
        async with store.lease(SessionID("ses_other"), "the second"):
            pass
    assert await _owner_in_the_way(store) is None
    assert await store.find_holder(SESSION) is None
    assert await store.list_abandoned() == []


async def _owner_in_the_way(store: Store) -> str | None:
    try:
        async with store.lease(SESSION, "the next"):
            return None
    except SessionBusyError as busy:
        return busy.owner


async def a_lease_is_given_back_whatever_happens_under_it(store: Store) -> None:
    for _ in range(2):
        try:
            async with store.lease(SESSION, "somebody"):
                raise KeyError("a fault")
        except KeyError:
            pass


KEEPING: tuple[Check, ...] = (
    an_edit_gives_back_what_it_stored,
    editing_what_is_not_there_says_so,
    an_edit_that_fails_changes_nothing,
    edits_at_once_are_all_kept,
    what_is_kept_comes_back_until_it_is_forgotten,
    what_is_kept_does_not_change_with_what_was_given,
    what_is_kept_is_reworked_in_one_step,
    a_rework_that_fails_changes_nothing,
    a_sound_store_has_no_damage,
    a_lease_has_one_holder_and_the_next_is_told_who_it_is,
    a_lease_is_given_back_whatever_happens_under_it,
)
