"""How many of our modules each command imports. A larger number makes it start more slowly."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from given.web import Answer, open_web

IMPORTED = "import time:"
MOST = {"--version": 20, "session list": 55, "run": 250, "serve": 300}
MOST_OF_ALL = {"run": 480}  # with those of Python and of other packages


def count_ours(lines: Iterable[str]) -> int:
    """Count the modules of weft in what `python -X importtime` reports."""
    names = [line.rpartition("|")[2].strip() for line in lines if line.startswith(IMPORTED)]
    return sum(name == "weft" or name.startswith("weft.") for name in names)


def count_modules(lines: Iterable[str]) -> int:
    return sum(line.startswith(IMPORTED) for line in lines)


def start(*arguments: str, cwd: Path, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "weft", *arguments],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, int]:
    """Return what a command printed, and how many of our modules it imported."""
    printed, reported = process.communicate(timeout=60)
    assert process.returncode == 0, reported[-2000:]
    return printed, count_ours(reported.splitlines())


def count_of(package: str, lines: Iterable[str]) -> int:
    names = [line.rpartition("|")[2].strip() for line in lines if line.startswith(IMPORTED)]
    return sum(name.partition(".")[0] == package for name in names)


def test_printing_the_version_imports_almost_nothing(tmp_path: Path) -> None:
    printed, ours = finish(start("--version", cwd=tmp_path))
    assert printed.strip()
    assert 0 < ours < MOST["--version"]


def test_listing_sessions_imports_few_modules(tmp_path: Path) -> None:
    _, ours = finish(start("session", "list", cwd=tmp_path))
    assert 0 < ours < MOST["session list"]


def test_a_run_without_tools_imports_only_what_it_uses(tmp_path: Path) -> None:
    chunks = [
        {"id": "c", "choices": [{"index": 0, "delta": {"content": "Well woven"}, "finish_reason": "stop"}]},
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2}},
    ]
    body = b"".join(f"data: {json.dumps(each)}\n\n".encode() for each in chunks) + b"data: [DONE]\n\n"
    with open_web({"/v1/chat/completions": Answer(body, kind="text/event-stream")}) as web:
        options = {"baseURL": f"{web.url}/v1", "apiKey": "sk-x"}
        provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": {}}}
        config = json.dumps({"provider": {"mill": provider}})
        running = start("run", "-m", "mill/m", "weave", cwd=tmp_path, OPENCODE_CONFIG_CONTENT=config)
        printed, reported = running.communicate(timeout=60)
    ours = count_ours(reported.splitlines())
    assert "Well woven" in printed
    # A terminal needs the first four. The others belong to a general HTTP client, which takes longer to import than to use.
    for package in (
        "markdown_it",
        "prompt_toolkit",
        "pygments",
        "wcwidth",
        "anyio",
        "email",
        "h11",
        "httpx2",
        # Only attachments, mistyped names and temporary files need these.
        "difflib",
        "mimetypes",
        "pathlib",
        "tempfile",
    ):
        assert count_of(package, reported.splitlines()) == 0, package
    assert 0 < count_modules(reported.splitlines()) < MOST_OF_ALL["run"]
    assert 0 < ours < MOST["run"]


def test_a_server_starts_without_the_imports_of_rare_requests(tmp_path: Path) -> None:
    running = start("serve", "--port", "0", cwd=tmp_path)
    assert running.stdout is not None
    assert any("listening" in line for line in running.stdout)
    running.send_signal(signal.SIGINT)
    _, reported = running.communicate(timeout=60)
    assert running.returncode == 0, reported[-2000:]
    assert count_of("wsproto", reported.splitlines()) == 0  # few clients open a WebSocket
    assert 0 < count_ours(reported.splitlines()) < MOST["serve"]
