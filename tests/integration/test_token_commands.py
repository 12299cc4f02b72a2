"""`weft token`: create, list, limit and revoke, on the store and over HTTP."""

import json
from pathlib import Path

import pytest

from given.principals import PASSWORD, serve_team
from weft.cli.main import run_command


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/sessions.db"


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    """Run a command, and return what it prints to standard output and to standard error."""
    assert run_command(["token", *words]) == code
    printed = capsys.readouterr()
    return printed.out, printed.err


def test_a_token_is_created_listed_limited_and_revoked(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("--store", store)
    assert "there is no token" in run(capsys, "list", *place)[1]
    secret, note = run(
        capsys,
        "create",
        "ada",
        "--directory",
        str(tmp_path),
        "--max-sessions",
        "2",
        "--cost-per-day",
        "1.50",
        *place,
    )
    assert "the only time" in note
    assert secret.count("\n") == 1
    run(capsys, "create", "eyes", "--principal", "ada", "--scope", "read", "--expires", "never", *place)
    listed = json.loads(run(capsys, "list", "--format", "json", *place)[0])
    assert [(each["name"], each["principal"], each["scope"]) for each in listed["tokens"]] == [
        ("ada", "ada", "run"),
        ("eyes", "ada", "read"),
    ]
    assert listed["principals"] == [
        {"name": "ada", "directories": [str(tmp_path)], "limits": {"sessions": 2, "cost": 1.5}}
    ]
    assert secret.strip() not in Path(f"{tmp_path}/sessions.db").read_bytes().decode("latin-1")
    table = run(capsys, "list", *place)[0]
    assert "Tokens a day" in table
    assert f"{secret[:13]}_…" in table
    assert run(capsys, "limit", "ada", "--tokens-per-day", "100000", *place)[0] == (
        f"ada: 2 sessions, 100,000 tokens and 1.50 dollars a day, in {tmp_path}\n"
    )
    assert "- sessions, - tokens" in run(capsys, "limit", "ada", "--unlimited", *place)[0]
    assert "ada is revoked" in run(capsys, "revoke", f"{secret[:13]}_…", *place)[0]
    assert [
        each["name"] for each in json.loads(run(capsys, "list", "--format", "json", *place)[0])["tokens"]
    ] == ["eyes"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("create", "ada"), "name at least one: --directory"),
        (("create", "Ada", "--directory", "."), "is not a name"),
        (("create", "ada", "--directory", "/does/not/exist"), "is not a directory"),
        (("create", "ada", "--scope", "admin", "--directory", "."), "may use every directory"),
        (("create", "ada", "--directory", ".", "--expires", "0"), "that time is over"),
        (("revoke", "ada"), "there is no token"),
        (("limit", "ada", "--max-sessions", "1"), "there is no principal"),
    ],
)
def test_a_mistake_is_explained(
    words: tuple[str, ...], message: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in run(capsys, *words, "--store", store, code=2)[1]


def test_tokens_of_a_server_are_managed_from_elsewhere(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve_team(tmp_path, store) as served:
        place = ("--server", served.url)
        monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", PASSWORD)
        root = run(capsys, "create", "root", "--scope", "admin", *place)[0].strip()
        monkeypatch.setenv("WEFT_TOKEN", root)
        secret = run(capsys, "create", "ada", "--directory", str(tmp_path), *place)[0].strip()
        assert "ada" in run(capsys, "list", *place)[0]
        assert "3 sessions" in run(capsys, "limit", "ada", "--max-sessions", "3", *place)[0]
        assert "last admin token" in run(capsys, "revoke", "root", *place, code=2)[1]
        monkeypatch.setenv("WEFT_TOKEN", secret)
        assert run_command(["token", "list", *place]) != 0
        assert "scope admin" in capsys.readouterr().err
        monkeypatch.setenv("WEFT_TOKEN", root)
        assert "ada is revoked" in run(capsys, "revoke", "ada", *place)[0]
