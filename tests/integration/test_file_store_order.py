"""Pages of sessions are the same as if every document were read, whichever program wrote them, without reading each."""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from weft.errors import NotFoundError
from weft.model.event import SessionCreated, SessionDeleted, SessionUpdated
from weft.model.ids import ProjectID, SessionID
from weft.model.session import SessionInfo, SessionTime, WeftSessionData
from weft.model.session_query import SessionQuery, select_sessions, to_cursor
from weft.model.wire import decode, encode_pretty
from weft.store.files.creation_order import MAX_SCANNED, MAX_UNKNOWN, MIN_ORDERED
from weft.store.files.reader import FileReader
from weft.store.files.store import FileStore
from weft.store.files.tree import Tree
from weft.store.reader import open_reader

PROJECTS = [ProjectID("p1"), ProjectID("p2")]
LONG_AGO = 1_600_000_000


def make_session(number: int, **more: Any) -> SessionInfo:
    fields = {
        "project_id": PROJECTS[0],
        "time": SessionTime(created=1000 + number, updated=1000 + number),
    } | more
    return SessionInfo(id=SessionID(f"ses_{number:05}"), directory="/d", title=f"Number {number}", **fields)


def write_document(root: Path, session: SessionInfo) -> None:
    """Write a document as OpenCode does: in place, without a lock."""
    path = root / "session" / session.project_id / f"{session.id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_pretty(session))


def fill(root: Path, count: int, **more: Any) -> list[SessionInfo]:
    """Write `count` sessions, oldest first."""
    made = [make_session(number, **more) for number in range(count)]
    for session in made:
        write_document(root, session)
    (root / "migration").write_text("2")
    return made


def let_time_pass(root: Path, number: int) -> None:
    """Make the directories of documents so old that their stamps can be trusted."""
    for directory in (root / "session").iterdir():
        os.utime(directory, (LONG_AGO + number, LONG_AGO + number))


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the path of every document that is read or looked at is added."""
    seen: list[str] = []
    for name in ("open", "stat"):
        original = getattr(os, name)

        def count_call(path: Any, *args: Any, original: Any = original, **more: Any) -> Any:
            if str(path).endswith(".json") and "/session/" in str(path):
                seen.append(str(path))
            return original(path, *args, **more)

        monkeypatch.setattr(os, name, count_call)
    return seen


# --- how much is read ---


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_page_reads_its_own_documents_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cold: bool
) -> None:
    made = fill(tmp_path, 500)
    query = SessionQuery(project_id=PROJECTS[0], limit=20)
    reader = open_reader(f"file:{tmp_path}")
    reader.query_sessions(query)
    if is_cold:
        reader = open_reader(f"file:{tmp_path}")
    seen = count_reads(monkeypatch)
    assert reader.query_sessions(query) == made[: -20 - 1 : -1]
    assert len(set(seen)) == 20
    following = replace(query, after=to_cursor(made[-20], "created"))
    assert reader.query_sessions(following) == made[-21:-41:-1]
    assert len(set(seen)) == 40


def test_children_are_found_without_reading_other_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fill(tmp_path, 100)
    children = [make_session(number, parent_id=made[5].id) for number in (200, 201)]
    for child in children:
        write_document(tmp_path, child)
    reader, query = open_reader(f"file:{tmp_path}"), SessionQuery(parent_id=made[5].id)
    assert reader.query_sessions(query) == children[::-1]
    seen = count_reads(monkeypatch)
    assert reader.query_sessions(query) == children[::-1]
    assert len(set(seen)) == 2


def test_an_unchanged_directory_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fill(tmp_path, 100)
    let_time_pass(tmp_path, 1)
    reader, query = open_reader(f"file:{tmp_path}"), SessionQuery(project_id=PROJECTS[0], limit=1)
    for _ in range(2):
        reader.query_sessions(query)
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", None)
        assert reader.query_sessions(query) == [made[-1]]
    write_document(tmp_path, new := make_session(1000))
    assert reader.query_sessions(query) == [new]


def test_rare_matches_are_searched_in_all_documents_at_once(tmp_path: Path) -> None:
    made = fill(tmp_path, 3 * MAX_SCANNED)
    reader = open_reader(f"file:{tmp_path}")
    assert reader.query_sessions(SessionQuery(search="Number 7", limit=1)) == [made[79]]
    assert reader.query_sessions(SessionQuery(search="number 59", limit=1)) == [made[599]]


# --- keeping the order up to date ---


def test_many_new_sessions_are_added_to_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, 100)
    query = SessionQuery(project_id=PROJECTS[0], limit=1)
    open_reader(f"file:{tmp_path}").query_sessions(query)
    new = [make_session(1000 + number) for number in range(MAX_UNKNOWN + 1)]
    for session in new:
        write_document(tmp_path, session)
    assert open_reader(f"file:{tmp_path}").query_sessions(query) == new[:-2:-1]
    seen = count_reads(monkeypatch)
    assert open_reader(f"file:{tmp_path}").query_sessions(query) == new[:-2:-1]
    assert len(set(seen)) == 1


def test_inspecting_and_importing_write_nothing(tmp_path: Path) -> None:
    made = fill(tmp_path, 100)
    assert FileReader(str(tmp_path)).query_sessions(SessionQuery(limit=1)) == [made[-1]]
    assert not (tmp_path / ".weft").exists()


@pytest.mark.parametrize("broken", [b"", b"{", b"[[1]]", b"\xff\xfe"])
def test_a_damaged_order_is_rebuilt(tmp_path: Path, broken: bytes) -> None:
    made = fill(tmp_path, 100)
    query = SessionQuery(limit=2)
    assert open_reader(f"file:{tmp_path}").query_sessions(query) == made[:-3:-1]
    (order,) = (tmp_path / ".weft/index").rglob("order.json")
    order.write_bytes(broken)
    assert open_reader(f"file:{tmp_path}").query_sessions(query) == made[:-3:-1]


def test_an_edit_by_hand_on_a_page_is_noticed(tmp_path: Path) -> None:
    made = fill(tmp_path, 100)
    reader, query = open_reader(f"file:{tmp_path}"), SessionQuery(limit=2)
    reader.query_sessions(query)
    write_document(tmp_path, replace(made[-1], time=SessionTime(created=1, updated=1)))
    assert reader.query_sessions(query) == [made[-2], made[-3]]


async def test_a_session_whose_time_or_parent_changes_is_moved(
    tmp_path: Path,
) -> None:
    made = fill(tmp_path, 100)
    writer, reader = FileStore(str(tmp_path)), FileStore(str(tmp_path))
    query = SessionQuery(limit=2)
    assert await reader.query_sessions(query) == made[:-3:-1]
    later = replace(made[3], time=SessionTime(created=9000, updated=9000))
    await writer.apply(SessionUpdated(info=later))
    assert await reader.query_sessions(query) == [later, made[-1]]
    await writer.apply(SessionDeleted(info=later))
    await writer.apply(SessionCreated(info=made[3]))
    assert await reader.query_sessions(query) == made[:-3:-1]
    child = await writer.edit(made[4].id, lambda known: replace(known, parent_id=made[0].id))
    assert await reader.query_sessions(SessionQuery(parent_id=made[0].id)) == [child]


def test_a_session_that_opencode_removed_may_come_back_with_another_time(tmp_path: Path) -> None:
    made = fill(tmp_path, 100)
    reader, query = open_reader(f"file:{tmp_path}"), SessionQuery(project_id=PROJECTS[0], limit=2)
    reader.query_sessions(query)
    (tmp_path / "session" / PROJECTS[0] / f"{made[3].id}.json").unlink()
    assert reader.query_sessions(query) == made[:-3:-1]
    again = replace(made[3], time=SessionTime(created=9000, updated=9000))
    write_document(tmp_path, again)
    assert open_reader(f"file:{tmp_path}").query_sessions(query) == [again, made[-1]]


# --- the same as from all documents ---

numbers = st.integers(0, MIN_ORDERED + 15)
times = st.integers(995, 1060)
parents = st.sampled_from([None, "", "ses_00001", "ses_00002"])
queries = st.builds(
    SessionQuery,
    project_id=st.sampled_from([None, *PROJECTS]),
    roots=st.booleans(),
    parent_id=st.sampled_from([None, None, "ses_00001", "ses_00002"]),
    archived=st.sampled_from([None, True, False]),
    pinned=st.sampled_from([None, None, True]),
    search=st.sampled_from([None, None, "number 1", "renamed"]),
    order=st.sampled_from(["created", "created", "updated"]),
    after=st.sampled_from([None, None, "1020.ses_00007", "1031.ses_00040"]),
    limit=st.sampled_from([None, 0, 1, 3, 20, 1000]),
)


@st.composite
def sessions(draw: st.DrawFn) -> SessionInfo:
    created = draw(times)
    return make_session(
        draw(numbers),
        project_id=draw(st.sampled_from(PROJECTS)),
        parent_id=draw(parents),
        time=SessionTime(created=created, updated=draw(times), archived=draw(st.sampled_from([None, 5]))),
        weft=draw(st.sampled_from([None, WeftSessionData(pinned=True)])),
    )


class Pages(RuleBasedStateMachine):
    """Two stores and a reader on one tree, into which OpenCode writes, too."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.root = Path(self.place.name)
        self.runner = asyncio.Runner()
        self.ages = 0

    @initialize()
    def begin(self) -> None:
        fill(self.root, MIN_ORDERED + 10)
        self.stores = [FileStore(str(self.root)) for _ in range(2)]
        self.reader = open_reader(f"file:{self.root}")

    @rule(info=sessions(), how=st.sampled_from([SessionCreated, SessionUpdated]), which=st.integers(0, 1))
    def apply(self, info: SessionInfo, how: Any, which: int) -> None:
        self.runner.run(self.stores[which].apply(how(info=info)))

    @rule(number=numbers, which=st.integers(0, 1))
    def delete(self, number: int, which: int) -> None:
        self.runner.run(self.stores[which].apply(SessionDeleted(info=make_session(number))))

    @rule(number=numbers, which=st.integers(0, 1), back=st.booleans())
    def discard(self, number: int, which: int, back: bool) -> None:
        try:
            trashed = self.runner.run(self.stores[which].discard([make_session(number).id], at=number))
        except NotFoundError:
            return
        if back:
            self.runner.run(self.stores[which].restore(trashed.id))
        else:
            self.runner.run(self.stores[which].purge(trashed.id))

    @rule(info=sessions())
    def create_with_opencode(self, info: SessionInfo) -> None:
        """Create a session, or update it in place. OpenCode never changes when it was created, nor its parent."""
        known = [path for path in self.documents() if path.stem == info.id]
        for path in known:
            old = decode(path.read_bytes(), SessionInfo)
            kept = replace(old.time, updated=info.time.updated, archived=info.time.archived)
            path.write_bytes(encode_pretty(replace(old, title="renamed", time=kept, weft=info.weft)))
        if not known:
            write_document(self.root, info)

    @rule(number=numbers)
    def delete_with_opencode(self, number: int) -> None:
        for path in self.documents():
            if path.stem == make_session(number).id:
                path.unlink()

    @rule()
    def let_time_pass(self) -> None:
        self.ages += 1
        let_time_pass(self.root, self.ages)

    @rule(which=st.integers(0, 1))
    def open_again(self, which: int) -> None:
        self.stores[which] = FileStore(str(self.root))
        self.reader = open_reader(f"file:{self.root}")

    @rule(query=queries)
    def ask(self, query: SessionQuery) -> None:
        expected = select_sessions(Tree(str(self.root)).list_sessions(query.project_id), query)
        for store in self.stores:
            assert self.runner.run(store.query_sessions(query)) == expected
        assert self.reader.query_sessions(query) == expected

    @invariant()
    def compare_a_page_with_all_documents(self) -> None:
        if self.documents():
            self.ask(SessionQuery(limit=5))

    def documents(self) -> list[Path]:
        return list((self.root / "session").glob("*/*.json"))

    def teardown(self) -> None:
        self.runner.close()
        self.place.cleanup()


TestPages = Pages.TestCase
TestPages.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
