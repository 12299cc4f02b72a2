"""The file of the dataset: it can be damaged, removed or not writable, and costs are exact."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from weft.dataset.changes import list_changes
from weft.dataset.database import DATASET_VERSION, Dataset, DecimalSum, dataset_path
from weft.dataset.query import run_query
from weft.dataset.tables import TABLES, list_columns
from weft.errors import InvalidInputError
from weft.model.data import QueryInput
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.message import AssistantMessage, AssistantTime, MessageWithParts, UserMessage
from weft.model.part import Moment, PendingState, TextPart, Tokens, ToolPart
from weft.model.session import SessionInfo, SessionTime

PROJECT = ProjectID("prj")
GOLDEN = Path(__file__).parents[2] / "golden" / "dataset"


def make_session(number: int, *, updated: int = 1, project: ProjectID = PROJECT) -> SessionInfo:
    id = SessionID(f"ses_{number}")
    return SessionInfo(id=id, project_id=project, title=f"T{number}", time=SessionTime(created=1, updated=updated))  # fmt: skip


def make_history(session: SessionInfo, *costs: str) -> list[MessageWithParts]:
    prompt = UserMessage(id=MessageID("msg_0"), session_id=session.id, time=Moment(created=2))
    words = TextPart(id=PartID("prt_0"), session_id=session.id, message_id=prompt.id, text="h\0i \ud800")
    answers = [
        AssistantMessage(
            id=MessageID(f"msg_{number}"),
            session_id=session.id,
            parent_id=prompt.id,
            time=AssistantTime(created=2 + number),
            cost=Decimal(cost),
        )
        for number, cost in enumerate(costs, 1)
    ]
    return [MessageWithParts(info=prompt, parts=(words,))] + [
        MessageWithParts(info=answer, parts=()) for answer in answers
    ]


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Dataset]:
    made = Dataset(str(tmp_path / "cache" / "dataset.db"))
    yield made
    made.close()


def ask(dataset: Dataset, sql: str, project: ProjectID | None = PROJECT) -> tuple[tuple[object, ...], ...]:
    return run_query(dataset, QueryInput(sql=sql), project).rows


def test_stored_tables_change_only_with_the_version(dataset: Dataset, tmp_path: Path) -> None:
    """An existing file of the same version keeps its tables, and could not be filled any more.

    If this fails, raise `DATASET_VERSION`, and store the statements below as the file of the new version.
    """
    dataset.find_stale([])
    with closing(sqlite3.connect(tmp_path / "cache" / "dataset.db")) as connection:
        rows = connection.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type DESC, name"
        ).fetchall()
    assert [sql for (sql,) in rows] == (GOLDEN / f"v{DATASET_VERSION}.sql").read_text().splitlines()


def test_a_time_that_no_column_can_hold_is_the_largest_there_is(dataset: Dataset) -> None:
    session = make_session(1, updated=10**30)
    dataset.put_session(session, make_history(session, "1"))
    assert ask(dataset, "select updated from sessions") == ((2**63 - 1,),)


def test_only_changed_sessions_are_stale(dataset: Dataset) -> None:
    one, two = make_session(1), make_session(2)
    assert dataset.find_stale([one, two]) == [one, two]
    dataset.put_session(one, [])
    dataset.put_session(two, [])
    assert dataset.find_stale([one, two]) == []
    changed = make_session(1, updated=5)
    assert dataset.find_stale([changed, two]) == [changed]
    assert dataset.find_stale([one, two], {two.id}) == [two]
    dataset.keep_only([one.id], PROJECT)
    assert ask(dataset, "select id from sessions") == (("ses_1",),)


def test_a_query_sees_one_project_or_all(dataset: Dataset) -> None:
    dataset.put_session(make_session(1), [])
    dataset.put_session(make_session(2, project=ProjectID("other")), [])
    assert ask(dataset, "select id from sessions") == (("ses_1",),)
    assert ask(dataset, "select id from sessions order by 1", None) == (("ses_1",), ("ses_2",))


def test_a_damaged_file_is_replaced(dataset: Dataset, tmp_path: Path) -> None:
    file = tmp_path / "cache" / "dataset.db"
    file.parent.mkdir()
    file.write_bytes(b"this is no database" * 100)
    dataset.put_session(make_session(1), [])
    assert ask(dataset, "select count(*) from sessions") == ((1,),)
    assert file.stat().st_mode & 0o077 == 0


def test_a_new_file_replaces_those_of_other_versions_and_nothing_else(tmp_path: Path) -> None:
    path = Path(dataset_path(str(tmp_path), "store"))
    other = Path(dataset_path(str(tmp_path), "other store"))
    path.parent.mkdir()
    version = f".v{DATASET_VERSION}.db"
    outdated = [
        Path(str(each).removesuffix(version) + f".v{number}.db{suffix}")
        for each in (path, other)
        for number in (0, DATASET_VERSION + 1)
        for suffix in ("", "-journal", "-wal", "-shm")
    ]
    foreign = [path.with_name(name) for name in ("dataset-mine.v0.db", f"{path.name}.v0.db.txt", "notes.db")]
    directory = path.with_name("dataset-0123456789abcdef.v0.db")
    directory.mkdir()
    for each in [*outdated, *foreign, other]:
        each.touch()
    for _ in range(2):
        with closing(Dataset(str(path))) as dataset:
            assert ask(dataset, "SELECT id FROM sessions") == ()
        journal = Path(f"{path}-journal")
        assert sorted(path.parent.iterdir()) == sorted([path, journal, other, directory, *foreign])


def test_a_file_that_is_there_leaves_those_of_other_versions_alone(tmp_path: Path) -> None:
    path = Path(dataset_path(str(tmp_path), "store"))
    with closing(Dataset(str(path))) as dataset:
        ask(dataset, "SELECT id FROM sessions")
    newer = path.with_name(path.name.replace(f".v{DATASET_VERSION}.", f".v{DATASET_VERSION + 1}."))
    newer.touch()
    with closing(Dataset(str(path))) as dataset:
        ask(dataset, "SELECT id FROM sessions")
    assert newer.exists()


def test_queries_work_without_a_cache_file_if_it_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the way")
    dataset = Dataset(str(tmp_path / "cache" / "dataset.db"))
    dataset.put_session(make_session(1), [])
    assert ask(dataset, "select count(*) from sessions") == ((1,),)
    dataset.close()


def test_text_that_sqlite_cannot_store_is_replaced(dataset: Dataset) -> None:
    session = make_session(1)
    dataset.put_session(session, make_history(session))
    assert ask(dataset, "select text from prompts") == (("h\ufffdi \ufffd",),)


@given(st.lists(st.decimals(min_value=0, max_value=10**6, places=12), min_size=1, max_size=20))
def test_costs_add_up_and_sort_exactly(costs: list[Decimal]) -> None:
    dataset, session = Dataset(), make_session(1)
    dataset.put_session(session, make_history(session, *map(str, costs)))
    ((total,),) = ask(dataset, "select decimal_sum(cost) from costs")
    assert Decimal(str(total)) == sum(costs)
    rows = ask(dataset, "select cost from costs order by cost")
    assert [Decimal(str(cost)) for (cost,) in rows] == sorted(costs)
    ((most,),) = ask(dataset, "select max(cost) from costs")
    assert Decimal(str(most)) == max(costs)
    dataset.close()


def test_a_sum_of_nothing_is_zero() -> None:
    assert DecimalSum().finalize() == "0"


def test_every_documented_column_can_be_selected(dataset: Dataset) -> None:
    for table, column in list_columns():
        assert ask(dataset, f"select {column} from {table}") == ()
    assert [table.name for table in TABLES] == [
        "sessions", "prompts", "steps", "calls", "files", "costs", "permissions", "events"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "sql",
    [
        "insert into sessions values (1)",
        "create table x (y)",
        "vacuum",
        "begin",
        "select load_extension('x')",
        "select * from pragma_table_info('stored_steps')",
        "select name from sqlite_master",
        "explain delete from stored_steps",
        "select '\ud800'",
    ],
)
def test_only_reading_statements_are_allowed(dataset: Dataset, sql: str) -> None:
    dataset.put_session(make_session(1), [])
    with pytest.raises(InvalidInputError):
        ask(dataset, sql)
    assert ask(dataset, "select count(*) from sessions") == ((1,),)


@pytest.mark.parametrize(
    "change",
    [
        {"agent": "\ud83d"},
        {"provider_id": "a\0b"},
        {"finish": "\ud83d"},
        {"tokens": Tokens(input=2**70)},
        {"time": AssistantTime(created=-(2**70), completed=2**70)},
    ],
)
def test_any_name_and_number_of_a_message_can_be_stored(dataset: Dataset, change: dict[str, Any]) -> None:
    session = make_session(1)
    prompt, answer = make_history(session, "1")
    odd = MessageWithParts(info=replace(answer.info, **change), parts=())
    dataset.put_session(session, [prompt, odd])
    assert ask(dataset, "select cost from steps") == (("1",),)


def test_any_call_can_be_stored(dataset: Dataset) -> None:
    session = make_session(1)
    prompt, answer = make_history(session, "1")
    call = ToolPart(
        id=PartID("prt_1"),
        session_id=session.id,
        message_id=answer.info.id,
        call_id="call \ud83d",
        tool="\ud83d",
        state=PendingState(input={"path": "\ud83d"}, raw=""),
    )
    dataset.put_session(session, [prompt, MessageWithParts(info=answer.info, parts=(call,))])
    assert ask(dataset, "select id, tool from calls") == (("call \ufffd", "\ufffd"),)


def test_the_changes_of_a_file_whose_name_is_not_unicode_are_listed(dataset: Dataset) -> None:
    assert list_changes(dataset, PROJECT, "caf\udce9.txt") == []


def test_a_query_with_half_a_character_is_refused(dataset: Dataset) -> None:
    with pytest.raises(InvalidInputError, match="half of a character"):
        ask(dataset, "select '\ud83d'")


def test_a_query_may_have_any_limit(dataset: Dataset) -> None:
    assert run_query(dataset, QueryInput(sql="select 1", limit=10**30), PROJECT).rows == ((1,),)
