"""Checks that every store must pass when events are applied and things are removed."""

from msgspec.structs import replace

from weft.model.diff import FileDiff
from weft.model.event import (
    MessageRemoved,
    MessageUpdated,
    PartRemoved,
    PartUpdated,
    ProjectUpdated,
    SessionCreated,
    SessionDeleted,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import PartID, ProjectID, SessionID
from weft.model.message import AssistantTime
from weft.model.project import Project, ProjectTime
from weft.model.session import Todo
from weft.store.contract import Store
from weft.testing.store_samples import (
    ANSWER,
    NOW,
    PROJECT,
    PROMPT,
    SESSION,
    Check,
    answer,
    expect_missing,
    growth,
    many_parts,
    prompt,
    session,
    text,
    with_parts,
)

# --- applying ---


async def an_empty_store_has_nothing(store: Store) -> None:
    assert await store.list_projects() == []
    assert await store.find_project(PROJECT) is None
    assert await store.list_sessions() == []
    assert await store.list_sessions(PROJECT) == []
    assert await store.list_messages(SESSION) == []
    assert await store.find_message(SESSION, PROMPT) is None
    assert await store.list_diff(SESSION) == []
    assert await store.list_todos(SESSION) == []
    assert await store.find_value(("session_share", SESSION)) is None
    assert await store.damage() == []


async def getting_a_missing_session_raises_an_error(store: Store) -> None:
    error = await expect_missing(store.get_session(SESSION))
    assert (error.kind, error.id) == ("session", SESSION)


async def applying_nothing_changes_nothing(store: Store) -> None:
    await store.apply()
    await an_empty_store_has_nothing(store)


async def a_project_is_stored_and_changed(store: Store) -> None:
    project = Project(id=PROJECT, worktree="/work", vcs="git", time=ProjectTime(created=NOW, updated=NOW))
    await store.apply(ProjectUpdated(info=project))
    assert await store.find_project(PROJECT) == project
    renamed = replace(project, name="Weft", sandboxes=("/other",))
    await store.apply(ProjectUpdated(info=renamed))
    assert await store.find_project(PROJECT) == renamed
    assert await store.list_projects() == [renamed]


async def projects_are_listed_oldest_first(store: Store) -> None:
    projects = [
        Project(id=ProjectID(name), worktree="/", time=ProjectTime(created=created, updated=0))
        for name, created in (("b", 1), ("c", 2), ("a", 3))
    ]
    await store.apply(*(ProjectUpdated(info=project) for project in reversed(projects)))
    assert await store.list_projects() == projects


async def a_session_is_stored_and_changed(store: Store) -> None:
    await store.apply(SessionCreated(info=session(title="one")))
    assert await store.get_session(SESSION) == session(title="one")
    await store.apply(SessionUpdated(info=session(title="two")))
    assert await store.get_session(SESSION) == session(title="two")
    assert await store.list_sessions() == [session(title="two")]


async def sessions_are_listed_by_project_or_all(store: Store) -> None:
    here, there = session("ses_a", created=2), session("ses_b", project="p2", created=1)
    await store.apply(SessionCreated(info=here), SessionCreated(info=there))
    assert await store.list_sessions(PROJECT) == [here]
    assert await store.list_sessions(ProjectID("p2")) == [there]
    assert await store.list_sessions(ProjectID("p3")) == []
    assert await store.list_sessions() == [there, here]


async def a_session_moved_to_another_project_is_only_there(store: Store) -> None:
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    moved = session(project="p2")
    await store.apply(SessionUpdated(info=moved))
    assert await store.list_sessions(PROJECT) == []
    assert await store.list_sessions(ProjectID("p2")) == [moved]
    assert await store.list_sessions() == [moved]
    assert await store.get_session(SESSION) == moved
    assert await store.list_messages(SESSION) == [with_parts(prompt())]
    back = await store.edit(SESSION, lambda known: replace(known, project_id=PROJECT))
    assert (back, await store.list_sessions()) == (session(), [session()])


async def a_diff_and_todos_are_stored_and_replaced(store: Store) -> None:
    diff = (FileDiff(file="a", before="1", after="2", additions=1, deletions=1),)
    todos = (Todo(content="do", status="pending", priority="high", id="1"),)
    await store.apply(
        SessionDiffed(session_id=SESSION, diff=diff), TodoUpdated(session_id=SESSION, todos=todos)
    )
    assert await store.list_diff(SESSION) == list(diff)
    assert await store.list_todos(SESSION) == list(todos)
    await store.apply(SessionDiffed(session_id=SESSION, diff=()), TodoUpdated(session_id=SESSION, todos=()))
    assert await store.list_diff(SESSION) == []
    assert await store.list_todos(SESSION) == []


async def messages_and_parts_of_every_kind_are_stored_unchanged(store: Store) -> None:
    parts = many_parts(ANSWER)
    await store.apply(MessageUpdated(info=answer()), *(PartUpdated(part=part) for part in parts))
    assert await store.list_messages(SESSION) == [with_parts(answer(), *parts)]
    assert await store.find_message(SESSION, ANSWER) == with_parts(answer(), *parts)
    done = replace(answer(), time=AssistantTime(created=NOW + 1, completed=NOW + 9), finish="stop")
    await store.apply(MessageUpdated(info=done))
    assert await store.list_messages(SESSION) == [with_parts(done, *parts)]


async def a_part_that_arrives_before_its_message_waits_for_it(store: Store) -> None:
    await store.apply(PartUpdated(part=text("prt_1", "early")))
    assert await store.list_messages(SESSION) == []
    await store.apply(MessageUpdated(info=prompt()))
    assert await store.list_messages(SESSION) == [with_parts(prompt(), text("prt_1", "early"))]


async def sessions_are_independent(store: Store) -> None:
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "a")))
    assert await store.list_messages(SessionID("ses_2")) == []
    assert await store.find_message(SessionID("ses_2"), PROMPT) is None


# --- repeating and removing ---


async def applying_an_event_twice_equals_applying_it_once(store: Store) -> None:
    events = (
        ProjectUpdated(info=Project(id=PROJECT, worktree="/work", time=ProjectTime(created=NOW))),
        SessionCreated(info=session()),
        MessageUpdated(info=prompt()),
        PartUpdated(part=text("prt_1", "a")),
        growth("prt_1", "b", 1),
        PartUpdated(part=text("prt_2", "c")),
        PartRemoved(session_id=SESSION, message_id=PROMPT, part_id=PartID("prt_2")),
        TodoUpdated(session_id=SESSION, todos=(Todo(content="x", status="pending", priority="low"),)),
    )
    for _ in range(2):
        await store.apply(*events)
        assert await store.list_sessions() == [session()]
        assert await store.list_messages(SESSION) == [with_parts(prompt(), text("prt_1", "ab"))]
    for event in events:
        await store.apply(event)
        await store.apply(event)
    assert await store.list_messages(SESSION) == [with_parts(prompt(), text("prt_1", "ab"))]


async def removing_twice_equals_removing_once(store: Store) -> None:
    gone = PartRemoved(session_id=SESSION, message_id=PROMPT, part_id=PartID("prt_1"))
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "a")))
    for _ in range(2):
        await store.apply(gone)
        assert await store.list_messages(SESSION) == [with_parts(prompt())]


async def removing_a_message_removes_its_parts(store: Store) -> None:
    gone = MessageRemoved(session_id=SESSION, message_id=PROMPT)
    kept = text("prt_3", "stays", of=ANSWER)
    await store.apply(MessageUpdated(info=prompt()), MessageUpdated(info=answer()), PartUpdated(part=kept))
    await store.apply(PartUpdated(part=text("prt_1", "a")), PartUpdated(part=text("prt_2", "b")))
    await store.apply(growth("prt_1", "more", 1))
    for _ in range(2):
        await store.apply(gone)
        assert await store.list_messages(SESSION) == [with_parts(answer(), kept)]
    await store.apply(MessageUpdated(info=prompt()))
    assert await store.find_message(SESSION, PROMPT) == with_parts(prompt())


async def deleting_a_session_deletes_all_its_data(store: Store) -> None:
    other = session("ses_2", created=NOW + 5)
    kept = text("prt_9", "b", of="msg_9", session="ses_2")
    await store.apply(
        SessionCreated(info=session()),
        SessionCreated(info=other),
        MessageUpdated(info=prompt()),
        PartUpdated(part=text("prt_1", "a")),
        PartUpdated(part=text("prt_2", "no message of its own", of="msg_lost")),
        SessionDiffed(session_id=SESSION, diff=(FileDiff(file="a", additions=1, deletions=0),)),
        TodoUpdated(session_id=SESSION, todos=(Todo(content="x", status="pending", priority="low"),)),
        MessageUpdated(info=prompt("msg_9", of="ses_2")),
        PartUpdated(part=kept),
    )
    await store.apply(growth("prt_1", "more", 1))
    for _ in range(2):
        await store.apply(SessionDeleted(info=session()))
        assert await store.list_sessions() == [other]
        assert await store.list_messages(SESSION) == []
        assert await store.list_diff(SESSION) == []
        assert await store.list_todos(SESSION) == []
    await store.apply(MessageUpdated(info=prompt()), MessageUpdated(info=prompt("msg_lost")))
    assert await store.list_messages(SESSION) == [with_parts(prompt()), with_parts(prompt("msg_lost"))]
    assert await store.list_messages(SessionID("ses_2")) == [with_parts(prompt("msg_9", of="ses_2"), kept)]


async def the_order_of_events_in_a_batch_counts(store: Store) -> None:
    gone = MessageRemoved(session_id=SESSION, message_id=PROMPT)
    await store.apply(
        SessionCreated(info=session(title="one")),
        MessageUpdated(info=prompt()),
        PartUpdated(part=text("prt_1", "a")),
        growth("prt_1", "bc", 1),
        PartUpdated(part=text("prt_2", "gone")),
        gone,
        growth("prt_1", "nothing to grow", 0),
        MessageUpdated(info=prompt()),
        PartUpdated(part=text("prt_3", "d")),
        SessionUpdated(info=session(title="two")),
    )
    assert await store.get_session(SESSION) == session(title="two")
    assert await store.list_messages(SESSION) == [with_parts(prompt(), text("prt_3", "d"))]
    await store.apply(SessionDeleted(info=session()), SessionCreated(info=session(title="three")))
    assert await store.list_sessions() == [session(title="three")]
    assert await store.list_messages(SESSION) == []


async def a_batch_may_put_many_documents_and_each_more_than_once(store: Store) -> None:
    numbers = range(10, 31)  # no round number: some stores write several rows with one statement
    await store.apply(
        SessionCreated(info=session()),
        *(MessageUpdated(info=prompt(f"msg_{number}", created=NOW)) for number in numbers),
        *(PartUpdated(part=text(f"prt_{number}", "first", of="msg_10")) for number in numbers),
        *(MessageUpdated(info=prompt(f"msg_{number}", created=NOW + number)) for number in numbers),
        *(PartUpdated(part=text(f"prt_{number}", f"last {number}", of="msg_10")) for number in numbers),
    )
    parts = [text(f"prt_{number}", f"last {number}", of="msg_10") for number in numbers]
    messages = [prompt(f"msg_{number}", created=NOW + number) for number in numbers]
    assert await store.list_messages(SESSION) == [
        with_parts(message, *(parts if message.id == "msg_10" else ())) for message in messages
    ]


WRITING: tuple[Check, ...] = (
    an_empty_store_has_nothing,
    getting_a_missing_session_raises_an_error,
    applying_nothing_changes_nothing,
    a_project_is_stored_and_changed,
    projects_are_listed_oldest_first,
    a_session_is_stored_and_changed,
    sessions_are_listed_by_project_or_all,
    a_session_moved_to_another_project_is_only_there,
    a_diff_and_todos_are_stored_and_replaced,
    messages_and_parts_of_every_kind_are_stored_unchanged,
    a_part_that_arrives_before_its_message_waits_for_it,
    sessions_are_independent,
    applying_an_event_twice_equals_applying_it_once,
    removing_twice_equals_removing_once,
    removing_a_message_removes_its_parts,
    deleting_a_session_deletes_all_its_data,
    the_order_of_events_in_a_batch_counts,
    a_batch_may_put_many_documents_and_each_more_than_once,
)
