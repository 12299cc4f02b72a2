"""What every `Api` must do when a conversation is taken back: one check for each line of the promise that needs no files."""

from collections.abc import Awaitable

from weft.api import Api
from weft.errors import NotFoundError, WeftError
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.input import SessionInput, prompt
from weft.model.session import SessionRevert

MISSING = MessageID("msg_00000000000000000000000000")


async def what_is_taken_back_stays_until_the_session_goes_on(api: Api) -> None:
    session, (first, second) = await _talked(api)
    before = await api.list_messages(session)
    taken = await api.revert(session, second)
    assert taken.session.revert == SessionRevert(message_id=second)
    assert taken.session == await api.get_session(session)
    assert await api.list_messages(session) == before
    await api.prompt(session, prompt("three"))
    ids = [message.info.id for message in await api.list_messages(session)]
    assert first in ids
    assert second not in ids
    assert (await api.get_session(session)).revert is None


async def what_was_taken_back_can_be_brought_back(api: Api) -> None:
    session, (first, _) = await _talked(api)
    before = await api.list_messages(session)
    await api.revert(session, first)
    back = await api.unrevert(session)
    assert back.session.revert is None
    assert back.files == ()
    assert await api.list_messages(session) == before


async def bringing_back_what_was_not_taken_back_changes_nothing(api: Api) -> None:
    session, _ = await _talked(api)
    before = await api.get_session(session)
    assert (await api.unrevert(session)).session == before
    assert await api.get_session(session) == before


async def an_answer_is_taken_back_with_its_prompt(api: Api) -> None:
    session, (_, second) = await _talked(api)
    answer = (await api.list_messages(session))[-1]
    taken = await api.revert(session, answer.info.id)
    assert taken.session.revert == SessionRevert(message_id=second)


async def a_part_with_words_before_it_is_taken_back_alone(api: Api) -> None:
    session, _ = await _talked(api)
    answer = (await api.list_messages(session))[-1]
    last = answer.parts[-1]
    await api.revert(session, answer.info.id, last.id)
    await api.prompt(session, prompt("three"))
    (kept,) = [each for each in await api.list_messages(session) if each.info.id == answer.info.id]
    assert kept.parts == answer.parts[:-1]


async def a_look_ahead_changes_nothing(api: Api) -> None:
    session, (first, _) = await _talked(api)
    before = await api.get_session(session)
    assert (await api.revert(session, first, dry_run=True)).session == before
    assert await api.get_session(session) == before


async def nobody_is_taken_back_to_where_nothing_is(api: Api) -> None:
    session, (first, _) = await _talked(api)
    await _refused(NotFoundError, api.revert(session, MISSING))
    await _refused(NotFoundError, api.revert(session, first, PartID("prt_00000000000000000000000000")))
    await _refused(NotFoundError, api.unrevert(SessionID("ses_00000000000000000000000000")))
    await _refused(NotFoundError, api.revert(session, MessageID("../x")))
    assert (await api.get_session(session)).revert is None


async def _talked(api: Api) -> tuple[SessionID, list[MessageID]]:
    """Two prompts, and their answers."""
    session = (await api.create_session(SessionInput())).id
    for words in ("one", "two"):
        await api.prompt(session, prompt(words))
    return session, [message.info.id for message in (await api.list_messages(session))[::2]]


async def _refused(kind: type[WeftError], asked: Awaitable[object]) -> None:
    try:
        await asked
    except kind:
        return
    raise AssertionError(f"nobody raised {kind.__name__}")


UNDO_CHECKS = (
    what_is_taken_back_stays_until_the_session_goes_on,
    what_was_taken_back_can_be_brought_back,
    bringing_back_what_was_not_taken_back_changes_nothing,
    an_answer_is_taken_back_with_its_prompt,
    a_part_with_words_before_it_is_taken_back_alone,
    a_look_ahead_changes_nothing,
    nobody_is_taken_back_to_where_nothing_is,
)
