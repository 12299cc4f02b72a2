"""A store that was asked for lists before looks only at documents that changed, and its lists stay right."""

import asyncio
import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from given.other_process import OtherProcess
from given.reporting_directory import count_queues, open_reporting_directory, overflow_queue
from weft.host.directory_watch import DirectoryWatcher, InotifyQueue
from weft.model.event import SessionCreated, SessionDeleted, SessionUpdated
from weft.model.ids import ProjectID, SessionID
from weft.model.session import SessionInfo, SessionTime
from weft.model.session_query import SessionQuery, select_sessions, to_cursor
from weft.model.wire import encode_pretty
from weft.store.files.store import FileStore
from weft.store.files.tree import Tree
from weft.store.files.tree_watch import MAX_AGE_SECONDS, MAX_DOUBTFUL, MIN_WATCHED, WatchedTree

PROJECT = ProjectID("p1")
CACHE_BYTES = 1 << 20
BY_UPDATE = SessionQuery(project_id=PROJECT, order="updated", limit=10)


def make_session(number: int, **more: Any) -> SessionInfo:
    fields = {
        "project_id": PROJECT,
        "title": f"Number {number}",
        "time": SessionTime(created=1000 + number, updated=1000 + number),
    } | more
    return SessionInfo(id=SessionID(f"ses_{number:05}"), directory="/d", **fields)


def find_path(root: Path, session: SessionInfo) -> Path:
    return root / "session" / session.project_id / f"{session.id}.json"


def write_document(root: Path, session: SessionInfo) -> None:
    """Write a document as OpenCode does: in place, without a lock."""
    path = find_path(root, session)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_pretty(session))


def fill(root: Path, count: int = MIN_WATCHED, **more: Any) -> list[SessionInfo]:
    """Write `count` sessions, oldest first."""
    made = [make_session(number, **more) for number in range(count)]
    for session in made:
        write_document(root, session)
    (root / "migration").write_text("2")
    return made


class HandTimer:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def root() -> Iterator[Path]:
    with open_reporting_directory() as made:
        (made / "storage").mkdir()
        yield made / "storage"


@pytest.fixture
def timer() -> HandTimer:
    return HandTimer()


@pytest.fixture
def tree(root: Path, timer: HandTimer) -> Iterator[WatchedTree]:
    fill(root)
    made = WatchedTree(str(root), cache_bytes=CACHE_BYTES, monotonic=timer)
    ask_until_watched(made)
    yield made
    made.close()


def ask_until_watched(tree: WatchedTree) -> None:
    tree.list_sessions(PROJECT)
    assert tree.find_page(BY_UPDATE) is None
    tree.list_sessions(PROJECT)
    assert tree.find_page(BY_UPDATE) is not None


def check_lists(tree: Tree, root: Path) -> None:
    """Compare the lists of a tree with those of a new one, which reads every document."""
    expected = Tree(str(root)).list_sessions()
    assert tree.list_sessions(PROJECT) == [each for each in expected if each.project_id == PROJECT]
    assert tree.list_sessions() == expected


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the name of every document that is read or looked at is added."""
    seen: list[str] = []
    for name in ("open", "stat", "lstat"):
        original = getattr(os, name)

        def count_call(path: Any, *args: Any, original: Any = original, **more: Any) -> Any:
            if "ses_" in str(path):
                seen.append(os.path.basename(path))
            return original(path, *args, **more)

        monkeypatch.setattr(os, name, count_call)
    return seen


# --- how much is looked at ---


async def test_only_changed_documents_are_looked_at_for_a_further_list(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fill(root, 300)
    store = FileStore(str(root))
    page = SessionQuery(project_id=PROJECT, order="updated", limit=100)
    queries = [
        page,
        replace(page, after=to_cursor(made[200], "updated")),
        SessionQuery(project_id=PROJECT, search="number 123"),
        SessionQuery(project_id=PROJECT, limit=20),
        SessionQuery(order="updated", start=1100),
    ]
    for _ in range(2):
        assert await store.query_sessions(page) == made[:199:-1]
    seen = count_looks(monkeypatch)
    for query in queries:
        assert await store.query_sessions(query) == select_sessions(made, query)
    assert await store.list_sessions(PROJECT) == made
    assert seen == []

    changed = replace(made[5], title="Number 123 as well", time=SessionTime(created=1005, updated=9000))
    find_path(root, changed).write_bytes(encode_pretty(changed))
    seen.clear()
    assert await store.query_sessions(page) == [changed, *made[:200:-1]]
    assert set(seen) == {f"{changed.id}.json"}
    seen.clear()
    assert await store.query_sessions(queries[2]) == [made[123], changed]
    assert seen == []
    store.close()


async def test_the_first_list_and_pages_by_creation_watch_nothing(root: Path) -> None:
    fill(root)
    before = count_queues()
    store = FileStore(str(root))
    for _ in range(3):
        await store.query_sessions(SessionQuery(project_id=PROJECT, limit=10))
    await store.query_sessions(BY_UPDATE)
    assert count_queues() == before
    await store.query_sessions(BY_UPDATE)
    assert count_queues() == before + 1
    store.close()
    assert count_queues() == before


async def test_a_closed_store_still_has_right_lists(root: Path) -> None:
    made = fill(root)
    tree = WatchedTree(str(root), cache_bytes=CACHE_BYTES)
    ask_until_watched(tree)
    tree.close()
    write_document(root, changed := replace(made[5], title="changed"))
    assert tree.list_sessions(PROJECT)[5] == changed


def test_a_small_project_is_not_watched(root: Path) -> None:
    made = fill(root, MIN_WATCHED - 1)
    tree = WatchedTree(str(root), cache_bytes=CACHE_BYTES)
    before = count_queues()
    for _ in range(3):
        assert tree.list_sessions(PROJECT) == made
    assert count_queues() == before


def test_more_documents_than_fit_into_memory_are_not_kept(root: Path) -> None:
    made = fill(root)
    tree = WatchedTree(str(root), cache_bytes=sum(len(encode_pretty(each)) for each in made) - 1)
    for _ in range(3):
        assert tree.list_sessions(PROJECT) == made
    assert tree.find_page(BY_UPDATE) is None
    tree.close()


# --- whatever changes ---


def replace_directory(root: Path) -> None:
    """Replace the directory of the project by a copy with other titles."""
    (root / "session/p1").rename(root / "session/old")
    fill(root, title="copied")
    shutil.rmtree(root / "session/old")


def replace_root(root: Path) -> None:
    """Replace the whole tree, which the kernel does not report to who watches a directory in it."""
    root.rename(f"{root}.old")
    root.mkdir()
    fill(root, title="copied")


def link_document(root: Path) -> None:
    (root / "linked").write_bytes(encode_pretty(make_session(1000)))
    find_path(root, make_session(1000)).hardlink_to(root / "linked")


def link_softly(root: Path) -> None:
    (root / "linked").write_bytes(encode_pretty(make_session(1000)))
    find_path(root, make_session(1000)).symlink_to(root / "linked")


CHANGES: dict[str, Callable[[Path], object]] = {
    "overwritten": lambda root: write_document(root, make_session(5, title="changed")),
    "replaced": lambda root: (
        (root / "aside").write_bytes(encode_pretty(make_session(5, title="changed"))),
        (root / "aside").rename(find_path(root, make_session(5))),
    ),
    "created": lambda root: write_document(root, make_session(1000)),
    "removed": lambda root: find_path(root, make_session(5)).unlink(),
    "moved to another project": lambda root: (
        (root / "session/p2").mkdir(),
        find_path(root, make_session(5)).rename(root / "session/p2/ses_00005.json"),
    ),
    "renamed": lambda root: find_path(root, make_session(5)).rename(find_path(root, make_session(1000))),
    "emptied": lambda root: find_path(root, make_session(5)).write_text(""),
    "linked": link_document,
    "linked softly": link_softly,
    "a directory": lambda root: find_path(root, make_session(1000)).mkdir(),
    "a file that is not a document": lambda root: (root / "session/p1/notes.txt").write_text("x"),
    "a hidden file": lambda root: (root / "session/p1/.notes").write_text("x"),
    "all removed": lambda root: shutil.rmtree(root / "session/p1"),
    "directory replaced": replace_directory,
    "tree replaced": replace_root,
    "more changes than the queue holds": lambda root: (
        overflow_queue(root / "session/p1"),
        write_document(root, make_session(5, title="changed")),
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_in_the_next_list_and_so_is_the_one_after_it(
    root: Path, tree: WatchedTree, change: Callable[[Path], object]
) -> None:
    change(root)
    check_lists(tree, root)
    check_lists(tree, root)
    write_document(root, make_session(7, title="later"))
    check_lists(tree, root)
    fresh = Tree(str(root))
    fresh.list_sessions()
    assert tree.problems() == fresh.problems()


def test_an_unreadable_document_is_reported_until_it_is_readable_or_gone(
    root: Path, tree: WatchedTree
) -> None:
    session = make_session(5)
    for mend in (lambda: write_document(root, session), find_path(root, session).unlink):
        find_path(root, session).write_text("{")
        for _ in range(2):
            assert len(tree.list_sessions(PROJECT)) == MIN_WATCHED - 1
            assert [each.where for each in tree.problems()] == [str(find_path(root, session))]
            tree.documents.forget_problems()
        mend()
        check_lists(tree, root)
        assert tree.problems() == []


def test_a_document_with_a_second_name_is_looked_at_each_time(root: Path, tree: WatchedTree) -> None:
    link_document(root)
    check_lists(tree, root)
    (root / "linked").write_bytes(encode_pretty(make_session(1000, title="by its other name")))
    check_lists(tree, root)
    assert tree.find_page(BY_UPDATE) is not None


def test_many_documents_with_second_names_are_not_watched(root: Path) -> None:
    fill(root, MAX_DOUBTFUL + 1)
    shutil.copytree(root / "session/p1", root / "backup", copy_function=os.link)
    tree = WatchedTree(str(root), cache_bytes=CACHE_BYTES)
    for _ in range(3):
        check_lists(tree, root)
    assert tree.find_page(BY_UPDATE) is None
    (root / "backup/ses_00005.json").write_bytes(encode_pretty(make_session(5, title="changed")))
    check_lists(tree, root)
    tree.close()


def test_what_the_kernel_does_not_report_is_found_within_a_minute(
    root: Path, tree: WatchedTree, timer: HandTimer
) -> None:
    (root / "later").hardlink_to(find_path(root, make_session(5)))
    (root / "later").write_bytes(encode_pretty(make_session(5, title="by its other name")))
    timer.seconds += MAX_AGE_SECONDS
    check_lists(tree, root)
    assert tree.find_page(BY_UPDATE) is not None


class FullQueue(InotifyQueue):
    """As many directories are watched as the system allows, until a test says otherwise."""

    is_full = True

    def add(self, path: str) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return super().add(path)


def test_without_a_watch_every_document_is_looked_at(root: Path, timer: HandTimer) -> None:
    made, queue = fill(root), FullQueue()
    tree = WatchedTree(
        str(root), cache_bytes=CACHE_BYTES, watcher=DirectoryWatcher(lambda: queue), monotonic=timer
    )
    for number in range(3):
        write_document(root, changed := replace(made[5], title=f"changed {number}"))
        assert tree.list_sessions(PROJECT)[5] == changed
        assert tree.find_page(BY_UPDATE) is None
    queue.is_full = False
    timer.seconds += MAX_AGE_SECONDS
    check_lists(tree, root)
    assert tree.find_page(BY_UPDATE) is not None
    tree.close()


class LateWatcher(DirectoryWatcher):
    """A document changes at the last moment before the kernel begins to watch."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def start(self, path: str) -> bool:
        write_document(self._root, make_session(5, title="at the last moment"))
        return super().start(path)


def test_a_change_between_two_lists_is_not_missed_when_watching_begins(root: Path) -> None:
    fill(root)
    tree = WatchedTree(str(root), cache_bytes=CACHE_BYTES, watcher=LateWatcher(root))
    ask_until_watched(tree)
    check_lists(tree, root)
    tree.close()


# --- other processes and threads ---


def test_a_write_that_another_process_has_completed_is_in_the_list(root: Path) -> None:
    made, times = fill(root), 60
    tree = WatchedTree(str(root), cache_bytes=CACHE_BYTES)
    ask_until_watched(tree)
    writers = [OtherProcess() for _ in range(4)]
    for number, writer in enumerate(writers):
        text = encode_pretty(replace(made[number], title="NUMBER")).decode()
        writer.begin("count_up", find_path(root, made[number]), text, times)
    for written in range(times):
        for number, writer in enumerate(writers):
            assert writer.wait() == str(written)
            titles = [each.title for each in tree.list_sessions(PROJECT) if each.id == made[number].id]
            # The writer is at the next number already, and may just have emptied the document.
            assert titles == [] or int(titles[0]) >= written
    for writer in writers:
        assert writer.wait() == "done"
        writer.close()
    check_lists(tree, root)
    assert tree.find_page(BY_UPDATE) is not None
    tree.close()


def test_threads_that_list_at_once_all_see_what_was_written_before(root: Path, tree: WatchedTree) -> None:
    wrong: list[str] = []

    def write_and_list(number: int) -> None:
        for written in range(30):
            session = make_session(number, title=str(written), time=SessionTime(created=1, updated=written))
            write_document(root, session)
            page = tree.find_page(SessionQuery(project_id=PROJECT, order="updated", search=str(written)))
            found = tree.list_sessions(PROJECT) if page is None else page
            if session not in found:
                wrong.append(f"{number}: {written}")

    threads = [threading.Thread(target=write_and_list, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    check_lists(tree, root)


FORK = """
import os, sys
from weft.store.files.tree_watch import WatchedTree
root, project = sys.argv[1:]
path = f"{root}/session/{project}/ses_00005.json"
text = open(path).read()

def find_title(tree):
    return tree.list_sessions(project)[5].title

def write_title(title):
    with open(path, "w") as file:
        file.write(text.replace("Number 5", title))

tree = WatchedTree(root, cache_bytes=1 << 20)
for _ in range(2):
    assert find_title(tree) == "Number 5"
write_title("before the fork")
child = os.fork()
if child == 0:
    assert find_title(tree) == "before the fork"
    write_title("by the child")
    assert find_title(tree) == "by the child"
    assert find_title(tree) == "by the child"
    tree.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert find_title(tree) == "by the child"
write_title("by the parent")
assert find_title(tree) == "by the parent"
"""


def test_a_fork_does_not_take_the_changes_from_its_parent(root: Path) -> None:
    fill(root)
    subprocess.run([sys.executable, "-c", FORK, str(root), PROJECT], check=True)


# --- the same as from all documents ---

numbers = st.integers(0, MIN_WATCHED + 10)
queries = st.builds(
    SessionQuery,
    project_id=st.sampled_from([PROJECT, PROJECT, None]),
    archived=st.sampled_from([None, True, False]),
    search=st.sampled_from([None, None, "number 1", "changed"]),
    order=st.sampled_from(["created", "updated"]),
    after=st.sampled_from([None, None, "1020.ses_00007", "1031.ses_00040"]),
    limit=st.sampled_from([None, 0, 1, 20, 1000]),
)


@st.composite
def sessions(draw: st.DrawFn) -> SessionInfo:
    number = draw(numbers)
    time = SessionTime(
        created=1000 + number,
        updated=draw(st.integers(995, 1060)),
        archived=draw(st.sampled_from([None, 5])),
    )
    return make_session(number, title=draw(st.sampled_from(["changed", "Number 1"])), time=time)


class Lists(RuleBasedStateMachine):
    """A store that watches, another one that writes, and a process that changes documents."""

    def __init__(self) -> None:
        super().__init__()
        self.place = open_reporting_directory()
        self.root = self.place.__enter__()
        self.directory = self.root / "session" / PROJECT
        self.runner = asyncio.Runner()
        self.other = OtherProcess()
        fill(self.root)
        self.writer, self.store = FileStore(str(self.root)), FileStore(str(self.root))
        before = count_queues()
        for _ in range(2):
            self.runner.run(self.store.list_sessions(PROJECT))
        assert count_queues() == before + 1

    @rule(session=sessions(), how=st.sampled_from(["write", "replace"]))
    def write(self, session: SessionInfo, how: str) -> None:
        self.other.do(how, find_path(self.root, session), encode_pretty(session).decode())

    @rule(number=numbers)
    def damage(self, number: int) -> None:
        path = find_path(self.root, make_session(number))
        self.other.do("write", path, "{")
        os.utime(path, (1, 1))  # an unreadable document that is new is read several times

    @rule(number=numbers)
    def remove(self, number: int) -> None:
        self.other.do("remove", find_path(self.root, make_session(number)))

    @rule(number=numbers, name=st.sampled_from(["ses_other.json", "notes.txt", ".hidden", "ses_99999.json"]))
    def move(self, number: int, name: str) -> None:
        path = find_path(self.root, make_session(number))
        if path.exists():
            self.other.do("rename", path, self.directory / name)

    @rule(session=sessions())
    def move_directory_and_back(self, session: SessionInfo) -> None:
        self.other.do("rename", self.directory, self.root / "away")
        self.compare_all()
        self.other.do("write", self.root / "away" / f"{session.id}.json", encode_pretty(session).decode())
        self.other.do("rename", self.root / "away", self.directory)

    @rule(session=sessions(), how=st.sampled_from([SessionCreated, SessionUpdated, SessionDeleted]))
    def apply(self, session: SessionInfo, how: Any) -> None:
        self.runner.run(self.writer.apply(how(info=session)))

    @rule(query=queries)
    def ask(self, query: SessionQuery) -> None:
        expected = select_sessions(Tree(str(self.root)).list_sessions(query.project_id), query)
        assert self.runner.run(self.store.query_sessions(query)) == expected

    @invariant()
    def compare_all(self) -> None:
        assert self.runner.run(self.store.list_sessions(PROJECT)) == Tree(str(self.root)).list_sessions(
            PROJECT
        )

    def teardown(self) -> None:
        self.store.close()
        self.writer.close()
        self.other.close()
        self.runner.close()
        self.place.__exit__(None, None, None)


TestLists = Lists.TestCase
TestLists.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
