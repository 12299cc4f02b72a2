"""`weft mcp`: list, add and inspect servers, log in and out."""

import io
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from given.mcp_servers.remote import OAuthProvider, app_with_login, serve_app
from weft.cli.main import run_command
from weft.config.schema import (
    Config,
    ExperimentalConfig,
    McpClientConfig,
    McpLocalConfig,
    McpRemoteConfig,
    WeftConfig,
)
from weft.local.mcp import to_configured_server
from weft.local.mcp_settings import McpLaunch, McpSettings, to_mcp_settings
from weft.sandbox.policy import Sandbox
from weft.tool.mcp.entry import LocalEntry, RemoteEntry

RAW = Path(__file__).parents[1] / "given" / "mcp_servers" / "raw.py"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def weft(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        code = run_command(["mcp", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def own_config() -> Path:
    return Path(os.environ["XDG_CONFIG_HOME"]) / "opencode" / "opencode.json"


def raw_command(home: Path, manner: str) -> list[str]:
    return [sys.executable, "-S", "-E", str(RAW), manner, str(home / f"{manner}.log")]


def test_a_server_is_added_listed_and_inspected(weft: Run, tmp_path: Path) -> None:
    assert weft("list") == (
        0,
        "",
        "no MCP servers are configured: weft mcp add --help says how\n",
    )
    code, out, _ = weft("add", "near", "--env", "A=b=c", "--", *raw_command(tmp_path, "plain"))
    assert (code, out) == (0, "near is configured; weft mcp debug near connects to it\n")
    entry = {"type": "local", "command": raw_command(tmp_path, "plain"), "environment": {"A": "b=c"}}
    assert json.loads(own_config().read_text())["mcp"] == {"near": entry}
    weft("add", "gone", "--", "no-such-program")

    code, out, _ = weft("list")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert rows["near"].split()[1] == "connected"
    assert "no-such-program" in rows["gone"]
    assert json.loads(weft("list", "--format", "json")[1])["near"] == {"status": "connected"}

    code, out, _ = weft("debug", "near")
    assert code == 0
    assert "near_echo" in out
    found = json.loads(weft("debug", "near", "--format", "json")[1])
    assert [tool["id"] for tool in found["tools"]] == ["near_echo"]
    assert weft("debug", "gone")[0] == 1
    assert weft("debug", "none")[0] == 2


def test_a_name_in_use_is_refused(
    weft: Run,
) -> None:
    assert weft("add", "far", "--url", "https://one.test/mcp", "--header", "x-key=secret")[0] == 0
    before = own_config().read_text()
    for more in (("--url", "https://two.test/mcp"), ("--project", "--", "program")):
        code, _, err = weft("add", "far", *more)
        assert (code, "MCP server 'far' is configured already" in err) == (2, True)
    assert own_config().read_text() == before
    assert not Path("opencode.json").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "x"),
        ("add", "x", "--url", "ftp://a"),
        ("add", "x", "--url", "https://a", "--header", "none"),
        ("add", "x", "--url", "https://a", "--", "program"),
        ("add", "x", "--env", "=", "--", "program"),
        ("auth", "none"),
        ("logout", "none"),
    ],
)
def test_invalid_arguments_are_refused(weft: Run, arguments: tuple[str, ...]) -> None:
    code, out, err = weft(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert not own_config().exists()


def test_logging_in_waits_for_the_browser(weft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    with serve_app(app_with_login(OAuthProvider())) as url:
        weft("add", "far", "--url", f"{url}/mcp")
        own = json.loads(own_config().read_text())
        own_config().write_text(
            json.dumps({**own, "experimental": {"weft": {"mcp": {"callbackPort": port}}}})
        )
        assert "weft mcp auth far" in weft("list")[1]

        shown = Screen()
        monkeypatch.setattr(sys, "stderr", shown)
        browser = threading.Thread(
            target=lambda: httpx2.get(shown.address(), follow_redirects=True, timeout=60), daemon=True
        )
        browser.start()
        code, out, _ = weft("auth", "far")
        browser.join(60)
        assert (code, out) == (0, "far is connected\n")
        assert weft("auth")[1] == "far\n"
        assert "connected" in weft("list")[1]
        assert weft("logout", "far")[0] == 0
        assert weft("logout", "far")[0] == 2


class Screen(io.StringIO):
    """A screen that waits for a URL."""

    def __init__(self) -> None:
        super().__init__()
        self._found = threading.Event()

    def write(self, words: str) -> int:
        written = super().write(words)
        if "/authorize?" in words:
            self._found.set()
        return written

    def address(self) -> str:
        assert self._found.wait(60)
        return next(word for word in self.getvalue().split() if "/authorize?" in word)


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    weft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weft("add", "near", "--", *raw_command(tmp_path, "plain"))
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert "in weft's checkout: pip install '.[mcp]'" in weft("list")[1]


# --- settings ---


def test_a_server_without_a_timeout_uses_the_common_one() -> None:
    base = McpLaunch(directory="/", environment={"PATH": "/bin"})
    quick = to_configured_server("x", McpLocalConfig(command=("a",), timeout=1500), base, call=60).entry
    usual = to_configured_server("x", McpRemoteConfig(url="http://a"), base, call=7).entry
    assert (quick.connect, quick.call, usual.connect, usual.call) == (1.5, 1.5, 30, 7)


def test_a_local_server_gets_the_environment_of_tools_and_runs_in_the_sandbox() -> None:
    sandbox = Sandbox(prefix=("wall", "--"))
    base = McpLaunch(directory="/here", environment={"PATH": "/bin"}, sandbox=sandbox)
    entry = to_configured_server(
        "x", McpLocalConfig(command=("a", "b"), environment={"K": "v"}), base, call=60
    ).entry
    assert entry == LocalEntry(
        name="x", argv=("wall", "--", "a", "b"), directory="/here", environment={"PATH": "/bin", "K": "v"}
    )
    empty = to_configured_server("x", McpLocalConfig(command=()), base, call=60).entry
    assert isinstance(empty, LocalEntry)
    assert empty.refusal


def test_the_repr_of_a_server_contains_no_secret() -> None:
    remote = McpRemoteConfig(url="https://a", headers={"Authorization": "Bearer secret"})
    entry = to_configured_server("x", remote, McpLaunch(directory="/", environment={}), call=1).entry
    assert isinstance(entry, RemoteEntry)
    assert "secret" not in repr(entry)


def test_our_own_settings_are_read_from_experimental_weft() -> None:
    own = WeftConfig(mcp=McpClientConfig(wait=0, eager=True, callback_port=1234))
    config = Config(experimental=ExperimentalConfig(mcp_timeout=2500, weft=own))
    for one_shot in (True, False):
        assert to_mcp_settings(config, auth_file="f", one_shot=one_shot) == McpSettings(
            wait=0, call=2.5, eager=True, auth_file="f", port=1234
        )
    assert to_mcp_settings(Config(), auth_file="", one_shot=False) == McpSettings()
    assert to_mcp_settings(Config(), auth_file="", one_shot=True) == McpSettings(wait=None)
