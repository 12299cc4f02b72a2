"""Checks of the change log, for every store. Each is given an empty store, and has nothing to check if it has no such log."""

from msgspec.structs import replace

from weft.errors import CursorLostError
from weft.model.event import (
    Event,
    MessageRemoved,
    MessageUpdated,
    PartRemoved,
    PartUpdated,
    SessionCreated,
    SessionDeleted,
    SessionIdled,
    SessionUpdated,
    StatusChanged,
    TodoUpdated,
)
from weft.model.ids import PartID, SessionID
from weft.model.session import Idle, Todo
from weft.store.change_log import StoreChangeLog
from weft.store.contract import Store
from weft.testing.store_samples import (
    ANSWER,
    NOW,
    PROMPT,
    SESSION,
    Check,
    answer,
    growth,
    prompt,
    session,
    text,
)

SERVER = "loom"


async def begin(store: Store) -> StoreChangeLog | None:
    """Store a session, and register a server. Return the log, None if the store has none."""
    await store.apply(SessionCreated(info=session()))
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "a")))
    if store.change_log is not None:
        await store.change_log.register(SERVER)
    return store.change_log


async def read(log: StoreChangeLog, after: int) -> list[Event]:
    missed = await log.read(SERVER, after)
    assert {(each.directory, each.project) for each in missed} <= {("/work", "p1")}
    return [each.event for each in missed]


async def what_changed_since_a_position_is_read_as_it_is_stored_now(store: Store) -> None:
    log = await begin(store)
    if log is None:
        return
    start = log.position
    assert await read(log, start) == []
    todos = (Todo(content="weave", status="pending", priority="low"),)
    await store.apply(MessageUpdated(info=answer()), PartUpdated(part=text("prt_2", "b", of=ANSWER)))
    between = log.position
    await store.apply(PartUpdated(part=text("prt_2", "c", of=ANSWER)))
    await store.edit(SESSION, lambda known: replace(known, title="two"))
    await store.apply(TodoUpdated(session_id=SESSION, todos=todos))
    part = PartUpdated(part=text("prt_2", "c", of=ANSWER))
    rest = TodoUpdated(session_id=SESSION, todos=todos)
    updated = SessionUpdated(info=session(title="two"))
    assert await read(log, start) == [updated, MessageUpdated(info=answer()), part, rest]
    assert await read(log, between) == [updated, part, rest]
    assert await read(log, log.position) == []


async def text_that_has_grown_is_read_with_its_part(store: Store) -> None:
    log = await begin(store)
    if log is None:
        return
    start = log.position
    await store.apply(growth("prt_1", "bc", 1))
    assert await read(log, start) == [PartUpdated(part=text("prt_1", "abc"))]
    assert log.position > start


async def what_was_removed_is_read_as_removed(store: Store) -> None:
    log = await begin(store)
    if log is None:
        return
    await store.apply(SessionCreated(info=session("ses_2")), SessionCreated(info=session("ses_3")))
    start = log.position
    message = MessageRemoved(session_id=SESSION, message_id=ANSWER)
    part = PartRemoved(session_id=SESSION, message_id=PROMPT, part_id=PartID("prt_1"))
    await store.apply(MessageUpdated(info=answer()))
    await store.apply(part, message)
    await store.apply(SessionDeleted(info=session("ses_2")))
    bundle = await store.discard([SessionID("ses_3")], at=NOW)
    gone = SessionDeleted(info=session("ses_3"))
    assert await read(log, start) == [message, part, SessionDeleted(info=session("ses_2")), gone]
    back = log.position
    await store.restore(bundle.id)
    assert await read(log, back) == [
        SessionCreated(info=session("ses_3")),
        SessionUpdated(info=session("ses_3")),
    ]


async def of_a_new_session_only_the_session_is_read(store: Store) -> None:
    log = await begin(store)
    if log is None:
        return
    start, new = log.position, session("ses_2")
    await store.apply(SessionCreated(info=new), MessageUpdated(info=prompt(of="ses_2")))
    assert await read(log, start) == [SessionCreated(info=new), SessionUpdated(info=new)]


async def the_end_of_a_run_is_read(store: Store) -> None:
    log = await begin(store)
    if log is None:
        return
    start = log.position
    idle: list[Event] = [StatusChanged(session_id=SESSION, status=Idle()), SessionIdled(session_id=SESSION)]
    async with store.lease(SESSION, "me"):
        assert await read(log, start) == []
    assert await read(log, start) == idle
    async with store.lease(SESSION, "me"):  # it runs again
        assert await read(log, start) == []


async def a_position_stays_below_what_is_not_published(store: Store) -> None:
    log = await begin(store)
    if log is None:
        return
    start = log.position
    with log.publishing():
        await store.apply(PartUpdated(part=text("prt_1", "b")))
        with log.publishing():
            await store.apply(PartUpdated(part=text("prt_1", "c")))
        assert log.position == start
    assert log.position == start + 2


async def a_position_that_the_log_does_not_know_is_refused(store: Store) -> None:
    log = await begin(store)
    if log is None:
        return
    start = log.position
    await store.apply(PartUpdated(part=text("prt_1", "b")))
    await log.register("next")
    await store.apply(PartUpdated(part=text("prt_1", "c")))
    known = [("next", log.position), (SERVER, start), (SERVER, start + 1)]
    assert [bool(await log.read(server, after)) for server, after in known] == [False, True, True]
    for server, after in (
        ("other", start),
        (SERVER, start - 1),
        (SERVER, start + 2),
        ("next", log.position + 1),
    ):
        try:
            await log.read(server, after)
        except CursorLostError:
            continue
        raise AssertionError((server, after))


CHANGES: tuple[Check, ...] = (
    what_changed_since_a_position_is_read_as_it_is_stored_now,
    text_that_has_grown_is_read_with_its_part,
    what_was_removed_is_read_as_removed,
    of_a_new_session_only_the_session_is_read,
    the_end_of_a_run_is_read,
    a_position_stays_below_what_is_not_published,
    a_position_that_the_log_does_not_know_is_refused,
)
