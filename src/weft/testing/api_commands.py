"""What every `Api` must do with commands, as a list of checks."""

from collections.abc import Awaitable, Callable

from weft.api import Api
from weft.errors import NotFoundError
from weft.model.event import CommandExecuted, SessionRested
from weft.model.ids import SessionID
from weft.model.input import CommandInput, SessionInput, ShellInput
from weft.model.message import AssistantMessage, UserMessage
from weft.model.part import PendingState, RunningState, TextPart, ToolPart

MISSING = SessionID("ses_00000000000000000000000000")
TYPED = "as !`typed` $1 $ARGUMENTS"


async def the_built_in_commands_are_there(api: Api) -> None:
    names = [command.name for command in await api.list_commands()]
    assert names[:2] == ["init", "review"]
    assert await api.get_command("review") in await api.list_commands()


async def a_command_is_a_prompt_and_what_is_typed_behind_it_stands_in_it(api: Api) -> None:
    session = await api.create_session(SessionInput())
    answer = await api.command(session.id, CommandInput(command="init", arguments=TYPED))
    asked, stored = await api.list_messages(session.id)
    assert stored == answer
    assert isinstance(asked.info, UserMessage)
    assert any(part.text.endswith(TYPED) for part in asked.parts if isinstance(part, TextPart))


async def it_is_told_that_a_command_was_executed(api: Api) -> None:
    session = await api.create_session(SessionInput())
    listening = api.events()
    answer = await api.command(session.id, CommandInput(command="init", arguments="now"))
    rested = False
    async for told in listening:
        rested = rested or isinstance(told.event, SessionRested)
        if isinstance(told.event, CommandExecuted):
            break
    assert rested
    assert told.event == CommandExecuted(
        name="init", session_id=session.id, arguments="now", message_id=answer.info.id
    )


async def a_command_there_is_none_of_is_not_found_and_nothing_is_stored(api: Api) -> None:
    session = await api.create_session(SessionInput())
    await _refused(NotFoundError, api.get_command("no-such-command"))
    await _refused(NotFoundError, api.command(session.id, CommandInput(command="no-such-command")))
    await _refused(NotFoundError, api.command(session.id, CommandInput(command="init", agent="nobody")))
    assert await api.list_messages(session.id) == []
    await _refused(NotFoundError, api.command(MISSING, CommandInput(command="init")))
    await _refused(NotFoundError, api.command(SessionID("ses_../x"), CommandInput(command="init")))


async def a_command_of_the_persons_own_asks_no_model_and_is_complete(api: Api) -> None:
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


async def a_command_of_the_persons_own_needs_a_session_and_an_agent(api: Api) -> None:
    session = await api.create_session(SessionInput())
    await _refused(NotFoundError, api.shell(MISSING, ShellInput(command="echo")))
    await _refused(NotFoundError, api.shell(SessionID("ses_../x"), ShellInput(command="echo")))
    await _refused(NotFoundError, api.shell(session.id, ShellInput(command="echo", agent="nobody")))
    assert await api.list_messages(session.id) == []


COMMAND_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    the_built_in_commands_are_there,
    a_command_is_a_prompt_and_what_is_typed_behind_it_stands_in_it,
    it_is_told_that_a_command_was_executed,
    a_command_there_is_none_of_is_not_found_and_nothing_is_stored,
    a_command_of_the_persons_own_asks_no_model_and_is_complete,
    a_command_of_the_persons_own_needs_a_session_and_an_agent,
)


async def _refused(kind: type[Exception], asked: Awaitable[object]) -> None:
    try:
        await asked
    except kind:
        return
    raise AssertionError(f"this should have raised {kind.__name__}")
