"""Checks for the maintenance of every store. Each is given an empty store, and a function that opens its maintenance."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from weft.model.diff import FileDiff, is_capped
from weft.model.event import MessageUpdated, PartUpdated, SessionCreated, SessionDiffed
from weft.model.ids import SessionID
from weft.model.message import UserSummary
from weft.store.chain import SESSION_KEY, digest_document, read_chain
from weft.store.contract import Store
from weft.store.maintenance import StoreMaintenance
from weft.store.sizes import SizeCounter
from weft.testing.store_samples import NOW, PROJECT, PROMPT, SESSION, prompt, session, text

OpenMaintenance = Callable[[], StoreMaintenance]
MaintenanceCheck = Callable[[Store, OpenMaintenance], Awaitable[None]]

OTHER = SessionID("ses_2")
LATER = 1 << 50
WHOLE_FILE = FileDiff(file="log", before="", after="line\n" * 100_000, additions=100_000, deletions=0)


async def fill(store: Store) -> None:
    """Store two sessions. The first has a message with two parts."""
    await store.apply(
        SessionCreated(info=session()),
        SessionCreated(info=session(OTHER, created=NOW + 1)),
        MessageUpdated(info=prompt()),
        PartUpdated(part=text("prt_1", "saved as tool_abc and tool_def")),
        PartUpdated(part=text("prt_2", "saved as tool_abc")),
    )


async def a_sound_store_has_no_findings(store: Store, open_maintenance: OpenMaintenance) -> None:
    await fill(store)
    await store.discard([OTHER], at=NOW)
    maintenance = open_maintenance()
    maintenance.check_format()
    assert not maintenance.is_outdated()
    assert maintenance.find_damage() == []
    assert maintenance.find_misplaced(SESSION) == []
    assert maintenance.find_orphans() == []
    assert maintenance.find_leftovers(before=LATER) == []
    assert maintenance.find_large() == []
    assert maintenance.list_abandoned() == []
    assert maintenance.list_broken_bundles() == []


async def every_session_is_listed(store: Store, open_maintenance: OpenMaintenance) -> None:
    await fill(store)
    maintenance = open_maintenance()
    assert maintenance.list_session_ids() == [SESSION, OTHER]
    assert [maintenance.has_session(id) for id in (SESSION, OTHER, "ses_3")] == [True, True, False]
    assert maintenance.reader.find_session(SESSION) == session()


async def the_list_of_sessions_is_read_once(store: Store, open_maintenance: OpenMaintenance) -> None:
    await fill(store)
    maintenance = open_maintenance()
    assert maintenance.list_session_ids() == [SESSION, OTHER]
    await store.apply(SessionCreated(info=session("ses_3")))
    assert maintenance.list_session_ids() == [SESSION, OTHER]
    assert open_maintenance().list_session_ids() == [SESSION, OTHER, "ses_3"]


async def sizes_add_up_to_the_total(store: Store, open_maintenance: OpenMaintenance) -> None:
    await fill(store)
    counter = SizeCounter()
    open_maintenance().measure(counter)
    sizes = counter.sizes()
    assert sizes.total.bytes > 0
    for by in (sizes.kinds, sizes.projects, sizes.sessions):
        assert sum(size.bytes for size in by.values()) == sizes.total.bytes
        assert sum(size.files for size in by.values()) == sizes.total.files
    assert sizes.sessions[SESSION].bytes > sizes.sessions[OTHER].bytes > 0
    assert sizes.projects[PROJECT].bytes >= sizes.sessions[SESSION].bytes + sizes.sessions[OTHER].bytes


async def the_content_of_parts_is_searched(store: Store, open_maintenance: OpenMaintenance) -> None:
    await fill(store)
    assert open_maintenance().find_in_parts("tool_[a-z]+") == {"tool_abc", "tool_def"}
    assert open_maintenance().find_in_parts("nothing") == set()


async def upgrading_a_current_store_changes_nothing(store: Store, open_maintenance: OpenMaintenance) -> None:
    await fill(store)
    before = await store.list_messages(SESSION)
    open_maintenance().upgrade()
    assert await store.list_messages(SESSION) == before


async def an_edit_is_stored_and_the_original_is_backed_up(
    store: Store, open_maintenance: OpenMaintenance
) -> None:
    await fill(store)
    repairer = open_maintenance().make_repairer("check", now=NOW)
    assert repairer.backup == ""
    edited = repairer.edit_session(SESSION, lambda stored: replace(stored, title="mended"))
    assert edited == session(title="mended")
    assert await store.get_session(SESSION) == edited
    assert repairer.backup != ""


async def editing_a_session_that_does_not_exist_changes_nothing(
    store: Store, open_maintenance: OpenMaintenance
) -> None:
    await fill(store)
    repairer = open_maintenance().make_repairer("check", now=NOW)
    assert repairer.edit_session(SessionID("ses_3"), lambda stored: stored) is None
    assert [each.id for each in await store.list_sessions()] == [SESSION, OTHER]
    assert repairer.backup == ""


async def a_session_that_exists_is_not_rebuilt(store: Store, open_maintenance: OpenMaintenance) -> None:
    await fill(store)
    repairer = open_maintenance().make_repairer("check", now=NOW)
    assert repairer.rebuild_session(SESSION) is None
    assert await store.get_session(SESSION) == session()


async def a_session_without_messages_cannot_be_rebuilt(
    store: Store, open_maintenance: OpenMaintenance
) -> None:
    await fill(store)
    assert open_maintenance().make_repairer("check", now=NOW).rebuild_session(SessionID("ses_3")) == 0
    assert [each.id for each in await store.list_sessions()] == [SESSION, OTHER]


async def large_diffs_are_shortened(store: Store, open_maintenance: OpenMaintenance) -> None:
    await fill(store)
    await store.apply(
        MessageUpdated(info=replace(prompt(), summary=UserSummary(title="Weave", diffs=(WHOLE_FILE,)))),
        SessionDiffed(session_id=OTHER, diff=(WHOLE_FILE,)),
    )
    large = open_maintenance().find_large()
    assert [each.after for each in large] == [0, 0]
    shrunk = open_maintenance().make_repairer("check", now=NOW).shrink_large()
    assert [(each.where, each.bytes) for each in shrunk] == [(each.where, each.bytes) for each in large]
    assert all(0 < each.after < each.bytes for each in shrunk)
    assert open_maintenance().find_large() == []
    [diff] = await store.list_diff(OTHER)
    assert is_capped([diff])
    assert (diff.file, diff.additions) == ("log", 100_000)
    message = await store.find_message(SESSION, PROMPT)
    assert message is not None
    assert [part.id for part in message.parts] == ["prt_1", "prt_2"]


async def a_dropped_index_is_rebuilt_by_the_next_search(
    store: Store, open_maintenance: OpenMaintenance
) -> None:
    await fill(store)
    found = await store.search("saved", limit=5)
    assert [hit.session_id for hit in found] == [SESSION]
    assert open_maintenance().check_index() is None
    open_maintenance().make_repairer("test", now=NOW).drop_index()
    assert open_maintenance().check_index() is None
    assert await store.search("saved", limit=5) == open_maintenance().reader.search("saved", limit=5) == found


async def chains_are_listed_and_read(store: Store, open_maintenance: OpenMaintenance) -> None:
    await fill(store)
    assert sorted(open_maintenance().list_chains()) == [SESSION, OTHER]
    assert list(open_maintenance().read_chain(SESSION).lines) == list((await store.read_chain(SESSION)).lines)
    assert list(open_maintenance().read_chain(SessionID("ses_3")).lines) == []
    await store.discard([OTHER], at=NOW)
    assert open_maintenance().list_chains() == [SESSION]


async def a_repair_is_in_the_chain(store: Store, open_maintenance: OpenMaintenance) -> None:
    await fill(store)
    before = list((await store.read_chain(SESSION)).lines)
    repairer = open_maintenance().make_repairer("check", now=NOW)
    repairer.edit_session(SESSION, lambda stored: replace(stored, title="mended"))
    lines = list((await store.read_chain(SESSION)).lines)
    chain = read_chain(SESSION, lines)
    assert lines[:-1] == before
    assert chain.breaks == []
    assert chain.covered[SESSION_KEY].digest == digest_document(session(title="mended"))


CHECKS: tuple[MaintenanceCheck, ...] = (
    a_sound_store_has_no_findings,
    every_session_is_listed,
    the_list_of_sessions_is_read_once,
    sizes_add_up_to_the_total,
    the_content_of_parts_is_searched,
    upgrading_a_current_store_changes_nothing,
    an_edit_is_stored_and_the_original_is_backed_up,
    editing_a_session_that_does_not_exist_changes_nothing,
    a_session_that_exists_is_not_rebuilt,
    a_session_without_messages_cannot_be_rebuilt,
    large_diffs_are_shortened,
    a_dropped_index_is_rebuilt_by_the_next_search,
    chains_are_listed_and_read,
    a_repair_is_in_the_chain,
)
