"""`weft token`: create, list, limit and revoke, on the store and over HTTP."""

import asyncio
import json
from pathlib import Path

import pytest

from given.postgres import make_url
from given.principals import PASSWORD, serve_team
from weft.cli.main import run_command
from weft.store.cluster import NodeRecord
from weft.store.url import open_store


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
    unlimited = run(capsys, "limit", "ada", "--unlimited", *place)[0]
    assert (
        unlimited == f"ada: unlimited sessions, unlimited tokens and unlimited dollars a day, in {tmp_path}\n"
    )
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
        (("create", "ada", "--scope", "admin", "--workspace", "loom"), "may use every directory"),
        (
            ("create", "ada", "--directory", ".", "--workspace", "../loom"),
            "is not the name of a git workspace",
        ),
        (("create", "ada", "--directory", ".", "--workspace", "loom"), "has no nodes"),
        (("limit", "ada", "--workspace", "loom"), "has no nodes"),
        (("create", "ada", "--directory", ".", "--expires", "0"), "that time has passed"),
        (("revoke", "ada"), "there is no token"),
        (("limit", "ada", "--max-sessions", "1"), "there is no principal"),
        (("limit", "ada", "--workspace", "loom", "--no-workspaces"), "contradicts --no-workspaces"),
    ],
)
def test_a_mistake_is_explained(
    words: tuple[str, ...], message: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in run(capsys, *words, "--store", store, code=2)[1]


def test_a_store_in_memory_has_no_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    refused = run(capsys, "create", "ada", "--directory", ".", "--store", "memory:", code=2)
    assert refused[0] == ""
    assert "it is in memory" in refused[1]


def test_a_principal_gets_workspaces_that_a_running_node_offers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = make_url()
    place = ("--store", url)
    run(capsys, "create", "ada", "--directory", str(tmp_path), "--workspace", "not-started-yet", *place)
    asyncio.run(join(url, NodeRecord("n1", "process 1", "one", "", "0", ("/srv", "/workspace/loom"))))
    given = run(capsys, "limit", "ada", "--workspace", "loom", *place)[0]
    assert given.endswith(f" in {tmp_path} and the workspaces loom\n")
    assert run(capsys, "limit", "ada", "--max-sessions", "1", *place)[0].endswith("and the workspaces loom\n")
    for words in (("limit", "ada"), ("create", "bob", "--directory", str(tmp_path))):
        refused = run(capsys, *words, "--workspace", "loon", *place, code=2)[1]
        assert "no running node offers the git workspace 'loon'" in refused
        assert "weft serve --workspace loon=URL" in refused
    assert run(capsys, "limit", "ada", "--no-workspaces", *place)[0].endswith(f" in {tmp_path}\n")


async def join(url: str, node: NodeRecord) -> None:
    async with open_store(url) as store:
        assert store.event_log is not None
        assert store.event_log.shared_log is not None
        await store.event_log.shared_log.cluster.join(node)


def test_tokens_of_a_server_are_managed_remotely(
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
