"""Checks for every `Api` about idle sessions: lifecycle, messages, transfer and undo."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from weft.api import Api
from weft.errors import ConflictError, InvalidIdError, InvalidInputError, NotFoundError
from weft.model.event import (
    MessageRemoved,
    MessageUpdated,
    PartRemoved,
    PartUpdated,
    PublishedEvent,
    SessionCreated,
    SessionDeleted,
    SessionUpdated,
)
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.input import PromptInput, SessionInput, TextInput, prompt
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import Moment, TextPart
from weft.model.permission import Rule
from weft.model.session import (
    ForkedFrom,
    SessionChange,
    SessionQuery,
    SessionRevert,
    SessionTree,
    get_weft_data,
)
from weft.model.transfer import SessionExport

MISSING_SESSION = SessionID("ses_00000000000000000000000000")
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
    await expect_error(ConflictError, api.create_next(SessionInput(), id=OWN_ID))
    await expect_error(InvalidIdError, api.create_next(SessionInput(), id=SessionID("ses_../x")))
    await expect_error(InvalidInputError, api.create_next(SessionInput(), directory="not/absolute"))
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
    assert (renamed.title, get_weft_data(renamed).titled) == ("Mine", True)
    assert get_weft_data(await api.pin_session(made.id)).pinned
    assert get_weft_data(await api.tag_session(made.id, "a", "b", "a")).tags == ("a", "b")
    assert get_weft_data(await api.untag_session(made.id, "a", "z")).tags == ("b",)
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
        await expect_error(InvalidInputError, api.update_session(made.id, change))
    assert await api.get_session(made.id) == made


async def a_change_to_what_has_changed_meanwhile_is_refused(api: Api) -> None:
    made = await api.create_session(SessionInput())
    first = await api.update_session(made.id, SessionChange(title="first"), expected=made)
    await expect_error(
        ConflictError, api.update_session(made.id, SessionChange(title="second"), expected=made)
    )
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
    assert get_weft_data(fork).forked_from == ForkedFrom(session_id=source.id, message_id=history[2].info.id)
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
        await expect_error(NotFoundError, api.get_session(session.id))
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
    await expect_error(NotFoundError, api.restore_session(made.id))


async def what_is_asked_of_no_session_is_not_found(api: Api) -> None:
    await expect_error(NotFoundError, api.list_children(MISSING_SESSION))
    await expect_error(NotFoundError, api.get_tree(MISSING_SESSION))
    await expect_error(NotFoundError, api.rename_session(MISSING_SESSION, "x"))
    await expect_error(NotFoundError, api.touch_session(MISSING_SESSION))
    await expect_error(NotFoundError, api.fork_session(MISSING_SESSION))
    await expect_error(NotFoundError, api.remove_session(MISSING_SESSION))
    await expect_error(NotFoundError, api.list_diff(MISSING_SESSION))
    await expect_error(NotFoundError, api.list_todos(MISSING_SESSION))
    made = await api.create_session(SessionInput())
    await expect_error(NotFoundError, api.fork_session(made.id, at=NOWHERE))
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
    """Return a directory in the project: a server creates sessions in no other."""
    return f"{(await api.workspace.get_paths()).directory}/{name}"


async def say(api: Api, session: SessionID, words: str) -> None:
    """Store a prompt without requesting an answer."""
    await api.prompt(session, PromptInput(no_reply=True, parts=(TextInput(text=words),)))


def deleted(told: list[PublishedEvent]) -> list[SessionID]:
    return [each.event.info.id for each in told if isinstance(each.event, SessionDeleted)]


async def expect_error(kind: type[Exception], asked: Awaitable[object]) -> None:
    try:
        await asked
    except kind:
        return
    raise AssertionError(f"this should have raised {kind.__name__}")


MANY = 70  # more than one page when reading backwards


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
    await expect_error(NotFoundError, api.list_messages(session, before=NOWHERE))
    await expect_error(NotFoundError, anext(api.stream_messages(MISSING_SESSION)))


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
    lost = message(MISSING_SESSION, 1)
    await expect_error(NotFoundError, api.update_message(lost))
    await expect_error(NotFoundError, api.update_part(part(message(session, 2), 1, "x")))
    await expect_error(NotFoundError, api.remove_message(session, NOWHERE))
    await expect_error(NotFoundError, api.remove_part(session, before[0].info.id, part(lost, 9, "").id))
    await expect_error(NotFoundError, api.remove_message(session, MessageID("msg_../../x")))
    await expect_error(InvalidInputError, api.update_part(_of(before[0]), delta="not its end"))
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


async def a_session_is_exported_whole(api: Api) -> None:
    export = await _export_conversation(api)
    assert export.info == await api.get_session(export.info.id)
    assert list(export.messages) == await api.list_messages(export.info.id)


async def what_is_not_there_is_not_exported(api: Api) -> None:
    await expect_error(NotFoundError, api.export_session(MISSING_SESSION))


async def what_is_here_already_is_left_alone(api: Api) -> None:
    export = await _export_conversation(api)
    assert (await api.import_session(export)).verdict == "same"
    assert await api.export_session(export.info.id) == export


async def a_session_that_is_not_here_is_new(api: Api) -> None:
    export = await _export_conversation(api)
    await api.remove_session(export.info.id)
    assert (await api.import_session(export, dry_run=True)).verdict == "new"
    assert export.info.id not in [session.id for session in await api.list_sessions()]
    received = await api.import_session(export)
    assert (received.verdict, received.id, received.before) == ("new", export.info.id, received.after)
    assert (await api.export_session(export.info.id)).messages == export.messages


async def what_was_said_since_is_not_taken_back(api: Api) -> None:
    export = await _export_conversation(api)
    await api.prompt(export.info.id, prompt("and then?"))
    later = await api.export_session(export.info.id)
    assert (await api.import_session(export)).verdict == "older"
    assert await api.export_session(export.info.id) == later


async def when_both_have_gone_on_both_are_kept_and_only_once(api: Api) -> None:
    export = await _export_conversation(api)
    changed = replace(export, messages=tuple(_shout(message) for message in export.messages))
    received = await api.import_session(changed)
    assert (received.verdict, received.origin) == ("forked", export.info.id)
    assert received.id != export.info.id
    assert await api.export_session(export.info.id) == export
    copy = await api.export_session(received.id)
    assert _words(copy) == _words(changed)
    assert {part.id for each in copy.messages for part in each.parts}.isdisjoint(
        part.id for each in export.messages for part in each.parts
    )
    again = await api.import_session(changed)
    assert (again.verdict, again.id) == ("same", received.id)


async def an_id_that_leads_elsewhere_is_refused(api: Api) -> None:
    export = await _export_conversation(api)
    info = replace(export.info, id=SessionID("ses_../../../../../../etc/passwd"))
    await expect_error(InvalidIdError, api.import_session(replace(export, info=info)))


TRANSFER_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    a_session_is_exported_whole,
    what_is_not_there_is_not_exported,
    what_is_here_already_is_left_alone,
    a_session_that_is_not_here_is_new,
    what_was_said_since_is_not_taken_back,
    when_both_have_gone_on_both_are_kept_and_only_once,
    an_id_that_leads_elsewhere_is_refused,
)


async def _export_conversation(api: Api) -> SessionExport:
    session = await api.create_session(SessionInput(title="On the move"))
    await api.prompt(session.id, prompt("hello"))
    return await api.export_session(session.id)


def _shout(message: MessageWithParts) -> MessageWithParts:
    parts = tuple(
        replace(part, text=part.text.upper() + "!") if isinstance(part, TextPart) else part
        for part in message.parts
    )
    return replace(message, parts=parts)


def _words(export: SessionExport) -> list[str]:
    return [part.text for each in export.messages for part in each.parts if isinstance(part, TextPart)]


async def what_is_taken_back_stays_until_the_session_goes_on(api: Api) -> None:
    session, (first, second) = await _hold_conversation(api)
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
    session, (first, _) = await _hold_conversation(api)
    before = await api.list_messages(session)
    await api.revert(session, first)
    back = await api.unrevert(session)
    assert back.session.revert is None
    assert back.files == ()
    assert await api.list_messages(session) == before


async def bringing_back_what_was_not_taken_back_changes_nothing(api: Api) -> None:
    session, _ = await _hold_conversation(api)
    before = await api.get_session(session)
    assert (await api.unrevert(session)).session == before
    assert await api.get_session(session) == before


async def an_answer_is_taken_back_with_its_prompt(api: Api) -> None:
    session, (_, second) = await _hold_conversation(api)
    answer = (await api.list_messages(session))[-1]
    taken = await api.revert(session, answer.info.id)
    assert taken.session.revert == SessionRevert(message_id=second)


async def a_part_with_words_before_it_is_taken_back_alone(api: Api) -> None:
    session, _ = await _hold_conversation(api)
    answer = (await api.list_messages(session))[-1]
    last = answer.parts[-1]
    await api.revert(session, answer.info.id, last.id)
    await api.prompt(session, prompt("three"))
    (kept,) = [each for each in await api.list_messages(session) if each.info.id == answer.info.id]
    assert kept.parts == answer.parts[:-1]


async def a_look_ahead_changes_nothing(api: Api) -> None:
    session, (first, _) = await _hold_conversation(api)
    before = await api.get_session(session)
    assert (await api.revert(session, first, dry_run=True)).session == before
    assert await api.get_session(session) == before


async def nobody_is_taken_back_to_where_nothing_is(api: Api) -> None:
    session, (first, _) = await _hold_conversation(api)
    await expect_error(NotFoundError, api.revert(session, NOWHERE))
    await expect_error(NotFoundError, api.revert(session, first, PartID("prt_00000000000000000000000000")))
    await expect_error(NotFoundError, api.unrevert(SessionID("ses_00000000000000000000000000")))
    await expect_error(NotFoundError, api.revert(session, MessageID("../x")))
    assert (await api.get_session(session)).revert is None


async def _hold_conversation(api: Api) -> tuple[SessionID, list[MessageID]]:
    """Send two prompts. Return the session and the ids of the prompts."""
    session = (await api.create_session(SessionInput())).id
    for words in ("one", "two"):
        await api.prompt(session, prompt(words))
    return session, [message.info.id for message in (await api.list_messages(session))[::2]]


UNDO_CHECKS = (
    what_is_taken_back_stays_until_the_session_goes_on,
    what_was_taken_back_can_be_brought_back,
    bringing_back_what_was_not_taken_back_changes_nothing,
    an_answer_is_taken_back_with_its_prompt,
    a_part_with_words_before_it_is_taken_back_alone,
    a_look_ahead_changes_nothing,
    nobody_is_taken_back_to_where_nothing_is,
)
