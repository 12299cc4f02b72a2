"""Send a prompt and show what comes of it, until the session rests."""

import asyncio
import sys
from collections.abc import AsyncIterator

from msgspec import UNSET, Struct

from weft.api import Api
from weft.cli.ending import Course, Ending
from weft.cli.exit import Exit
from weft.cli.paint import Paint
from weft.cli.running.absent import Absent, Nobody
from weft.cli.running.person import Person
from weft.cli.running.stop import Stop
from weft.cli.screen import Screen
from weft.cli.wanted import value_of
from weft.client.conversation import Family, end_run
from weft.errors import StoreError
from weft.host.tasks import open_tasks
from weft.model.event import SessionRested, Told
from weft.model.ids import SessionID
from weft.model.input import CommandInput, PromptInput
from weft.model.message import MessageWithParts


class Company(Struct, frozen=True, kw_only=True):
    """Who else has a say in a run: a person who answers questions, signals that end it. Elsewhere (`attached`) what is
    asked waits until somebody answers: with no person here, that is a no."""

    person: bool = False
    stop: Stop | None = None
    attached: bool = False


ALONE = Company()
# What was told when a run ended is shown by then.
REST_SECONDS = 1.0


async def follow(
    api: Api, session: SessionID, input: PromptInput | CommandInput, screen: Screen, company: Company = ALONE
) -> int:
    """The exit code. The run is settled when this returns, and its end has been shown."""
    events, course, absent = api.events(), Course(), Absent(waiting=not company.attached)
    async with open_tasks() as tasks:
        showing = tasks.create_task(_show(api, events, session, _Watchers(screen, course, company, absent)))
        prompting = tasks.create_task(_answered(api, session, input, showing))
        heeding = tasks.create_task(_heed(api, session, company, prompting))
        try:
            answer = await prompting
            await showing
        finally:
            showing.cancel()
            heeding.cancel()
    signal = company.stop.signal if company.stop is not None else None
    ending = Ending(answer=answer, course=course, signal=signal)
    value = value_of(answer)
    if value is not UNSET:
        screen.tell_value(value)
    screen.end(ending)
    for line in absent.to_lines(Paint(sys.stderr)) if ending.code == Exit.REFUSED else ():
        print(line, file=sys.stderr)
    return ending.code


async def _answered(
    api: Api, session: SessionID, input: PromptInput | CommandInput, showing: asyncio.Task[None]
) -> MessageWithParts:
    """The answer. Where not even a failure could be stored, the prompt stands for it: what the run told is its ending."""
    try:
        return await _send(api, session, input)
    except StoreError:
        rested, _ = await asyncio.wait([showing], timeout=REST_SECONDS)
        if not rested:  # no run was begun
            raise
        return (await api.list_messages(session, limit=1))[0]


async def _send(api: Api, session: SessionID, input: PromptInput | CommandInput) -> MessageWithParts:
    match input:
        case PromptInput():
            return await api.prompt(session, input)
        case CommandInput():
            return await api.command(session, input)


async def _heed(
    api: Api, session: SessionID, company: Company, prompting: asyncio.Task[MessageWithParts]
) -> None:
    """End the run when a signal asks for it; it settles, and is shown to its end."""
    if company.stop is None:
        return
    await company.stop.wait()
    if not await api.abort(session):
        if company.attached:
            await end_run(api, session, prompting)
        prompting.cancel()  # it has not begun


class _Watchers(Struct, frozen=True):
    """Who is told what happens."""

    screen: Screen
    course: Course
    company: Company
    absent: Absent


async def _show(api: Api, events: AsyncIterator[Told], session: SessionID, to: _Watchers) -> None:
    family = Family(session)
    async with open_tasks() as tasks:
        person = Person(api, tasks) if to.company.person else None
        nobody = Nobody(api, tasks) if to.company.attached and person is None else None
        async for told in events:
            match family.place(told.event):
                case "own":
                    to.course.feed(told.event)
                    to.screen.feed(told.event)
                case "below":
                    to.course.feed_below(told.event)
                    to.screen.feed_below(told.event)
                case None:
                    continue
            if person is not None:
                person.feed(told.event)
            else:
                to.absent.feed(told.event)
            if nobody is not None:
                nobody.feed(told.event)
            if isinstance(told.event, SessionRested) and told.event.session_id == session:
                break
        if person is not None:
            person.leave()
