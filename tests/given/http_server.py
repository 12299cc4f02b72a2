"""A server over real HTTP on this machine, with its own project and a scripted model."""

import asyncio
import json
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from msgspec import Struct

from weft.cli.serve import UvicornServer, to_uvicorn_config
from weft.host.clock import SystemClock
from weft.local.file_watcher import watch_files
from weft.local.open import OpenOptions, open_directory
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.contract import Provider
from weft.provider.registry import ServedModel
from weft.provider.scripted import AnyMove, Say, ScriptedProvider
from weft.server.access import AccessPolicy
from weft.server.application import build_app
from weft.server.http_server import HttpServer, ServerSetup
from weft.server.routes.table import list_routes

ANSWERS: Sequence[Sequence[AnyMove]] = [[Say(text="Here is a short answer.")]] * 100_000
JSON = {"content-type": "application/json"}
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class ProjectServer(Struct, frozen=True, kw_only=True):
    """The URL of a server, its project, a client for it, and its notes."""

    url: str
    project: Path
    client: httpx2.Client
    notes: list[str]

    def get(self, path: str, status: int = 200, **more: Any) -> Any:
        return self._answer(self.client.get(path, **more), status)

    def post(self, path: str, body: Any = None, status: int = 200, **more: Any) -> Any:
        return self._answer(self.client.post(path, json=body, **more), status)

    def send(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        content = None if body is None else json.dumps(body)
        headers = {} if body is None else JSON
        return self._answer(self.client.request(method, path, content=content, headers=headers), status)

    def _answer(self, response: httpx2.Response, status: int) -> Any:
        assert response.status_code == status, (response.status_code, response.text)
        return response.json() if response.content else None

    def get_refusal(self, response: httpx2.Response) -> tuple[int, str]:
        """Return the status and the error name of a refusal, and check its shape."""
        body = response.json()
        assert set(body) == {"name", "data"}
        assert isinstance(body["data"]["message"], str)
        return response.status_code, body["name"]


def connect(url: str, **options: Any) -> httpx2.Client:
    """Return a client for a server on this machine, without certificates, which take longer to read than most tests run."""
    return httpx2.Client(base_url=url, verify=NO_CERTIFICATES, **options)


def prompt(words: str, **more: Any) -> dict[str, Any]:
    return {"parts": [{"type": "text", "text": words}], **more}


def make_project(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "hello.txt").write_text("hello there\n")
    (path / ".gitignore").write_text("ignored\n")
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run(["git", *command], cwd=path, check=True)
    return path


@contextmanager
def stream_events(server: ProjectServer, path: str) -> Iterator[Iterator[dict[str, Any]]]:
    """Yield the events of a stream. The first one has been read."""
    with (
        connect(server.url, timeout=60) as client,
        client.stream("GET", path) as response,
    ):
        assert response.headers["content-type"] == "text/event-stream"
        events = (
            json.loads(line.removeprefix("data: "))
            for line in response.iter_lines()
            if line.startswith("data: ")
        )
        first = next(events)
        assert first.get("payload", first)["type"] == "server.connected"
        yield events


@contextmanager
def serve_project(
    tmp_path: Path,
    script: Sequence[Sequence[AnyMove]] = ANSWERS,
    *,
    access: AccessPolicy | None = None,
    config: dict[str, Any] | None = None,
    routes: dict[str, bool] | None = None,
    project: Path | None = None,
    pages: str = "",
    allowed: tuple[Path, ...] = (),
    provider: Provider | None = None,
) -> Iterator[ProjectServer]:
    """Serve a new project until the end of the block. The model plays the script, or is the one of `provider`."""
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
    own.mkdir(parents=True, exist_ok=True)
    if not (own / "opencode.json").exists():
        (own / "opencode.json").write_text(json.dumps({"model": "scripted/test", **(config or {})}))
    at = project or make_project(tmp_path / "project")
    model = ServedModel(make_scripted_model("test"), provider or ScriptedProvider(script, SystemClock()))
    notes: list[str] = []
    env = dict(os.environ)
    setup = ServerSetup(
        open=lambda directory: open_directory(
            OpenOptions(
                directory=directory,
                env=env,
                store=f"file:{tmp_path / 'storage'}",
                can_ask=True,
                models=(model,),
                share_url=pages,
            )
        ),
        default_directory=str(at),
        access=access or AccessPolicy(password=None),
        name="boot",
        note=notes.append,
        now=SystemClock().now,
        allowed=tuple(str(each) for each in allowed),
        watch_files=lambda directory, tell: watch_files(directory, env, tell),
    )
    server = HttpServer(setup, list_routes(**(routes or {})))
    with run_in_thread(server) as url, connect(url, timeout=30) as client:
        yield ProjectServer(url=url, project=at, client=client, notes=notes)


@contextmanager
def run_in_thread(server: HttpServer) -> Iterator[str]:
    """Run the server in a thread, and yield its URL."""
    ready, stop = threading.Event(), asyncio.Event()
    loop: list[asyncio.AbstractEventLoop] = []
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen(128)

        async def serve() -> None:
            listener = UvicornServer(to_uvicorn_config(build_app(server)))
            loop.append(asyncio.get_running_loop())
            serving = asyncio.ensure_future(listener.serve(sockets=[bound]))
            await listener.ready.wait()
            ready.set()
            await stop.wait()
            await server.shut_down()
            listener.should_exit = True
            await serving

        thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        thread.start()
        assert ready.wait(60)
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            loop[0].call_soon_threadsafe(stop.set)
            thread.join(60)
            assert not thread.is_alive()
