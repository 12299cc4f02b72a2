"""What prune chooses: by age or size, whole families, and never pinned, shared or running sessions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from given.small_tree import put_session
from weft.maintenance.prune import (
    RECENT_MS,
    PrunePolicy,
    SessionFamily,
    choose_families,
    empty_trash,
    prune,
    to_families,
)
from weft.model.event import SessionCreated, SessionDeleted, SessionUpdated
from weft.model.ids import ProjectID, SessionID
from weft.model.session import SessionInfo, SessionShare, SessionTime, TrashBundle, WeftSessionData
from weft.store.memory import MemoryStore
from weft.testing.store_samples import session

DAY = 24 * 60 * 60 * 1000
NOW = 1_790_000_000_000


def old_session(id: str, *, days: float = 100, parent: str | None = None, **more: Any) -> SessionInfo:
    at = int(NOW - days * DAY)
    made = replace(session(id, created=at), parent_id=None if parent is None else SessionID(parent))
    return replace(made, time=SessionTime(created=at, updated=at), **more)


def choose(
    sessions: list[SessionInfo], policy: PrunePolicy, weights: dict[str, int] | None = None
) -> list[str]:
    weights = weights or {each.id: 10 for each in sessions}
    return [family.root.id for family in choose_families(sessions, weights, policy, now=NOW).chosen]


OLDER = PrunePolicy(before=NOW - 90 * DAY)


def test_nothing_is_pruned_without_a_policy() -> None:
    assert choose([old_session("ses_1"), old_session("ses_2")], PrunePolicy()) == []


def test_old_sessions_are_pruned_and_the_rest_stays() -> None:
    assert choose(
        [old_session("ses_1"), old_session("ses_2", days=10), old_session("ses_3", days=200)], OLDER
    ) == ["ses_3", "ses_1"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"weft": WeftSessionData(pinned=True)}, "pinned"),
        ({"share": SessionShare(url="https://example.test/s/1")}, "shared"),
    ],
)
def test_pinned_and_shared_sessions_stay_with_their_family(more: dict[str, Any], reason: str) -> None:
    sessions = [
        old_session("ses_1"),
        old_session("ses_2", parent="ses_1", **more),
        old_session("ses_3", **more),
        old_session("ses_4"),
    ]
    choice = choose_families(sessions, {}, OLDER, now=NOW)
    assert [family.root.id for family in choice.chosen] == ["ses_4"]
    assert [(each.family.root.id, each.reason) for each in choice.spared] == [
        ("ses_1", reason),
        ("ses_3", reason),
    ]


def test_children_are_pruned_with_their_parent_and_keep_it_in_use() -> None:
    family = [
        old_session("ses_1"),
        old_session("ses_2", parent="ses_1"),
        old_session("ses_3", parent="ses_2", days=5),
    ]
    assert choose(family, OLDER) == []
    [found] = choose_families([*family[:2], old_session("ses_3", parent="ses_2")], {}, OLDER, now=NOW).chosen
    assert {each.id for each in found.members} == {"ses_1", "ses_2", "ses_3"}


def test_the_least_recently_used_are_pruned_until_the_rest_fits() -> None:
    sessions = [old_session("ses_1", days=3), old_session("ses_2", days=2), old_session("ses_3", days=1)]
    weights = {"ses_1": 50, "ses_2": 30, "ses_3": 20}
    assert choose(sessions, PrunePolicy(at_most=60), weights) == ["ses_1"]
    assert choose(sessions, PrunePolicy(at_most=40), weights) == ["ses_1", "ses_2"]
    assert choose(sessions, PrunePolicy(at_most=100), weights) == []


def test_recently_used_sessions_stay_however_large() -> None:
    choice = choose_families(
        [old_session("ses_1", days=0)], {"ses_1": 99}, PrunePolicy(at_most=0), now=NOW + RECENT_MS // 2
    )
    assert choice.chosen == ()
    assert [each.reason for each in choice.spared] == ["just used"]


def test_other_projects_are_left_alone() -> None:
    sessions = [old_session("ses_1"), replace(old_session("ses_2"), project_id=ProjectID("p2"))]
    assert choose(sessions, replace(OLDER, project=ProjectID("p2"))) == ["ses_2"]


def test_a_cycle_of_parents_is_one_family() -> None:
    families = to_families([old_session("ses_1", parent="ses_2"), old_session("ses_2", parent="ses_1")], {})
    assert [{each.id for each in family.members} for family in families] == [{"ses_1", "ses_2"}]


@given(st.lists(st.sampled_from(["none", *(f"ses_{n}" for n in range(8))]), min_size=8, max_size=8))
def test_every_session_is_in_one_family(parents: list[str]) -> None:
    sessions = [
        old_session(f"ses_{number}", parent=None if parent == "none" else parent)
        for number, parent in enumerate(parents)
    ]
    members = [each.id for family in to_families(sessions, {}) for each in family.members]
    assert sorted(members) == sorted(each.id for each in sessions)


async def test_pruned_sessions_are_in_the_trash_and_can_be_restored() -> None:
    store = MemoryStore()
    parent = await put_session(store, "ses_1")
    child = await put_session(store, "ses_2", parent="ses_1")
    kept = await put_session(store, "ses_3", weft=WeftSessionData(pinned=True))
    later = parent.time.updated + 100 * DAY
    choice = choose_families(await store.list_sessions(), {}, PrunePolicy(before=later - DAY), now=later)
    pruned = await prune(store, choice, now=later)
    assert await store.list_sessions() == [kept]
    [(family, bundle)] = pruned.discarded
    assert {each.id for each in family.members} == {parent.id, child.id}
    assert await empty_trash(store, before=later) == []
    await store.restore(bundle)
    assert {each.id for each in await store.list_sessions()} == {"ses_1", "ses_2", "ses_3"}


async def test_trash_is_emptied_by_age_alone() -> None:
    store = MemoryStore()
    for number, id in enumerate(("ses_1", "ses_2")):
        made = await put_session(store, id)
        await store.discard([made.id], at=NOW + number * DAY)
    [first, second] = await store.list_trash()
    assert await empty_trash(store, before=NOW + 1) == [first.id]
    assert await store.list_trash() == [second]


async def test_sessions_that_change_or_vanish_before_they_are_pruned_are_spared() -> None:
    """A person may think about the question for a while."""
    store, sessions = MemoryStore(), [old_session(f"ses_{number}") for number in range(3)]
    for each in sessions:
        await store.apply(SessionCreated(info=each))
    choice = choose_families(sessions, {}, OLDER, now=NOW)
    await store.apply(
        SessionDeleted(info=sessions[0]), SessionUpdated(info=replace(sessions[1], title="used"))
    )
    result = await prune(store, choice, now=NOW)
    assert [family.root.id for family, _ in result.discarded] == ["ses_2"]
    assert [(each.family.root.id, each.reason) for each in result.spared] == [
        ("ses_0", "gone meanwhile"),
        ("ses_1", "changed meanwhile"),
    ]


async def test_a_bundle_that_somebody_else_purges_does_not_stop_the_others() -> None:
    class SlowStore(MemoryStore):
        async def list_trash(self) -> list[TrashBundle]:
            found = await super().list_trash()
            await self.purge(found[0].id)
            return found

    store = SlowStore()
    for number in range(2):
        await store.apply(SessionCreated(info=old_session(f"ses_{number}")))
        await store.discard([SessionID(f"ses_{number}")], at=number)
    assert await empty_trash(store, before=NOW) == ["1-ses_1"]


async def test_a_session_that_is_being_run_stays() -> None:
    store = MemoryStore()
    made = await put_session(store, "ses_1")
    child = await put_session(store, "ses_2", parent="ses_1")
    family = SessionFamily(root=made, members=(made, child), bytes=1)
    choice = choose_families([made, child], {}, PrunePolicy(before=NOW * 2), now=NOW * 2)
    assert [each.root for each in choice.chosen] == [family.root]
    async with store.lease(child.id, "weft run, process 7"):
        pruned = await prune(store, choice, now=NOW)
    assert pruned.discarded == ()
    assert [each.reason for each in pruned.spared] == ["running (weft run, process 7)"]
    assert len(await store.list_sessions()) == 2
