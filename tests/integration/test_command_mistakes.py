"""Plausible mistakes on the command line: each error names the mistake and a way out. An empty list is reported, except in JSON."""

import errno
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.cli.commands import COMMANDS, GROUPS
from weft.cli.main import run_command
from weft.cli.serve import bind_socket
from weft.errors import InvalidInputError


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory without sessions, and standard input that is empty."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    with open("/dev/null") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield tmp_path


EMPTY = [
    ("session list", 'this project has no sessions yet: weft run "…" starts one'),
    ("session list --all", "there are no sessions yet"),
    ("session list --tag red", "no session matches; --all searches every project"),
    ("session list --all --search red", "no session matches\n"),
    ("session search red", "nothing found; --all searches every project"),
    ("session trash", "the trash is empty"),
    ("project list", "there are no projects yet"),
    ("permission list", "no agent waits for permission here; --all includes the other projects"),
    ("permission grants", "nothing is granted"),
    ("permission log", "no decision is recorded in this project"),
    ("share list", "nothing is shared: weft share --help"),
]


@pytest.mark.parametrize(("line", "note"), EMPTY, ids=[line for line, _ in EMPTY])
def test_an_empty_list_says_so_on_stderr(line: str, note: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(shlex.split(line)) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(note)  # and no warning about a missing index


@pytest.mark.parametrize("noun", ["session list", "permission list", "share list"])
def test_an_empty_list_in_json_is_silent(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([*noun.split(), "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("[]\n", "")


MISTAKES = [
    ("undo", "there is no session 'last'", 'start one: weft run "…"; or name one: weft session list --all'),
    ("session show ../etc", "session id: '../etc' is not one", "letters, digits and underscores"),
    ("session adopt nosuch", "there is no session 'nosuch'", "weft session list --all"),
    ("session adopt x --all", "--all includes every session", "pass either ids or --all"),
    ("session search ''", "WORDS: they are empty", "weft session list"),
    ("stats --project nosuch", "there is no project 'nosuch'", "weft project list"),
    ("storage prune --older-than 1d --project nosuch", "there is no project 'nosuch'", "weft project list"),
    ("storage migrate nosuch sqlite:x.db", "FROM: there is no store at", "weft storage du"),
    ("project merge a a", "INTO: that is the same project", "weft project list"),
    ("export", "ID: this project has no sessions", "weft session list --all"),
    ("import nosuch.json", "nosuch.json: No such file", "name a file that weft export"),
    ("import broken.json", "broken.json: not JSON", "name a file that weft export"),
    ("import .", "it is a directory", "--from opencode, claude or codex"),
    ("import --from claude nosuch", "nosuch: it does not exist", "usually in ~/.claude/projects"),
    ("import --from opencode .", "not a tree of OpenCode", "usually in ~/.local/share/opencode/storage"),
    ("import --rebind a broken.json", "--rebind: 'a' is not OLD=NEW", "/home/old/project=/home/new/project"),
    ("permission explain ' '", "COMMAND: it is empty", 'weft permission explain "make | tee x"'),
    ("permission log --session ses_1", "there is no session 'ses_1'", "weft session list --all"),
    ("permission log --session last", "there is no session 'last'", 'start one: weft run "…"'),
    ("permission log --session ../etc", "session id: '../etc' is not one", "letters, digits and underscores"),
    (
        "permission log --verify --session last",
        "--session: --verify checks every decision",
        "leave out --session or",
    ),
    ("permission log --verify -n 0", "-n: --verify checks every decision", "leave out -n or --verify"),
    ("permission reply x once --scope user", "only for always", "leave them out, or answer always"),
    ("permission reply x once --message no", "only for reject", "leave it out, or answer reject"),
    ("auth logout anthropic", "there is no stored key 'anthropic'", "no key is stored; weft auth list"),
    ("mcp add x --url localhost", "--url: 'localhost' is not an http address", "https://"),
    ("mcp add x --env a -- prog", "--env: 'a' has no value", "NAME=VALUE"),
    ("mcp debug x", "there is no MCP server 'x'", "none is configured: weft mcp add"),
    ("mcp logout x", "there is no login at the MCP server 'x'", "you are not logged in to any"),
    ("serve --cors example.com", "--cors: 'example.com' is not an origin", "https://app.example.com"),
    ("serve --hostname 0.0.0.0", "needs a password", "set OPENCODE_SERVER_PASSWORD"),
    ("help sesion", "there is no command or topic 'sesion'", "did you mean weft session?"),
    ("sql selec", 'sql: near "selec"', "select * from TABLE limit 0 shows the columns of a table"),
    ("run", "prompt: it is missing", "nothing was piped in either; type one"),
    ("run --worktree hi", "prompt: it is missing", "--worktree took 'hi' as its value"),
    ("run --title hi", "prompt: it is missing", "weft run hi --title"),
    ("run -c -s ses_1 hi", "-c: -s names the session to continue already", "leave out one of the two"),
    ("run -f nosuch hi", "--file: there is no file 'nosuch'", "paths are relative to"),
    ("run --json-schema '{' hi", "--json-schema: not JSON", '"type": "object"'),
    ("run -m nosuch/model hi", "there is no model nosuch/model", "weft models --all"),
    ("run -m anthropic/zzz hi", "there is no model anthropic/zzz", "weft models anthropic --all"),
    ("run -m scripted/demo --variant x hi", "scripted/demo has no 'x'", "it has no variants: leave it out"),
]


@pytest.mark.parametrize(("line", "message", "hint"), MISTAKES, ids=[line for line, *_ in MISTAKES])
def test_a_mistake_has_a_hint(line: str, message: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(shlex.split(line)) == 2
    out, err = capsys.readouterr()
    error, _, way_out = err.partition("\n")
    assert out == ""
    assert error.startswith("error: ")
    assert message in error
    assert hint in way_out


def test_every_group_of_commands_says_what_it_is_for() -> None:
    assert {entry.words[:1] for entry in COMMANDS if len(entry.words) > 1} == set(GROUPS)


def test_a_group_without_its_command_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["session"]) == 2
    assert "list the sessions of this project" in capsys.readouterr().out


def test_a_place_that_cannot_be_written_is_reported_with_an_alternative(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", "-m", "scripted/demo", "--store", "/proc/nosuch", "hi"]) == 1
    assert "point --store at a directory that you may write to" in capsys.readouterr().err
    assert run_command(["run", "-m", "scripted/demo", "--store", "sqlite:/proc/nosuch/x.db", "hi"]) == 1
    assert "point --store at a place that you may write to" in capsys.readouterr().err
    assert run_command(["export", "--all", "--bundle", f"{project}/nosuch/x.bundle"]) == 1
    assert "name a file in a directory that exists" in capsys.readouterr().err
    assert (
        run_command(["agent", "create", "--name", "aide", "--description", "d", "--path", "/proc/nosuch"])
        == 2
    )
    assert "name a directory that you may write to with --path" in capsys.readouterr().err


def test_a_port_in_use_and_an_address_of_another_machine_have_different_errors() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(InvalidInputError) as refused,
            bind_socket("127.0.0.1", taken.getsockname()[1]),
        ):
            pass
    assert isinstance(refused.value.__cause__, OSError)
    assert refused.value.__cause__.errno == errno.EADDRINUSE
    assert "--port 0 takes a free one" in refused.value.hint
    with pytest.raises(InvalidInputError) as elsewhere, bind_socket("203.0.113.1", 0):
        pass
    assert "must be an address of this machine" in elsewhere.value.hint
