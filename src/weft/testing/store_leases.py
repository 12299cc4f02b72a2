"""Checks of leases that every store must pass. Each is given an empty store."""

from typing import Any

from msgspec.structs import replace

from weft.errors import LeaseLostError, SessionBusyError
from weft.model.event import Durable, MessageUpdated, SessionCreated, SessionUpdated
from weft.model.ids import SessionID
from weft.store.contract import Store
from weft.store.lease import LeaseToken
from weft.testing.store_samples import SESSION, Check, prompt, session, with_parts

OTHER = SessionID("ses_other")


async def a_lease_has_one_holder_and_others_are_told_its_name(store: Store) -> None:
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


async def a_lease_is_released_even_after_an_error(store: Store) -> None:
    for _ in range(2):
        try:
            async with store.lease(SESSION, "somebody"):
                raise KeyError("a fault")
        except KeyError:
            pass


async def each_lease_has_its_own_token(store: Store) -> None:
    async with store.lease(SESSION, "the first") as first, store.lease(OTHER, "the first") as other:
        assert (first.session, other.session) == (SESSION, OTHER)
    async with store.lease(SESSION, "the second") as second:
        assert second.session == SESSION
        assert second.generation != first.generation


async def the_holder_of_a_lease_can_write(store: Store) -> None:
    async with store.lease(SESSION, "the holder") as token, store.lease(OTHER, "the holder") as other:
        await store.apply(
            SessionCreated(info=session()), SessionCreated(info=session(OTHER)), leases=[token, other]
        )
        await store.apply(MessageUpdated(info=prompt()), leases=[token])
        edited = await store.edit(SESSION, lambda known: replace(known, title="mine"), leases=[token])
        assert await store.update_value(("a", "b"), lambda _: 1, leases=[token]) == 1
    assert await store.get_session(SESSION) == edited == session(title="mine")
    assert await store.list_messages(SESSION) == [with_parts(prompt())]
    assert await store.find_value(("a", "b")) == 1


async def a_writer_that_lost_its_lease_changes_nothing(store: Store) -> None:
    await store.apply(SessionCreated(info=session()))
    async with store.lease(SESSION, "the first") as old:
        pass
    assert await _list_refusals(store, old) == [(SESSION, "")] * 4  # nobody holds the lease now
    async with store.lease(SESSION, "the second") as new:
        assert await _list_refusals(store, old) == [(SESSION, "the second")] * 4
        await store.apply(SessionUpdated(info=session(title="two")), leases=[new])
    assert await store.get_session(SESSION) == session(title="two")
    assert await store.list_messages(SESSION) == []
    assert await store.list_keys() == []


async def _list_refusals(store: Store, token: LeaseToken) -> list[tuple[str, str]]:
    """Try every way to write with a token, and return who is said to hold the lease instead."""
    events: list[Durable] = [MessageUpdated(info=prompt()), SessionUpdated(info=session(title="late"))]
    held_elsewhere: list[tuple[str, str]] = []

    def refuse_to_be_called(_: Any) -> Any:
        raise AssertionError("a writer without a lease was let in")

    for attempt in (
        store.apply(*events, leases=[token]),
        store.apply(leases=[token]),
        store.edit(SESSION, refuse_to_be_called, leases=[token]),
        store.update_value(("a", "b"), refuse_to_be_called, leases=[token]),
    ):
        try:
            await attempt
        except LeaseLostError as error:
            held_elsewhere.append((error.session, error.owner))
    return held_elsewhere


LEASES: tuple[Check, ...] = (
    a_lease_has_one_holder_and_others_are_told_its_name,
    a_lease_is_released_even_after_an_error,
    each_lease_has_its_own_token,
    the_holder_of_a_lease_can_write,
    a_writer_that_lost_its_lease_changes_nothing,
)
