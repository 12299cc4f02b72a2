"""What every `Api` must do with sessions on the move, as a list of checks."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from weft.api import Api
from weft.errors import InvalidIdError, NotFoundError
from weft.model.ids import SessionID
from weft.model.input import SessionInput, prompt
from weft.model.message import MessageWithParts
from weft.model.parcel import Parcel
from weft.model.part import TextPart

MISSING = SessionID("ses_00000000000000000000000000")


async def a_session_is_exported_whole(api: Api) -> None:
    parcel = await _talked(api)
    assert parcel.info == await api.get_session(parcel.info.id)
    assert list(parcel.messages) == await api.list_messages(parcel.info.id)


async def what_is_not_there_is_not_exported(api: Api) -> None:
    try:
        await api.export_session(MISSING)
    except NotFoundError:
        return
    raise AssertionError("it was exported")


async def what_is_here_already_is_left_alone(api: Api) -> None:
    parcel = await _talked(api)
    assert (await api.import_session(parcel)).verdict == "same"
    assert await api.export_session(parcel.info.id) == parcel


async def a_session_that_is_not_here_is_new(api: Api) -> None:
    parcel = await _talked(api)
    await api.remove_session(parcel.info.id)
    assert (await api.import_session(parcel, dry_run=True)).verdict == "new"
    assert parcel.info.id not in [session.id for session in await api.list_sessions()]
    received = await api.import_session(parcel)
    assert (received.verdict, received.id, received.before) == ("new", parcel.info.id, received.after)
    assert (await api.export_session(parcel.info.id)).messages == parcel.messages


async def what_was_said_since_is_not_taken_back(api: Api) -> None:
    parcel = await _talked(api)
    await api.prompt(parcel.info.id, prompt("and then?"))
    later = await api.export_session(parcel.info.id)
    assert (await api.import_session(parcel)).verdict == "older"
    assert await api.export_session(parcel.info.id) == later


async def when_both_have_gone_on_both_are_kept_and_only_once(api: Api) -> None:
    parcel = await _talked(api)
    changed = replace(parcel, messages=tuple(_shouted(message) for message in parcel.messages))
    received = await api.import_session(changed)
    assert (received.verdict, received.origin) == ("forked", parcel.info.id)
    assert received.id != parcel.info.id
    assert await api.export_session(parcel.info.id) == parcel
    copy = await api.export_session(received.id)
    assert _words(copy) == _words(changed)
    assert {part.id for each in copy.messages for part in each.parts}.isdisjoint(
        part.id for each in parcel.messages for part in each.parts
    )
    again = await api.import_session(changed)
    assert (again.verdict, again.id) == ("same", received.id)


async def an_id_that_leads_elsewhere_is_refused(api: Api) -> None:
    parcel = await _talked(api)
    info = replace(parcel.info, id=SessionID("ses_../../../../../../etc/passwd"))
    try:
        await api.import_session(replace(parcel, info=info))
    except InvalidIdError:
        return
    raise AssertionError("it was imported")


TRANSFER_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    a_session_is_exported_whole,
    what_is_not_there_is_not_exported,
    what_is_here_already_is_left_alone,
    a_session_that_is_not_here_is_new,
    what_was_said_since_is_not_taken_back,
    when_both_have_gone_on_both_are_kept_and_only_once,
    an_id_that_leads_elsewhere_is_refused,
)


async def _talked(api: Api) -> Parcel:
    session = await api.create_session(SessionInput(title="On the move"))
    await api.prompt(session.id, prompt("hello"))
    return await api.export_session(session.id)


def _shouted(message: MessageWithParts) -> MessageWithParts:
    parts = tuple(
        replace(part, text=part.text.upper() + "!") if isinstance(part, TextPart) else part
        for part in message.parts
    )
    return replace(message, parts=parts)


def _words(parcel: Parcel) -> list[str]:
    return [part.text for each in parcel.messages for part in each.parts if isinstance(part, TextPart)]
