"""Checks for every `Api` about idle sessions: lifecycle, messages, transfer and undo."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec.structs import replace

from weft.api import Api
from weft.errors import ConflictError, InvalidIdError, InvalidInputError, NotFoundError, UnsupportedError
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
from weft.model.move import MoveOffer
from weft.model.part import Moment, TextPart
from weft.model.permission import Rule
from weft.model.session import ForkedFrom, SessionChange, SessionRevert, SessionTree, get_weft_data
from weft.model.session_query import SessionQuery
from weft.model.transfer import SessionExport

MISSING_SESSION = SessionID("ses_00000000000000000000000000")
OWN_ID = SessionID("ses_1e10b972bffeAbCdEfGhIjKlMn")
MISSING_MESSAGE = MessageID("msg_00000000000000000000000000")
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


async def a_session_can_be_created_with_an_id_and_a_directory_once(api: Api) -> None:
    directory = await get_directory(api, "some/where")
    created = await api.create_next(SessionInput(), id=OWN_ID, directory=directory)
    assert (created.id, created.directory) == (OWN_ID, directory)
    assert await api.get_session(OWN_ID) == created
    await expect_error(ConflictError, api.create_next(SessionInput(), id=OWN_ID))
    await expect_error(InvalidIdError, api.create_next(SessionInput(), id=SessionID("ses_../x")))
    await expect_error(InvalidInputError, api.create_next(SessionInput(), directory="not/absolute"))
    assert [session.id for session in await api.list_sessions()] == [OWN_ID]


async def a_query_selects_the_listed_sessions(api: Api) -> None:
    one = await api.create_session(SessionInput(title="Mend the Loom"))
    elsewhere = await get_directory(api, "elsewhere")
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
    assert await listed(SessionQuery(tags=("blue",))) == [one.id]
    assert await listed(SessionQuery(directory=elsewhere)) == [two.id]
    assert await listed(SessionQuery(start=child.time.updated + 1000)) == []
    assert await listed(SessionQuery(limit=0)) == []
    assert await listed(SessionQuery(everywhere=True, limit=2)) == [child.id, two.id]
    await api.touch_session(one.id)
    last = await listed(SessionQuery(order="updated"))
    assert sorted(last) == sorted([one.id, two.id, child.id])


async def children_are_one_level_and_a_tree_is_all_levels(api: Api) -> None:
    root = await api.create_session(SessionInput())
    first = await api.create_session(SessionInput(parent_id=root.id))
    grandchild = await api.create_session(SessionInput(parent_id=first.id))
    second = await api.create_session(SessionInput(parent_id=root.id))
    assert await api.list_children(root.id) == [first, second]
    assert await api.list_children(second.id) == []
    grown = SessionTree(session=first, children=(SessionTree(session=grandchild),))
    assert await api.get_tree(root.id) == SessionTree(
        session=root, children=(grown, SessionTree(session=second))
    )


async def a_change_is_stored_and_published_and_does_not_count_as_use(api: Api) -> None:
    events = api.events()
    created = await api.create_session(SessionInput())
    renamed = await api.rename_session(created.id, "  Mine  ")
    assert (renamed.title, get_weft_data(renamed).titled) == ("Mine", True)
    assert get_weft_data(await api.pin_session(created.id)).pinned
    assert get_weft_data(await api.tag_session(created.id, "a", "b", "a")).tags == ("a", "b")
    assert get_weft_data(await api.untag_session(created.id, "a", "z")).tags == ("b",)
    assert (await api.archive_session(created.id)).time.archived is not None
    assert (await api.archive_session(created.id, archived=False)).time.archived is None
    unpinned = await api.pin_session(created.id, pinned=False)
    assert await api.get_session(created.id) == unpinned
    assert unpinned.time == created.time
    published = [await anext(events) for _ in range(9)]
    assert [type(each.event) for each in published] == [SessionCreated] + [SessionUpdated] * 8
    assert published[-1].event == SessionUpdated(info=unpinned)


async def an_invalid_change_changes_nothing(api: Api) -> None:
    created = await api.create_session(SessionInput())
    for change in (
        SessionChange(title=" \n"),
        SessionChange(title="x" * 1001),
        SessionChange(tag=("",)),
        SessionChange(tag=("fine", "not\nfine")),
    ):
        await expect_error(InvalidInputError, api.update_session(created.id, change))
    assert await api.get_session(created.id) == created


async def a_change_of_an_outdated_session_is_refused(api: Api) -> None:
    created = await api.create_session(SessionInput())
    first = await api.update_session(created.id, SessionChange(title="first"), expected=created)
    await expect_error(
        ConflictError, api.update_session(created.id, SessionChange(title="second"), expected=created)
    )
    assert await api.get_session(created.id) == first
    await api.update_session(created.id, SessionChange(title="third"), expected=first)


async def a_fork_has_the_earlier_messages_with_new_ids(api: Api) -> None:
    source = await api.create_session(SessionInput(title="Loom", permission=(DENY_EDIT,)))
    for words in ("one", "two", "three"):
        await store_prompt(api, source.id, words)
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


async def a_removal_includes_descendants_and_can_be_restored(api: Api) -> None:
    root = await api.create_session(SessionInput(title="root"))
    child = await api.create_session(SessionInput(parent_id=root.id))
    grandchild = await api.create_session(SessionInput(parent_id=child.id))
    other = await api.create_session(SessionInput())
    for session in (root, grandchild):
        await store_prompt(api, session.id, "kept")
    kept = await api.get_session(root.id)
    before = [await api.list_messages(session.id) for session in (root, grandchild)]
    events = api.events()
    removed = await api.remove_session(root.id)
    assert [session.id for session in removed] == [grandchild.id, child.id, root.id]
    assert await api.list_sessions() == [other]
    for session in (root, child, grandchild):
        await expect_error(NotFoundError, api.get_session(session.id))
    published = [await anext(events) for _ in range(3)]
    assert list_deleted(published) == [grandchild.id, child.id, root.id]
    [trashed] = await api.list_trash()
    assert [session.id for session in trashed.sessions] == [root.id, child.id, grandchild.id]
    restored = await api.restore_session(grandchild.id)
    assert [session.id for session in restored] == [root.id, child.id, grandchild.id]
    assert [await api.list_messages(session.id) for session in (root, grandchild)] == before
    assert (await api.list_trash(), await api.get_session(root.id)) == ([], kept)


async def a_session_removed_without_the_trash_cannot_be_restored(api: Api) -> None:
    created = await api.create_session(SessionInput())
    assert await api.remove_session(created.id, trash=False) == [created]
    assert await api.list_trash() == []
    await expect_error(NotFoundError, api.restore_session(created.id))


async def operations_on_a_missing_session_are_not_found(api: Api) -> None:
    await expect_error(NotFoundError, api.list_children(MISSING_SESSION))
    await expect_error(NotFoundError, api.get_tree(MISSING_SESSION))
    await expect_error(NotFoundError, api.rename_session(MISSING_SESSION, "x"))
    await expect_error(NotFoundError, api.touch_session(MISSING_SESSION))
    await expect_error(NotFoundError, api.fork_session(MISSING_SESSION))
    await expect_error(NotFoundError, api.remove_session(MISSING_SESSION))
    await expect_error(NotFoundError, api.list_diff(MISSING_SESSION))
    await expect_error(NotFoundError, api.list_todos(MISSING_SESSION))
    created = await api.create_session(SessionInput())
    await expect_error(NotFoundError, api.fork_session(created.id, at=MISSING_MESSAGE))
    assert await api.list_diff(created.id) == []
    assert await api.list_todos(created.id) == []
    assert await api.list_sessions() == [created]


SESSION_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    a_child_has_the_rules_it_was_given_and_the_denials_of_its_parent,
    a_session_can_be_created_with_an_id_and_a_directory_once,
    a_query_selects_the_listed_sessions,
    children_are_one_level_and_a_tree_is_all_levels,
    a_change_is_stored_and_published_and_does_not_count_as_use,
    an_invalid_change_changes_nothing,
    a_change_of_an_outdated_session_is_refused,
    a_fork_has_the_earlier_messages_with_new_ids,
    a_removal_includes_descendants_and_can_be_restored,
    a_session_removed_without_the_trash_cannot_be_restored,
    operations_on_a_missing_session_are_not_found,
)


async def get_directory(api: Api, name: str) -> str:
    """Return a directory in the project: a server creates sessions in no other."""
    return f"{(await api.workspace.get_paths()).directory}/{name}"


async def store_prompt(api: Api, session: SessionID, words: str) -> None:
    """Store a prompt without requesting an answer."""
    await api.prompt(session, PromptInput(no_reply=True, parts=(TextInput(text=words),)))


def list_deleted(published: list[PublishedEvent]) -> list[SessionID]:
    return [each.event.info.id for each in published if isinstance(each.event, SessionDeleted)]


ErrorT = TypeVar("ErrorT", bound=Exception)


async def expect_error(kind: type[ErrorT], operation: Awaitable[object]) -> ErrorT:
    """Return the error of this kind that the call raises. Fail if it raises none."""
    try:
        await operation
    except kind as error:
        return error
    raise AssertionError(f"this should have raised {kind.__name__}")


MESSAGE_COUNT = 70  # more than one page when reading backwards


def message(session: SessionID, number: int) -> UserMessage:
    id = MessageID(f"msg_{number:012x}AbCdEfGhIjKlMn")
    return UserMessage(id=id, session_id=session, time=Moment(created=number), agent="build")


def part(of: UserMessage, number: int, words: str) -> TextPart:
    id = PartID(f"prt_{number:012x}AbCdEfGhIjKlMn")
    return TextPart(id=id, session_id=of.session_id, message_id=of.id, text=words)


async def messages_can_be_read_in_pages_and_backwards(api: Api) -> None:
    session = (await api.create_session(SessionInput())).id
    infos = [message(session, number) for number in range(1, MESSAGE_COUNT + 1)]
    for info in infos:
        await api.update_message(info)
    expected = [MessageWithParts(info=info, parts=()) for info in infos]
    assert await api.list_messages(session) == expected
    assert await api.list_messages(session, limit=2) == expected[-2:]
    assert await api.list_messages(session, limit=2, before=infos[-2].id) == expected[-4:-2]
    assert await api.list_messages(session, before=infos[0].id) == []
    assert [each async for each in api.stream_messages(session)] == expected[::-1]
    await expect_error(NotFoundError, api.list_messages(session, before=MISSING_MESSAGE))
    await expect_error(NotFoundError, anext(api.stream_messages(MISSING_SESSION)))


async def changes_of_messages_and_parts_are_stored_and_published(api: Api) -> None:
    session = (await api.create_session(SessionInput())).id
    info = message(session, 1)
    one, two = part(info, 1, "a"), part(info, 2, "b")
    grown = part(info, 1, "abc")
    events = api.events()
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
    published = [(await anext(events)).event for _ in range(7)]
    assert published == [
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
    await store_prompt(api, session, "hello")
    before = await api.list_messages(session)
    lost = message(MISSING_SESSION, 1)
    await expect_error(NotFoundError, api.update_message(lost))
    await expect_error(NotFoundError, api.update_part(part(message(session, 2), 1, "x")))
    await expect_error(NotFoundError, api.remove_message(session, MISSING_MESSAGE))
    await expect_error(NotFoundError, api.remove_part(session, before[0].info.id, part(lost, 9, "").id))
    await expect_error(NotFoundError, api.remove_message(session, MessageID("msg_../../x")))
    await expect_error(InvalidInputError, api.update_part(_get_first_text(before[0]), delta="not its end"))
    assert await api.list_messages(session) == before


def _get_first_text(message: MessageWithParts) -> TextPart:
    found = message.parts[0]
    assert isinstance(found, TextPart)
    return found


MESSAGE_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    messages_can_be_read_in_pages_and_backwards,
    changes_of_messages_and_parts_are_stored_and_published,
    a_message_needs_its_session_and_a_part_its_message,
)


async def a_session_is_exported_whole(api: Api) -> None:
    export = await _export_conversation(api)
    assert export.info == await api.get_session(export.info.id)
    assert list(export.messages) == await api.list_messages(export.info.id)


async def a_missing_session_cannot_be_exported(api: Api) -> None:
    await expect_error(NotFoundError, api.export_session(MISSING_SESSION))


async def importing_an_equal_session_changes_nothing(api: Api) -> None:
    export = await _export_conversation(api)
    assert (await api.import_session(export)).verdict == "same"
    assert await api.export_session(export.info.id) == export


async def a_missing_session_is_imported_as_new(api: Api) -> None:
    export = await _export_conversation(api)
    await api.remove_session(export.info.id)
    assert (await api.import_session(export, dry_run=True)).verdict == "new"
    assert export.info.id not in [session.id for session in await api.list_sessions()]
    received = await api.import_session(export)
    assert (received.verdict, received.id, received.before) == ("new", export.info.id, received.after)
    assert (await api.export_session(export.info.id)).messages == export.messages


async def importing_an_older_session_changes_nothing(api: Api) -> None:
    export = await _export_conversation(api)
    await api.prompt(export.info.id, prompt("and then?"))
    later = await api.export_session(export.info.id)
    assert (await api.import_session(export)).verdict == "older"
    assert await api.export_session(export.info.id) == later


async def a_diverged_session_is_imported_as_a_fork_once(api: Api) -> None:
    export = await _export_conversation(api)
    changed = replace(export, messages=tuple(_change_texts(message) for message in export.messages))
    received = await api.import_session(changed)
    assert (received.verdict, received.origin) == ("forked", export.info.id)
    assert received.id != export.info.id
    assert await api.export_session(export.info.id) == export
    copy = await api.export_session(received.id)
    assert _get_text(copy) == _get_text(changed)
    assert {part.id for each in copy.messages for part in each.parts}.isdisjoint(
        part.id for each in export.messages for part in each.parts
    )
    again = await api.import_session(changed)
    assert (again.verdict, again.id) == ("same", received.id)


async def an_id_with_a_path_is_refused(api: Api) -> None:
    export = await _export_conversation(api)
    info = replace(export.info, id=SessionID("ses_../../../../../../etc/passwd"))
    await expect_error(InvalidIdError, api.import_session(replace(export, info=info)))


async def a_move_that_cannot_be_accepted_is_refused_before_anything_is_sent(api: Api) -> None:
    offer = MoveOffer(
        move="mov_1", format=1, session=OWN_ID, sessions=(OWN_ID,), host="loom", directory="/loom", commit="c" * 40,
        size=1, sha256="",
    )  # fmt: skip
    await expect_error(UnsupportedError, api.moves.offer(replace(offer, format=99)))
    await expect_error(InvalidInputError, api.moves.offer(replace(offer, sessions=())))
    await expect_error(InvalidInputError, api.moves.offer(replace(offer, size=0)))
    bad = SessionID("ses_../x")
    await expect_error(InvalidIdError, api.moves.offer(replace(offer, session=bad, sessions=(bad,))))
    await expect_error(NotFoundError, api.get_session(OWN_ID))


TRANSFER_CHECKS: tuple[Callable[[Api], Awaitable[None]], ...] = (
    a_session_is_exported_whole,
    a_missing_session_cannot_be_exported,
    importing_an_equal_session_changes_nothing,
    a_missing_session_is_imported_as_new,
    importing_an_older_session_changes_nothing,
    a_diverged_session_is_imported_as_a_fork_once,
    an_id_with_a_path_is_refused,
    a_move_that_cannot_be_accepted_is_refused_before_anything_is_sent,
)


async def _export_conversation(api: Api) -> SessionExport:
    session = await api.create_session(SessionInput(title="On the move"))
    await api.prompt(session.id, prompt("hello"))
    return await api.export_session(session.id)


def _change_texts(message: MessageWithParts) -> MessageWithParts:
    parts = tuple(
        replace(part, text=part.text.upper() + "!") if isinstance(part, TextPart) else part
        for part in message.parts
    )
    return replace(message, parts=parts)


def _get_text(export: SessionExport) -> list[str]:
    return [part.text for each in export.messages for part in each.parts if isinstance(part, TextPart)]


async def undone_messages_stay_until_the_session_continues(api: Api) -> None:
    session, (first, second) = await _hold_conversation(api)
    before = await api.list_messages(session)
    reverted = await api.revert(session, second)
    assert reverted.session.revert == SessionRevert(message_id=second)
    assert reverted.session == await api.get_session(session)
    assert await api.list_messages(session) == before
    await api.prompt(session, prompt("three"))
    ids = [message.info.id for message in await api.list_messages(session)]
    assert first in ids
    assert second not in ids
    assert (await api.get_session(session)).revert is None


async def an_undo_can_be_redone(api: Api) -> None:
    session, (first, _) = await _hold_conversation(api)
    before = await api.list_messages(session)
    await api.revert(session, first)
    restored = await api.unrevert(session)
    assert restored.session.revert is None
    assert restored.files == ()
    assert await api.list_messages(session) == before


async def a_redo_without_an_undo_changes_nothing(api: Api) -> None:
    session, _ = await _hold_conversation(api)
    before = await api.get_session(session)
    assert (await api.unrevert(session)).session == before
    assert await api.get_session(session) == before


async def undoing_an_answer_undoes_its_prompt(api: Api) -> None:
    session, (_, second) = await _hold_conversation(api)
    answer = (await api.list_messages(session))[-1]
    reverted = await api.revert(session, answer.info.id)
    assert reverted.session.revert == SessionRevert(message_id=second)


async def a_part_after_text_is_undone_alone(api: Api) -> None:
    session, _ = await _hold_conversation(api)
    answer = (await api.list_messages(session))[-1]
    last = answer.parts[-1]
    await api.revert(session, answer.info.id, last.id)
    await api.prompt(session, prompt("three"))
    (kept,) = [each for each in await api.list_messages(session) if each.info.id == answer.info.id]
    assert kept.parts == answer.parts[:-1]


async def a_dry_run_changes_nothing(api: Api) -> None:
    session, (first, _) = await _hold_conversation(api)
    before = await api.get_session(session)
    assert (await api.revert(session, first, dry_run=True)).session == before
    assert await api.get_session(session) == before


async def undoing_to_a_missing_message_or_part_is_not_found(api: Api) -> None:
    session, (first, _) = await _hold_conversation(api)
    await expect_error(NotFoundError, api.revert(session, MISSING_MESSAGE))
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
    undone_messages_stay_until_the_session_continues,
    an_undo_can_be_redone,
    a_redo_without_an_undo_changes_nothing,
    undoing_an_answer_undoes_its_prompt,
    a_part_after_text_is_undone_alone,
    a_dry_run_changes_nothing,
    undoing_to_a_missing_message_or_part_is_not_found,
)
