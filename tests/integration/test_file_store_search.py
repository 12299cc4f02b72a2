"""The search index of sessions: it finds words, notices changed files, and a broken index is no worse than none."""

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from given.session_writer import PROJECT, START, SessionWriter
from weft.errors import IndexFailedError
from weft.model.ids import ProjectID
from weft.model.search import Figures, Hit, ToolUse, UsageShare
from weft.model.session import SessionInfo, SessionTime
from weft.model.spending import Spent
from weft.store.files.index_database import open_for_reading
from weft.store.files.reader import FileReader
from weft.store.files.search import MAX_UPDATED_MESSAGES
from weft.store.files.tree import Tree
from weft.store.statistics import to_statistics_query


@pytest.fixture
def writer(tmp_path: Path) -> SessionWriter:
    return SessionWriter(tmp_path)


def find_sessions(writer: SessionWriter, words: str, project: ProjectID | None = None) -> list[str]:
    return [hit.session_id for hit in writer.index().search(words, limit=20, project=project)]


def read_index(writer: SessionWriter) -> list[object]:
    """Return the content of the index, without row numbers."""
    index = writer.index()
    with open_for_reading(*index.file) as database:
        sessions = database.rows("SELECT project, id, document FROM session ORDER BY 1, 2")
        messages = database.rows(
            "SELECT session.id, message.id, message.created, model, nano, atto, said, done FROM message"
            " JOIN session ON session.number = session JOIN words ON words.rowid = message.number * 2 + 1 ORDER BY 1, 2"
        )
        calls = database.rows(
            "SELECT id, tool, calls, failed FROM call JOIN message ON message.number = message ORDER BY 1, 2"
        )
    return [sessions, messages, calls]


def test_a_hit_has_the_position_of_its_words(writer: SessionWriter) -> None:
    session = writer.session("one", "Weaving")
    asked = writer.prompt(session, "Please mend the Shuttle,\nit is broken")
    writer.answer(session, "Done.")

    assert writer.index().search("shuttle mend", limit=5) == [
        Hit(
            session_id=session.id,
            project_id=PROJECT,
            message_id=asked,
            title="Weaving",
            updated=session.time.updated,
            archived=False,
            at=START + 3,
            snippet="Please mend the Shuttle,\nit is broken",
            marks=((7, 11), (16, 23)),
        )
    ]


def test_titles_rank_above_conversation_and_that_above_tool_output(writer: SessionWriter) -> None:
    done, said, titled = writer.session("done"), writer.session("said"), writer.session("titled", "A loom")
    message = writer.answer(done, "I looked.")
    writer.call(done, message, "bash", "the loom is here")
    writer.prompt(said, "where is the loom now")

    assert find_sessions(writer, "loom") == [titled.id, said.id, done.id]


def test_all_words_must_match_as_prefixes_and_phrases_literally(writer: SessionWriter) -> None:
    both, one = writer.session("both"), writer.session("one")
    writer.prompt(both, "warp and weft, threads of Zürich")
    writer.prompt(one, "warp alone")

    assert find_sessions(writer, "warp weft") == [both.id]
    assert find_sessions(writer, "thre") == [both.id]
    assert find_sessions(writer, "zurich") == [both.id]
    assert find_sessions(writer, '"warp and weft"') == [both.id]
    assert find_sessions(writer, '"weft and warp"') == []
    assert set(find_sessions(writer, "warp")) == {both.id, one.id}


def test_errors_inputs_and_archived_sessions_of_all_projects_are_found(writer: SessionWriter) -> None:
    elsewhere = writer.session(
        "old", project_id=ProjectID("p2"), time=SessionTime(created=START, updated=START, archived=START)
    )
    message = writer.answer(elsewhere, "Trying.")
    writer.call(elsewhere, message, "grep", "permission denied by the warden", failed=True)

    assert find_sessions(writer, "warden") == [elsewhere.id]
    assert find_sessions(writer, "a.py") == [elsewhere.id]
    assert find_sessions(writer, "warden", PROJECT) == []
    assert writer.index().search("warden", limit=5)[0].archived


def test_changes_are_noticed_by_stamps_and_removed_sessions_are_not_found(writer: SessionWriter) -> None:
    session, other = writer.session("one"), writer.session("two")
    writer.prompt(session, "first words")
    writer.prompt(other, "first of the other")
    assert set(find_sessions(writer, "first")) == {session.id, other.id}

    writer.prompt(session, "second words")
    writer.write(f"session/{PROJECT}/{session.id}", replace(session, title="Renamed"))
    (writer.storage / f"session/{PROJECT}/{other.id}.json").unlink()

    assert find_sessions(writer, "second") == [session.id]
    assert find_sessions(writer, "renamed") == [session.id]
    assert find_sessions(writer, "first") == [session.id]


def test_an_incomplete_answer_is_read_again_even_if_its_stamp_is_unchanged(writer: SessionWriter) -> None:
    session = writer.session("one")
    writer.answer(session, "half", time={"created": START + 50})
    assert find_sessions(writer, "half") == [session.id]

    writer.answer(session, "wholly done")
    assert find_sessions(writer, "wholly") == [session.id]


@pytest.mark.parametrize("how", ["deleted", "emptied", "garbled", "cut", "foreign"])
def test_a_lost_or_damaged_index_is_rebuilt(writer: SessionWriter, how: str) -> None:
    session = writer.session("one")
    writer.prompt(session, "mend the loom " * 200)
    assert find_sessions(writer, "loom") == [session.id]
    before, path = read_index(writer), Path(writer.index().file.path)
    match how:
        case "deleted":
            path.unlink()
        case "emptied":
            path.write_bytes(b"")
        case "garbled":
            raw = bytearray(path.read_bytes())
            raw[100:] = os.urandom(len(raw) - 100)
            path.write_bytes(raw)
        case "cut":
            path.write_bytes(path.read_bytes()[:5000])
        case _:
            path.write_bytes(b"not a database at all" * 500)

    assert find_sessions(writer, "loom") == [session.id]
    assert read_index(writer) == before


def test_search_works_without_an_index(writer: SessionWriter) -> None:
    session = writer.session("one")
    writer.prompt(session, "mend the loom")
    Path(writer.cache).write_text("a file where a directory should be")
    warned: list[IndexFailedError] = []

    hits = writer.index(warn=warned.append).search("loom", limit=5)

    assert [hit.session_id for hit in hits] == [session.id]
    assert len(warned) == 1


def test_following_events_gives_the_same_index_as_reading_everything(writer: SessionWriter) -> None:
    index = writer.index()
    session = writer.session("one")
    for number in range(5):
        asked = writer.prompt(session, f"prompt number {number}")
        index.update({session.id: {asked}})
    answer = writer.answer(session, "gone soon", cost="0.1")
    writer.call(session, answer, "bash", "ok")
    index.update({session.id: set()})
    (writer.storage / f"message/{session.id}/{answer}.json").unlink()
    again = writer.answer(session, "an answer", cost="0.25")
    writer.call(session, again, "bash", "ok")
    index.update({session.id: {again}})
    followed = read_index(writer)
    Path(index.file.path).unlink()
    index.refresh()

    assert read_index(writer) == followed


def test_a_new_long_session_is_left_to_the_next_search(writer: SessionWriter) -> None:
    session, index = writer.session("one"), writer.index()
    asked = [writer.prompt(session, f"prompt number{number}") for number in range(2 * MAX_UPDATED_MESSAGES)]
    index.update({session.id: set(asked[-1:])})
    with open_for_reading(*index.file) as database:
        assert database.rows("SELECT count(*) FROM message") == [(MAX_UPDATED_MESSAGES,)]

    assert all(index.search(f"number{number}", limit=5) for number in range(2 * MAX_UPDATED_MESSAGES))


def test_a_removed_session_is_removed_from_the_index(writer: SessionWriter) -> None:
    session, index = writer.session("one"), writer.index()
    writer.prompt(session, "mend")
    index.update({session.id: set()})
    (writer.storage / f"session/{PROJECT}/{session.id}.json").unlink()
    index.update({session.id: set()})

    assert read_index(writer) == [[], [], []]


def test_several_processes_may_index_concurrently(writer: SessionWriter) -> None:
    for number in range(150):
        session = writer.session(f"s{number}")
        writer.prompt(session, f"loom number{number}")
    code = (
        "import sys; from weft.store.files.tree import Tree; from weft.store.files.search import SessionIndex;"
        "index = SessionIndex(Tree(sys.argv[1]), sys.argv[2], warn=lambda e: sys.exit(str(e)));"
        "print(len(index.search('loom', limit=500)))"
    )
    command = [sys.executable, "-c", code, str(writer.storage), writer.cache]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]

    assert [process.communicate(timeout=60)[0].strip() for process in running] == ["150"] * 3
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(find_sessions(writer, "number7")) == 11  # 7, 70 to 79, and nothing twice


def test_figures_equal_those_of_the_tree(writer: SessionWriter) -> None:
    one, two = writer.session("one"), writer.session("two", project_id=ProjectID("p2"))
    copied = writer.prompt(one, "from before a fork")
    path = writer.storage / f"message/{one.id}/{copied}.json"
    path.write_bytes(path.read_bytes().replace(str(START + 5).encode(), str(START - 5).encode()))
    writer.prompt(one, "a")
    first = writer.answer(one, "b", cost="0.1")
    writer.call(one, first, "bash", "ok")
    writer.call(one, first, "bash", "no", failed=True)
    writer.call(one, first, "read", "ok")
    writer.answer(one, "c", cost="0.2")
    writer.answer(two, "d", cost="0.000000000000000001", model="n", priced=False)

    used = Spent(cost=Decimal("0.3"), input=200, output=20, reasoning=2, cache_read=100, cache_write=10)
    other = Spent(
        cost=Decimal("1E-18"), input=100, output=10, reasoning=1, cache_read=50, cache_write=5, priced=False
    )
    both = Spent(
        cost=Decimal("0.300000000000000001"),
        input=300, output=30, reasoning=3, cache_read=150, cache_write=15, priced=False,
    )  # fmt: skip
    day = to_statistics_query(0, days=None, project=None).day_of(START)
    assert writer.index().figures(to_statistics_query(START, days=None, project=None)) == Figures(
        sessions=2,
        messages=4,
        days=1,
        spent=both,
        by_day=(UsageShare(name=day, sessions=2, messages=4, spent=both),),
        models=(
            UsageShare(name="p/m", sessions=1, messages=2, spent=used),
            UsageShare(name="p/n", sessions=1, messages=1, spent=other),
        ),
        projects=(
            UsageShare(name=PROJECT, sessions=1, messages=3, spent=used),
            UsageShare(name="p2", sessions=1, messages=1, spent=other),
        ),
        tools=(ToolUse(name="bash", calls=2, failed=1), ToolUse(name="read", calls=1, failed=0)),
        average_tokens=(222 + 111) // 2,
        median_tokens=(222 + 111) // 2,
    )
    assert (
        writer.index().figures(to_statistics_query(START, days=None, project=ProjectID("p2"))).spent == other
    )
    assert writer.index().figures(to_statistics_query(START + 10**9, days=0, project=None)).messages == 0


def test_a_large_project_lists_the_same_from_its_cache_as_from_its_files(writer: SessionWriter) -> None:
    for number in range(600):
        writer.session(f"s{number:03}", parent_id=None if number % 7 else "ses_s000")
    changed = writer.session("changed")
    assert list_all(writer) == Tree(str(writer.storage)).list_sessions(PROJECT)
    cached = next(Path(writer.cache).rglob("*.list"))
    before = cached.read_bytes()

    # As OpenCode does: overwritten in place, created, removed; and one document of a newer version.
    writer.write(f"session/{PROJECT}/{changed.id}", replace(changed, title="Another title"))
    writer.session("new")
    (writer.storage / f"session/{PROJECT}/ses_s010.json").unlink()
    (writer.storage / f"session/{PROJECT}/ses_bad.json").write_text("{")
    strange = replace(changed, id="ses_strange", extra_={"future": 1})
    writer.write(f"session/{PROJECT}/ses_strange", strange)

    reader = FileReader(str(writer.storage), cache=writer.cache)
    listed = reader.list_sessions(PROJECT)
    assert listed == Tree(str(writer.storage)).list_sessions(PROJECT)
    assert len(listed) == 602
    assert [damage.where for damage in reader.problems()] == [
        f"{writer.storage}/session/{PROJECT}/ses_bad.json"
    ]
    assert cached.read_bytes() == before

    for number in range(100):
        writer.session(f"t{number:03}")
    assert list_all(writer) == Tree(str(writer.storage)).list_sessions(PROJECT)
    assert cached.read_bytes() != before
    cached.write_bytes(cached.read_bytes()[:1000])
    assert list_all(writer) == Tree(str(writer.storage)).list_sessions(PROJECT)


def test_a_small_project_has_no_cache(writer: SessionWriter) -> None:
    session = writer.session("one")
    assert list_all(writer) == [session]
    assert list(Path(writer.cache).rglob("*.list")) == []


def test_recently_written_documents_are_not_cached(writer: SessionWriter) -> None:
    made = [writer.session(f"s{number:03}") for number in range(600)]
    path = writer.storage / f"session/{PROJECT}/{made[5].id}.json"
    os.utime(path)
    list_all(writer)
    status = path.stat()
    path.write_bytes(path.read_bytes().replace(b"About", b"Above"))
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    assert list_all(writer)[5].title == "Above s005"


def list_all(writer: SessionWriter) -> list[SessionInfo]:
    """List the project as a new process does."""
    return FileReader(str(writer.storage), cache=writer.cache).list_sessions(PROJECT)
