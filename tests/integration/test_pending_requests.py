"""Permission requests and questions that outlive their process: listed, answered later, and asked again with the same id."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from given.engine import ECHO, NOW, PLACE, Engine, open_engine, text_prompt
from given.gate_harness import make_caller, make_gate_harness, run_alongside
from given.undo_harness import call_bash, open_undo_harness
from weft.cli.follow import AutoReject
from weft.cli.questions import PendingQuestions
from weft.errors import ConflictError, LeaseLostError, RejectedError
from weft.local.permissions import PermissionSettings, make_gate_storage, permission_project
from weft.model.event import PermissionAsked, PermissionReplied, QuestionAsked, QuestionRejected
from weft.model.ids import PermissionID, SessionID
from weft.model.input import SessionInput
from weft.model.part import CompletedState, ErrorState, TextPart, ToolPart
from weft.model.permission import PermissionRequest, Rule
from weft.permission.audit import find_break, read_end
from weft.permission.policy import AskPolicy
from weft.permission.requests import OpenRequest
from weft.permission.storage import end_key, log_key
from weft.provider.scripted import AnyMove, Say, UseTool
from weft.store.reader import open_reader
from weft.store.url import open_store
from weft.tool.question import UNATTENDED_OUTPUT
from weft.tool.registry import QUESTION

ASK = (Rule(permission="*", pattern="*", action="ask"),)
CALL = [UseTool(tool="echo", input={"words": "x"})]
DONE = [Say(text="done")]
TEA = {"question": "Tea?", "header": "Tea", "options": [{"label": "Yes", "description": "hot"}]}
ASKS = [UseTool(tool="question", input={"questions": [TEA]})]


@asynccontextmanager
async def open_engine_in(
    directory: Path, *script: list[AnyMove], can_ask: bool = True, seed: int = 1, **terms: Any
) -> AsyncIterator[Engine]:
    """Open an engine in a directory, as one process after another does."""
    said = AskPolicy(can_ask=can_ask, person="ada", **terms)
    permitting = PermissionSettings(policy=said, persistent=True)
    async with (
        open_store(f"file:{directory / 'storage'}") as store,
        open_engine(
            *script, store=store, rules=ASK, seed=seed, tools=(ECHO, QUESTION), permissions=permitting
        ) as engine,
    ):
        yield engine


async def wait_for_events(engine: Engine, *kinds: type) -> list[Any]:
    """Wait until an event of each kind was published, and return the first of each."""
    found: dict[type, Any] = {}
    async for each in engine.api.events(after=0):
        if type(each.event) in kinds:
            found.setdefault(type(each.event), each.event)
        if len(found) == len(kinds):
            break
    return [found[kind] for kind in kinds]


async def leave_request_open(directory: Path) -> tuple[SessionID, PermissionRequest]:
    """Return a session whose process ended while its run waited for an answer."""
    async with open_engine_in(directory, CALL, DONE) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        running = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        [asked] = await wait_for_events(engine, PermissionAsked)
        assert await engine.api.list_permissions() == [asked.request]
    await running
    return session, asked.request


async def call_of(engine: Engine, session: SessionID) -> CompletedState | ErrorState:
    """Return the state of the last call."""
    parts = [part for message in await engine.api.list_messages(session) for part in message.parts]
    [*_, last] = [part.state for part in parts if isinstance(part, ToolPart)]
    assert isinstance(last, CompletedState | ErrorState)
    return last


async def test_a_request_is_listed_after_a_restart_and_its_call_was_not_run(tmp_path: Path) -> None:
    session, request = await leave_request_open(tmp_path)
    async with open_engine_in(tmp_path, seed=2) as engine:
        assert await engine.api.list_permissions() == [request]
        assert isinstance(await call_of(engine, session), ErrorState)


async def test_a_request_is_asked_again_with_the_same_id_when_the_session_continues(tmp_path: Path) -> None:
    session, request = await leave_request_open(tmp_path)
    async with open_engine_in(tmp_path, CALL, DONE, seed=2) as engine:
        async with run_alongside(engine.api.prompt(session, text_prompt("go on"))) as [running]:
            [asked] = await wait_for_events(engine, PermissionAsked)
            assert asked.request.id == request.id
            assert asked.request.tool != request.tool
            await engine.api.reply_permission(request.id, "once")
            await running
        assert isinstance(await call_of(engine, session), CompletedState)
        assert await engine.api.list_permissions() == []


async def test_a_front_end_whose_answer_comes_second_carries_on(tmp_path: Path) -> None:
    async with open_engine_in(tmp_path, CALL, DONE) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        async with run_alongside(engine.api.prompt(session, text_prompt("go"))) as [running]:
            [asked] = await wait_for_events(engine, PermissionAsked)
            await engine.api.reply_permission(asked.request.id, "once")
            await running
        async with asyncio.TaskGroup() as tasks:
            AutoReject(engine.api, tasks).feed(asked)
        pending = PendingQuestions(engine.api)
        pending.add(asked.request)
        assert await pending.answer("reject")
        assert isinstance(await call_of(engine, session), CompletedState)


async def test_an_answer_given_between_two_runs_is_used_once(tmp_path: Path) -> None:
    session, request = await leave_request_open(tmp_path)
    async with open_engine_in(tmp_path, seed=2, can_ask=False) as engine:
        await engine.api.reply_permission(request.id, "once")
        assert await engine.api.list_permissions() == []
        with pytest.raises(ConflictError):
            await engine.api.reply_permission(request.id, "reject")
    async with open_engine_in(tmp_path, CALL, CALL, DONE, seed=3, can_ask=False) as engine:
        await engine.api.prompt(session, text_prompt("go on"))
        parts = [part for message in await engine.api.list_messages(session) for part in message.parts]
        states = [type(part.state) for part in parts if isinstance(part, ToolPart)]
        assert states == [ErrorState, CompletedState, ErrorState]


async def test_a_rejection_given_between_two_runs_is_used_with_its_message(tmp_path: Path) -> None:
    session, request = await leave_request_open(tmp_path)
    async with open_engine_in(tmp_path, seed=2) as engine:
        await engine.api.reply_permission(request.id, "reject", message="use ls")
    async with open_engine_in(tmp_path, CALL, DONE, seed=3, can_ask=False) as engine:
        await engine.api.prompt(session, text_prompt("go on"))
        state = await call_of(engine, session)
        assert isinstance(state, ErrorState)
        assert state.error.endswith("with the following feedback: use ls")


async def test_an_answer_is_not_used_for_another_request(tmp_path: Path) -> None:
    session, request = await leave_request_open(tmp_path)
    async with open_engine_in(tmp_path, seed=2) as engine:
        await engine.api.reply_permission(request.id, "once")
    other = [UseTool(tool="echo", input={"words": "*"})]
    async with open_engine_in(tmp_path, other, DONE, seed=3, can_ask=False) as engine:
        await engine.api.prompt(session, text_prompt("go on"))
        assert isinstance(await call_of(engine, session), ErrorState)


async def test_a_request_that_the_next_run_does_not_repeat_is_withdrawn(tmp_path: Path) -> None:
    session, _ = await leave_request_open(tmp_path)
    async with open_engine_in(tmp_path, DONE, seed=2) as engine:
        await engine.api.prompt(session, text_prompt("never mind"))
        assert await engine.api.list_permissions() == []


async def test_a_request_refused_without_a_user_can_be_allowed_and_continued(
    tmp_path: Path,
) -> None:
    async with open_engine_in(tmp_path, CALL, DONE, can_ask=False) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        await engine.api.prompt(session, text_prompt("go"))
        [request] = await engine.api.list_permissions()
        state = await call_of(engine, session)
        assert isinstance(state, ErrorState)
        assert "nobody is there" in state.error
        assert len(engine.provider.requests) == 1
    async with open_engine_in(tmp_path, CALL, DONE, can_ask=False, seed=2) as engine:
        await engine.api.reply_permission(request.id, "once")
        await engine.api.prompt(session, text_prompt("go on"))
        assert isinstance(await call_of(engine, session), CompletedState)
    reader, project = open_reader(f"file:{tmp_path / 'storage'}"), permission_project(PLACE)
    end = read_end(reader.find_value(end_key(project)))
    intact, broken = find_break(reader.read_log(log_key(project)), end)
    assert (end and end.seq, intact, broken) == (4, 4, None)


async def test_an_aborted_run_leaves_no_question(tmp_path: Path) -> None:
    async with open_engine_in(tmp_path, CALL, DONE) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        running = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        [asked] = await wait_for_events(engine, PermissionAsked)
        assert await engine.api.abort(session)
        await running
        [replied] = await wait_for_events(engine, PermissionReplied)
        assert (replied.request_id, replied.reply) == (asked.request.id, "reject")
        assert await engine.api.list_permissions() == []


async def test_a_removed_session_leaves_no_question(tmp_path: Path) -> None:
    session, _ = await leave_request_open(tmp_path)
    async with open_engine_in(tmp_path, seed=2) as engine:
        await engine.api.remove_session(session)
        assert await engine.api.list_permissions() == []


async def test_an_answer_from_another_process_reaches_the_one_that_waits(tmp_path: Path) -> None:
    here, there = make_gate_harness(str(tmp_path)), make_gate_harness(str(tmp_path), can_ask=False)
    request = here.request("ls")
    async with run_alongside(here.gate.let_pass(request, make_caller())) as [passing]:
        await here.wait_for_requests()
        assert [each.id for each in await there.gate.pending()] == [request.id]
        await there.gate.reply(request.id, "once")
        await here.clock.somebody_sleeps(1)
        here.clock.turn(1000)
        await passing
    refused = here.request("rm")
    async with run_alongside(here.gate.let_pass(refused, make_caller())) as [passing]:
        await here.wait_for_requests(2)
        await there.gate.reply(refused.id, "reject")
        await here.clock.somebody_sleeps(1)
        here.clock.turn(1000)
        with pytest.raises(RejectedError):
            await passing
    assert await here.gate.pending() == []


async def test_a_grant_from_another_process_is_used_by_the_next_call(tmp_path: Path) -> None:
    here, there = make_gate_harness(str(tmp_path)), make_gate_harness(str(tmp_path))
    request = here.request("ls")
    async with run_alongside(here.gate.let_pass(request, make_caller())) as [passing]:
        await here.wait_for_requests()
        await here.gate.reply(request.id, "always")
        await passing
    await there.gate.let_pass(there.request("ls"), make_caller())
    [grant] = await there.gate.list_grants()
    await there.gate.revoke(grant.id)
    assert await here.gate.list_grants() == []


async def test_a_question_is_asked_and_answered(tmp_path: Path) -> None:
    async with open_engine_in(tmp_path, ASKS, DONE) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        async with run_alongside(engine.api.prompt(session, text_prompt("go"))) as [running]:
            [asked] = await wait_for_events(engine, QuestionAsked)
            assert await engine.api.list_questions() == [asked.request]
            await engine.api.reply_question(asked.request.id, (("Yes", "with milk"),))
            await running
        state = await call_of(engine, session)
        assert isinstance(state, CompletedState)
        assert state.title == "Asked 1 question"
        assert state.metadata["answers"] == [["Yes", "with milk"]]
        assert state.output == (
            'User has answered your questions: "Tea?"="Yes, with milk". '
            "You can now continue with the user's answers in mind."
        )


async def test_a_call_without_questions_asks_nothing(tmp_path: Path) -> None:
    empty = [UseTool(tool="question", input={"questions": []})]
    async with open_engine_in(tmp_path, empty, DONE) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        await asyncio.wait_for(engine.api.prompt(session, text_prompt("go")), 5)
        state = await call_of(engine, session)
        assert isinstance(state, CompletedState)
        assert state.metadata["answers"] == []


async def test_a_question_that_is_dismissed_ends_the_run(tmp_path: Path) -> None:
    async with open_engine_in(tmp_path, ASKS, DONE) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        async with run_alongside(engine.api.prompt(session, text_prompt("go"))) as [running]:
            [asked] = await wait_for_events(engine, QuestionAsked)
            await engine.api.reject_question(asked.request.id)
            await running
        state = await call_of(engine, session)
        assert isinstance(state, ErrorState)
        assert state.error == "The user dismissed this question"
        assert len(engine.provider.requests) == 1
        with pytest.raises(ConflictError):
            await engine.api.reject_question(asked.request.id)


async def test_a_question_survives_its_process_and_its_answer_is_used(tmp_path: Path) -> None:
    async with open_engine_in(tmp_path, ASKS, DONE) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        running = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        [asked] = await wait_for_events(engine, QuestionAsked)
    await running
    async with open_engine_in(tmp_path, ASKS, DONE, seed=2) as engine:
        assert await engine.api.list_questions() == [asked.request]
        await engine.api.reply_question(asked.request.id, (("Yes",),))
        await engine.api.prompt(session, text_prompt("go on"))
        state = await call_of(engine, session)
        assert isinstance(state, CompletedState)
        assert state.metadata["answers"] == [["Yes"]]
        assert await engine.api.list_questions() == []


async def test_a_question_that_the_next_run_does_not_repeat_is_withdrawn(tmp_path: Path) -> None:
    async with open_engine_in(tmp_path, ASKS, DONE) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        running = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        await wait_for_events(engine, QuestionAsked)
    await running
    async with open_engine_in(tmp_path, DONE, seed=2) as engine:
        assert len(await engine.api.list_questions()) == 1
        await engine.api.prompt(session, text_prompt("never mind"))
        assert await engine.api.list_questions() == []


async def test_a_run_that_lost_its_lease_withdraws_no_request_of_the_new_holder(tmp_path: Path) -> None:
    async with open_engine_in(tmp_path, CALL) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        running = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        [asked] = await wait_for_events(engine, PermissionAsked)
        project = permission_project(PLACE)
        request = replace(
            asked.request, id=PermissionID("per_00000000000000000000000002"), patterns=("theirs",)
        )
        theirs = OpenRequest(permission=request, project_id=project, root_id=session, owner="other", time=NOW)
        storage = make_gate_storage(engine.store, project, persistent=True)
        await storage.asked.change(lambda stored: (*stored, theirs))
        engine.api.runner.end_lost_run(LeaseLostError(session, "other"))
        await asyncio.wait([running])
        assert await engine.api.list_permissions() == [asked.request, request]


async def test_a_question_that_nobody_can_answer_fails_and_the_run_continues(tmp_path: Path) -> None:
    async with open_engine_in(tmp_path, ASKS, DONE, can_ask=False) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        await engine.api.prompt(session, text_prompt("go"))
        state = await call_of(engine, session)
        assert isinstance(state, CompletedState)
        assert state.output == UNATTENDED_OUTPUT
        assert "choose what the user most likely wants" in state.output
        assert len(engine.provider.requests) == 2
        assert await engine.api.list_questions() == []


async def test_a_question_of_an_aborted_run_is_withdrawn(tmp_path: Path) -> None:
    async with open_engine_in(tmp_path, ASKS, DONE) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        running = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        [asked] = await wait_for_events(engine, QuestionAsked)
        await engine.api.abort(session)
        await running
        [rejected] = await wait_for_events(engine, QuestionRejected)
        assert rejected.request_id == asked.request.id
        assert await engine.api.list_questions() == []


async def test_a_run_continues_after_a_refusal_if_configured(tmp_path: Path) -> None:
    config = {"permission": {"bash": "ask"}, "experimental": {"continue_loop_on_deny": True}}
    async with open_undo_harness(tmp_path / "project", config=config) as harness:
        await harness.run_turn([call_bash("true")])
        _, refused, last = await harness.history()

    [call] = [part for part in refused.parts if isinstance(part, ToolPart)]
    assert isinstance(call.state, ErrorState)
    assert [part.text for part in last.parts if isinstance(part, TextPart)] == ["Done."]
