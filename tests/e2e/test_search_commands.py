"""`weft session search`, `weft session cost` and `weft stats`, with the installed command."""

import json
import os
from decimal import Decimal
from pathlib import Path

import pytest

from e2e.test_command import Shell
from weft.store.files.index_database import index_path, open_for_reading
from weft.store.files.index_query import search_index


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    assert made.weft("run", "-m", "scripted/demo", "let it greet a name").returncode == 0
    return made


def test_a_run_is_indexed(shell: Shell) -> None:
    home = Path(os.environ["HOME"])
    (storage,) = home.rglob("storage")
    (database,) = home.rglob("sessions-*.db")
    assert str(database) == index_path(str(database.parents[1]), str(storage))
    with open_for_reading(str(database), str(storage)) as index:
        (hit,) = search_index(index, "let it greet", limit=5)
    assert hit.session_id == shell.sessions()[0]["id"]


def test_words_are_found_and_shown_with_their_session(shell: Shell) -> None:
    (session,) = shell.sessions()
    shown = shell.weft("session", "search", "Hello", "weft")
    report = json.loads(shell.weft("session", "search", "--format", "json", "greet a name").stdout)

    assert shown.returncode == 0, shown.stderr
    assert str(session["id"]) in shown.stdout
    assert "Hello" in shown.stdout
    assert report[0]["sessionID"] == session["id"]
    assert report[0]["snippet"] == "let it greet a name"


def test_finding_nothing_succeeds_and_a_missing_query_fails(shell: Shell) -> None:
    nothing = shell.weft("session", "search", "no-such-word-at-all")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert nothing.stderr.startswith("nothing found")
    for words in ('"', "(((", "a OR", "NOT", "*", "'; DROP TABLE words"):
        tried = shell.weft("session", "search", "--all", "--", words)
        assert tried.returncode == 0, tried.stderr
    assert shell.weft("session", "search").returncode == 2


def test_other_projects_are_searched_only_on_request(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    here = shell.weft("session", "search", "greet", "--dir", str(tmp_path / "elsewhere"))
    anywhere = shell.weft("session", "search", "greet", "--all", "--dir", str(tmp_path / "elsewhere"))
    assert here.stdout == ""
    assert str(shell.sessions()[0]["id"]) in anywhere.stdout


def test_the_stored_total_cost_equals_that_of_the_messages(shell: Shell) -> None:
    id = str(shell.sessions()[0]["id"])
    document = json.loads(
        shell.weft("session", "show", id, "--format", "json").stdout, parse_float=Decimal, parse_int=Decimal
    )
    answers = [each["info"] for each in document["messages"] if each["info"]["role"] == "assistant"]
    cost = json.loads(
        shell.weft("session", "cost", id, "--tree", "--format", "json").stdout,
        parse_float=Decimal,
        parse_int=Decimal,
    )
    kept = document["info"]["weft"]["spent"]

    assert cost["own"] == cost["tree"] == cost["sessions"][0]["own"] == kept["own"]
    # The demo is free; what it counts is tokens.
    assert kept["own"]["cost"] == sum(each["cost"] for each in answers) == 0
    assert kept["own"]["input"] == sum(each["tokens"]["input"] for each in answers) > 0
    assert kept["until"] == answers[-1]["time"]["created"]
    assert f"${kept['own']['cost']:.4f}" in shell.weft("session", "cost", id).stdout
    assert f"${kept['own']['cost']:.4f}" in shell.weft("session", "cost", id, "--tree").stdout


def test_stats_add_everything_up(shell: Shell) -> None:
    shown = shell.weft("stats", "--models", "--tools", "1")
    report = json.loads(shell.weft("stats", "--format", "json", "--project", "--days", "0").stdout)

    assert shown.returncode == 0, shown.stderr
    for title in ("OVERVIEW", "COST & TOKENS", "MODEL USAGE", "TOOL USAGE"):
        assert title in shown.stdout
    assert "scripted/demo" in shown.stdout
    assert len({len(line) for line in shown.stdout.splitlines() if line}) == 1
    assert (report["sessions"], report["messages"], report["days"]) == (1, 5, 1)
    assert report["models"][0]["spent"] == report["spent"]
    assert {tool["name"] for tool in report["tools"]} == {"read", "edit", "bash"}


def test_at_most_none_shows_none(shell: Shell) -> None:
    neither = shell.weft("stats", "--models", "0", "--tools", "0")
    assert "COST & TOKENS" in neither.stdout
    assert "USAGE" not in neither.stdout
    every_model = shell.weft("stats", "--models", "--tools", "0").stdout
    assert "scripted/demo" in every_model
    assert "TOOL USAGE" not in every_model
    for store in ((), ("--store", f"sqlite:{Path(os.environ['HOME']) / 'other.db'}")):
        shell.weft("run", "-m", "scripted/demo", "let it greet a name", *store)
        assert shell.weft("session", "search", "greet", *store).stdout != ""
        for words in (("session", "list"), ("session", "search", "greet"), ("permission", "log")):
            shown = shell.weft(*words, "-n", "0", *store)
            assert (shown.returncode, shown.stdout, shown.stderr) == (0, "", "")


def test_a_cache_that_cannot_be_written_fails_no_run_and_no_search(shell: Shell) -> None:
    blocked = Path(os.environ["HOME"]) / "blocked"
    blocked.write_text("")
    ran = shell.weft("run", "-m", "scripted/demo", "again, please", XDG_CACHE_HOME=str(blocked))
    found = shell.weft("session", "search", "again", XDG_CACHE_HOME=str(blocked))

    assert ran.returncode == 0, ran.stderr
    assert "again, please" in found.stdout
    assert "the index of sessions cannot be used" in found.stderr
