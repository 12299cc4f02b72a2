"""The MCP examples, with the installed command; the model is a scripted server on this machine."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fake.openai import OpenAIChatDialect
from weft.provider.scripted import AnyMove, Say, UseTool
from weft.testing.fake_model_api import FakeServer, open_server
from weft.testing.tool_contract import list_processes

EXAMPLES = Path(__file__).parents[2] / "examples"
BIN = Path(sys.executable).parent


@contextmanager
def model(*script: Sequence[AnyMove]) -> Iterator[FakeServer]:
    """Serve a model API in a thread."""
    started: list[FakeServer] = []
    ready, loop, over = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with open_server(OpenAIChatDialect()) as fake:
            fake.play(*script)
            started.append(fake)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
        loop.close()


class Project:
    """A copy of an example, and a scripted model."""

    def __init__(self, root: Path, example: str) -> None:
        self.root = root / "project"
        shutil.copytree(EXAMPLES / example, self.root)
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)

    def use(self, fake: FakeServer) -> None:
        own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
        own.mkdir(parents=True, exist_ok=True)
        limit = {"context": 100_000, "output": 4000}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": fake.url, "apiKey": "k"},
            "models": {"m": {"tool_call": True, "limit": limit}},
        }
        said = {
            "model": "far/m",
            "provider": {"far": provider},
            "experimental": {"weft": {"mcp": {"wait": 30}}},
        }
        (own / "opencode.json").write_text(json.dumps(said))

    def weft(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BIN / "weft"), *arguments],
            cwd=self.root,
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )


def list_offered_tools(request: Any) -> set[str]:
    return {tool["function"]["name"] for tool in request.body["tools"]}


def last_message(request: Any) -> str:
    return str(request.body["messages"][-1]["content"])


@pytest.mark.slow
def test_a_local_server_is_started_by_the_first_run_of_a_trusted_project(tmp_path: Path) -> None:
    project = Project(tmp_path, "mcp-stdio")
    untrusted = [[Say(text="I have no such tool.")]]
    kept = [[UseTool(tool="notes_find", input={"words": "tea"})], [Say(text="There is none.")]]
    tidied = [[Say(text="Tidied.")]]
    with model(*untrusted, *kept, *tidied) as fake:
        project.use(fake)
        ran = project.weft("run", "--title", "x", "is there a note on tea?")
        assert (ran.returncode, ran.stdout.strip()) == (0, "I have no such tool."), ran.stderr
        assert not {name for name in list_offered_tools(fake.requests[0]) if name.startswith("notes")}
        assert project.weft("trust", "--yes").returncode == 0
        ran = project.weft("run", "--title", "x", "is there a note on tea?")
        assert (ran.returncode, ran.stdout.strip()) == (0, "There is none."), ran.stderr
        assert {"notes_find", "notes_keep"} <= list_offered_tools(fake.requests[1])
        assert last_message(fake.requests[2]) == "There is no such note."
        assert '| Notes_find {"words":"tea"}' in ran.stderr
        assert list_processes(project.root) == []

        ran = project.weft("run", "--title", "x", "--command", "notes:tidy", "tea")
        assert ran.returncode == 0, ran.stderr
        assert "Find all notes on tea, and keep one" in json.dumps(fake.requests[3].body["messages"])


@pytest.mark.slow
def test_a_remote_server_is_called_with_its_header(tmp_path: Path) -> None:
    project = Project(tmp_path, "mcp-http")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    config = project.root / "opencode.json"
    config.write_text(config.read_text().replace("8765", port))
    env = {"WEATHER_KEY": "rainbow", "WEATHER_PORT": port, "WEFT_TRUST": "1"}
    weather = subprocess.Popen([sys.executable, "server.py"], cwd=project.root, env={**os.environ, **env})
    asked = [[UseTool(tool="weather_forecast", input={"city": "Paris"})], [Say(text="It will not.")]]
    try:
        wait_for(int(port))
        with model(*asked) as fake:
            project.use(fake)
            ran = project.weft("run", "--title", "x", "will it rain in Paris?", **env)
            assert (ran.returncode, ran.stdout.strip()) == (0, "It will not."), ran.stderr
            assert last_message(fake.requests[1]) == "In Paris it will be sunny."
    finally:
        weather.kill()
        weather.wait()


def wait_for(port: int) -> None:
    """Wait until a server listens at the port."""
    for _ in range(3000):
        with socket.socket() as asking:
            asking.settimeout(0.01)
            if asking.connect_ex(("127.0.0.1", port)) == 0:
                return
            threading.Event().wait(0.01)
    raise AssertionError("nobody listens")
