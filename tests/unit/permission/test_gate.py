"""The permission gate: what passes, what is asked for, and what an answer permits."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from given.engine import InstantClock
from given.gate_harness import (
    ASK,
    NOW,
    OTHER,
    PROJECT,
    SESSION,
    make_caller,
    make_gate_harness,
    rules,
    run_alongside,
)
from weft.errors import (
    ConflictError,
    CorrectedError,
    DeniedError,
    NobodyError,
    NotFoundError,
    RejectedError,
    StoreError,
    UnansweredError,
)
from weft.model.event import PermissionAsked, PermissionReplied
from weft.model.ids import GrantID, MessageID, PermissionID, ProjectID
from weft.model.permission import Grant, GrantTerms, Question, QuestionRequest, Reply
from weft.permission.storage import GRANTS_KEY
from weft.store.contract import Key
from weft.store.files.layout import Layout, value_lock
from weft.store.memory import MemoryStore


async def test_an_allowed_call_passes_and_a_denied_one_raises() -> None:
    harness = make_gate_harness()
    holds = make_caller(rules("bash:*:allow", "bash:rm *:deny"))
    await harness.gate.let_pass(harness.request("ls"), holds)
    with pytest.raises(DeniedError):
        await harness.gate.let_pass(harness.request("ls", "rm x"), holds)
    assert harness.events == []


async def test_a_request_without_patterns_passes() -> None:
    harness = make_gate_harness()
    await harness.gate.let_pass(harness.request(), make_caller(rules("*:*:deny")))
    assert harness.events == []


async def test_an_approval_permits_one_call_and_the_next_is_asked_again() -> None:
    harness = make_gate_harness()
    for count in (1, 2):
        request = harness.request("ls")
        async with run_alongside(harness.gate.let_pass(request, make_caller())) as [passing]:
            await harness.wait_for_requests(count)
            assert harness.gate.is_waiting(SESSION)
            assert [each.permission for each in await harness.gate.pending()] == [request]
            await harness.gate.reply(request.id, "once")
            await passing
        replied = PermissionReplied(session_id=SESSION, request_id=request.id, reply="once")
        assert harness.events[-2:] == [PermissionAsked(request=request), replied]
    assert not harness.gate.is_waiting(SESSION)
    assert await harness.gate.pending() == []
    assert await harness.gate.list_grants() == []


async def test_a_rejection_ends_all_requests_of_the_session_and_of_no_other() -> None:
    harness = make_gate_harness()
    first, second = harness.request("a"), harness.request("b")
    elsewhere = harness.request("c", session_id=OTHER)
    calls = [harness.gate.let_pass(each, make_caller()) for each in (first, second, elsewhere)]
    async with run_alongside(*calls) as [one, two, three]:
        await harness.wait_for_requests(3)
        await harness.gate.reply(first.id, "reject", message="not like this")
        with pytest.raises(CorrectedError, match="not like this"):
            await one
        with pytest.raises(RejectedError):
            await two
        assert [each.id for each in await harness.gate.pending()] == [elsewhere.id]
        await harness.gate.reply(elsewhere.id, "once")
        await three


async def test_an_always_also_answers_other_requests_that_it_covers() -> None:
    harness = make_gate_harness()
    git, push, rm = (harness.request(each, always=("git *",)) for each in ("git status", "git push", "rm x"))
    async with run_alongside(*(harness.gate.let_pass(each, make_caller()) for each in (git, push, rm))) as [
        one,
        two,
        three,
    ]:
        await harness.wait_for_requests(3)
        await harness.gate.reply(git.id, "always")
        await asyncio.gather(one, two)
        assert [each.id for each in await harness.gate.pending()] == [rm.id]
        await harness.gate.reply(rm.id, "once")
        await three
    replied = [
        (event.request_id, event.reply) for event in harness.events if isinstance(event, PermissionReplied)
    ]
    assert replied == [(git.id, "always"), (push.id, "always"), (rm.id, "once")]


async def test_a_grant_answers_an_ask_and_never_a_deny() -> None:
    harness = make_gate_harness()
    await grant_always(harness, "*")
    await harness.gate.let_pass(harness.request("anything"), make_caller())
    with pytest.raises(DeniedError):
        await harness.gate.let_pass(
            harness.request("anything", "rm x"), make_caller(rules("*:*:ask", "bash:rm *:deny"))
        )
    with pytest.raises(DeniedError):
        await harness.gate.let_pass(harness.request("rm x"), make_caller(ASK, rules("bash:*:deny")))


async def grant_always(harness, *patterns: str, **terms) -> Grant:  # type: ignore[no-untyped-def]
    """Return the grant that an `always` to these patterns gives, requested by `build` in its session."""
    request = harness.request("first", always=patterns)
    before = len(await harness.gate.list_grants())
    async with run_alongside(harness.gate.let_pass(request, make_caller())) as [passing]:
        await harness.wait_for_requests(1)
        await harness.gate.reply(request.id, "always", terms=GrantTerms(**terms))
        await passing
    grants = await harness.gate.list_grants()
    assert len(grants) == before + 1
    return grants[-1]


async def test_a_grant_records_who_gave_what_to_whom_when_and_for_how_long() -> None:
    harness = make_gate_harness()
    grant = await grant_always(harness, "git *", expires=NOW + 1000)
    assert grant == Grant(
        id=grant.id,
        scope="session",
        permission="bash",
        patterns=("git *",),
        agent="build",
        project_id=PROJECT,
        session_id=SESSION,
        by="ada",
        created=NOW,
        expires=NOW + 1000,
    )


MATRIX = {
    # who asks: same turn, next turn, another session, a child of this one, another project, another agent
    "turn": (True, False, False, False, False, False),
    "session": (True, True, False, True, False, False),
    "project": (True, True, True, True, False, False),
    "user": (True, True, True, True, True, False),
}


@pytest.mark.parametrize("scope", MATRIX)
async def test_a_grant_is_limited_to_its_scope(scope: str) -> None:
    harness = make_gate_harness()
    await grant_always(harness, "ls", scope=scope)
    later = MessageID("msg_00000000000000000000000009")
    askers = (
        (PROJECT, SESSION, make_caller()),
        (PROJECT, SESSION, make_caller(turn=later)),
        (PROJECT, OTHER, make_caller(root=OTHER, turn=later)),
        (PROJECT, OTHER, make_caller(turn=later)),
        (ProjectID("elsewhere"), OTHER, make_caller(root=OTHER, turn=later)),
        (PROJECT, SESSION, make_caller(agent="plan")),
    )
    passed, kept = [], await harness.storage.grants.read()
    for project, session, asker in askers:
        there = make_gate_harness(project=project, can_ask=False)
        await there.storage.grants.change(lambda _: kept)
        try:
            await there.gate.let_pass(there.request("ls", session_id=session), asker)
            passed.append(True)
        except UnansweredError:
            passed.append(False)
    assert tuple(passed) == MATRIX[scope]


async def test_a_grant_for_every_agent_applies_to_every_agent() -> None:
    harness = make_gate_harness()
    await grant_always(harness, "ls", any_agent=True)
    await harness.gate.let_pass(harness.request("ls"), make_caller(agent="plan"))


async def test_a_grant_of_one_pattern_does_not_allow_the_others_of_a_request() -> None:
    harness, there = make_gate_harness(), make_gate_harness(can_ask=False)
    await grant_always(harness, "ls")
    grants = await harness.storage.grants.read()
    await there.storage.grants.change(lambda _: grants)
    await there.gate.let_pass(there.request("ls"), make_caller())
    with pytest.raises(UnansweredError):
        await there.gate.let_pass(there.request("ls", "rm x"), make_caller())


async def test_an_expired_or_revoked_grant_is_not_used() -> None:
    harness = make_gate_harness()
    short = await grant_always(harness, "ls", expires=NOW + 1000)
    harness.clock.turn(999)
    await harness.gate.let_pass(harness.request("ls"), make_caller())
    harness.clock.turn(1)
    assert await harness.gate.list_grants() == []
    harness.events.clear()
    long = await grant_always(harness, "ls")
    await harness.gate.let_pass(harness.request("ls"), make_caller())
    await harness.gate.revoke(long.id)
    with pytest.raises(NotFoundError):
        await harness.gate.revoke(short.id)
    harness.events.clear()
    request = harness.request("ls")
    async with run_alongside(harness.gate.let_pass(request, make_caller())) as [passing]:
        await harness.wait_for_requests()
        await harness.gate.reply(request.id, "once")
        await passing


async def test_a_grant_for_a_turn_ends_with_its_run() -> None:
    harness = make_gate_harness()
    await grant_always(harness, "ls", scope="turn")
    await harness.gate.end_run(SESSION)
    assert await harness.gate.list_grants() == []


async def test_a_grant_for_a_turn_that_never_ends_is_valid_for_a_day() -> None:
    harness = make_gate_harness()
    day = 24 * 3600 * 1000
    assert (await grant_always(harness, "ls", scope="turn")).expires == NOW + day
    harness.events.clear()
    assert (await grant_always(harness, "ls", scope="turn", expires=NOW + 2 * day)).expires == NOW + day
    harness.events.clear()
    assert (await grant_always(harness, "ls", scope="turn", expires=NOW + 1)).expires == NOW + 1


async def test_a_grant_of_a_session_is_removed_with_it() -> None:
    harness = make_gate_harness()
    await grant_always(harness, "ls")
    kept = await grant_once_more(harness)
    await harness.gate.forget(SESSION)
    assert await harness.gate.list_grants() == [kept]


async def grant_once_more(harness) -> Grant:  # type: ignore[no-untyped-def]
    harness.events.clear()
    return await grant_always(harness, "cat *", scope="project")


async def test_an_always_without_a_lasting_pattern_allows_once() -> None:
    harness = make_gate_harness()
    request = harness.request("ls", always=())
    async with run_alongside(harness.gate.let_pass(request, make_caller())) as [passing]:
        await harness.wait_for_requests()
        await harness.gate.reply(request.id, "always")
        await passing
    assert await harness.gate.list_grants() == []


async def test_answering_an_unknown_request_is_an_error() -> None:
    harness = make_gate_harness()
    with pytest.raises(NotFoundError):
        await harness.gate.reply(PermissionID("per_00000000000000000000000000"), "once")
    with pytest.raises(NotFoundError):
        await harness.gate.revoke(GrantID("gra_00000000000000000000000000"))


@pytest.mark.parametrize("shared", [False, True], ids=["in memory", "in files"])
@pytest.mark.parametrize("replies", [("always", "reject"), ("reject", "always"), ("once", "always")])
async def test_only_one_of_two_concurrent_answers_counts(
    tmp_path: Path, shared: bool, replies: tuple[Reply, Reply]
) -> None:
    harness = make_gate_harness(str(tmp_path) if shared else "")
    request = harness.request("ls")
    async with run_alongside(harness.gate.let_pass(request, make_caller())) as (passing,):
        await harness.wait_for_requests()
        said = await asyncio.gather(
            *(harness.gate.reply(request.id, reply) for reply in replies), return_exceptions=True
        )
        [passed] = await asyncio.gather(passing, return_exceptions=True)
    [counted] = [reply for reply, error in zip(replies, said, strict=True) if error is None]
    [lost] = [error for error in said if error is not None]

    assert isinstance(lost, ConflictError)
    assert str(lost) == f"permission request {request.id!r} was answered already"
    assert isinstance(passed, RejectedError) == (counted == "reject")
    assert len(await harness.gate.list_grants()) == (counted == "always")
    assert [event for event in harness.events if isinstance(event, PermissionReplied)] == [
        PermissionReplied(session_id=SESSION, request_id=request.id, reply=counted)
    ]


async def test_a_late_second_answer_is_a_conflict() -> None:
    harness = make_gate_harness()
    request = harness.request("ls")
    async with run_alongside(harness.gate.let_pass(request, make_caller())) as (passing,):
        await harness.wait_for_requests()
        await harness.gate.reply(request.id, "once")
        await passing
    with pytest.raises(ConflictError):
        await harness.gate.reply(request.id, "always")
    assert await harness.gate.list_grants() == []


async def test_only_one_of_two_answering_processes_counts(tmp_path: Path) -> None:
    clock = InstantClock(NOW)
    here, there = (make_gate_harness(str(tmp_path), clock=clock, seed=each) for each in "ab")
    request = here.request("ls")
    async with run_alongside(here.gate.let_pass(request, make_caller())) as (passing,):
        await here.wait_for_requests()
        said = await asyncio.gather(
            here.gate.reply(request.id, "always"),
            there.gate.reply(request.id, "reject"),
            return_exceptions=True,
        )
        [passed] = await asyncio.gather(passing, return_exceptions=True)
    refused = said[0] is not None

    assert [isinstance(each, ConflictError) for each in said] == [refused, not refused]
    assert isinstance(passed, RejectedError) == refused
    assert len(await here.gate.list_grants()) == (not refused)


async def test_a_request_stays_open_if_its_grant_cannot_be_stored(tmp_path: Path) -> None:
    harness = make_gate_harness(str(tmp_path))
    request = harness.request("ls")
    async with run_alongside(harness.gate.let_pass(request, make_caller())) as (passing,):
        await harness.wait_for_requests()
        lock = Layout(str(tmp_path)).lock(value_lock(GRANTS_KEY))
        os.mkdir(lock)
        with pytest.raises(StoreError):
            await harness.gate.reply(request.id, "always")
        assert [each.id for each in await harness.gate.pending()] == [request.id]
        os.rmdir(lock)
        await harness.gate.reply(request.id, "once")
        await passing


async def test_only_one_of_two_answers_to_a_question_counts() -> None:
    harness = make_gate_harness()
    asked = Question(question="Which?", header="Which", options=())
    request = QuestionRequest(id=harness.mint.question(), session_id=SESSION, questions=(asked,))
    async with run_alongside(harness.questions.ask(request)) as (asking,):
        await harness.event_arrived.wait()
        said = await asyncio.gather(
            harness.questions.reply(request.id, (("this",),)),
            harness.questions.reject(request.id),
            return_exceptions=True,
        )
        assert await asking == (("this",),)

    assert [type(each) for each in said] == [type(None), ConflictError]
    with pytest.raises(ConflictError):
        await harness.questions.reply(request.id, (("that",),))


async def test_the_question_of_an_aborted_run_is_withdrawn_with_an_event() -> None:
    harness = make_gate_harness()
    request = harness.request("ls")
    passing = asyncio.ensure_future(harness.gate.let_pass(request, make_caller()))
    await harness.wait_for_requests()
    passing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await passing
    assert await harness.gate.pending() == []
    assert await harness.storage.asked.read() == ()
    assert harness.events[-1] == PermissionReplied(session_id=SESSION, request_id=request.id, reply="reject")


async def test_without_a_person_a_request_is_refused_at_once_with_a_hint() -> None:
    harness = make_gate_harness(can_ask=False)
    request = harness.request("rm x")
    with pytest.raises(UnansweredError) as refused:
        await harness.gate.let_pass(request, make_caller())
    assert "bash rm x" in str(refused.value)
    assert f"weft permission reply {request.id} once" in refused.value.hint
    assert isinstance(refused.value, RejectedError)
    assert [each.permission for each in await harness.gate.pending()] == [request]
    assert harness.events == [
        PermissionAsked(request=request),
        PermissionReplied(session_id=SESSION, request_id=request.id, reply="reject"),
    ]


async def test_a_request_that_nobody_answers_stays_open_for_a_week() -> None:
    harness = make_gate_harness(can_ask=False)
    first, second, third = harness.request("ls"), harness.request("pwd"), harness.request("id")
    week = 7 * 24 * 3600 * 1000
    for request, later in ((first, week - 1), (second, 1), (third, 0)):
        with pytest.raises(UnansweredError):
            await harness.gate.let_pass(request, make_caller())
        if request is second:
            assert [each.permission for each in await harness.gate.pending()] == [first, second]
        harness.clock.turn(later)
    assert [each.permission for each in await harness.gate.pending()] == [second, third]


async def test_an_unanswered_request_can_be_allowed_or_denied_without_ending_the_run() -> None:
    yes = make_gate_harness(can_ask=False, unanswered="allow")
    await yes.gate.let_pass(yes.request("ls"), make_caller())
    with pytest.raises(DeniedError):
        await yes.gate.let_pass(yes.request("ls"), make_caller(rules("*:*:deny")))
    skip = make_gate_harness(can_ask=False, unanswered="skip")
    with pytest.raises(NobodyError) as refused:
        await skip.gate.let_pass(skip.request("ls"), make_caller())
    assert not isinstance(refused.value, RejectedError)


async def test_an_answer_after_the_deadline_does_not_count() -> None:
    harness = make_gate_harness(timeout_seconds=60, clock=InstantClock(NOW))
    request = harness.request("ls")
    with pytest.raises(UnansweredError):
        await harness.gate.let_pass(request, make_caller())
    assert harness.clock.now() == NOW + 60_000
    assert [each.id for each in await harness.gate.pending()] == [request.id]
    assert not harness.gate.is_waiting(SESSION)


async def test_two_equal_concurrent_requests_are_two_questions() -> None:
    harness = make_gate_harness()
    first, second = harness.request("ls"), harness.request("ls")
    async with run_alongside(
        harness.gate.let_pass(first, make_caller()), harness.gate.let_pass(second, make_caller())
    ) as both:
        assert await harness.wait_for_requests(2) == [first.id, second.id]
        await harness.gate.reply(first.id, "once")
        await harness.gate.reply(second.id, "once")
        await asyncio.gather(*both)


class InterruptedStore(MemoryStore):
    """Can be read only while `works`, as a database that restarts."""

    works = True

    async def find_value(self, key: Key) -> Any:
        if not self.works:
            raise StoreError("the database restarts")
        return await super().find_value(key)


async def test_a_request_waits_on_if_the_store_cannot_be_read_for_a_moment() -> None:
    store = InterruptedStore()
    harness = make_gate_harness(shared=store)
    request = harness.request("ls")
    async with run_alongside(harness.gate.let_pass(request, make_caller())) as [passing]:
        await harness.wait_for_requests()
        await harness.clock.somebody_sleeps(1)
        store.works = False
        harness.clock.turn(1000)
        async with asyncio.timeout(10):
            await harness.clock.somebody_sleeps(1)
        store.works = True
        assert not passing.done()
        await harness.gate.reply(request.id, "once")
        await passing
