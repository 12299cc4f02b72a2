"""What every `Api` must do about what is around conversations, and about prompts that are not waited for."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from weft.api import Api
from weft.errors import InvalidInputError, NotFoundError, OutsideError
from weft.model.event import SessionRested, SessionUpdated
from weft.model.ids import MessageID, PtyID
from weft.model.input import SessionInput, prompt
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.surroundings import TuiPromptAppended

MISSING_MESSAGE = MessageID("msg_00000000000000000000000000")
MISSING_PTY = PtyID("pty_00000000000000000000000000")


def _said(message: MessageWithParts) -> MessageWithParts:
    """Return a prompt without what is added to it while it is answered: its title, and what it changed."""
    assert isinstance(message.info, UserMessage)
    return replace(message, info=replace(message.info, summary=None))


async def a_prompt_that_is_not_waited_for_is_stored_and_answered(api: Api) -> None:
    session = await api.create_session(SessionInput())
    events = api.events()
    stored = await api.submit(session.id, prompt("hello"))
    assert isinstance(stored.info, UserMessage)
    assert _said(await api.get_message(session.id, stored.info.id)) == _said(stored)
    async for told in events:
        if isinstance(told.event, SessionRested) and told.event.session_id == session.id:
            break
    asked, answer = await api.list_messages(session.id)
    assert _said(asked) == _said(stored)
    assert isinstance(answer.info, AssistantMessage)
    assert answer.info.parent_id == stored.info.id


async def a_message_that_is_not_there_is_not_found(api: Api) -> None:
    session = await api.create_session(SessionInput())
    await _refused(NotFoundError, api.get_message(session.id, MISSING_MESSAGE))
    await _refused(NotFoundError, api.list_diff(session.id, message=MISSING_MESSAGE))


async def what_a_front_end_tells_is_heard(api: Api) -> None:
    session = await api.create_session(SessionInput())
    events, event = api.events(), TuiPromptAppended(text="words")
    await api.tell(event)
    assert (await anext(events)).event == event
    await _refused(InvalidInputError, api.tell(SessionUpdated(info=session)))


async def there_is_somebody_to_answer_and_something_to_answer_with(api: Api) -> None:
    agents = await api.surroundings.list_agents()
    assert agents[0].mode != "subagent"
    providers = await api.configuration.list_providers()
    assert providers.connected
    for id in providers.connected:
        info = next(each for each in providers.all if each.id == id)
        assert providers.default[id] in info.models
    tools = await api.surroundings.list_tools()
    assert all(tool.parameters["type"] == "object" for tool in tools)


async def the_configuration_says_every_key_binding(api: Api) -> None:
    config = await api.configuration.get()
    assert {"leader", "session_interrupt", "agent_cycle"} <= set(config["keybinds"])


async def where_we_are_is_an_absolute_path(api: Api) -> None:
    place = await api.surroundings.get_whereabouts()
    assert place.directory.startswith("/")
    assert place.worktree.startswith("/")


async def no_path_leads_out_of_the_project(api: Api) -> None:
    for path in ("../" * 40 + "etc/passwd", "/etc/passwd"):
        await _refused(OutsideError, api.files.read_file(path))
        await _refused(OutsideError, api.files.list_directory(path))
    await _refused(InvalidInputError, api.files.read_file("a\0b"))


async def a_terminal_that_is_not_there_is_not_found(api: Api) -> None:
    await _refused(NotFoundError, api.terminals.get_pty(MISSING_PTY))
    await _refused(NotFoundError, api.terminals.remove_pty(MISSING_PTY))
    assert await api.terminals.list_ptys() == []


async def _refused(kind: type[Exception], call: Awaitable[object]) -> None:
    try:
        await call
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was to be raised")


AROUND_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    a_prompt_that_is_not_waited_for_is_stored_and_answered,
    a_message_that_is_not_there_is_not_found,
    what_a_front_end_tells_is_heard,
    there_is_somebody_to_answer_and_something_to_answer_with,
    the_configuration_says_every_key_binding,
    where_we_are_is_an_absolute_path,
    no_path_leads_out_of_the_project,
    a_terminal_that_is_not_there_is_not_found,
)
