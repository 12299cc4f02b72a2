"""The index of sessions: found by words, followed by stamps, and never worse than having none."""

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
from weft.model.session import SessionTime
from weft.model.spending import Spent
from weft.search.database import open_for_reading
from weft.search.library import MAX_MESSAGES
from weft.search.list_cache import list_cached_sessions
from weft.search.sessions import to_statistics_query
from weft.store.files.reader import FileReader


@pytest.fixture
def written(tmp_path: Path) -> SessionWriter:
    return SessionWriter(tmp_path)


def found(written: SessionWriter, words: str, project: ProjectID | None = None) -> list[str]:
    return [hit.session_id for hit in written.library().search(words, limit=20, project=project)]


def everything(written: SessionWriter) -> list[object]:
    """All that the index holds, but for the numbers it gave things."""
    library = written.library()
    with open_for_reading(*library.file) as database:
        sessions = database.rows("SELECT project, id, document FROM session ORDER BY 1, 2")
        messages = database.rows(
            "SELECT session.id, message.id, message.created, model, nano, atto, said, done FROM message"
            " JOIN session ON session.number = session JOIN words ON words.rowid = message.number * 2 + 1 ORDER BY 1, 2"
        )
        calls = database.rows(
            "SELECT id, tool, calls, failed FROM call JOIN message ON message.number = message ORDER BY 1, 2"
        )
    return [sessions, messages, calls]


def test_a_hit_says_where_the_words_stand(written: SessionWriter) -> None:
    session = written.session("one", "Weaving")
    asked = written.prompt(session, "Please mend the Shuttle,\nit is broken")
    written.answer(session, "Done.")

    assert written.library().search("shuttle mend", limit=5) == [
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


def test_a_title_counts_most_then_what_was_said_then_what_a_tool_printed(written: SessionWriter) -> None:
    done, said, titled = written.session("done"), written.session("said"), written.session("titled", "A loom")
    message = written.answer(done, "I looked.")
    written.call(done, message, "bash", "the loom is here")
    written.prompt(said, "where is the loom now")

    assert found(written, "loom") == [titled.id, said.id, done.id]


def test_all_words_must_be_there_as_beginnings_and_phrases_as_they_stand(written: SessionWriter) -> None:
    both, one = written.session("both"), written.session("one")
    written.prompt(both, "warp and weft, threads of Zürich")
    written.prompt(one, "warp alone")

    assert found(written, "warp weft") == [both.id]
    assert found(written, "thre") == [both.id]
    assert found(written, "zurich") == [both.id]
    assert found(written, '"warp and weft"') == [both.id]
    assert found(written, '"weft and warp"') == []
    assert set(found(written, "warp")) == {both.id, one.id}


def test_errors_inputs_and_archived_sessions_of_all_projects_are_found(written: SessionWriter) -> None:
    elsewhere = written.session(
        "old", project_id=ProjectID("p2"), time=SessionTime(created=START, updated=START, archived=START)
    )
    message = written.answer(elsewhere, "Trying.")
    written.call(elsewhere, message, "grep", "permission denied by the warden", failed=True)

    assert found(written, "warden") == [elsewhere.id]
    assert found(written, "a.py") == [elsewhere.id]
    assert found(written, "warden", PROJECT) == []
    assert written.library().search("warden", limit=5)[0].archived


def test_what_changes_is_seen_by_its_stamp_and_what_goes_is_gone(written: SessionWriter) -> None:
    session, other = written.session("one"), written.session("two")
    written.prompt(session, "first words")
    written.prompt(other, "first of the other")
    assert set(found(written, "first")) == {session.id, other.id}

    written.prompt(session, "second words")
    written.write(f"session/{PROJECT}/{session.id}", replace(session, title="Renamed"))
    (written.storage / f"session/{PROJECT}/{other.id}.json").unlink()

    assert found(written, "second") == [session.id]
    assert found(written, "renamed") == [session.id]
    assert found(written, "first") == [session.id]


def test_an_answer_in_the_making_is_read_again_whatever_the_stamp_says(written: SessionWriter) -> None:
    session = written.session("one")
    written.answer(session, "half", time={"created": START + 50})
    assert found(written, "half") == [session.id]

    written.answer(session, "wholly done")
    assert found(written, "wholly") == [session.id]


@pytest.mark.parametrize("how", ["deleted", "emptied", "garbled", "cut", "foreign"])
def test_a_lost_or_bad_index_is_made_anew(written: SessionWriter, how: str) -> None:
    session = written.session("one")
    written.prompt(session, "mend the loom " * 200)
    assert found(written, "loom") == [session.id]
    before, path = everything(written), Path(written.library().file.path)
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

    assert found(written, "loom") == [session.id]
    assert everything(written) == before


def test_where_no_index_can_be_kept_words_are_found_all_the_same(written: SessionWriter) -> None:
    session = written.session("one")
    written.prompt(session, "mend the loom")
    Path(written.cache).write_text("a file where a directory should be")
    warned: list[IndexFailedError] = []

    hits = written.library(warn=warned.append).search("loom", limit=5)

    assert [hit.session_id for hit in hits] == [session.id]
    assert len(warned) == 1


def test_following_what_happens_gives_the_same_as_reading_everything(written: SessionWriter) -> None:
    library = written.library()
    session = written.session("one")
    for number in range(5):
        asked = written.prompt(session, f"prompt number {number}")
        library.update_messages(session.id, {asked})
    answer = written.answer(session, "gone soon", cost="0.1")
    written.call(session, answer, "bash", "ok")
    library.update_messages(session.id, set())
    (written.storage / f"message/{session.id}/{answer}.json").unlink()
    again = written.answer(session, "an answer", cost="0.25")
    written.call(session, again, "bash", "ok")
    library.update_messages(session.id, {again})
    followed = everything(written)
    Path(library.file.path).unlink()
    library.refresh()

    assert everything(written) == followed


def test_a_long_session_that_has_just_come_is_left_to_the_next_search(written: SessionWriter) -> None:
    session, library = written.session("one"), written.library()
    asked = [written.prompt(session, f"prompt number{number}") for number in range(2 * MAX_MESSAGES)]
    library.update_messages(session.id, set(asked[-1:]))
    with open_for_reading(*library.file) as database:
        assert database.rows("SELECT count(*) FROM message") == [(MAX_MESSAGES,)]

    assert all(library.search(f"number{number}", limit=5) for number in range(2 * MAX_MESSAGES))


def test_a_session_that_was_removed_is_forgotten(written: SessionWriter) -> None:
    session, library = written.session("one"), written.library()
    written.prompt(session, "mend")
    library.update_messages(session.id, set())
    (written.storage / f"session/{PROJECT}/{session.id}.json").unlink()
    library.update_messages(session.id, set())

    assert everything(written) == [[], [], []]


def test_several_processes_may_index_at_once(written: SessionWriter) -> None:
    for number in range(150):
        session = written.session(f"s{number}")
        written.prompt(session, f"loom number{number}")
    code = (
        "import sys; from weft.store.files.reader import FileReader; from weft.search.library import SessionLibrary;"
        "lib = SessionLibrary(FileReader(sys.argv[1]), sys.argv[2], warn=lambda e: sys.exit(str(e)));"
        "print(len(lib.search('loom', limit=500)))"
    )
    command = [sys.executable, "-c", code, str(written.storage), written.cache]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]

    assert [process.communicate(timeout=60)[0].strip() for process in running] == ["150"] * 3
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(found(written, "number7")) == 11  # 7, 70 to 79, and nothing twice


def test_figures_are_those_of_the_tree(written: SessionWriter) -> None:
    one, two = written.session("one"), written.session("two", project_id=ProjectID("p2"))
    copied = written.prompt(one, "from before a fork")
    path = written.storage / f"message/{one.id}/{copied}.json"
    path.write_bytes(path.read_bytes().replace(str(START + 5).encode(), str(START - 5).encode()))
    written.prompt(one, "a")
    first = written.answer(one, "b", cost="0.1")
    written.call(one, first, "bash", "ok")
    written.call(one, first, "bash", "no", failed=True)
    written.call(one, first, "read", "ok")
    written.answer(one, "c", cost="0.2")
    written.answer(two, "d", cost="0.000000000000000001", model="n", priced=False)

    used = Spent(cost=Decimal("0.3"), input=200, output=20, reasoning=2, cache_read=100, cache_write=10)
    other = Spent(
        cost=Decimal("1E-18"), input=100, output=10, reasoning=1, cache_read=50, cache_write=5, priced=False
    )
    both = Spent(
        cost=Decimal("0.300000000000000001"),
        input=300, output=30, reasoning=3, cache_read=150, cache_write=15, priced=False,
    )  # fmt: skip
    day = to_statistics_query(0, days=None, project=None).day_of(START)
    assert written.library().figures(to_statistics_query(START, days=None, project=None)) == Figures(
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
        written.library().figures(to_statistics_query(START, days=None, project=ProjectID("p2"))).spent
        == other
    )
    assert written.library().figures(to_statistics_query(START + 10**9, days=0, project=None)).messages == 0


def test_a_large_project_is_listed_from_its_shelf_as_from_its_files(written: SessionWriter) -> None:
    for number in range(600):
        written.session(f"s{number:03}", parent_id=None if number % 7 else "ses_s000")
    changed = written.session("changed")
    written.library().refresh()
    files = SessionWriter(written.storage.parent).tree
    shelf = next(Path(written.cache).rglob("*.list"))
    before = {path: path.stat().st_mtime_ns for path in Path(written.cache).rglob("*")}

    assert list_cached_sessions(written.tree, written.cache, PROJECT) == files.list_sessions(PROJECT)

    # As OpenCode does: written over in place, made, removed; and one of a version that knows more.
    written.write(f"session/{PROJECT}/{changed.id}", replace(changed, title="Another title"))
    written.session("new")
    (written.storage / f"session/{PROJECT}/ses_s010.json").unlink()
    (written.storage / f"session/{PROJECT}/ses_bad.json").write_text("{")
    strange = replace(changed, id="ses_strange", extra_={"future": 1})
    written.write(f"session/{PROJECT}/ses_strange", strange)

    listed = list_cached_sessions(written.tree, written.cache, PROJECT)
    assert listed == files.list_sessions(PROJECT)
    assert listed is not None
    assert len(listed) == 602
    assert [damage.where for damage in written.tree.problems()] == [
        f"{written.storage}/session/{PROJECT}/ses_bad.json"
    ]
    assert {path: path.stat().st_mtime_ns for path in Path(written.cache).rglob("*")} == before

    written.library().refresh()
    assert list_cached_sessions(
        FileReader(str(written.storage)), written.cache, PROJECT
    ) == files.list_sessions(PROJECT)
    shelf.write_bytes(shelf.read_bytes()[:1000])
    assert list_cached_sessions(written.tree, written.cache, PROJECT) is None
