"""The gate: who passes, who is asked about, and what an answer is worth."""

import asyncio
from pathlib import Path

import pytest

from given.gate import ASK, NOW, OTHER, PROJECT, SESSION, open_post, rules, standing, waiting
from given.house import QuickClock
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


async def test_what_is_allowed_passes_and_what_is_denied_does_not() -> None:
    post = open_post()
    holds = standing(rules("bash:*:allow", "bash:rm *:deny"))
    await post.gate.let_pass(post.request("ls"), holds)
    with pytest.raises(DeniedError):
        await post.gate.let_pass(post.request("ls", "rm x"), holds)
    assert post.told == []


async def test_nothing_needs_no_permission() -> None:
    post = open_post()
    await post.gate.let_pass(post.request(), standing(rules("*:*:deny")))


async def test_a_yes_lets_this_one_pass_and_the_next_is_asked_again() -> None:
    post = open_post()
    for count in (1, 2):
        request = post.request("ls")
        async with waiting(post.gate.let_pass(request, standing())) as [passing]:
            await post.asked(count)
            assert post.gate.is_waiting(SESSION)
            assert [each.permission for each in await post.gate.pending()] == [request]
            await post.gate.reply(request.id, "once")
            await passing
        replied = PermissionReplied(session_id=SESSION, request_id=request.id, reply="once")
        assert post.told[-2:] == [PermissionAsked(request=request), replied]
    assert not post.gate.is_waiting(SESSION)
    assert await post.gate.pending() == []
    assert await post.gate.list_grants() == []


async def test_f14_a_no_ends_all_that_the_session_asks_and_nothing_of_another() -> None:
    post = open_post()
    first, second = post.request("a"), post.request("b")
    elsewhere = post.request("c", session_id=OTHER)
    calls = [post.gate.let_pass(each, standing()) for each in (first, second, elsewhere)]
    async with waiting(*calls) as [one, two, three]:
        await post.asked(3)
        await post.gate.reply(first.id, "reject", message="not like this")
        with pytest.raises(CorrectedError, match="not like this"):
            await one
        with pytest.raises(RejectedError):
            await two
        assert [each.id for each in await post.gate.pending()] == [elsewhere.id]
        await post.gate.reply(elsewhere.id, "once")
        await three


async def test_f14_an_always_also_answers_what_it_covers() -> None:
    post = open_post()
    git, push, rm = (post.request(each, always=("git *",)) for each in ("git status", "git push", "rm x"))
    async with waiting(*(post.gate.let_pass(each, standing()) for each in (git, push, rm))) as [
        one,
        two,
        three,
    ]:
        await post.asked(3)
        await post.gate.reply(git.id, "always")
        await asyncio.gather(one, two)
        assert [each.id for each in await post.gate.pending()] == [rm.id]
        await post.gate.reply(rm.id, "once")
        await three
    replied = [(event.request_id, event.reply) for event in post.told if isinstance(event, PermissionReplied)]
    assert replied == [(git.id, "always"), (push.id, "always"), (rm.id, "once")]


async def test_a_grant_answers_an_ask_and_never_a_deny() -> None:
    post = open_post()
    await granted(post, "*")
    await post.gate.let_pass(post.request("anything"), standing())
    with pytest.raises(DeniedError):
        await post.gate.let_pass(
            post.request("anything", "rm x"), standing(rules("*:*:ask", "bash:rm *:deny"))
        )
    with pytest.raises(DeniedError):
        await post.gate.let_pass(post.request("rm x"), standing(ASK, rules("bash:*:deny")))


async def granted(post, *patterns: str, **terms) -> Grant:  # type: ignore[no-untyped-def]
    """What an `always` to these patterns comes to, asked by `build` in its session."""
    request = post.request("first", always=patterns)
    before = len(await post.gate.list_grants())
    async with waiting(post.gate.let_pass(request, standing())) as [passing]:
        await post.asked(1)
        await post.gate.reply(request.id, "always", terms=GrantTerms(**terms))
        await passing
    grants = await post.gate.list_grants()
    assert len(grants) == before + 1
    return grants[-1]


async def test_a_grant_says_who_gave_what_to_whom_when_and_for_how_long() -> None:
    post = open_post()
    grant = await granted(post, "git *", expires=NOW + 1000)
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
async def test_a_grant_reaches_as_far_as_it_says(scope: str) -> None:
    post = open_post()
    await granted(post, "ls", scope=scope)
    later = MessageID("msg_00000000000000000000000009")
    askers = (
        (PROJECT, SESSION, standing()),
        (PROJECT, SESSION, standing(turn=later)),
        (PROJECT, OTHER, standing(root=OTHER, turn=later)),
        (PROJECT, OTHER, standing(turn=later)),
        (ProjectID("elsewhere"), OTHER, standing(root=OTHER, turn=later)),
        (PROJECT, SESSION, standing(agent="plan")),
    )
    passed, kept = [], await post.books.grants.read()
    for project, session, asker in askers:
        there = open_post(project=project, answered=False)
        await there.books.grants.change(lambda _: kept)
        try:
            await there.gate.let_pass(there.request("ls", session_id=session), asker)
            passed.append(True)
        except UnansweredError:
            passed.append(False)
    assert tuple(passed) == MATRIX[scope]


async def test_a_grant_for_every_agent_is_used_by_every_agent() -> None:
    post = open_post()
    await granted(post, "ls", any_agent=True)
    await post.gate.let_pass(post.request("ls"), standing(agent="plan"))


async def test_a_grant_that_is_over_or_revoked_is_not_used() -> None:
    post = open_post()
    short = await granted(post, "ls", expires=NOW + 1000)
    post.clock.turn(999)
    await post.gate.let_pass(post.request("ls"), standing())
    post.clock.turn(1)
    assert await post.gate.list_grants() == []
    post.told.clear()
    long = await granted(post, "ls")
    await post.gate.let_pass(post.request("ls"), standing())
    await post.gate.revoke(long.id)
    with pytest.raises(NotFoundError):
        await post.gate.revoke(short.id)
    post.told.clear()
    request = post.request("ls")
    async with waiting(post.gate.let_pass(request, standing())) as [passing]:
        await post.asked()
        await post.gate.reply(request.id, "once")
        await passing


async def test_what_was_granted_for_a_turn_ends_with_its_run() -> None:
    post = open_post()
    await granted(post, "ls", scope="turn")
    await post.gate.leave(SESSION)
    assert await post.gate.list_grants() == []


async def test_what_was_granted_in_a_session_goes_with_it() -> None:
    post = open_post()
    await granted(post, "ls")
    kept = await granted_again(post)
    await post.gate.forget(SESSION)
    assert await post.gate.list_grants() == [kept]


async def granted_again(post) -> Grant:  # type: ignore[no-untyped-def]
    post.told.clear()
    return await granted(post, "cat *", scope="project")


async def test_an_always_that_offers_nothing_lasting_is_a_once() -> None:
    post = open_post()
    request = post.request("ls", always=())
    async with waiting(post.gate.let_pass(request, standing())) as [passing]:
        await post.asked()
        await post.gate.reply(request.id, "always")
        await passing
    assert await post.gate.list_grants() == []


async def test_an_answer_to_what_is_not_asked_is_an_error() -> None:
    post = open_post()
    with pytest.raises(NotFoundError):
        await post.gate.reply(PermissionID("per_00000000000000000000000000"), "once")
    with pytest.raises(NotFoundError):
        await post.gate.revoke(GrantID("gra_00000000000000000000000000"))


@pytest.mark.parametrize("shared", [False, True], ids=["in memory", "in files"])
@pytest.mark.parametrize("replies", [("always", "reject"), ("reject", "always"), ("once", "always")])
async def test_of_two_answers_at_the_same_time_one_counts(
    tmp_path: Path, shared: bool, replies: tuple[Reply, Reply]
) -> None:
    post = open_post(str(tmp_path) if shared else "")
    request = post.request("ls")
    async with waiting(post.gate.let_pass(request, standing())) as (passing,):
        await post.asked()
        said = await asyncio.gather(
            *(post.gate.reply(request.id, reply) for reply in replies), return_exceptions=True
        )
        [passed] = await asyncio.gather(passing, return_exceptions=True)
    [counted] = [reply for reply, error in zip(replies, said, strict=True) if error is None]
    [lost] = [error for error in said if error is not None]

    assert isinstance(lost, ConflictError)
    assert str(lost) == f"permission request {request.id!r} was answered already"
    assert isinstance(passed, RejectedError) == (counted == "reject")
    assert len(await post.gate.list_grants()) == (counted == "always")
    assert [event for event in post.told if isinstance(event, PermissionReplied)] == [
        PermissionReplied(session_id=SESSION, request_id=request.id, reply=counted)
    ]


async def test_an_answer_that_comes_after_another_is_a_conflict() -> None:
    post = open_post()
    request = post.request("ls")
    async with waiting(post.gate.let_pass(request, standing())) as (passing,):
        await post.asked()
        await post.gate.reply(request.id, "once")
        await passing
    with pytest.raises(ConflictError):
        await post.gate.reply(request.id, "always")
    assert await post.gate.list_grants() == []


async def test_of_two_processes_that_answer_one_counts(tmp_path: Path) -> None:
    clock = QuickClock(NOW)
    here, there = (open_post(str(tmp_path), clock=clock, seed=each) for each in "ab")
    request = here.request("ls")
    async with waiting(here.gate.let_pass(request, standing())) as (passing,):
        await here.asked()
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


async def test_an_answer_whose_grant_cannot_be_stored_leaves_the_question_open(tmp_path: Path) -> None:
    post = open_post(str(tmp_path))
    request = post.request("ls")
    async with waiting(post.gate.let_pass(request, standing())) as (passing,):
        await post.asked()
        lock = tmp_path / "grants.json.lock"
        lock.mkdir()
        with pytest.raises(StoreError):
            await post.gate.reply(request.id, "always")
        assert [each.id for each in await post.gate.pending()] == [request.id]
        lock.rmdir()
        await post.gate.reply(request.id, "once")
        await passing


async def test_of_two_answers_to_a_question_one_counts() -> None:
    post = open_post()
    asked = Question(question="Which?", header="Which", options=())
    request = QuestionRequest(id=post.mint.question(), session_id=SESSION, questions=(asked,))
    async with waiting(post.questions.ask(request)) as (asking,):
        await post.heard.wait()
        said = await asyncio.gather(
            post.questions.reply(request.id, (("this",),)),
            post.questions.reject(request.id),
            return_exceptions=True,
        )
        assert await asking == (("this",),)

    assert [type(each) for each in said] == [type(None), ConflictError]
    with pytest.raises(ConflictError):
        await post.questions.reply(request.id, (("that",),))


async def test_the_question_of_an_aborted_run_is_withdrawn_and_that_is_told() -> None:
    post = open_post()
    request = post.request("ls")
    passing = asyncio.ensure_future(post.gate.let_pass(request, standing()))
    await post.asked()
    passing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await passing
    assert await post.gate.pending() == []
    assert await post.books.asked.read() == ()
    assert post.told[-1] == PermissionReplied(session_id=SESSION, request_id=request.id, reply="reject")


async def test_with_nobody_to_answer_it_is_refused_at_once_and_says_how_to_allow_it() -> None:
    post = open_post(answered=False)
    request = post.request("rm x")
    with pytest.raises(UnansweredError) as refused:
        await post.gate.let_pass(request, standing())
    assert "bash rm x" in str(refused.value)
    assert f"weft permission reply {request.id} once" in refused.value.hint
    assert isinstance(refused.value, RejectedError)
    assert [each.permission for each in await post.gate.pending()] == [request]
    assert post.told == [
        PermissionAsked(request=request),
        PermissionReplied(session_id=SESSION, request_id=request.id, reply="reject"),
    ]


async def test_nobody_may_count_as_a_yes_or_as_a_no_to_go_on_from() -> None:
    yes = open_post(answered=False, unanswered="allow")
    await yes.gate.let_pass(yes.request("ls"), standing())
    with pytest.raises(DeniedError):
        await yes.gate.let_pass(yes.request("ls"), standing(rules("*:*:deny")))
    skip = open_post(answered=False, unanswered="skip")
    with pytest.raises(NobodyError) as refused:
        await skip.gate.let_pass(skip.request("ls"), standing())
    assert not isinstance(refused.value, RejectedError)


async def test_who_does_not_answer_in_time_has_not_answered() -> None:
    post = open_post(timeout_seconds=60, clock=QuickClock(NOW))
    request = post.request("ls")
    with pytest.raises(UnansweredError):
        await post.gate.let_pass(request, standing())
    assert post.clock.now() == NOW + 60_000
    assert [each.id for each in await post.gate.pending()] == [request.id]
    assert not post.gate.is_waiting(SESSION)


async def test_two_who_ask_the_same_at_once_are_two_questions() -> None:
    post = open_post()
    first, second = post.request("ls"), post.request("ls")
    async with waiting(post.gate.let_pass(first, standing()), post.gate.let_pass(second, standing())) as both:
        assert await post.asked(2) == [first.id, second.id]
        await post.gate.reply(first.id, "once")
        await post.gate.reply(second.id, "once")
        await asyncio.gather(*both)
