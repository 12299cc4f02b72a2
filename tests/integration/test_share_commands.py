"""`weft share`, `weft unshare`, `weft run --share`, from the command line."""

import asyncio
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from given.http_server import ProjectServer, prompt, serve_project
from given.share_server import ShareServer, open_share_server
from weft.cli.exit import ExitCode
from weft.cli.main import run_command
from weft.store.files.store import FileStore

KEY = "sk-ant-api03-aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY"
PAGES = "http://localhost"


@pytest.fixture
def shares() -> Iterator[ShareServer]:
    with open_share_server() as shares:
        yield shares


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProjectServer]:
    with serve_project(tmp_path, pages=PAGES) as server:
        yield server


@pytest.fixture
def session(server: ProjectServer) -> str:
    id: str = server.post("/session", {"title": "warp and weft"})["id"]
    server.post(f"/session/{id}/message", prompt(f"use {KEY}"))
    return id


class Shell:
    """A shell in the project."""

    def __init__(self, server: ProjectServer, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._where = ["--dir", str(server.project), "--store", f"file:{store}"]
        self._capsys = capsys

    def run(self, *words: str) -> tuple[int, str, str]:
        code = run_command([*words, *self._where])
        said = self._capsys.readouterr()
        return code, said.out, said.err


@pytest.fixture
def shell(
    server: ProjectServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return Shell(server, tmp_path / "storage", capsys)


def test_a_session_is_written_as_a_page_readable_by_its_owner_only(
    shell: Shell, session: str, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    code, out, err = shell.run("share", session, "--to", str(page))
    assert (code, out) == (0, "")
    assert "1 secret redacted (1 anthropic-key)" in err
    text = page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600
    assert ("Content-Security-Policy" in text, "<script" in text, KEY in text) == (True, False, False)
    assert "use [redacted:anthropic-key:1]" in text
    shell.run("share", session, "--to", str(page), "--no-redact")
    assert KEY in page.read_text()
    (tmp_path / "taken.html").mkdir()
    code, _, err = shell.run("share", session, "--to", str(tmp_path / "taken.html"))
    assert (code, "cannot be written" in err) == (1, True)


def test_a_preview_names_redacted_secrets_and_where_they_are(shell: Shell, session: str) -> None:
    code, out, err = shell.run("share", session, "--preview")
    assert code == 0
    assert ("[redacted:anthropic-key:1]" in out, "sk-a… (45 characters)" in out, "msg_" in out) == (
        True,
        True,
        True,
    )
    assert (KEY in out, "nothing was sent" in err) == (False, True)
    code, out, _ = shell.run("share", session, "--preview", "--format", "json")
    assert (code, json.loads(out)["kinds"]) == (0, {"anthropic-key": 1})


@pytest.mark.parametrize("words", [(), ("--yes",)])
def test_without_a_configured_server_nothing_is_shared_and_the_alternatives_are_named(
    shell: Shell, session: str, words: tuple[str, ...]
) -> None:
    code, out, err = shell.run("share", session, *words)
    assert (code, out) == (2, "")
    assert ("no place to share to" in err, "weft serve --share" in err, "page.html" in err) == (
        True,
        True,
        True,
    )


def test_what_cannot_be_shared_is_refused_before_anybody_is_asked(
    shell: Shell, session: str, shares: ShareServer
) -> None:
    nobody_to_ask = "pass --yes to confirm"
    for words in [(), ("--to", "server"), ("--to", "nowhere"), ("--to", shares.url, "--expires", "0")]:
        code, _, err = shell.run("share", session, *words)
        assert (code, nobody_to_ask in err, shares.requests) == (2, False, [])
    code, _, err = shell.run("share", session, "--to", shares.url)
    assert (code, nobody_to_ask in err, shares.requests) == (2, True, [])
    shell.run("share", session, "--to", shares.url, "--yes")
    code, _, err = shell.run("share", session, "--no-redact")
    assert (code, "is shared already" in err, nobody_to_ask in err) == (2, True, False)
    code, _, err = shell.run("share", session)
    assert (code, nobody_to_ask in err) == (2, True)


def test_a_session_is_shared_on_a_server_listed_and_revoked(
    shell: Shell, session: str, shares: ShareServer
) -> None:
    code, out, _ = shell.run("share", session, "--to", shares.url, "--expires", "7d", "--yes")
    assert (code, out.strip()) == (0, f"{shares.url}/share/shr1")
    assert KEY not in shares.all_text()
    code, out, _ = shell.run("share", "list")
    assert (code, session in out, "remote" in out, "in 7d" in out, "secret" in out) == (
        0,
        True,
        True,
        True,
        False,
    )
    code, out, _ = shell.run("unshare", session[:20])
    assert (code, "is no longer shown" in out, shares.shares) == (0, True, {})
    assert shell.run("share", "list", "--format", "json")[1].strip() == "[]"
    code, _, err = shell.run("unshare", session)
    assert (code, "there is no share" in err) == (2, True)


def test_a_share_is_revoked_by_its_id_or_forgotten(shell: Shell, session: str, shares: ShareServer) -> None:
    shell.run("share", session, "--to", shares.url, "--yes")
    shares.next_delete_statuses += [403]
    code, _, err = shell.run("unshare", "shr1")
    assert (code, "is still shown at" in err, "--forget" in err) == (1, True, True)
    code, out, _ = shell.run("unshare", "shr1", "--forget")
    assert (code, "is forgotten here" in out, list(shares.shares)) == (0, True, ["shr1"])


def test_a_session_whose_share_cannot_be_revoked_is_not_removed(
    shell: Shell, session: str, shares: ShareServer
) -> None:
    shell.run("share", session, "--to", shares.url, "--yes")
    shares.next_delete_statuses += [403]
    code, _, err = shell.run("session", "rm", session, "--yes")
    assert (code, "is still shown at" in err) == (1, True)
    assert shell.run("session", "rm", session, "--yes")[0] == 0
    assert shares.shares == {}


async def announce(store: Path, server: ProjectServer) -> None:
    await FileStore(str(store)).put_value(("sharing", "server"), {"pages": PAGES, "here": server.url})


async def test_a_running_server_shows_sessions_shared_from_the_shell(
    shell: Shell, server: ProjectServer, session: str, tmp_path: Path
) -> None:
    await announce(tmp_path / "storage", server)
    code, out, _ = await run_in_thread(shell, "share", session, "--to", "server", "--yes")
    path = out.strip().removeprefix(PAGES)
    page = server.client.get(path)
    assert (code, page.status_code, "warp and weft" in page.text) == (0, 200, True)
    assert (await run_in_thread(shell, "unshare", session))[0] == 0
    assert server.client.get(path).status_code == 404


async def test_nothing_is_shared_while_the_server_does_not_run(
    shell: Shell, server: ProjectServer, session: str, tmp_path: Path
) -> None:
    store = FileStore(str(tmp_path / "storage"))
    await store.put_value(("sharing", "server"), {"pages": PAGES, "here": "http://127.0.0.1:9"})
    code, _, err = await run_in_thread(shell, "share", session, "--yes")
    assert (code, "no server shows pages" in err) == (1, True)
    assert server.get("/weft/share") == []
    assert server.get(f"/session/{session}").get("share") is None


async def run_in_thread(shell: Shell, *words: str) -> tuple[int, str, str]:
    return await asyncio.to_thread(shell.run, *words)


def configure(**more: object) -> None:
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode" / "opencode.json"
    own.write_text(json.dumps({"model": "scripted/demo", **more}))


def test_a_run_is_shared_before_it_begins_and_complete_at_its_end(shell: Shell, shares: ShareServer) -> None:
    configure(enterprise={"url": shares.url})
    code, _, err = shell.run("run", "--share", "-m", "scripted/demo", "hello there")
    assert (code, f"~  {shares.url}/share/shr1" in err) == (0, True)
    assert "hello there" in json.dumps(shares.shares["shr1"].items)


def test_a_warning_about_the_configuration_is_printed_with_its_hint(
    shell: Shell, session: str, shares: ShareServer
) -> None:
    configure(experimental={"weft": {"budgett": {}}})
    code, _, err = shell.run("share", session, "--to", shares.url, "--yes")
    assert (code, "did you mean 'budget'?" in err) == (0, True)


@pytest.mark.parametrize("words", [(), ("--share",)])
def test_an_automatic_share_happens_once(shell: Shell, shares: ShareServer, words: tuple[str, ...]) -> None:
    configure(enterprise={"url": shares.url}, share="auto")
    _, _, err = shell.run("run", *words, "-m", "scripted/demo", "--max-steps", "1", "hello there")
    assert (shares.created, err.count("/share/shr1")) == (1, 1)
    assert "hello there" in json.dumps(shares.shares["shr1"].items)


@pytest.mark.parametrize("off", ["config", "flag"])
def test_a_run_that_may_not_be_shared_does_not_start(
    shell: Shell, server: ProjectServer, shares: ShareServer, monkeypatch: pytest.MonkeyPatch, off: str
) -> None:
    configure(enterprise={"url": shares.url}, **({"share": "disabled"} if off == "config" else {}))
    if off == "flag":
        monkeypatch.setenv("OPENCODE_DISABLE_SHARE", "1")
    code, _, err = shell.run("run", "--share", "-m", "scripted/demo", "hello")
    assert (code, "Sharing is disabled in configuration" in err) == (2, True)
    assert (server.get("/session"), shares.requests) == ([], [])


def test_an_untrusted_project_shares_nothing(
    shell: Shell, server: ProjectServer, shares: ShareServer
) -> None:
    configure()
    said = {"share": "auto", "autoshare": True, "enterprise": {"url": shares.url}}
    (server.project / "opencode.json").write_text(json.dumps(said))
    assert shell.run("run", "-m", "scripted/demo", "--max-steps", "1", "hello")[0] == ExitCode.BUDGET
    code, _, err = shell.run("run", "--share", "-m", "scripted/demo", "hello")
    assert (code, "no place to share to" in err, shares.requests) == (2, True, [])
    (server.project / "opencode.json").write_text(json.dumps({"share": "disabled"}))
    configure(enterprise={"url": shares.url})
    code, _, err = shell.run("run", "--share", "-m", "scripted/demo", "hello")
    assert (code, "disabled" in err, shares.requests) == (2, True, [])
