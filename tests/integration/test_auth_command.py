"""`weft auth`: store, list and remove keys, which are never printed."""

import io
import json
import os
import pty
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.cli.main import run_command

KEY = "sk-secret-0123456789"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def auth_file() -> Path:
    return Path(os.environ["XDG_DATA_HOME"]) / "opencode" / "auth.json"


@pytest.fixture
def weft(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*arguments: str, piped: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(piped))
        code = run_command(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def read_logins(path: Path) -> object:
    return json.loads(path.read_bytes())


def test_a_piped_key_is_stored_readable_by_the_owner_only(weft: Run, auth_file: Path) -> None:
    code, out, err = weft("auth", "login", "anthropic", "--key-stdin", piped=f"{KEY}\n")
    assert (code, out) == (0, "")
    assert KEY not in err
    assert read_logins(auth_file) == {"anthropic": {"type": "api", "key": KEY}}
    assert stat.S_IMODE(auth_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(auth_file.parent.stat().st_mode) == 0o700


def test_a_stored_key_makes_the_models_of_its_provider_available(weft: Run) -> None:
    weft("auth", "login", "anthropic", "--key-stdin", piped=KEY)
    code, out, _ = weft("models", "anthropic")
    assert code == 0
    assert "anthropic/claude-sonnet-4-5\n" in out


@pytest.mark.parametrize("piped", ["", " \n", "two words", "two\nlines", "k\x07ey", "clé", "x" * 20_000])
def test_an_invalid_key_is_refused_and_not_printed(piped: str, weft: Run, auth_file: Path) -> None:
    code, _, err = weft("auth", "login", "anthropic", "--key-stdin", piped=piped)
    assert code == 2
    assert piped.strip() == "" or piped.strip() not in err
    assert not auth_file.exists()


def test_without_a_terminal_the_key_must_be_piped(weft: Run, auth_file: Path) -> None:
    code, _, err = weft("auth", "login", "anthropic")
    assert code == 2
    assert "--key-stdin" in err


def test_an_unknown_provider_gets_no_key(weft: Run, auth_file: Path) -> None:
    code, _, err = weft("auth", "login", "antropic", "--key-stdin", piped=KEY)
    assert code == 2
    assert "did you mean anthropic?" in err
    assert not auth_file.exists()


def test_a_configured_provider_can_get_a_key(
    weft: Run, auth_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"provider": {"shed": {"options": {"baseURL": "http://shed.test"}}}}
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps(said))
    assert weft("auth", "login", "shed", "--key-stdin", piped=KEY)[0] == 0
    assert read_logins(auth_file) == {"shed": {"type": "api", "key": KEY}}


def test_without_a_provider_and_a_terminal_there_is_an_error(weft: Run) -> None:
    assert weft("auth", "login", "--key-stdin", piped=KEY)[0] == 2
    assert weft("auth", "login", "https://corp.test", "--key-stdin", piped=KEY)[0] == 2


def test_keys_are_listed_with_their_source_and_never_shown(
    weft: Run, auth_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth_file.parent.mkdir(parents=True)
    auth_file.write_text(
        json.dumps(
            {
                "openai": {"type": "api", "key": KEY},
                "github-copilot": {"type": "oauth", "refresh": KEY, "access": KEY, "expires": 0},
            }
        )
    )
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    said = {"provider": {"shed": {"options": {"apiKey": KEY}}}}
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps(said))
    code, out, err = weft("auth", "list", "--format", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == [
        {"provider": "openai", "source": "stored", "type": "api"},
        {"provider": "github-copilot", "source": "stored", "type": "oauth"},
        {"provider": "shed", "source": "config", "type": "api"},
        {"provider": "anthropic", "source": "environment", "type": "api", "variable": "ANTHROPIC_API_KEY"},
    ]
    table = weft("auth", "list")[1]
    assert [line.split()[:2] for line in table.splitlines()] == [
        ["openai", "stored"],
        ["github-copilot", "stored"],
        ["shed", "config"],
        ["anthropic", "environment"],
    ]
    assert KEY not in out + table


def test_an_empty_list_of_keys_says_how_to_add_one(weft: Run) -> None:
    code, out, err = weft("auth", "list")
    assert (code, out) == (0, "")
    assert "weft auth login" in err


def test_a_key_is_removed(weft: Run, auth_file: Path) -> None:
    weft("auth", "login", "anthropic", "--key-stdin", piped=KEY)
    weft("auth", "login", "openai", "--key-stdin", piped=KEY)
    assert weft("auth", "logout", "anthropic")[0] == 0
    assert read_logins(auth_file) == {"openai": {"type": "api", "key": KEY}}
    code, _, err = weft("auth", "logout", "anthropic")
    assert code == 2
    assert "keys are stored for openai" in err


def test_a_broken_file_is_reported_without_its_contents(weft: Run, auth_file: Path) -> None:
    auth_file.parent.mkdir(parents=True)
    auth_file.write_text('{"openai": "' + KEY)
    code, out, err = weft("auth", "list")
    assert code == 2
    assert str(auth_file) in err
    assert KEY not in out + err


# Makes the given terminal its controlling one, as a shell does for a command.
AT_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from weft.__main__ import main
sys.exit(main())
"""


def test_at_a_terminal_the_key_is_read_without_echo(auth_file: Path) -> None:
    screen, line = pty.openpty()
    command = [sys.executable, "-c", AT_TERMINAL, "auth", "login", "anthropic"]
    with subprocess.Popen(command, stdin=line, stdout=line, stderr=line, start_new_session=True) as child:
        os.close(line)
        said = read_until(screen, b"not shown")
        os.write(screen, f"{KEY}\n".encode())
        said += read_until(screen, None)
    os.close(screen)
    assert (child.returncode, KEY.encode() in said) == (0, False)
    assert read_logins(auth_file) == {"anthropic": {"type": "api", "key": KEY}}


def read_until(screen: int, words: bytes | None) -> bytes:
    """Read until this text arrives, or the end."""
    said = b""
    while words is None or words not in said:
        try:
            more = os.read(screen, 4096)
        except OSError:  # how Linux reports that the other side is gone
            return said
        if not more:
            return said
        said += more
    return said
