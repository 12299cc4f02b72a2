"""What every `Api` must do with the messages of a session at rest."""

from collections.abc import Awaitable, Callable

from weft.api import Api
from weft.errors import InvalidInputError, NotFoundError
from weft.model.event import MessageRemoved, MessageUpdated, PartRemoved, PartUpdated
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.input import SessionInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import Moment, TextPart
from weft.testing.api_sessions import MISSING, NOWHERE, refused, say

MANY = 70  # more than a page of whoever reads backwards


def message(session: SessionID, number: int) -> UserMessage:
    id = MessageID(f"msg_{number:012x}AbCdEfGhIjKlMn")
    return UserMessage(id=id, session_id=session, time=Moment(created=number), agent="build")


def part(of: UserMessage, number: int, words: str) -> TextPart:
    id = PartID(f"prt_{number:012x}AbCdEfGhIjKlMn")
    return TextPart(id=id, session_id=of.session_id, message_id=of.id, text=words)


async def messages_come_page_by_page_and_backwards(api: Api) -> None:
    session = (await api.create_session(SessionInput())).id
    infos = [message(session, number) for number in range(1, MANY + 1)]
    for info in infos:
        await api.update_message(info)
    wholes = [MessageWithParts(info=info, parts=()) for info in infos]
    assert await api.list_messages(session) == wholes
    assert await api.list_messages(session, limit=2) == wholes[-2:]
    assert await api.list_messages(session, limit=2, before=infos[-2].id) == wholes[-4:-2]
    assert await api.list_messages(session, before=infos[0].id) == []
    assert [each async for each in api.stream_messages(session)] == wholes[::-1]
    await refused(NotFoundError, api.list_messages(session, before=NOWHERE))
    await refused(NotFoundError, anext(api.stream_messages(MISSING)))


async def messages_and_parts_are_put_and_taken_away_and_told(api: Api) -> None:
    session = (await api.create_session(SessionInput())).id
    info = message(session, 1)
    one, two = part(info, 1, "a"), part(info, 2, "b")
    grown = part(info, 1, "abc")
    listening = api.events()
    await api.update_message(info)
    await api.update_part(one)
    await api.update_part(two)
    await api.update_part(grown, delta="bc")
    assert await api.list_messages(session) == [MessageWithParts(info=info, parts=(grown, two))]
    await api.remove_part(session, info.id, two.id)
    assert await api.list_messages(session) == [MessageWithParts(info=info, parts=(grown,))]
    await api.remove_message(session, info.id)
    assert await api.list_messages(session) == []
    await api.update_message(info)
    assert await api.list_messages(session) == [MessageWithParts(info=info, parts=())]
    told = [(await anext(listening)).event for _ in range(7)]
    assert told == [
        MessageUpdated(info=info),
        PartUpdated(part=one),
        PartUpdated(part=two),
        PartUpdated(part=grown, delta="bc"),
        PartRemoved(session_id=session, message_id=info.id, part_id=two.id),
        MessageRemoved(session_id=session, message_id=info.id),
        MessageUpdated(info=info),
    ]


async def a_message_needs_its_session_and_a_part_its_message(api: Api) -> None:
    session = (await api.create_session(SessionInput())).id
    await say(api, session, "hello")
    before = await api.list_messages(session)
    lost = message(MISSING, 1)
    await refused(NotFoundError, api.update_message(lost))
    await refused(NotFoundError, api.update_part(part(message(session, 2), 1, "x")))
    await refused(NotFoundError, api.remove_message(session, NOWHERE))
    await refused(NotFoundError, api.remove_part(session, before[0].info.id, part(lost, 9, "").id))
    await refused(NotFoundError, api.remove_message(session, MessageID("msg_../../x")))
    await refused(InvalidInputError, api.update_part(_of(before[0]), delta="not its end"))
    assert await api.list_messages(session) == before


def _of(message: MessageWithParts) -> TextPart:
    found = message.parts[0]
    assert isinstance(found, TextPart)
    return found


MESSAGE_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    messages_come_page_by_page_and_backwards,
    messages_and_parts_are_put_and_taken_away_and_told,
    a_message_needs_its_session_and_a_part_its_message,
)
