"""Checks that the store of a principal must pass, in every kind of store.

Each is given a function that opens the store of a principal, or that of the administrator, in one empty store.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, NamedTuple

from msgspec.structs import replace

from weft.errors import ConflictError, LimitReachedError, NotFoundError, WeftError
from weft.model.diff import FileDiff
from weft.model.event import (
    MessageUpdated,
    PartUpdated,
    ProjectUpdated,
    SessionCreated,
    SessionDeleted,
    SessionDiffed,
    TodoUpdated,
)
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.project import Project, ProjectTime
from weft.model.session import SessionInfo, Todo, get_owner
from weft.model.session_query import SessionQuery, to_next_page
from weft.store.contract import Store
from weft.store.statistics import StatisticsQuery
from weft.testing.store_samples import NOW, PROJECT, answer, prompt, session, text

THEIRS, NOWHERE = SessionID("ses_theirs"), SessionID("ses_nowhere")
MINE = SessionID("ses_mine")
PART = PartID("prt_01")
ADA, BEN = "ada", "ben"
FISH = 13

# Opens the store of a principal, the administrator's for None, with a limit of sessions that run at the same time.
OpenFor = Callable[..., AbstractAsyncContextManager[Store]]
PrincipalCheck = Callable[[OpenFor], Awaitable[None]]


class SharedStore(NamedTuple):
    """One store, as two principals and the administrator see it."""

    ada: Store
    ben: Store
    admin: Store


async def _open_three(stack: AsyncExitStack, open_for: OpenFor) -> SharedStore:
    stores = [await stack.enter_async_context(open_for(name)) for name in (ADA, BEN, None)]
    return SharedStore(*stores)


async def _fill(store: Store, id: SessionID, words: str) -> None:
    """Store a session with one of everything."""
    message = replace(prompt(), id=_name_message(id), session_id=id)
    part = replace(text(PART, words), session_id=id, message_id=message.id)
    await store.apply(
        ProjectUpdated(info=_make_project(f"/srv/{id}")),
        SessionCreated(info=session(id=id, title=f"{words} {id}")),
        MessageUpdated(info=message),
        PartUpdated(part=part),
        TodoUpdated(session_id=id, todos=(Todo(content=words, status="pending", priority="high"),)),
        SessionDiffed(
            session_id=id, diff=(FileDiff(file=words, before="", after=words, additions=1, deletions=0),)
        ),
    )
    await store.put_value(("secret", id), {"words": words})
    await store.append_log(("decisions", id), lambda _: [words.encode()])
    await store.update_index({id: [message.id]})


def _name_message(session: SessionID) -> MessageID:
    return MessageID(session.replace("ses_", "msg_"))


def _make_project(worktree: str) -> Project:
    return Project(id=PROJECT, worktree=worktree, time=ProjectTime(created=NOW, updated=NOW))


async def _ask(question: Callable[[], Awaitable[Any]], *names: str) -> Any:
    """Return all that a caller learns: the answer, or the error as text. These names are replaced, so that two answers can be compared."""
    try:
        answered = repr(await question())
    except WeftError as error:
        answered = f"{type(error).__name__}: {error} {error.hint}"
    for name in names:
        answered = answered.replace(name, "…")
    return answered


async def _find_refusal(action: Awaitable[Any]) -> WeftError | None:
    """Return the error that an action raises, None if it succeeds."""
    try:
        await action
    except WeftError as error:
        return error
    return None


async def sessions_of_other_principals_do_not_exist(open_for: OpenFor) -> None:
    async with AsyncExitStack() as stack:
        stores = await _open_three(stack, open_for)
        await _fill(stores.ben, THEIRS, "herring")
        await _fill(stores.ben, SessionID("ses_binned"), "pickled")
        bundle = (await stores.ben.discard([SessionID("ses_binned")], at=NOW)).id
        store = stores.ada

        def ask_about(id: SessionID, trash: str) -> list[Callable[[], Awaitable[Any]]]:
            return [
                lambda: store.get_session(id),
                lambda: store.edit(id, lambda known: known),
                lambda: store.list_messages(id),
                lambda: store.list_messages(id, last=1),
                lambda: store.list_messages(id, before=_name_message(id)),
                lambda: store.find_message(id, _name_message(id)),
                lambda: store.list_diff(id),
                lambda: store.list_todos(id),
                lambda: store.find_holder(id),
                lambda: store.discard([id], at=NOW),
                lambda: store.restore(trash),
                lambda: store.purge(trash),
                lambda: store.read_bundle(trash),
                lambda: store.find_value(("secret", id)),
                lambda: store.read_log(("decisions", id)),
                lambda: store.trim_log(("decisions", id), keep=0),
                lambda: store.apply(TodoUpdated(session_id=id, todos=())),
                lambda: store.apply(MessageUpdated(info=replace(prompt(), session_id=id))),
                lambda: store.apply(SessionDeleted(info=session(id=id))),
                lambda: store.lease(id, "somebody").__aenter__(),
                lambda: store.query_sessions(SessionQuery(parent_id=id)),
            ]

        theirs, nothing = ask_about(THEIRS, bundle), ask_about(NOWHERE, f"{NOW}-ses_empty")
        for number, (one, other) in enumerate(zip(theirs, nothing, strict=True)):
            answers = await _ask(one, "theirs", bundle), await _ask(other, "nowhere", f"{NOW}-ses_empty")
            assert answers[0] == answers[1], (number, answers)
        assert [each.title for each in await stores.ben.list_sessions()] == [f"herring {THEIRS}"]
        assert len(await stores.ben.list_messages(THEIRS)) == 1
        assert [each.id for each in await stores.ben.list_trash()] == [bundle]


async def lists_contain_only_what_belongs_to_the_principal(open_for: OpenFor) -> None:
    async with AsyncExitStack() as stack:
        stores = await _open_three(stack, open_for)
        await _fill(stores.ada, MINE, "kipper")
        await _fill(stores.ben, THEIRS, "herring")
        await _fill(stores.admin, SessionID("ses_admins"), "sardine")
        mine = session(id=MINE, title=f"kipper {MINE}")
        assert await stores.ada.list_sessions() == [mine]
        assert await stores.ada.list_sessions(PROJECT) == [mine]
        assert await stores.ada.query_sessions(SessionQuery()) == [mine]
        assert await stores.ada.list_projects() == [_make_project(f"/srv/{MINE}")]
        assert await stores.ada.find_project(PROJECT) == _make_project(f"/srv/{MINE}")
        assert await stores.ada.find_project(ProjectID("other")) is None
        assert await stores.ada.list_keys(("secret",)) == [("secret", MINE)]
        assert await stores.ada.list_logs() == [("decisions", MINE)]
        assert await stores.ada.list_trash() == []
        assert await stores.ada.damage() == []
        everything = await stores.admin.list_sessions()
        assert {each.id: get_owner(each) for each in everything} == {
            MINE: ADA,
            THEIRS: BEN,
            SessionID("ses_admins"): "",
        }


async def a_search_finds_only_what_belongs_to_the_principal(open_for: OpenFor) -> None:
    async with AsyncExitStack() as stack:
        stores = await _open_three(stack, open_for)
        for number in range(FISH - 1):
            await _fill(stores.ben, SessionID(f"ses_theirs{number}"), "fish fish fish")
        await _fill(stores.ada, MINE, "one fish")
        assert [hit.session_id for hit in await stores.ada.search("fish", limit=2)] == [MINE]
        assert await stores.ada.search("theirs", limit=10) == []
        assert await stores.ada.search("fish", limit=0) == []
        assert len(await stores.admin.search("fish", limit=50)) == FISH
        figures = await stores.ada.figures(StatisticsQuery(day_of=lambda _: "day"))
        assert (figures.sessions, figures.messages) == (1, 1)
        assert (await stores.admin.figures(StatisticsQuery(day_of=lambda _: "day"))).sessions == FISH


async def pages_are_full_even_if_others_have_sessions(open_for: OpenFor) -> None:
    async with AsyncExitStack() as stack:
        stores = await _open_three(stack, open_for)
        for number in range(120):
            owner = stores.ada if number % 20 == 0 else stores.ben
            await owner.apply(SessionCreated(info=_make_session(number)))
        query: SessionQuery | None = SessionQuery(limit=4)
        pages: list[list[str]] = []
        while query is not None:
            page = await stores.ada.query_sessions(query)
            pages.append([each.id for each in page])
            query = to_next_page(query, page)
        assert pages == [["ses_100", "ses_080", "ses_060", "ses_040"], ["ses_020", "ses_000"]]


def _make_session(number: int) -> SessionInfo:
    made = session(id=SessionID(f"ses_{number:03}"))
    return replace(made, time=replace(made.time, created=NOW + number, updated=NOW + number))


async def a_session_keeps_its_owner_through_every_change(open_for: OpenFor) -> None:
    async with AsyncExitStack() as stack:
        stores = await _open_three(stack, open_for)
        await _fill(stores.ada, MINE, "kipper")
        await stores.admin.edit(MINE, lambda known: replace(known, title="by the administrator"))
        assert (await stores.ada.get_session(MINE)).title == "by the administrator"
        edited = await stores.ada.edit(MINE, lambda known: replace(known, title="by Ada"))
        assert edited == session(id=MINE, title="by Ada")
        assert get_owner(await stores.admin.get_session(MINE)) == ADA
        trashed = await stores.admin.discard([MINE], at=NOW)
        assert [each.id for each in await stores.ada.list_trash()] == [trashed.id]
        assert [each.info.title for each in await stores.ada.read_bundle(trashed.id)] == ["by Ada"]
        await stores.admin.restore(trashed.id)
        assert (await stores.ada.get_session(MINE)).title == "by Ada"
        assert len(await stores.ada.list_messages(MINE)) == 1
        again = await stores.ada.discard([MINE], at=NOW + 1)
        await stores.ada.restore(again.id)
        assert await stores.ada.list_sessions() == [session(id=MINE, title="by Ada")]
        assert await stores.ben.list_sessions() == []


async def a_session_of_another_principal_cannot_be_taken_over(open_for: OpenFor) -> None:
    async with AsyncExitStack() as stack:
        stores = await _open_three(stack, open_for)
        await _fill(stores.ben, THEIRS, "herring")
        await _fill(stores.admin, SessionID("ses_admins"), "sardine")
        for id in (THEIRS, SessionID("ses_admins")):
            taking = stores.ada.apply(SessionCreated(info=session(id=id, title="mine")))
            assert isinstance(await _find_refusal(taking), ConflictError)
        titles = {each.id: each.title for each in await stores.admin.list_sessions()}
        assert titles == {THEIRS: f"herring {THEIRS}", SessionID("ses_admins"): "sardine ses_admins"}


async def equal_message_ids_of_two_principals_do_not_mix(open_for: OpenFor) -> None:
    """Clients choose the ids of messages. A store that cannot keep two equal ids apart refuses the second, and does not say why."""
    async with AsyncExitStack() as stack:
        stores = await _open_three(stack, open_for)
        await _fill(stores.ben, THEIRS, "herring")
        await stores.ada.apply(SessionCreated(info=session(id=MINE)))
        theirs = _name_message(THEIRS)
        part = replace(text(PART, "kipper"), session_id=MINE, message_id=theirs)
        message = replace(answer(), id=theirs, session_id=MINE)
        refusal = await _find_refusal(stores.ada.apply(MessageUpdated(info=message), PartUpdated(part=part)))
        found = [each.parts for each in await stores.ada.list_messages(MINE)]
        assert found == ([] if isinstance(refusal, ConflictError) else [(part,)])
        assert THEIRS not in str(refusal)
        (kept,) = await stores.ben.list_messages(THEIRS)
        assert kept.parts == (replace(text(PART, "herring"), session_id=THEIRS, message_id=theirs),)


async def the_number_of_concurrent_runs_is_limited(open_for: OpenFor) -> None:
    async with AsyncExitStack() as stack:
        limited = await stack.enter_async_context(open_for(ADA, max_running=1))
        for id in (MINE, SessionID("ses_second")):
            await limited.apply(SessionCreated(info=session(id=id)))
        child = replace(session(id=SessionID("ses_child")), parent_id=MINE)
        await limited.apply(SessionCreated(info=child))
        async with limited.lease(MINE, "one"), limited.lease(child.id, "one"):
            refusal = await _find_refusal(limited.lease(SessionID("ses_second"), "two").__aenter__())
            assert isinstance(refusal, LimitReachedError)
            assert refusal.limit == "sessions"
            assert await limited.find_holder(SessionID("ses_second")) is None
        # A child that does not run inside of its parent counts like any other session.
        async with limited.lease(SessionID("ses_second"), "one"):
            refusal = await _find_refusal(limited.lease(child.id, "two").__aenter__())
            assert isinstance(refusal, LimitReachedError)
        # A process that died left its session among those that run.
        await limited.put_value(("running",), [MINE])
        async with limited.lease(SessionID("ses_second"), "two"):
            assert await limited.find_value(("running",)) == ["ses_second"]
        assert await limited.find_value(("running",)) == []


async def a_removed_session_does_not_exist(open_for: OpenFor) -> None:
    async with AsyncExitStack() as stack:
        stores = await _open_three(stack, open_for)
        await _fill(stores.ada, MINE, "kipper")
        await stores.ada.apply(SessionDeleted(info=session(id=MINE)))
        await stores.ada.apply(SessionDeleted(info=session(id=MINE)))
        assert await stores.admin.list_sessions() == []
        refusal = await _find_refusal(stores.ada.apply(TodoUpdated(session_id=MINE, todos=())))
        assert isinstance(refusal, NotFoundError)
        assert (refusal.kind, refusal.id) == ("session", MINE)


PRINCIPALS: tuple[PrincipalCheck, ...] = (
    sessions_of_other_principals_do_not_exist,
    lists_contain_only_what_belongs_to_the_principal,
    a_search_finds_only_what_belongs_to_the_principal,
    pages_are_full_even_if_others_have_sessions,
    a_session_keeps_its_owner_through_every_change,
    a_session_of_another_principal_cannot_be_taken_over,
    equal_message_ids_of_two_principals_do_not_mix,
    the_number_of_concurrent_runs_is_limited,
    a_removed_session_does_not_exist,
)
