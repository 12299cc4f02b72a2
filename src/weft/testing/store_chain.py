"""Checks of the chains of sessions, for every store. Each is given an empty store."""

from msgspec.structs import replace

from weft.model.diff import FileDiff
from weft.model.event import (
    MessageRemoved,
    MessageUpdated,
    PartRemoved,
    PartUpdated,
    SessionCreated,
    SessionDeleted,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import PartID, SessionID
from weft.model.session import SessionInfo, Todo, with_owner
from weft.store.chain import (
    DIFF_KEY,
    SESSION_KEY,
    TODO_KEY,
    Chain,
    digest_document,
    message_key,
    part_key,
    read_chain,
)
from weft.store.contract import Store
from weft.testing.store_samples import NOW, PROMPT, SESSION, Check, growth, prompt, session, text

OTHER = SessionID("ses_2")
FIRST, SECOND = part_key(PROMPT, PartID("prt_1")), part_key(PROMPT, PartID("prt_2"))


async def get_chain(store: Store, id: SessionID = SESSION) -> Chain:
    """Return the chain of a session, whose links must hold."""
    chain = read_chain(id, (await store.read_chain(id)).lines)
    assert chain.breaks == []
    return chain


async def count_entries(store: Store, id: SessionID = SESSION) -> int:
    return len((await get_chain(store, id)).hashes)


async def fill(store: Store) -> None:
    await store.apply(SessionCreated(info=session()))
    await store.apply(
        MessageUpdated(info=prompt()),
        PartUpdated(part=text("prt_1", "a")),
        PartUpdated(part=text("prt_2", "b")),
    )


async def every_write_adds_one_entry(store: Store) -> None:
    await fill(store)
    counts = [await count_entries(store)]
    await store.apply(SessionUpdated(info=session(title="two")), PartUpdated(part=text("prt_1", "c")))
    counts.append(await count_entries(store))
    await store.edit(SESSION, lambda known: replace(known, title="three"))
    counts.append(await count_entries(store))
    await store.apply(PartUpdated(part=text("prt_1", "c")))  # the same again
    counts.append(await count_entries(store))
    await store.edit(
        SESSION, lambda known: replace(known, title="four"), PartUpdated(part=text("prt_1", "d"))
    )
    counts.append(await count_entries(store))
    await store.edit(SESSION, lambda known: known)  # this changes nothing
    counts.append(await count_entries(store))
    assert counts == [2, 3, 4, 5, 6, 6]


async def an_entry_has_the_digest_of_each_document_that_was_put(store: Store) -> None:
    diff = (FileDiff(file="a", additions=1, deletions=0),)
    todos = (Todo(content="weave", status="pending", priority="low"),)
    await fill(store)
    await store.apply(
        SessionDiffed(session_id=SESSION, diff=diff), TodoUpdated(session_id=SESSION, todos=todos)
    )
    await store.apply(PartUpdated(part=text("prt_2", "newer")))
    owner = (await store.read_chain(SESSION)).owner
    covered = (await get_chain(store)).covered
    assert {key: each.digest for key, each in covered.items()} == {
        SESSION_KEY: digest_document(with_owner(session(), owner) if owner else session()),
        message_key(PROMPT): digest_document(prompt()),
        FIRST: digest_document(text("prt_1", "a")),
        SECOND: digest_document(text("prt_2", "newer")),
        DIFF_KEY: digest_document(diff),
        TODO_KEY: digest_document(todos),
    }


async def a_removal_is_in_the_chain(store: Store) -> None:
    await fill(store)
    await store.apply(PartRemoved(session_id=SESSION, message_id=PROMPT, part_id=PartID("prt_1")))
    covered = (await get_chain(store)).covered
    assert covered[FIRST].digest is None
    assert covered[SECOND].digest is not None
    await store.apply(MessageRemoved(session_id=SESSION, message_id=PROMPT))
    covered = (await get_chain(store)).covered
    assert [covered[key].digest for key in (message_key(PROMPT), FIRST, SECOND)] == [None, None, None]


async def growth_is_chained_when_the_part_is_put_again(store: Store) -> None:
    await fill(store)
    before = (await store.read_chain(SESSION)).lines
    await store.apply(growth("prt_1", "bc", 1))
    assert (await store.read_chain(SESSION)).lines == before
    covered = (await get_chain(store)).covered[FIRST]
    assert (covered.digest, covered.length) == (digest_document(text("prt_1", "a")), 1)
    await store.apply(PartUpdated(part=text("prt_1", "abc")))
    covered = (await get_chain(store)).covered[FIRST]
    assert (covered.digest, covered.length) == (digest_document(text("prt_1", "abc")), 3)


async def each_session_has_a_chain_of_its_own(store: Store) -> None:
    await fill(store)
    before = (await store.read_chain(SESSION)).lines
    await store.apply(SessionCreated(info=session(OTHER)))
    assert (await store.read_chain(SESSION)).lines == before
    assert await count_entries(store, OTHER) == 1
    assert read_chain(OTHER, before).breaks != []
    await store.apply(SessionUpdated(info=session()), SessionUpdated(info=session(OTHER)))
    assert [await count_entries(store, id) for id in (SESSION, OTHER)] == [3, 2]


async def a_chain_says_whether_it_began_with_its_session(store: Store) -> None:
    await store.apply(SessionCreated(info=session()))
    await store.apply(MessageUpdated(info=prompt("msg_9", of=OTHER)))
    assert (await get_chain(store)).is_complete
    assert not (await get_chain(store, OTHER)).is_complete


async def an_edit_that_fails_adds_no_entry(store: Store) -> None:
    def refuse(_: SessionInfo) -> SessionInfo:
        raise ValueError("no")

    await fill(store)
    before = (await store.read_chain(SESSION)).lines
    try:
        await store.edit(SESSION, refuse)
    except ValueError:
        assert (await store.read_chain(SESSION)).lines == before
    else:
        raise AssertionError("no ValueError")


async def a_chain_is_trashed_and_restored_with_its_session(store: Store) -> None:
    await fill(store)
    before = (await store.read_chain(SESSION)).lines
    bundle = await store.discard([SESSION], at=NOW)
    assert (await store.read_chain(SESSION)).lines == []
    await store.restore(bundle.id)
    assert (await store.read_chain(SESSION)).lines == before
    await store.apply(PartUpdated(part=text("prt_1", "after the trash")))
    assert await count_entries(store) == len(before) + 1


async def a_chain_is_deleted_with_its_session(store: Store) -> None:
    await fill(store)
    await store.apply(SessionDeleted(info=session()))
    assert (await store.read_chain(SESSION)).lines == []
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    await store.apply(SessionDeleted(info=session()), SessionCreated(info=session(title="anew")))
    chain = await get_chain(store)
    assert len(chain.hashes) == 1
    assert chain.is_complete
    assert [*chain.covered] == [SESSION_KEY]


async def a_session_that_does_not_exist_has_no_chain(store: Store) -> None:
    await fill(store)
    found = await store.read_chain(SessionID("ses_9"))
    assert list(found.lines) == []


CHAINS: tuple[Check, ...] = (
    every_write_adds_one_entry,
    an_entry_has_the_digest_of_each_document_that_was_put,
    a_removal_is_in_the_chain,
    growth_is_chained_when_the_part_is_put_again,
    each_session_has_a_chain_of_its_own,
    a_chain_says_whether_it_began_with_its_session,
    an_edit_that_fails_adds_no_entry,
    a_chain_is_trashed_and_restored_with_its_session,
    a_chain_is_deleted_with_its_session,
    a_session_that_does_not_exist_has_no_chain,
)
