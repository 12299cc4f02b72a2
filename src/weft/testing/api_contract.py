"""Checks that every `Api` must pass."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from msgspec.structs import replace

from weft.api import Api
from weft.errors import InvalidInputError, NotFoundError, OutsideError
from weft.model.event import (
    CommandExecuted,
    Event,
    PublishedEvent,
    SessionCreated,
    SessionIdled,
    SessionUpdated,
    StatusChanged,
    session_of,
)
from weft.model.ids import GrantID, MessageID, PermissionID, PtyID, QuestionID, SessionID
from weft.model.input import (
    CommandInput,
    PromptInput,
    SessionInput,
    ShellInput,
    TextInput,
    prompt,
)
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import ModelRef, PendingState, RunningState, TextPart, ToolPart
from weft.model.session import Busy, Idle, SessionChange
from weft.model.session_query import SessionQuery
from weft.model.spending import add_spent, to_child_spent
from weft.model.transcript import Transcript
from weft.model.workspace_event import TuiPromptAppended
from weft.testing.api_sessions import (
    MESSAGE_CHECKS,
    SESSION_CHECKS,
    TRANSFER_CHECKS,
    UNDO_CHECKS,
    expect_error,
)

MISSING_SESSION = SessionID("ses_00000000000000000000000000")
MISSING_MESSAGE = MessageID("msg_00000000000000000000000000")
MISSING_PTY = PtyID("pty_00000000000000000000000000")
MISSING_PERMISSION = PermissionID("per_00000000000000000000000000")
MISSING_QUESTION = QuestionID("que_00000000000000000000000000")
MISSING_GRANT = GrantID("gra_00000000000000000000000000")


def _without_summary(message: MessageWithParts) -> MessageWithParts:
    """Return a prompt without its summary, which is added while it is answered."""
    assert isinstance(message.info, UserMessage)
    return replace(message, info=replace(message.info, summary=None))


async def a_prompt_that_is_not_waited_for_is_stored_and_answered(api: Api) -> None:
    session = await api.create_session(SessionInput())
    events = api.events()
    stored = await api.submit(session.id, prompt("hello"))
    assert isinstance(stored.info, UserMessage)
    assert _without_summary(await api.get_message(session.id, stored.info.id)) == _without_summary(stored)
    async for published in events:
        if isinstance(published.event, SessionIdled) and published.event.session_id == session.id:
            break
    asked, answer = await api.list_messages(session.id)
    assert _without_summary(asked) == _without_summary(stored)
    assert isinstance(answer.info, AssistantMessage)
    assert answer.info.parent_id == stored.info.id


async def a_missing_message_is_not_found(api: Api) -> None:
    session = await api.create_session(SessionInput())
    await expect_error(NotFoundError, api.get_message(session.id, MISSING_MESSAGE))
    await expect_error(NotFoundError, api.list_diff(session.id, message=MISSING_MESSAGE))


async def an_event_of_a_front_end_reaches_listeners(api: Api) -> None:
    session = await api.create_session(SessionInput())
    events, event = api.events(), TuiPromptAppended(text="words")
    await api.publish(event)
    assert (await anext(events)).event == event
    await expect_error(InvalidInputError, api.publish(SessionUpdated(info=session)))


async def there_is_a_primary_agent_and_a_connected_provider(api: Api) -> None:
    agents = await api.workspace.list_agents()
    assert agents[0].mode != "subagent"
    providers = await api.configuration.list_providers()
    assert providers.connected
    for id in providers.connected:
        info = next(each for each in providers.all if each.id == id)
        assert providers.default[id] in info.models
    tools = await api.workspace.list_tools()
    assert all(tool.parameters["type"] == "object" for tool in tools)


async def the_configuration_has_every_key_binding(api: Api) -> None:
    keys = (await api.configuration.get())["keybinds"]
    assert isinstance(keys, dict)
    assert {"leader", "session_interrupt", "agent_cycle"} <= set(keys)


async def the_paths_of_the_workspace_are_absolute(api: Api) -> None:
    place = await api.workspace.get_paths()
    assert place.directory.startswith("/")
    assert place.worktree.startswith("/")


async def no_path_leads_out_of_the_project(api: Api) -> None:
    for path in ("../" * 40 + "etc/passwd", "/etc/passwd"):
        await expect_error(OutsideError, api.files.read_file(path))
        await expect_error(OutsideError, api.files.list_directory(path))
    await expect_error(InvalidInputError, api.files.read_file("a\0b"))


async def a_missing_terminal_is_not_found(api: Api) -> None:
    await expect_error(NotFoundError, api.terminals.get_pty(MISSING_PTY))
    await expect_error(NotFoundError, api.terminals.remove_pty(MISSING_PTY))
    assert await api.terminals.list_ptys() == []


WORKSPACE_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    a_prompt_that_is_not_waited_for_is_stored_and_answered,
    a_missing_message_is_not_found,
    an_event_of_a_front_end_reaches_listeners,
    there_is_a_primary_agent_and_a_connected_provider,
    the_configuration_has_every_key_binding,
    the_paths_of_the_workspace_are_absolute,
    no_path_leads_out_of_the_project,
    a_missing_terminal_is_not_found,
)


ARGUMENTS = "as !`typed` $1 $ARGUMENTS"


async def the_built_in_commands_are_listed(api: Api) -> None:
    names = [command.name for command in await api.list_commands()]
    assert names[:2] == ["init", "review"]
    assert await api.get_command("review") in await api.list_commands()


async def a_command_becomes_a_prompt_with_its_arguments(api: Api) -> None:
    session = await api.create_session(SessionInput())
    answer = await api.command(session.id, CommandInput(command="init", arguments=ARGUMENTS))
    asked, stored = await api.list_messages(session.id)
    assert stored == answer
    assert isinstance(asked.info, UserMessage)
    assert any(part.text.endswith(ARGUMENTS) for part in asked.parts if isinstance(part, TextPart))


async def the_execution_of_a_command_is_published(api: Api) -> None:
    session = await api.create_session(SessionInput())
    events = api.events()
    answer = await api.command(session.id, CommandInput(command="init", arguments="now"))
    idle = False
    async for published in events:
        idle = idle or isinstance(published.event, SessionIdled)
        if isinstance(published.event, CommandExecuted):
            break
    assert idle
    assert published.event == CommandExecuted(
        name="init", session_id=session.id, arguments="now", message_id=answer.info.id
    )


async def a_missing_command_is_not_found_and_nothing_is_stored(api: Api) -> None:
    session = await api.create_session(SessionInput())
    await expect_error(NotFoundError, api.get_command("no-such-command"))
    await expect_error(NotFoundError, api.command(session.id, CommandInput(command="no-such-command")))
    await expect_error(NotFoundError, api.command(session.id, CommandInput(command="init", agent="nobody")))
    assert await api.list_messages(session.id) == []
    await expect_error(NotFoundError, api.command(MISSING_SESSION, CommandInput(command="init")))
    await expect_error(NotFoundError, api.command(SessionID("ses_../x"), CommandInput(command="init")))


async def a_shell_command_of_the_person_calls_no_model_and_is_stored_complete(api: Api) -> None:
    session = await api.create_session(SessionInput())
    answer = await api.shell(session.id, ShellInput(command="echo hello"))
    said, stored = await api.list_messages(session.id)
    assert stored == answer
    assert isinstance(said.info, UserMessage)
    assert isinstance(answer.info, AssistantMessage)
    assert answer.info.time.completed is not None
    (part,) = answer.parts
    assert isinstance(part, ToolPart)
    assert part.tool == "bash"
    assert not isinstance(part.state, PendingState | RunningState)


async def a_shell_command_of_the_person_needs_a_session_and_an_agent(api: Api) -> None:
    session = await api.create_session(SessionInput())
    await expect_error(NotFoundError, api.shell(MISSING_SESSION, ShellInput(command="echo")))
    await expect_error(NotFoundError, api.shell(SessionID("ses_../x"), ShellInput(command="echo")))
    await expect_error(NotFoundError, api.shell(session.id, ShellInput(command="echo", agent="nobody")))
    assert await api.list_messages(session.id) == []


COMMAND_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    the_built_in_commands_are_listed,
    a_command_becomes_a_prompt_with_its_arguments,
    the_execution_of_a_command_is_published,
    a_missing_command_is_not_found_and_nothing_is_stored,
    a_shell_command_of_the_person_calls_no_model_and_is_stored_complete,
    a_shell_command_of_the_person_needs_a_session_and_an_agent,
)


async def there_are_no_requests_and_no_grants_before_an_agent_works(api: Api) -> None:
    assert await api.list_permissions() == []
    assert await api.list_questions() == []
    assert await api.list_grants() == []


async def a_reply_to_a_missing_request_is_not_found(api: Api) -> None:
    for asked in (
        api.reply_permission(MISSING_PERMISSION, "once"),
        api.reply_permission(MISSING_PERMISSION, "always"),
        api.reply_permission(MISSING_PERMISSION, "reject", message="no"),
        api.reply_question(MISSING_QUESTION, (("Yes",),)),
        api.reject_question(MISSING_QUESTION),
        api.revoke_grant(MISSING_GRANT),
    ):
        await expect_error(NotFoundError, asked)


async def a_reply_with_an_id_of_another_kind_is_not_found(api: Api) -> None:
    for asked in (
        api.reply_permission(PermissionID(MISSING_QUESTION), "once"),
        api.reply_question(QuestionID(MISSING_PERMISSION), ()),
        api.reject_question(QuestionID("que_../../x")),
        api.revoke_grant(GrantID("")),
    ):
        await expect_error(NotFoundError, asked)


PERMISSION_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    there_are_no_requests_and_no_grants_before_an_agent_works,
    a_reply_to_a_missing_request_is_not_found,
    a_reply_with_an_id_of_another_kind_is_not_found,
)


async def a_search_finds_words_of_a_prompt(api: Api) -> None:
    session = await api.create_session(SessionInput(title="Loom"))
    stored = await api.prompt(
        session.id, PromptInput(no_reply=True, parts=(TextInput(text="where is the quarrelsome shuttle"),))
    )
    (hit,) = await api.search("quarrel shuttle")
    assert (hit.session_id, hit.message_id, hit.title) == (session.id, stored.info.id, "Loom")
    assert [hit.snippet[start:end] for start, end in hit.marks] == ["quarrelsome", "shuttle"]
    assert await api.search("quarrel shuttle", limit=0) == []
    assert await api.search("nobody said this") == []


async def any_text_can_be_searched_for(api: Api) -> None:
    for words in ("", '"', "a AND", "NEAR(", "\0", "-", "x" * 100_000):
        await api.search(words, everywhere=True)


async def the_spending_of_a_session_is_the_sum_of_its_answers(api: Api) -> None:
    parent = await api.create_session(SessionInput())
    child = await api.create_session(SessionInput(parent_id=parent.id))
    for session in (parent.id, child.id, child.id):
        await api.prompt(session, prompt("hello"))
    own, below = await api.get_spending(parent.id), await api.get_spending(child.id)
    # The time of a child passes inside a step of its parent, and is counted there.
    assert own.tree == add_spent((own.own, to_child_spent(below.tree)))
    for session in (parent.id, child.id):
        answers = [message.info for message in await api.list_messages(session)]
        costs = [each.cost for each in answers if isinstance(each, AssistantMessage)]
        assert (await api.get_spending(session)).own.cost == sum(costs)


async def figures_count_sessions_messages_and_tokens(api: Api) -> None:
    session = await api.create_session(SessionInput())
    await api.prompt(session.id, prompt("hello"))
    messages, spent = await api.list_messages(session.id), (await api.get_spending(session.id)).own
    found = await api.get_figures()
    counted = replace(spent, steps=0, ms=0)  # figures have neither steps nor time
    assert (found.sessions, found.messages, found.spent) == (1, len(messages), counted)
    project = await api.current_project()
    assert await api.get_figures(project=project.id) == found


async def verifying_a_session_after_normal_use_finds_no_fault(api: Api) -> None:
    session = await api.create_session(SessionInput())
    await api.prompt(session.id, prompt("hello"))
    await api.update_session(session.id, SessionChange(title="Another title"))
    proof = await api.data.verify(session.id)
    assert (proof.session, proof.findings) == (session.id, ())
    assert (proof.verdict, proof.head != "") in {
        ("intact", True),
        ("unproven", False),
    }  # memory keeps no chain
    await expect_error(NotFoundError, api.data.verify(MISSING_SESSION))


SEARCH_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    a_search_finds_words_of_a_prompt,
    any_text_can_be_searched_for,
    the_spending_of_a_session_is_the_sum_of_its_answers,
    figures_count_sessions_messages_and_tokens,
    verifying_a_session_after_normal_use_finds_no_fault,
)


MALFORMED_IDS = (
    "",
    "ses_/",
    "ses_../../../etc/passwd",
    "msg_00000000000000000000000000",
    "ses_" + "x" * 500,
    "ses_\0",
)
UNUSUAL_TEXTS = (
    "\0",
    "a\r\nb\r\n",
    "\ufeffx",
    "🧵" * 1000,
    "\u202eabc",
    "x" * 1_000_000,
    '{"$extra": {"id": 1}}',
)
MAX_EVENTS = 10_000


async def a_created_session_can_be_read(api: Api) -> None:
    created = await api.create_session(SessionInput(title="Mine"))
    assert await api.get_session(created.id) == created
    assert created.title == "Mine"
    assert created.id in [session.id for session in await api.list_sessions()]


async def an_untitled_session_is_named_by_its_time(api: Api) -> None:
    created = await api.create_session(SessionInput())
    assert created.title.startswith("New session - ")


async def a_child_session_is_not_listed_among_the_roots(api: Api) -> None:
    parent = await api.create_session(SessionInput())
    child = await api.create_session(SessionInput(parent_id=parent.id))
    assert child.parent_id == parent.id
    assert child.title.startswith("Child session - ")
    roots = [session.id for session in await api.list_sessions(SessionQuery(roots=True))]
    assert parent.id in roots
    assert child.id not in roots


async def sessions_are_listed_newest_first_up_to_a_limit(api: Api) -> None:
    created = [(await api.create_session(SessionInput())).id for _ in range(3)]
    listed = [session.id for session in await api.list_sessions() if session.id in created]
    assert listed == created[::-1]
    assert [session.id for session in await api.list_sessions(SessionQuery(limit=2))] == created[:0:-1]


async def a_missing_session_is_not_found(api: Api) -> None:
    await expect_error(NotFoundError, api.get_session(MISSING_SESSION))
    await expect_error(NotFoundError, api.list_messages(MISSING_SESSION))
    await expect_error(NotFoundError, api.prompt(MISSING_SESSION, prompt("hello")))
    await expect_error(NotFoundError, api.create_session(SessionInput(parent_id=MISSING_SESSION)))
    await expect_error(NotFoundError, api.reply_permission(MISSING_PERMISSION, "once"))


async def a_malformed_id_is_not_found(api: Api) -> None:
    for malformed in MALFORMED_IDS:
        await expect_error(NotFoundError, api.get_session(SessionID(malformed)))
        await expect_error(NotFoundError, api.prompt(SessionID(malformed), prompt("hello")))
        await expect_error(NotFoundError, api.abort(SessionID(malformed)))


async def a_prompt_is_stored_and_answered(api: Api) -> None:
    session = await api.create_session(SessionInput())
    answer = await api.prompt(session.id, prompt("hello"))
    asked, stored = await api.list_messages(session.id)
    assert stored == answer
    assert isinstance(asked.info, UserMessage)
    assert isinstance(answer.info, AssistantMessage)
    assert answer.info.parent_id == asked.info.id
    assert answer.info.error is None
    assert answer.info.time.completed is not None
    assert _get_text(asked) == "hello"
    assert _get_text(answer) != ""


async def successive_prompts_make_one_conversation(api: Api) -> None:
    session = await api.create_session(SessionInput())
    for words in ("one", "two", "three"):
        await api.prompt(session.id, prompt(words))
    messages = await api.list_messages(session.id)
    assert [_get_text(each) for each in messages if isinstance(each.info, UserMessage)] == [
        "one",
        "two",
        "three",
    ]
    assert [type(each.info) for each in messages] == [UserMessage, AssistantMessage] * 3
    assert await api.list_messages(session.id, limit=2) == messages[-2:]


async def the_same_message_sent_twice_is_one_prompt(api: Api) -> None:
    session = await api.create_session(SessionInput())
    id = MessageID("msg_1e10b972b001AbCdEfGhIjKlMn")
    input = PromptInput(message_id=id, parts=(TextInput(text="once"),))
    first, second = await asyncio.gather(api.prompt(session.id, input), api.prompt(session.id, input))
    assert first == second
    asked, answer = await api.list_messages(session.id)
    assert (asked.info.id, answer) == (id, first)


async def a_prompt_that_wants_no_reply_gets_none(api: Api) -> None:
    session = await api.create_session(SessionInput())
    stored = await api.prompt(session.id, PromptInput(no_reply=True, parts=(TextInput(text="note"),)))
    assert await api.list_messages(session.id) == [stored]


async def unusual_text_is_stored_unchanged(api: Api) -> None:
    session = await api.create_session(SessionInput())
    for text in UNUSUAL_TEXTS:
        stored = await api.prompt(session.id, PromptInput(no_reply=True, parts=(TextInput(text=text),)))
        assert _get_text(stored) == text
    assert len(await api.list_messages(session.id)) == len(UNUSUAL_TEXTS)


async def a_prompt_with_a_missing_agent_or_model_is_refused_and_not_stored(api: Api) -> None:
    session = await api.create_session(SessionInput())
    nobody = PromptInput(agent="no-such-agent", parts=(TextInput(text="x"),))
    nothing = PromptInput(model=ModelRef(provider_id="no", model_id="such"), parts=(TextInput(text="x"),))
    for wrong in (nobody, nothing):
        await expect_error(Exception, api.check_prompt(wrong))
        await expect_error(Exception, api.prompt(session.id, wrong))
    assert await api.list_messages(session.id) == []


async def aborting_an_idle_session_does_nothing(api: Api) -> None:
    session = await api.create_session(SessionInput())
    assert await api.abort(session.id) is False
    assert await api.list_permissions() == []


async def a_session_is_busy_while_it_runs_and_idle_otherwise(api: Api) -> None:
    session = await api.create_session(SessionInput())
    assert await api.get_status(session.id) == Idle()
    assert await api.get_status(MISSING_SESSION) == Idle()
    events = api.events()
    await api.prompt(session.id, prompt("hello"))
    published = [each.event for each in await _collect_until_idle(events, session.id)]
    statuses = [event.status for event in published if isinstance(event, StatusChanged)]
    assert statuses[0] == Busy()
    assert statuses[-1] == Idle()
    assert await api.get_status(session.id) == Idle()
    assert session.id not in await api.list_status()


async def folded_events_equal_the_stored_messages(api: Api) -> None:
    events = api.events()
    session = await api.create_session(SessionInput())
    await api.prompt(session.id, prompt("hello"))
    published = await _collect_until_idle(events, session.id)
    folded = Transcript()
    folded.feed(*(each.event for each in published))
    assert folded.messages() == await api.list_messages(session.id)
    assert any(isinstance(each.event, SessionCreated) for each in published)


async def a_listener_can_resume_after_a_cursor(api: Api) -> None:
    events = api.events()
    session = await api.create_session(SessionInput())
    await api.prompt(session.id, prompt("hello"))
    published = await _collect_until_idle(events, session.id)
    middle = published[len(published) // 2]
    again = await _collect_until_idle(api.events(after=middle.cursor), session.id)
    assert _get_events(again) == _get_events(published[published.index(middle) + 1 :])


CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    a_created_session_can_be_read,
    an_untitled_session_is_named_by_its_time,
    a_child_session_is_not_listed_among_the_roots,
    sessions_are_listed_newest_first_up_to_a_limit,
    a_missing_session_is_not_found,
    a_malformed_id_is_not_found,
    a_prompt_is_stored_and_answered,
    successive_prompts_make_one_conversation,
    the_same_message_sent_twice_is_one_prompt,
    a_prompt_that_wants_no_reply_gets_none,
    unusual_text_is_stored_unchanged,
    a_prompt_with_a_missing_agent_or_model_is_refused_and_not_stored,
    aborting_an_idle_session_does_nothing,
    a_session_is_busy_while_it_runs_and_idle_otherwise,
    folded_events_equal_the_stored_messages,
    a_listener_can_resume_after_a_cursor,
    *SESSION_CHECKS,
    *COMMAND_CHECKS,
    *SEARCH_CHECKS,
    *WORKSPACE_CHECKS,
    *TRANSFER_CHECKS,
    *MESSAGE_CHECKS,
    *UNDO_CHECKS,
    *PERMISSION_CHECKS,
)


async def _collect_until_idle(
    events: AsyncIterator[PublishedEvent], session: SessionID
) -> list[PublishedEvent]:
    """Return the events of a session until it is idle."""
    published: list[PublishedEvent] = []
    async for each in events:
        if session_of(each.event) == session:
            published.append(each)
        is_idle = isinstance(each.event, SessionIdled) and each.event.session_id == session
        if is_idle or len(published) > MAX_EVENTS:
            break
    return published


def _get_events(published: list[PublishedEvent]) -> list[Event]:
    return [each.event for each in published]


def _get_text(message: MessageWithParts) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))
