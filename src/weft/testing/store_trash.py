"""What every store must do with sessions that are discarded, and with messages that are asked for page by page."""

from weft.errors import ConflictError
from weft.model.diff import FileDiff
from weft.model.event import (
    Durable,
    MessageUpdated,
    PartUpdated,
    SessionCreated,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import MessageID, SessionID
from weft.model.message import MessageWithParts
from weft.model.session import Trashed
from weft.model.todo import Todo
from weft.store.contract import Store
from weft.testing.store_values import (
    NOW,
    PROMPT,
    SESSION,
    Check,
    growth,
    missing,
    prompt,
    session,
    text,
    whole,
)

OTHER = SessionID("ses_2")
AT = NOW + 1000
NAME = f"{AT}-{SESSION}"


def full(id: SessionID, message: str) -> list[Durable]:
    """A session with something of every kind."""
    return [
        SessionCreated(info=session(id)),
        MessageUpdated(info=prompt(message, of=id)),
        PartUpdated(part=text("prt_1", "a", of=message, session=id)),
        PartUpdated(part=text("prt_2", "b", of=message, session=id)),
        SessionDiffed(session_id=id, diff=(FileDiff(file=id, additions=1, deletions=0),)),
        TodoUpdated(session_id=id, todos=(Todo(content=id, status="pending", priority="low"),)),
    ]


async def everything(store: Store) -> list[object]:
    return [
        await store.list_sessions(),
        *[await store.list_messages(id) for id in (SESSION, OTHER)],
        *[await store.list_diff(id) for id in (SESSION, OTHER)],
        *[await store.list_todos(id) for id in (SESSION, OTHER)],
    ]


async def what_is_discarded_is_out_of_sight_and_comes_back_as_it_was(store: Store) -> None:
    await store.apply(*full(SESSION, PROMPT), *full(OTHER, "msg_9"))
    await store.apply(growth("prt_1", "more", 1))
    before = await everything(store)
    trashed = await store.discard([SESSION, OTHER], at=AT)
    assert trashed == Trashed(id=NAME, time=AT, sessions=(session(), session(OTHER)))
    assert await everything(store) == [[], [], [], [], [], [], []]
    assert await store.list_trash() == [trashed]
    assert await store.restore(NAME) == trashed
    assert await everything(store) == before
    assert await store.list_trash() == []
    assert await store.damage() == []


async def discarding_one_session_leaves_the_others_alone(store: Store) -> None:
    await store.apply(*full(SESSION, PROMPT), *full(OTHER, "msg_9"))
    await store.discard([SESSION], at=AT)
    assert await store.list_sessions() == [session(OTHER)]
    assert len(await store.list_messages(OTHER)) == 1
    assert await store.list_messages(SESSION) == []


async def a_session_can_be_discarded_again_and_again(store: Store) -> None:
    await store.apply(*full(SESSION, PROMPT))
    before = await everything(store)
    for _ in range(2):
        await store.discard([SESSION], at=AT)
        await store.restore(NAME)
    assert await everything(store) == before
    await store.apply(SessionUpdated(info=session(title="another")))
    await store.discard([SESSION], at=AT + 1)
    await store.restore(f"{AT + 1}-{SESSION}")
    assert (await store.get_session(SESSION)).title == "another"


async def discarding_with_one_that_is_not_there_discards_nothing(store: Store) -> None:
    await store.apply(*full(SESSION, PROMPT))
    before = await everything(store)
    assert (await missing(store.discard([SESSION, OTHER], at=AT))).id == OTHER
    assert await everything(store) == before
    assert await store.list_trash() == []


async def nothing_is_restored_over_a_session_that_is_there(store: Store) -> None:
    await store.apply(*full(SESSION, PROMPT), *full(OTHER, "msg_9"))
    trashed = await store.discard([SESSION, OTHER], at=AT)
    await store.apply(SessionCreated(info=session(OTHER, title="the new one")))
    in_the_way = ""
    try:
        await store.restore(NAME)
    except ConflictError as error:
        in_the_way = error.id
    assert in_the_way == OTHER
    assert await store.list_sessions() == [session(OTHER, title="the new one")]
    assert await store.list_trash() == [trashed]


async def what_is_purged_is_gone_for_good(store: Store) -> None:
    await store.apply(*full(SESSION, PROMPT))
    await store.discard([SESSION], at=AT)
    await store.purge(NAME)
    assert await store.list_trash() == []
    for gone in (store.restore(NAME), store.purge(NAME)):
        assert (await missing(gone)).id == NAME
    assert await everything(store) == [[], [], [], [], [], [], []]


async def bundles_are_listed_oldest_first(store: Store) -> None:
    await store.apply(*full(SESSION, PROMPT), *full(OTHER, "msg_9"))
    second = await store.discard([SESSION], at=AT + 5)
    first = await store.discard([OTHER], at=AT)
    assert await store.list_trash() == [first, second]


async def messages_come_page_by_page(store: Store) -> None:
    infos = [prompt(f"msg_{number}", created=NOW + number) for number in range(5)]
    await store.apply(SessionCreated(info=session()), *(MessageUpdated(info=info) for info in infos))

    async def page(last: int | None, before: int) -> list[MessageWithParts]:
        return await store.list_messages(SESSION, last=last, before=infos[before].id)

    assert await page(2, 4) == [whole(infos[2]), whole(infos[3])]
    assert await page(2, 1) == [whole(infos[0])]
    assert await page(2, 0) == []
    assert await page(None, 2) == [whole(infos[0]), whole(infos[1])]
    nowhere = MessageID("msg_nowhere")
    assert (await missing(store.list_messages(SESSION, before=nowhere))).id == nowhere


TRASHING: tuple[Check, ...] = (
    what_is_discarded_is_out_of_sight_and_comes_back_as_it_was,
    discarding_one_session_leaves_the_others_alone,
    a_session_can_be_discarded_again_and_again,
    discarding_with_one_that_is_not_there_discards_nothing,
    nothing_is_restored_over_a_session_that_is_there,
    what_is_purged_is_gone_for_good,
    bundles_are_listed_oldest_first,
    messages_come_page_by_page,
)
