"""Blame, log, SQL, exports and the HTTP API on a real session of more than thirty steps, whose authors are known."""

import csv
import json
import os
import subprocess
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet
import pytest

import weft
from given.http_server import serve_project
from given.long_work import FIRST, LongWork, do_long_work, git
from given.postgres import make_url
from weft.cli.exit import ExitCode
from weft.cli.main import run_command
from weft.errors import InvalidInputError
from weft.model.data import QueryInput
from weft.testing.script import Script

VARIABLES = ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")


@pytest.fixture(scope="module")
def long_work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LongWork, dict[str, str]]]:
    top = tmp_path_factory.mktemp("long")
    env = {name: str(top / name.lower()) for name in VARIABLES}
    identity = {f"GIT_{role}_{what}": f"{what.lower()}@example.test" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (env | identity).items():
            patch.setenv(name, value)
        os.makedirs(env["HOME"])
        # Where `serve_project` has its store.
        env["WEFT_STORE"] = f"file:{top / 'storage'}"
        yield do_long_work(top / "repository", store=env["WEFT_STORE"]), env


@pytest.fixture
def work(long_work: tuple[LongWork, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> LongWork:
    made, env = long_work
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(made.root)
    return made


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert run_command(list(words)) == ExitCode.DONE, capsys.readouterr().err
    return capsys.readouterr().out


def refuse(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert run_command(list(words)) not in (ExitCode.DONE, None)
    return capsys.readouterr().err


def summarise(blame: dict[str, Any], work: LongWork) -> list[tuple[str, int | str]]:
    """Return the text and the writer of each line, as `LongWork.expected` has them."""
    names = {id: name for name, id in work.sessions.items()}
    found: list[tuple[str, int | str]] = []
    for line in blame["lines"]:
        author = blame["authors"][line["author"]]
        name = names[author["sessionID"]] if author["kind"] == "session" else author["kind"]
        found.append((line["text"], author["step"] if name == "first" else name))
    return found


@pytest.mark.parametrize("file", ["app.py", "tools.py", "helper.py", "notes.md"])
def test_each_line_has_its_author(work: LongWork, capsys: pytest.CaptureFixture[str], file: str) -> None:
    assert work.steps > 30
    blame = json.loads(run(capsys, "blame", file, "--format", "json"))
    assert summarise(blame, work) == work.expected[file]


def test_an_author_has_session_step_prompt_model_time_and_cost(
    work: LongWork, capsys: pytest.CaptureFixture[str]
) -> None:
    blame = json.loads(run(capsys, "blame", "app.py:3", "--format", "json"))
    (author,) = blame["authors"]
    assert (author["sessionID"], author["step"], author["tool"]) == (work.sessions["first"], 2, "edit")
    assert (author["prompt"], author["providerID"], author["modelID"]) == (FIRST, "scripted", "script")
    assert author["time"] > 1_700_000_000_000
    row = json.loads(
        run(capsys, "sql", f"select cost from steps where id = '{author['stepID']}'", "--format", "json")
    )
    assert Decimal(str(author["cost"])) == Decimal(row[0]["cost"]) > 0


def test_the_table_shows_the_author_once_per_block(
    work: LongWork, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = run(capsys, "blame", "app.py:3-5").splitlines()
    assert [line.endswith(end) for line, end in zip(shown, ("def step_2():", "return 2", "def step_3():"), strict=True)] == [True] * 3  # fmt: skip
    assert shown[0].startswith(work.sessions["first"][:14])
    assert shown[1].strip().startswith("4")


def test_a_log_follows_a_renamed_file(work: LongWork, capsys: pytest.CaptureFixture[str]) -> None:
    log = json.loads(run(capsys, "log", "tools.py", "--format", "json"))
    steps = [(step["author"]["step"], step["author"]["path"]) for step in log["steps"]]
    assert steps[-3:] == [(14, "tools.py"), (13, "util.py"), (12, "util.py")]
    assert [step["additions"] for step in log["steps"]][-2:] == [1, 3]
    undone = json.loads(run(capsys, "log", "app.py", "--format", "json"))["steps"][0]
    assert (undone["author"]["sessionID"], undone["undone"]) == (work.sessions["third"], True)
    binary = json.loads(run(capsys, "log", "picture.bin", "--format", "json"))
    assert [step["author"]["tool"] for step in binary["steps"]] == ["bash"]


def test_a_rename_by_hand_is_followed(
    work: LongWork, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (work.root / "helper.py").rename(work.root / "renamed.py")
    try:
        blame = json.loads(run(capsys, "blame", "renamed.py", "--format", "json"))
        assert summarise(blame, work) == work.expected["helper.py"]
    finally:
        (work.root / "renamed.py").rename(work.root / "helper.py")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["blame", "/etc/hostname"], "'/etc/hostname' is not in the project"),
        (["blame", "gone.py"], "there is no file 'gone.py'"),
        (["blame", "picture.bin"], "is binary and has no lines"),
        (["blame", "app.py:900"], "app.py has 25 lines"),
        (["blame", f"app.py:{'9' * 5000}"], "File name too long"),
        (["blame", "."], "is a directory"),
        (["blame"], "none is named"),
        (["log", "gone.py"], "it does not exist, and no session has changed it"),
        (["sql", "delete from steps"], "only reading the documented tables is allowed"),
        (["sql", "drop view steps"], "only reading the documented tables is allowed"),
        (["sql", "attach 'x' as y"], "only reading the documented tables is allowed"),
        (["sql", "pragma writable_schema = 1"], "only reading the documented tables is allowed"),
        (["sql", "select * from session_marks"], "only reading the documented tables is allowed"),
        (["sql", "select 1; select 2"], "more than one statement"),
        (["sql", "select modle_id from steps"], "did you mean steps.model_id"),
        (["sql", "select * from stepz"], "did you mean steps?"),
        (["sql", "selec 1"], "syntax error"),
        (["sql", " "], "it is empty"),
        (["export", "--csv", "a", "--atif"], "cannot be combined"),
    ],
)
def test_invalid_input_is_explained_in_a_sentence(
    work: LongWork, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    before = git(work.root, "status", "--porcelain")
    assert said in refuse(capsys, *words)
    assert git(work.root, "status", "--porcelain") == before


def test_blame_without_snapshots_says_so_and_names_no_author(
    work: LongWork, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (snapshots,) = (Path(os.environ["XDG_DATA_HOME"]) / "opencode" / "weft").glob("snapshot*")
    hidden = tmp_path / "hidden"
    snapshots.rename(hidden)
    try:
        assert run_command(["blame", "app.py", "--format", "json"]) == ExitCode.DONE
        blame = json.loads(capsys.readouterr().out)
    finally:
        hidden.rename(snapshots)
    assert "there are no snapshots of 14 changes of this file" in blame["note"]
    assert [author["kind"] for author in blame["authors"]] == ["unknown"]


def test_a_query_that_takes_too_long_is_ended(work: LongWork, capsys: pytest.CaptureFixture[str]) -> None:
    endless = "with recursive t(x) as (select 1 union all select x + 1 from t) select count(*) from t"
    began = time.monotonic()
    assert "the query took longer than 1 seconds" in refuse(capsys, "sql", endless, "--seconds", "1")
    assert time.monotonic() - began < 60  # it ended at all


def test_sql_adds_up_exactly_and_prints_tables_csv_and_json(
    work: LongWork, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "select count(*) as n, decimal_sum(cost) as total from costs where session_id = '{}'"
    rows = json.loads(run(capsys, "sql", sql.format(work.sessions["first"]), "--format", "json"))
    each = json.loads(run(capsys, "sql", f"select cost from steps where session_id = '{work.sessions['first']}'", "--format", "json"))  # fmt: skip
    assert rows == [{"n": work.steps, "total": format(sum(Decimal(row["cost"]) for row in each), "f")}]
    assert run(capsys, "sql", "select tool, count(*) as n from calls group by 1 order by 2 desc, 1 limit 1", "--format", "csv") == "tool,n\nedit,22\n"  # fmt: skip
    assert run(capsys, "sql", "select 1 as one, null as none").splitlines() == ["one  none", "  1"]
    assert run_command(["sql", "select id from steps", "-n", "2"]) == ExitCode.DONE
    assert "there are more than 2 rows" in capsys.readouterr().err


def test_any_number_of_rows_and_days_is_taken(work: LongWork, capsys: pytest.CaptureFixture[str]) -> None:
    most = str(10**20)
    assert run(capsys, "sql", "-n", most, "--format", "csv", "select 1 as one").split() == ["one", "1"]
    every, latest = (
        json.loads(run(capsys, "stats", "--format", "json", *words)) for words in ((), ("--days", most))
    )
    assert latest["sessions"] == every["sessions"] > 0


def test_costs_are_compared_by_value(work: LongWork, capsys: pytest.CaptureFixture[str]) -> None:
    ordered = json.loads(run(capsys, "sql", "select cost from costs order by cost desc", "--format", "json"))
    values = [Decimal(row["cost"]) for row in ordered]
    assert values == sorted(values, reverse=True)
    assert json.loads(run(capsys, "sql", "select count(*) as n from costs where cost > 10", "--format", "json")) == [{"n": 0}]  # fmt: skip


def test_events_are_in_order_and_cover_every_kind_of_row(
    work: LongWork, capsys: pytest.CaptureFixture[str]
) -> None:
    events = json.loads(run(capsys, "sql", "select time, kind from events", "-n", "9999", "--format", "json"))
    assert [row["time"] for row in events] == sorted(row["time"] for row in events)
    assert {row["kind"] for row in events} == {
        "session.created", "prompt", "step.started", "step.ended", "call.started", "call.ended", "file.changed", "permission"
    }  # fmt: skip


def test_tables_are_exported_as_csv_and_parquet(
    work: LongWork, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run(capsys, "export", "--csv", str(tmp_path / "csv"))
    run(capsys, "export", "--parquet", str(tmp_path / "parquet"))
    with (tmp_path / "csv" / "costs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    table = pyarrow.parquet.read_table(tmp_path / "parquet" / "costs.parquet")
    assert [Decimal(row["cost"]) for row in rows] == table.column("cost").to_pylist()
    assert str(table.schema.field("time").type) == "timestamp[ms, tz=UTC]"
    assert sorted(each.name for each in (tmp_path / "csv").iterdir()) == sorted(
        f"{name}.csv"
        for name in ("sessions", "prompts", "steps", "calls", "files", "costs", "permissions", "events")
    )
    assert (tmp_path / "csv" / "steps.csv").stat().st_mode & 0o077 == 0


# What the RFC says of a trajectory, in short.
ATIF = {
    "type": "object",
    "additionalProperties": False,
    "required": ["schema_version", "agent", "steps"],
    "properties": {
        "schema_version": {"const": "ATIF-v1.7"},
        "session_id": {"type": "string"},
        "trajectory_id": {"type": "string"},
        "agent": {"type": "object", "required": ["name", "version"]},
        "steps": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["step_id", "source", "message"],
                "additionalProperties": False,
                "properties": {
                    "step_id": {"type": "integer", "minimum": 1},
                    "timestamp": {"type": "string", "format": "date-time"},
                    "source": {"enum": ["system", "user", "agent"]},
                    "message": {"type": "string"},
                    "model_name": {"type": "string"},
                    "reasoning_content": {"type": "string"},
                    "tool_calls": {
                        "type": "array",
                        "items": {"required": ["tool_call_id", "function_name", "arguments"]},
                    },
                    "observation": {"type": "object", "required": ["results"]},
                    "metrics": {"type": "object"},
                    "llm_call_count": {"type": "integer", "minimum": 0},
                    "is_copied_context": {"type": "boolean"},
                    "extra": {"type": "object"},
                },
            },
        },
        "final_metrics": {"type": "object"},
        "subagent_trajectories": {"type": "array", "items": {"$ref": "#"}},
        "notes": {"type": "string"},
        "extra": {"type": "object"},
    },
}


def test_a_session_is_exported_as_a_trajectory_with_its_child(
    work: LongWork, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "trajectory.json"
    run(capsys, "export", work.sessions["first"], "--atif", "-o", str(path))
    trajectory = json.loads(path.read_text())
    jsonschema.validate(trajectory, ATIF)
    steps = trajectory["steps"]
    assert [step["step_id"] for step in steps] == list(range(1, work.steps + 3))
    assert [step["source"] for step in steps].count("agent") == work.steps
    for step in steps:
        calls = [call["tool_call_id"] for call in step.get("tool_calls", [])]
        assert [result["source_call_id"] for result in step.get("observation", {"results": []})["results"]] == calls  # fmt: skip
    (child,) = trajectory["subagent_trajectories"]
    assert child["trajectory_id"] == work.sessions["child"]
    refs = [result["subagent_trajectory_ref"] for step in steps for result in step.get("observation", {"results": []})["results"] if "subagent_trajectory_ref" in result]  # fmt: skip
    assert refs == [[{"trajectory_id": work.sessions["child"], "session_id": work.sessions["child"]}]]


# What Agent Trace 0.1.0 says of a record, in short.
TRACE = {
    "type": "object",
    "required": ["version", "id", "timestamp", "files"],
    "properties": {
        "version": {"const": "0.1.0"},
        "id": {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
        "vcs": {"type": "object", "required": ["type", "revision"]},
        "files": {
            "type": "array",
            "items": {
                "required": ["path", "conversations"],
                "properties": {
                    "conversations": {
                        "items": {
                            "required": ["ranges", "contributor"],
                            "properties": {
                                "contributor": {
                                    "required": ["type"],
                                    "properties": {"type": {"enum": ["human", "ai", "mixed", "unknown"]}},
                                },
                                "ranges": {"items": {"required": ["start_line", "end_line"]}},
                            },
                        }
                    }
                },
            },
        },
    },
}


def test_authors_are_exported_as_agent_trace_and_as_git_notes(
    work: LongWork, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads(run(capsys, "blame", "app.py", "helper.py", "--format", "agent-trace"))
    jsonschema.validate(record, TRACE)
    head = git(work.root, "rev-parse", "HEAD").strip()
    assert record["vcs"] == {"type": "git", "revision": head}
    (conversation,) = record["files"][1]["conversations"]
    assert conversation["url"] == f"weft:session/{work.sessions['child']}"
    assert conversation["contributor"] == {"type": "ai", "model_id": "scripted/script"}
    covered = sorted(
        line
        for each in record["files"][0]["conversations"]
        for block in each["ranges"]
        for line in range(block["start_line"], block["end_line"] + 1)
    )
    assert covered == list(range(1, 26))
    run(capsys, "blame", "--notes")
    note = json.loads(git(work.root, "notes", "--ref=refs/notes/agent-trace", "show", head))
    jsonschema.validate(note, TRACE)
    assert {file["path"] for file in note["files"]} == {"app.py", "tools.py", "helper.py"}


def test_a_file_whose_name_is_not_text_is_exported_as_agent_trace(
    work: LongWork, capsys: pytest.CaptureFixture[str]
) -> None:
    file = work.root / os.fsdecode(b"\xff.txt")
    file.write_text("by hand\n")
    try:
        record = json.loads(run(capsys, "blame", str(file), "--format", "agent-trace"))
    finally:
        file.unlink()
    assert [each["path"] for each in record["files"]] == ["\udcff.txt"]


def test_blame_logs_sql_and_trajectories_of_the_project_alone_are_available_over_http(work: LongWork) -> None:
    with serve_project(work.root.parent, project=work.root) as server:
        blame = server.get("/weft/blame", params={"path": "app.py"})
        assert summarise(blame, work) == work.expected["app.py"]
        assert len(server.get("/weft/blame", params={"path": "app.py", "first": 3, "last": 4})["lines"]) == 2
        assert server.get("/weft/file-log", params={"path": "helper.py"})["steps"][0]["author"]["sessionID"] == work.sessions["child"]  # fmt: skip
        count = server.post("/weft/sql", {"sql": f"select count(*) as n from steps where session_id = '{work.sessions['first']}'"})  # fmt: skip
        assert count == {"columns": ["n"], "rows": [[work.steps]]}
        jsonschema.validate(server.get(f"/weft/session/{work.sessions['first']}/atif"), ATIF)
        assert server.client.get("/weft/blame", params={"path": "../../etc/hostname"}).status_code == 403
        assert server.client.post("/weft/sql", json={"sql": "delete from steps"}).status_code == 400
    with serve_project(work.root.parent, project=work.root, routes={"files": False}) as server:
        assert server.client.get("/weft/blame", params={"path": "app.py"}).status_code == 404


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_databases_give_the_same_blame_and_tables_as_files(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:{tmp_path}/sessions.db" if kind == "sqlite" else make_url()
    subprocess.run(["git", "config", "--global", "init.defaultBranch", "main"], check=True)
    if kind == "postgres":
        assert run_command(["storage", "init", "--store", store]) == ExitCode.DONE
    work = do_long_work(tmp_path / "repository", store=store)
    monkeypatch.chdir(work.root)
    blame = json.loads(run(capsys, "blame", "app.py", "--format", "json", "--store", store))
    assert summarise(blame, work) == work.expected["app.py"]
    rows = json.loads(run(capsys, "sql", "select count(*) as n from steps where undone", "--format", "json", "--store", store))  # fmt: skip
    assert rows == [{"n": 2}]


def test_a_memory_store_answers_sql_blame_log_and_trajectory(tmp_path: Path) -> None:
    file = tmp_path / "note.txt"
    script = Script("Remember tea.").calls("write", filePath=str(file), content="tea\n").says("Done.")
    with weft.open(tmp_path, model=script, store="memory:", permissions={"*": "allow"}) as agent:
        session = agent.converse()
        session.ask("Remember tea.")
        data = agent.api.data
        found = agent.wait(data.query(QueryInput(sql="select tool, status from calls")))
        assert (found.columns, found.rows) == (("tool", "status"), (("write", "completed"),))
        blame = agent.wait(data.blame("note.txt"))
        assert [(line.text, blame.authors[line.author].session_id) for line in blame.lines] == [
            ("tea", session.session)
        ]
        assert agent.wait(data.get_file_log("note.txt")).steps[0].additions == 1
        assert agent.wait(data.get_trajectory(session.session))["session_id"] == session.session
        with pytest.raises(InvalidInputError, match="only reading"):
            agent.wait(data.query(QueryInput(sql="delete from calls")))
