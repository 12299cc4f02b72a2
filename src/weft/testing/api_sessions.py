"""What every `Api` must do with sessions at rest: make, list, change, fork, remove and restore them."""

from collections.abc import Awaitable, Callable

from weft.api import Api
from weft.errors import ConflictError, InvalidIdError, InvalidInputError, NotFoundError
from weft.model.event import SessionCreated, SessionDeleted, SessionUpdated, Told
from weft.model.ids import MessageID, SessionID
from weft.model.input import PromptInput, SessionInput, TextInput
from weft.model.permission import Rule
from weft.model.session import ForkedFrom, SessionChange, SessionQuery, SessionTree, own_of

MISSING = SessionID("ses_00000000000000000000000000")
OWN_ID = SessionID("ses_1e10b972bffeAbCdEfGhIjKlMn")
NOWHERE = MessageID("msg_00000000000000000000000000")
DENY_EDIT = Rule(permission="edit", pattern="*", action="deny")
ALLOW_BASH = Rule(permission="bash", pattern="*", action="allow")


async def a_child_has_the_rules_it_was_given_and_the_denials_of_its_parent(api: Api) -> None:
    free = await api.create_session(SessionInput())
    assert (await api.create_session(SessionInput(parent_id=free.id))).permission is None
    given = SessionInput(parent_id=free.id, permission=(ALLOW_BASH,))
    assert (await api.create_session(given)).permission == (ALLOW_BASH,)
    parent = await api.create_session(SessionInput(permission=(DENY_EDIT, ALLOW_BASH)))
    child = await api.create_session(SessionInput(parent_id=parent.id))
    assert child.permission == (DENY_EDIT,)
    given = SessionInput(parent_id=parent.id, permission=(ALLOW_BASH,))
    assert (await api.create_session(given)).permission == (ALLOW_BASH, DENY_EDIT)
    assert (child.project_id, child.directory) == (parent.project_id, parent.directory)
    assert (child.summary, child.share, child.revert) == (None, None, None)


async def a_session_can_be_given_its_id_and_directory_once(api: Api) -> None:
    there = await below(api, "some/where")
    made = await api.create_next(SessionInput(), id=OWN_ID, directory=there)
    assert (made.id, made.directory) == (OWN_ID, there)
    assert await api.get_session(OWN_ID) == made
    await refused(ConflictError, api.create_next(SessionInput(), id=OWN_ID))
    await refused(InvalidIdError, api.create_next(SessionInput(), id=SessionID("ses_../x")))
    await refused(InvalidInputError, api.create_next(SessionInput(), directory="not/absolute"))
    assert [session.id for session in await api.list_sessions()] == [OWN_ID]


async def a_list_shows_what_is_asked_for(api: Api) -> None:
    one = await api.create_session(SessionInput(title="Mend the Loom"))
    elsewhere = await below(api, "elsewhere")
    two = await api.create_next(SessionInput(title="Weave"), directory=elsewhere)
    child = await api.create_session(SessionInput(title="Mend more", parent_id=one.id))
    await api.archive_session(two.id)
    await api.tag_session(one.id, "blue")

    async def listed(query: SessionQuery) -> list[SessionID]:
        return [session.id for session in await api.list_sessions(query)]

    assert await listed(SessionQuery(search="mend")) == [child.id, one.id]
    assert await listed(SessionQuery(search="mend", roots=True)) == [one.id]
    assert await listed(SessionQuery(archived=True)) == [two.id]
    assert await listed(SessionQuery(archived=False)) == [child.id, one.id]
    assert await listed(SessionQuery(tag="blue")) == [one.id]
    assert await listed(SessionQuery(directory=elsewhere)) == [two.id]
    assert await listed(SessionQuery(start=child.time.updated + 1000)) == []
    assert await listed(SessionQuery(limit=0)) == []
    assert await listed(SessionQuery(everywhere=True, limit=2)) == [child.id, two.id]
    await api.touch_session(one.id)
    last = await listed(SessionQuery(order="updated"))
    assert sorted(last) == sorted([one.id, two.id, child.id])


async def children_are_those_right_below_and_a_tree_is_all(api: Api) -> None:
    root = await api.create_session(SessionInput())
    first = await api.create_session(SessionInput(parent_id=root.id))
    deep = await api.create_session(SessionInput(parent_id=first.id))
    second = await api.create_session(SessionInput(parent_id=root.id))
    assert await api.list_children(root.id) == [first, second]
    assert await api.list_children(second.id) == []
    grown = SessionTree(session=first, children=(SessionTree(session=deep),))
    assert await api.get_tree(root.id) == SessionTree(
        session=root, children=(grown, SessionTree(session=second))
    )


async def a_change_is_stored_told_and_no_use_of_the_session(api: Api) -> None:
    listening = api.events()
    made = await api.create_session(SessionInput())
    renamed = await api.rename_session(made.id, "  Mine  ")
    assert (renamed.title, own_of(renamed).titled) == ("Mine", True)
    assert own_of(await api.pin_session(made.id)).pinned
    assert own_of(await api.tag_session(made.id, "a", "b", "a")).tags == ("a", "b")
    assert own_of(await api.untag_session(made.id, "a", "z")).tags == ("b",)
    assert (await api.archive_session(made.id)).time.archived is not None
    assert (await api.archive_session(made.id, archived=False)).time.archived is None
    unpinned = await api.pin_session(made.id, pinned=False)
    assert await api.get_session(made.id) == unpinned
    assert unpinned.time == made.time
    told = [await anext(listening) for _ in range(9)]
    assert [type(each.event) for each in told] == [SessionCreated] + [SessionUpdated] * 8
    assert told[-1].event == SessionUpdated(info=unpinned)


async def a_change_that_cannot_be_meant_changes_nothing(api: Api) -> None:
    made = await api.create_session(SessionInput())
    for change in (
        SessionChange(title=" \n"),
        SessionChange(title="x" * 1001),
        SessionChange(tag=("",)),
        SessionChange(tag=("fine", "not\nfine")),
    ):
        await refused(InvalidInputError, api.update_session(made.id, change))
    assert await api.get_session(made.id) == made


async def a_change_to_what_has_changed_meanwhile_is_refused(api: Api) -> None:
    made = await api.create_session(SessionInput())
    first = await api.update_session(made.id, SessionChange(title="first"), expected=made)
    await refused(ConflictError, api.update_session(made.id, SessionChange(title="second"), expected=made))
    assert await api.get_session(made.id) == first
    await api.update_session(made.id, SessionChange(title="third"), expected=first)


async def a_fork_has_the_messages_before_one_and_its_own_names(api: Api) -> None:
    source = await api.create_session(SessionInput(title="Loom", permission=(DENY_EDIT,)))
    for words in ("one", "two", "three"):
        await say(api, source.id, words)
    history = await api.list_messages(source.id)
    fork = await api.fork_session(source.id, at=history[2].info.id)
    copied = await api.list_messages(fork.id)
    assert [each.parts[0].text for each in copied if hasattr(each.parts[0], "text")] == ["one", "two"]
    assert {each.info.session_id for each in copied} == {fork.id}
    assert {each.info.id for each in copied}.isdisjoint(each.info.id for each in history)
    assert [each.info.time for each in copied] == [each.info.time for each in history[:2]]
    assert (fork.title, fork.parent_id, fork.permission) == ("Loom (fork #1)", None, (DENY_EDIT,))
    assert own_of(fork).forked_from == ForkedFrom(session_id=source.id, message_id=history[2].info.id)
    again = await api.fork_session(fork.id)
    assert again.title == "Loom (fork #2)"
    assert len(await api.list_messages(again.id)) == len(copied)
    assert await api.list_messages(source.id) == history


async def a_removal_takes_all_below_and_comes_back_as_it_was(api: Api) -> None:
    root = await api.create_session(SessionInput(title="root"))
    child = await api.create_session(SessionInput(parent_id=root.id))
    deep = await api.create_session(SessionInput(parent_id=child.id))
    beside = await api.create_session(SessionInput())
    for session in (root, deep):
        await say(api, session.id, "kept")
    kept = await api.get_session(root.id)
    before = [await api.list_messages(session.id) for session in (root, deep)]
    listening = api.events()
    gone = await api.remove_session(root.id)
    assert [session.id for session in gone] == [deep.id, child.id, root.id]
    assert await api.list_sessions() == [beside]
    for session in (root, child, deep):
        await refused(NotFoundError, api.get_session(session.id))
    told = [await anext(listening) for _ in range(3)]
    assert deleted(told) == [deep.id, child.id, root.id]
    [trashed] = await api.list_trash()
    assert [session.id for session in trashed.sessions] == [root.id, child.id, deep.id]
    back = await api.restore_session(deep.id)
    assert [session.id for session in back] == [root.id, child.id, deep.id]
    assert [await api.list_messages(session.id) for session in (root, deep)] == before
    assert (await api.list_trash(), await api.get_session(root.id)) == ([], kept)


async def what_is_removed_past_the_trash_is_gone(api: Api) -> None:
    made = await api.create_session(SessionInput())
    assert await api.remove_session(made.id, trash=False) == [made]
    assert await api.list_trash() == []
    await refused(NotFoundError, api.restore_session(made.id))


async def what_is_asked_of_no_session_is_not_found(api: Api) -> None:
    await refused(NotFoundError, api.list_children(MISSING))
    await refused(NotFoundError, api.get_tree(MISSING))
    await refused(NotFoundError, api.rename_session(MISSING, "x"))
    await refused(NotFoundError, api.touch_session(MISSING))
    await refused(NotFoundError, api.fork_session(MISSING))
    await refused(NotFoundError, api.remove_session(MISSING))
    await refused(NotFoundError, api.list_diff(MISSING))
    await refused(NotFoundError, api.list_todos(MISSING))
    made = await api.create_session(SessionInput())
    await refused(NotFoundError, api.fork_session(made.id, at=NOWHERE))
    assert await api.list_diff(made.id) == []
    assert await api.list_todos(made.id) == []
    assert await api.list_sessions() == [made]


SESSION_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    a_child_has_the_rules_it_was_given_and_the_denials_of_its_parent,
    a_session_can_be_given_its_id_and_directory_once,
    a_list_shows_what_is_asked_for,
    children_are_those_right_below_and_a_tree_is_all,
    a_change_is_stored_told_and_no_use_of_the_session,
    a_change_that_cannot_be_meant_changes_nothing,
    a_change_to_what_has_changed_meanwhile_is_refused,
    a_fork_has_the_messages_before_one_and_its_own_names,
    a_removal_takes_all_below_and_comes_back_as_it_was,
    what_is_removed_past_the_trash_is_gone,
    what_is_asked_of_no_session_is_not_found,
)


async def below(api: Api, name: str) -> str:
    """A directory of the project: a server makes sessions in no other."""
    return f"{(await api.surroundings.get_whereabouts()).directory}/{name}"


async def say(api: Api, session: SessionID, words: str) -> None:
    """A prompt that is kept and not answered."""
    await api.prompt(session, PromptInput(no_reply=True, parts=(TextInput(text=words),)))


def deleted(told: list[Told]) -> list[SessionID]:
    return [each.event.info.id for each in told if isinstance(each.event, SessionDeleted)]


async def refused(kind: type[Exception], asked: Awaitable[object]) -> None:
    try:
        await asked
    except kind:
        return
    raise AssertionError(f"this should have raised {kind.__name__}")
