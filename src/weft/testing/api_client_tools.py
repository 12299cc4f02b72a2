"""Checks of the tools that clients offer. Each needs an `Api` whose model plays `SCRIPT` from the start, where a person can answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from weft.api import Api
from weft.errors import (
    CorrectedError,
    DeniedError,
    InvalidInputError,
    NotFoundError,
    NotPermittedError,
    RejectedError,
)
from weft.model.client_tool import (
    ClientTool,
    ClientToolAsk,
    ClientToolReport,
    ClientToolRequest,
    ClientToolResult,
)
from weft.model.event import PartUpdated, PermissionAsked, PublishedEvent, SessionIdled, ToolRequested
from weft.model.ids import SessionID, ToolRequestID
from weft.model.input import SessionInput, prompt
from weft.model.part import CompletedState, ErrorState, RunningState, ToolPart
from weft.model.permission import Action, CallRef, PermissionRequest, Rule
from weft.model.session import SessionChange
from weft.provider.scripted import AnyMove, Say, UseTool
from weft.testing.api_sessions import MISSING_SESSION, expect_error

# The model calls `weigh`, then `measure`, and then ends.
SCRIPT: Final[tuple[tuple[AnyMove, ...], ...]] = (
    (UseTool(tool="weigh", input={"item": "tea"}),),
    (UseTool(tool="measure", input={"item": "silk"}),),
    (Say(text="Done."),),
)
SCHEMA: Final = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
WEIGH: Final = ClientTool(name="weigh", description="Weigh an item.", schema=SCHEMA)
MEASURE: Final = ClientTool(name="measure", description="Measure an item.", schema=SCHEMA)
MISSING_REQUEST: Final = ToolRequestID("tool_00000000000000000000000000")
ASK: Final = ClientToolAsk(key="1", permission="scales", patterns=("kitchen", "shop"))
INVALID_NAMES: Final = ("", "has space", "a" * 65, "9lives", "invalid", "recall", "StructuredOutput")


async def a_call_is_requested_of_its_client_and_the_model_reads_the_result(api: Api) -> None:
    session, events = await _start(api, WEIGH)
    request = await _next_request(events)
    paths = await api.workspace.get_paths()
    (part,) = await _list_calls(api, session)
    assert request == ClientToolRequest(
        id=request.id,
        session_id=session,
        message_id=part.message_id,
        call_id=part.call_id,
        agent="build",
        directory=paths.directory,
        worktree=paths.worktree,
        client="one",
        tool="weigh",
        input={"item": "tea"},
    )
    assert await api.list_tool_requests() == [request]
    await api.accept_tool(request.id)
    await api.accept_tool(request.id)
    await api.finish_tool(request.id, ClientToolResult(output="3 g", title="Tea", metadata={"grams": 3}))
    assert await api.list_tool_requests() == []
    await _collect_until_idle(events, session)
    state = (await _list_calls(api, session))[0].state
    assert isinstance(state, CompletedState)
    assert (state.output, state.title, state.metadata["grams"]) == ("3 g", "Tea", 3)


async def an_error_of_the_client_fails_the_call(api: Api) -> None:
    session, events = await _start(api, WEIGH)
    request = await _next_request(events)
    await api.finish_tool(request.id, ClientToolResult(error="no scales"))
    await _collect_until_idle(events, session)
    state = (await _list_calls(api, session))[0].state
    assert isinstance(state, ErrorState)
    assert state.error == "no scales"


async def a_finished_call_is_not_found(api: Api) -> None:
    session, events = await _start(api, WEIGH)
    request = await _next_request(events)
    await api.finish_tool(request.id, ClientToolResult(output="3 g"))
    await expect_error(NotFoundError, api.accept_tool(request.id))
    await expect_error(NotFoundError, api.finish_tool(request.id, ClientToolResult(output="4 g")))
    await _collect_until_idle(events, session)
    state = (await _list_calls(api, session))[0].state
    assert isinstance(state, CompletedState)
    assert state.output == "3 g"


async def an_aborted_call_is_not_found(api: Api) -> None:
    session, events = await _start(api, WEIGH)
    request = await _next_request(events)
    await api.accept_tool(request.id)
    assert await api.abort(session)
    assert await api.list_tool_requests() == []
    await expect_error(NotFoundError, api.accept_tool(request.id))
    await expect_error(NotFoundError, api.finish_tool(request.id, ClientToolResult(output="3 g")))
    (part,) = await _list_calls(api, session)
    assert isinstance(part.state, ErrorState)


async def a_result_that_cannot_be_stored_leaves_the_call_open(api: Api) -> None:
    session, events = await _start(api, WEIGH)
    request = await _next_request(events)
    for result in (
        ClientToolResult(title="x" * 100_000),
        ClientToolResult(error="x" * 1_000_000),
        ClientToolResult(metadata={"x": "x" * 10_000_000}),
        ClientToolResult(output="half a character: \ud800"),
    ):
        await expect_error(InvalidInputError, api.finish_tool(request.id, result))
    assert await api.list_tool_requests() == [request]
    await api.finish_tool(request.id, ClientToolResult(output="3 g"))
    await _collect_until_idle(events, session)


async def a_call_asks_for_a_permission_and_a_person_grants_it(api: Api) -> None:
    session, events = await _start(api, WEIGH, rule="ask")
    request = await _next_request(events)
    asking = asyncio.ensure_future(api.ask_for_tool(request.id, ASK))
    permission = await _next_permission(events)
    assert permission == PermissionRequest(
        id=permission.id,
        session_id=session,
        permission="scales",
        patterns=("kitchen", "shop"),
        metadata={},
        always=("kitchen", "shop"),
        tool=CallRef(message_id=request.message_id, call_id=request.call_id),
    )
    again = asyncio.ensure_future(api.ask_for_tool(request.id, ASK))
    await api.reply_permission(permission.id, "once")
    await asking
    await again
    await api.ask_for_tool(request.id, ASK)  # the same key: it was granted
    assert await api.list_permissions() == []
    await api.finish_tool(request.id, ClientToolResult(output="3 g"))
    await _collect_until_idle(events, session)


async def a_refused_permission_is_an_error_of_the_client(api: Api) -> None:
    session, events = await _start(api, WEIGH, rule="ask")
    request = await _next_request(events)
    refusals: tuple[tuple[str, str, type[NotPermittedError]], ...] = (
        ("1", "", RejectedError),
        ("2", "use the other scales", CorrectedError),
    )
    for key, words, kind in refusals:
        ask = ClientToolAsk(key=key, permission="scales", patterns=("kitchen",))
        asking = asyncio.ensure_future(api.ask_for_tool(request.id, ask))
        await api.reply_permission((await _next_permission(events)).id, "reject", message=words)
        error = await expect_error(kind, asking)
        assert type(error) is kind
        assert words in str(error)
        await expect_error(kind, api.ask_for_tool(request.id, ask))  # it was refused
    await api.finish_tool(request.id, ClientToolResult(output="guessed"))
    await _collect_until_idle(events, session)
    state = (await _list_calls(api, session))[0].state
    assert isinstance(state, CompletedState)


async def a_call_that_a_person_refused_ends_the_run(api: Api) -> None:
    session, events = await _start(api, WEIGH)
    request = await _next_request(events)
    await api.finish_tool(request.id, ClientToolResult(error="not allowed", refused=True))
    await _collect_until_idle(events, session)
    (part,) = await _list_calls(api, session)
    assert isinstance(part.state, ErrorState)
    assert part.state.error == "not allowed"


async def rules_decide_about_a_permission_before_a_person_does(api: Api) -> None:
    rules: tuple[tuple[Action, ClientTool], ...] = (("allow", WEIGH), ("deny", MEASURE))
    for rule, tool in rules:
        session, events = await _start(api, tool, rule=rule)
        request = await _next_request(events)
        if rule == "allow":
            await api.ask_for_tool(request.id, ASK)
        else:
            error = await expect_error(DeniedError, api.ask_for_tool(request.id, ASK))
            assert (error.permission, error.pattern, error.rule) == (
                "scales",
                "kitchen, shop",
                "scales *",
            )
        await api.abort(session)
        assert await api.list_permissions() == []


async def a_permission_request_ends_with_its_call(api: Api) -> None:
    for end, tool in (("abort", WEIGH), ("finish", MEASURE)):
        session, events = await _start(api, tool, rule="ask")
        request = await _next_request(events)
        asking = asyncio.ensure_future(api.ask_for_tool(request.id, ASK))
        await _next_permission(events)
        if end == "abort":
            await api.abort(session)
        else:
            await api.finish_tool(request.id, ClientToolResult(output="3 g"))
        await expect_error(NotFoundError, asking)
        assert await api.list_permissions() == []
        await expect_error(NotFoundError, api.ask_for_tool(request.id, ASK))
        await api.abort(session)


async def a_report_is_shown_while_the_call_runs(api: Api) -> None:
    session, events = await _start(api, WEIGH)
    request = await _next_request(events)
    await api.report_tool(request.id, ClientToolReport(title="Half", metadata={"done": 1}))
    first = await _next_report(events)
    assert (first.title, first.metadata) == ("Half", {"done": 1})
    await api.report_tool(request.id, ClientToolReport(metadata={"done": 2}))
    second = await _next_report(events)
    assert (second.title, second.metadata) == ("Half", {"done": 2})
    await api.finish_tool(request.id, ClientToolResult(output="3 g"))
    await expect_error(NotFoundError, api.report_tool(request.id, ClientToolReport(title="Late")))
    await _collect_until_idle(events, session)


async def an_invalid_ask_or_report_leaves_the_call_open(api: Api) -> None:
    session, events = await _start(api, WEIGH, rule="allow")
    request = await _next_request(events)
    await api.ask_for_tool(request.id, ASK)
    invalid = [
        ClientToolAsk(key="1", permission="scales", patterns=("garden",)),  # the key of another request
        ClientToolAsk(key="", permission="scales", patterns=("x",)),
        ClientToolAsk(key="2", permission="", patterns=("x",)),
        ClientToolAsk(key="2", permission="line\nbreak", patterns=("x",)),
        ClientToolAsk(key="2", permission="x" * 1000, patterns=("x",)),
        ClientToolAsk(key="2", permission="scales", patterns=()),
        ClientToolAsk(key="2", permission="scales", patterns=("x" * 100_000,)),
        ClientToolAsk(key="2", permission="scales", patterns=("x",) * 1000),
        ClientToolAsk(key="2", permission="scales", patterns=("\ud800",)),
    ]
    for ask in invalid:
        await expect_error(InvalidInputError, api.ask_for_tool(request.id, ask))
    for report in (
        ClientToolReport(title="x" * 100_000),
        ClientToolReport(title="\ud800"),
        ClientToolReport(metadata={"x": "x" * 10_000_000}),
    ):
        await expect_error(InvalidInputError, api.report_tool(request.id, report))
    assert await api.list_tool_requests() == [request]
    await api.abort(session)


async def a_later_offer_of_a_name_replaces_an_earlier_one(api: Api) -> None:
    session, events = await _start(api, WEIGH, then="two")
    request = await _next_request(events)
    assert request.client == "two"
    await api.abort(session)


async def an_offer_applies_from_the_next_step_on_together_with_those_of_other_clients(api: Api) -> None:
    session, events = await _start(api, WEIGH)
    request = await _next_request(events)
    await api.offer_tools(session, "two", (MEASURE,))
    await api.finish_tool(request.id, ClientToolResult(output="3 g"))
    second = await _next_request(events)
    assert (second.client, second.tool, second.input) == ("two", "measure", {"item": "silk"})
    await api.abort(session)


async def requests_of_several_sessions_are_listed_oldest_first(api: Api) -> None:
    session, events = await _start(api, WEIGH)
    first = await _next_request(events)
    other, events = await _start(api, MEASURE)
    second = await _next_request(events)
    assert await api.list_tool_requests() == [first, second]
    for each in (session, other):
        await api.abort(each)


async def a_client_withdraws_its_tools_by_offering_none(api: Api) -> None:
    session = (await api.create_session(SessionInput())).id
    await api.offer_tools(session, "one", (WEIGH,))
    await api.offer_tools(session, "one", ())
    await _expect_no_request(api, session)


async def a_new_offer_of_a_client_replaces_its_earlier_one(api: Api) -> None:
    session = (await api.create_session(SessionInput())).id
    await api.offer_tools(session, "one", (WEIGH, MEASURE))
    await api.offer_tools(session, "one", (ClientTool(name="taste", description="", schema=SCHEMA),))
    await _expect_no_request(api, session)


async def an_offer_ends_with_its_session(api: Api) -> None:
    session = (await api.create_session(SessionInput())).id
    await api.offer_tools(session, "one", (WEIGH,))
    await api.remove_session(session)
    await api.restore_session(session)
    await _expect_no_request(api, session)


async def a_rule_can_deny_a_tool(api: Api) -> None:
    session = (await api.create_session(SessionInput())).id
    await api.offer_tools(session, "one", (WEIGH, MEASURE))
    rules = tuple(Rule(permission=each, pattern="*", action="deny") for each in ("weigh", "measure"))
    await api.update_session(session, SessionChange(permission=rules))
    await _expect_no_request(api, session)


async def an_invalid_offer_is_refused_and_nothing_changes(api: Api) -> None:
    session = (await api.create_session(SessionInput())).id
    await api.offer_tools(session, "one", (WEIGH,))
    invalid = [
        *((ClientTool(name=name, description="", schema=SCHEMA),) for name in INVALID_NAMES),
        (MEASURE, MEASURE),
        (ClientTool(name="measure", description="x" * 100_000, schema=SCHEMA),),
        (ClientTool(name="measure", description="\ud800", schema=SCHEMA),),
        (ClientTool(name="measure", description="", schema={"type": "string"}),),
        (ClientTool(name="measure", description="", schema={**SCHEMA, "title": "x" * 1_000_000}),),
        tuple(ClientTool(name=f"tool{number}", description="", schema=SCHEMA) for number in range(1000)),
    ]
    for tools in invalid:
        await expect_error(InvalidInputError, api.offer_tools(session, "one", tools))
    for client in ("", "x" * 1000, "line\nbreak"):
        await expect_error(InvalidInputError, api.offer_tools(session, client, (WEIGH,)))
    events = api.events()
    await api.submit(session, prompt("Weigh the tea."))
    assert (await _next_request(events)).tool == "weigh"
    await api.abort(session)


async def tools_need_a_session_and_requests_must_be_open(api: Api) -> None:
    await expect_error(NotFoundError, api.offer_tools(MISSING_SESSION, "one", (WEIGH,)))
    await expect_error(NotFoundError, api.offer_tools(SessionID("ses_../x"), "one", (WEIGH,)))
    for id in (MISSING_REQUEST, ToolRequestID(""), ToolRequestID("tool_../x"), ToolRequestID("per_1")):
        await expect_error(NotFoundError, api.accept_tool(id))
        await expect_error(NotFoundError, api.ask_for_tool(id, ASK))
        await expect_error(NotFoundError, api.report_tool(id, ClientToolReport()))
        await expect_error(NotFoundError, api.finish_tool(id, ClientToolResult()))
    assert await api.list_tool_requests() == []


CLIENT_TOOL_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    a_call_is_requested_of_its_client_and_the_model_reads_the_result,
    an_error_of_the_client_fails_the_call,
    a_finished_call_is_not_found,
    an_aborted_call_is_not_found,
    a_result_that_cannot_be_stored_leaves_the_call_open,
    a_call_asks_for_a_permission_and_a_person_grants_it,
    a_refused_permission_is_an_error_of_the_client,
    a_call_that_a_person_refused_ends_the_run,
    rules_decide_about_a_permission_before_a_person_does,
    a_permission_request_ends_with_its_call,
    a_report_is_shown_while_the_call_runs,
    an_invalid_ask_or_report_leaves_the_call_open,
    a_later_offer_of_a_name_replaces_an_earlier_one,
    an_offer_applies_from_the_next_step_on_together_with_those_of_other_clients,
    requests_of_several_sessions_are_listed_oldest_first,
    a_client_withdraws_its_tools_by_offering_none,
    a_new_offer_of_a_client_replaces_its_earlier_one,
    an_offer_ends_with_its_session,
    a_rule_can_deny_a_tool,
    an_invalid_offer_is_refused_and_nothing_changes,
    tools_need_a_session_and_requests_must_be_open,
)


async def _start(
    api: Api, tool: ClientTool, *, then: str | None = None, rule: Action = "allow"
) -> tuple[SessionID, AsyncIterator[PublishedEvent]]:
    """Offer a tool to a new session as the client `one`, `then` also as another client, and send a prompt.

    `rule` is what the rules of the session say about the permission of `ASK`.
    """
    rules = (Rule(permission="scales", pattern="*", action=rule),)
    session = (await api.create_session(SessionInput(permission=rules))).id
    await api.offer_tools(session, "one", (tool,))
    if then is not None:
        await api.offer_tools(session, then, (tool,))
    events = api.events()
    await api.submit(session, prompt("Weigh the tea."))
    return session, events


async def _next_request(events: AsyncIterator[PublishedEvent]) -> ClientToolRequest:
    async for published in events:
        if isinstance(published.event, ToolRequested):
            return published.event.request
    raise AssertionError("the events ended without a request")


async def _next_permission(events: AsyncIterator[PublishedEvent]) -> PermissionRequest:
    async for published in events:
        if isinstance(published.event, PermissionAsked):
            return published.event.request
    raise AssertionError("the events ended without a permission request")


async def _next_report(events: AsyncIterator[PublishedEvent]) -> RunningState:
    async for published in events:
        match published.event:
            case PartUpdated(part=ToolPart(state=RunningState() as state)) if state.metadata:
                return state
            case _:
                pass
    raise AssertionError("the events ended without a report")


async def _collect_until_idle(
    events: AsyncIterator[PublishedEvent], session: SessionID
) -> list[ClientToolRequest]:
    """Wait until a session is idle. Return the requests that were published meanwhile."""
    requests: list[ClientToolRequest] = []
    async for published in events:
        match published.event:
            case ToolRequested(request=request):
                requests.append(request)
            case SessionIdled(session_id=idle_session) if idle_session == session:
                return requests
            case _:
                pass
    raise AssertionError("the events ended before the session was idle")


async def _expect_no_request(api: Api, session: SessionID) -> None:
    events = api.events()
    await api.submit(session, prompt("Weigh the tea."))
    assert await _collect_until_idle(events, session) == []


async def _list_calls(api: Api, session: SessionID) -> list[ToolPart]:
    messages = await api.list_messages(session)
    return [part for message in messages for part in message.parts if isinstance(part, ToolPart)]
