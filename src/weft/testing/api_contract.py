"""What every `Api` must do, as a list of checks: one for each line of the promise.

Each check is given an `Api` whose model answers every prompt at once with a few words, and calls no tool.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from weft.api import Api
from weft.errors import NotFoundError
from weft.model.event import Event, SessionCreated, SessionRested, StatusChanged, Told, session_of
from weft.model.ids import MessageID, PermissionID, SessionID
from weft.model.input import PromptInput, SessionInput, TextInput, prompt
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import ModelRef, TextPart
from weft.model.session import SessionQuery
from weft.model.status import Busy, Idle
from weft.model.transcript import Transcript
from weft.testing.api_around import AROUND_CHECKS
from weft.testing.api_commands import COMMAND_CHECKS
from weft.testing.api_finding import FINDING_CHECKS
from weft.testing.api_messages import MESSAGE_CHECKS
from weft.testing.api_permissions import PERMISSION_CHECKS
from weft.testing.api_sessions import SESSION_CHECKS
from weft.testing.api_transfer import TRANSFER_CHECKS
from weft.testing.api_undo import UNDO_CHECKS

MISSING_SESSION = SessionID("ses_00000000000000000000000000")
MISSING_PERMISSION = PermissionID("per_00000000000000000000000000")
HOSTILE = (
    "",
    "ses_/",
    "ses_../../../etc/passwd",
    "msg_00000000000000000000000000",
    "ses_" + "x" * 500,
    "ses_\0",
)
TOLD_LIMIT = 10_000


async def a_session_that_was_made_can_be_read_back(api: Api) -> None:
    made = await api.create_session(SessionInput(title="Mine"))
    assert await api.get_session(made.id) == made
    assert made.title == "Mine"
    assert made.id in [session.id for session in await api.list_sessions()]


async def a_session_without_a_title_says_when_it_began(api: Api) -> None:
    made = await api.create_session(SessionInput())
    assert made.title.startswith("New session - ")


async def a_child_has_a_parent_and_is_no_root(api: Api) -> None:
    parent = await api.create_session(SessionInput())
    child = await api.create_session(SessionInput(parent_id=parent.id))
    assert child.parent_id == parent.id
    assert child.title.startswith("Child session - ")
    roots = [session.id for session in await api.list_sessions(SessionQuery(roots=True))]
    assert parent.id in roots
    assert child.id not in roots


async def sessions_are_listed_newest_first_and_as_many_as_asked_for(api: Api) -> None:
    made = [(await api.create_session(SessionInput())).id for _ in range(3)]
    listed = [session.id for session in await api.list_sessions() if session.id in made]
    assert listed == made[::-1]
    assert [session.id for session in await api.list_sessions(SessionQuery(limit=2))] == made[:0:-1]


async def what_is_not_there_is_not_found(api: Api) -> None:
    await _refused(NotFoundError, api.get_session(MISSING_SESSION))
    await _refused(NotFoundError, api.list_messages(MISSING_SESSION))
    await _refused(NotFoundError, api.prompt(MISSING_SESSION, prompt("hello")))
    await _refused(NotFoundError, api.create_session(SessionInput(parent_id=MISSING_SESSION)))
    await _refused(NotFoundError, api.reply_permission(MISSING_PERMISSION, "once"))


async def an_id_that_can_be_none_is_refused(api: Api) -> None:
    for hostile in HOSTILE:
        await _refused(NotFoundError, api.get_session(SessionID(hostile)))
        await _refused(NotFoundError, api.prompt(SessionID(hostile), prompt("hello")))
        await _refused(NotFoundError, api.abort(SessionID(hostile)))


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
    assert _words(asked) == "hello"
    assert _words(answer) != ""


async def prompts_one_after_the_other_make_one_conversation(api: Api) -> None:
    session = await api.create_session(SessionInput())
    for words in ("one", "two", "three"):
        await api.prompt(session.id, prompt(words))
    messages = await api.list_messages(session.id)
    assert [_words(each) for each in messages if isinstance(each.info, UserMessage)] == [
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
    assert len(await api.list_messages(session.id)) == len((id, first))


async def a_prompt_that_wants_no_reply_gets_none(api: Api) -> None:
    session = await api.create_session(SessionInput())
    kept = await api.prompt(session.id, PromptInput(no_reply=True, parts=(TextInput(text="note"),)))
    assert await api.list_messages(session.id) == [kept]


async def hostile_text_comes_back_as_it_was_sent(api: Api) -> None:
    session = await api.create_session(SessionInput())
    for text in (
        "\0",
        "a\r\nb\r\n",
        "\ufeffx",
        "🧵" * 1000,
        "\u202eabc",
        "x" * 1_000_000,
        '{"$extra": {"id": 1}}',
    ):
        kept = await api.prompt(session.id, PromptInput(no_reply=True, parts=(TextInput(text=text),)))
        assert _words(kept) == text
    assert len(await api.list_messages(session.id)) == len(HOSTILE) + 1


async def what_a_prompt_names_wrongly_is_refused_and_nothing_is_stored(api: Api) -> None:
    session = await api.create_session(SessionInput())
    nobody = PromptInput(agent="no-such-agent", parts=(TextInput(text="x"),))
    nothing = PromptInput(model=ModelRef(provider_id="no", model_id="such"), parts=(TextInput(text="x"),))
    for wrong in (nobody, nothing):
        await _refused(Exception, api.check_prompt(wrong))
        await _refused(Exception, api.prompt(session.id, wrong))
    assert await api.list_messages(session.id) == []


async def there_is_nothing_to_abort_in_a_session_at_rest(api: Api) -> None:
    session = await api.create_session(SessionInput())
    assert await api.abort(session.id) is False
    assert await api.list_permissions() == []


async def a_session_is_busy_while_it_is_run_and_idle_else(api: Api) -> None:
    session = await api.create_session(SessionInput())
    assert await api.get_status(session.id) == Idle()
    assert await api.get_status(MISSING_SESSION) == Idle()
    listening = api.events()
    await api.prompt(session.id, prompt("hello"))
    told = [each.event for each in await _until_rest(listening, session.id)]
    statuses = [event.status for event in told if isinstance(event, StatusChanged)]
    assert statuses[0] == Busy()
    assert statuses[-1] == Idle()
    assert await api.get_status(session.id) == Idle()
    assert session.id not in await api.list_status()


async def what_is_told_folds_to_what_is_stored(api: Api) -> None:
    listening = api.events()
    session = await api.create_session(SessionInput())
    await api.prompt(session.id, prompt("hello"))
    told = await _until_rest(listening, session.id)
    heard = Transcript()
    heard.feed(*(each.event for each in told))
    assert heard.messages() == await api.list_messages(session.id)
    assert any(isinstance(each.event, SessionCreated) for each in told)


async def a_listener_can_go_on_after_a_cursor(api: Api) -> None:
    listening = api.events()
    session = await api.create_session(SessionInput())
    await api.prompt(session.id, prompt("hello"))
    told = await _until_rest(listening, session.id)
    middle = told[len(told) // 2]
    again = await _until_rest(api.events(after=middle.cursor), session.id)
    assert _facts(again) == _facts(told[told.index(middle) + 1 :])


CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    a_session_that_was_made_can_be_read_back,
    a_session_without_a_title_says_when_it_began,
    a_child_has_a_parent_and_is_no_root,
    sessions_are_listed_newest_first_and_as_many_as_asked_for,
    what_is_not_there_is_not_found,
    an_id_that_can_be_none_is_refused,
    a_prompt_is_stored_and_answered,
    prompts_one_after_the_other_make_one_conversation,
    the_same_message_sent_twice_is_one_prompt,
    a_prompt_that_wants_no_reply_gets_none,
    hostile_text_comes_back_as_it_was_sent,
    what_a_prompt_names_wrongly_is_refused_and_nothing_is_stored,
    there_is_nothing_to_abort_in_a_session_at_rest,
    a_session_is_busy_while_it_is_run_and_idle_else,
    what_is_told_folds_to_what_is_stored,
    a_listener_can_go_on_after_a_cursor,
    *SESSION_CHECKS,
    *COMMAND_CHECKS,
    *FINDING_CHECKS,
    *AROUND_CHECKS,
    *TRANSFER_CHECKS,
    *MESSAGE_CHECKS,
    *UNDO_CHECKS,
    *PERMISSION_CHECKS,
)


async def _refused(kind: type[Exception], asked: Awaitable[object]) -> None:
    try:
        await asked
    except kind:
        return
    raise AssertionError(f"this should have raised {kind.__name__}")


async def _until_rest(listening: AsyncIterator[Told], session: SessionID) -> list[Told]:
    """What is told of a session until it rests."""
    told: list[Told] = []
    async for each in listening:
        if session_of(each.event) == session:
            told.append(each)
        if isinstance(each.event, SessionRested) or len(told) > TOLD_LIMIT:
            break
    return told


def _facts(told: list[Told]) -> list[Event]:
    return [each.event for each in told]


def _words(message: MessageWithParts) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))
