"""`weft serve`: sessions over HTTP, for OpenCode's clients and for programs."""

import argparse
import asyncio
import os
import secrets
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from msgspec import Struct
from msgspec.structs import replace

from weft.cli.exit import Exit
from weft.cli.serving.announced import announced
from weft.cli.serving.door import Entrance, to_entrance
from weft.cli.serving.log import Log, open_log
from weft.cli.serving.stopping import CLOSE_SECONDS, Stopping
from weft.cli.serving.welcome import to_welcome
from weft.cli.share.serving import let_look, to_pages
from weft.config.load import load_config
from weft.config.schema import Server as Configured
from weft.config.sources import Situation
from weft.config.store_address import store_url
from weft.errors import DocumentError, InvalidInputError, WeftError
from weft.host.clock import SystemClock
from weft.host.paths import paths_from
from weft.local.open import Opening, open_app
from weft.local.watcher import watch_files
from weft.project.look import look
from weft.server.application import build_app
from weft.server.asgi import Server, Setup, unvisited
from weft.server.routes.table import list_routes
from weft.store.url import open_store
from weft.trust.decision import is_trusted

PORT: Final = 4096
LOCAL: Final = "127.0.0.1"
MOST_CONNECTIONS: Final = 4000
BACKLOG: Final = 2048
LONGEST_MESSAGE: Final = 1 << 20
# Of a client that takes nothing more of what it asked for: its connection is cut, and what is kept for it is let go.
PATIENCE_MS: Final = 60_000


class Serving(Struct, frozen=True, kw_only=True):
    """A server about to start: what was chosen, where it listens, who may come in."""

    chosen: argparse.Namespace
    directory: str
    socket: socket.socket
    url: str
    entrance: Entrance
    log: Log
    pages: str = ""


def serve(chosen: argparse.Namespace) -> int:
    env = os.environ
    directory = look(chosen.dir).directory
    said = find_configured(chosen.dir, env)
    hostname = chosen.hostname or said.hostname or LOCAL
    chosen.cors = [*chosen.cors, *(said.cors or ())]
    entrance = to_entrance(chosen, hostname, paths_from(env), env)
    with (
        listening(hostname, said.port if chosen.port is None else chosen.port) as bound,
        open_log(SystemClock().now, json=chosen.log_format == "json", level=chosen.log_level) as log,
    ):
        name = f"[{hostname}]" if ":" in hostname else hostname
        serving = Serving(
            chosen=chosen,
            directory=directory,
            socket=bound,
            url=f"http://{name}:{bound.getsockname()[1]}",
            entrance=entrance,
            log=log,
        )
        if chosen.mdns:
            log.warn("--mdns does nothing: weft does not announce servers on the network")
        pages = to_pages(chosen, serving.url)
        serving = replace(serving, pages=pages, entrance=let_look(entrance, pages))
        asyncio.run(run_server(serving, env))
    return Exit.DONE


def find_configured(directory: str, env: Mapping[str, str]) -> Configured:
    """What is said under `server` by whom the person trusts: a project alone does not open doors."""
    at, paths = look(directory), paths_from(env)
    worktree = at.top or at.directory
    trusted = is_trusted(paths, env, worktree, at.directory)
    situation = Situation(directory=at.directory, worktree=worktree, paths=paths, env=env, trusted=trusted)
    return load_config(situation).vouched.server or Configured()


@contextmanager
def listening(hostname: str, port: int | None) -> Generator[socket.socket]:
    """A socket that listens. If no port was named the usual one is tried, and then any."""
    family = socket.AF_INET6 if ":" in hostname else socket.AF_INET
    # Said explicitly, or asyncio does not take it for TCP, and every small answer waits 40 ms for its second half.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections have it from who listens; Linux alone knows it
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, PATIENCE_MS)
        for each in (PORT, 0) if port is None else (port,):
            try:
                bound.bind((hostname.strip("[]"), each))
                bound.listen(BACKLOG)
            except OSError as error:
                if port is None and each == PORT:
                    continue
                raise InvalidInputError(
                    "--port",
                    f"{hostname}:{each} cannot be listened at: {error.strerror}",
                    hint="name another",
                ) from error
            break
        yield bound


class Listener(uvicorn.Server):
    """Signals are ours to take: runs are settled before connections are closed. `ready` is when it answers, or has
    given up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.ready.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def run_server(serving: Serving, env: Mapping[str, str]) -> None:
    """Until somebody ends it. A store that cannot be used is said before anybody is told that there is a server."""
    async with open_store(store_url(env, paths_from(env), serving.chosen.store)):
        pass
    server = make_server(serving, env)
    listener = Listener(to_config(build_app(server)))
    stopping = Stopping(server, listener, grace=serving.chosen.grace, log=serving.log)
    with stopping.listening():
        async with (
            announced(serving.pages, serving.url, env, serving.chosen.store),
            asyncio.TaskGroup() as tasks,
        ):
            stopping.tasks = tasks
            tasks.create_task(listener.serve(sockets=[serving.socket]))
            await listener.ready.wait()
            if listener.started:
                welcome(serving)


def welcome(serving: Serving) -> None:
    """To a person a line to paste for each client; to a program, which reads every line as JSON, one like the others."""
    if serving.log.json:
        serving.log.serving(serving.url, serving.directory, pages=serving.pages)
        return
    for line in to_welcome(serving.url, serving.directory, serving.entrance):
        serving.log.out.put(line)
    if serving.pages:
        serving.log.out.put(f"shared sessions are shown below {serving.pages}/s/")


def to_config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http="httptools",
        ws="wsproto",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=CLOSE_SECONDS,
        ws_max_size=LONGEST_MESSAGE,
    )


def make_server(serving: Serving, env: Mapping[str, str]) -> Server:
    chosen, log = serving.chosen, serving.log

    known: set[str] = set()

    def warn(warning: WeftError) -> None:
        if isinstance(warning, DocumentError):  # all directories share one store, and each comes across it
            if str(warning) in known:
                return
            known.add(str(warning))
        log.warn(f"{warning} ({warning.hint})" if warning.hint else str(warning))

    def opening(directory: str) -> Opening:
        return Opening(
            directory=directory, env=env, store=chosen.store, answered=True, pages=serving.pages, warn=warn
        )

    setup = Setup(
        open=lambda directory: open_app(opening(directory)),
        here=serving.directory,
        door=serving.entrance.door,
        name=secrets.token_hex(4),
        note=log.note,
        now=SystemClock().now,
        allowed=tuple(os.path.abspath(each) for each in chosen.allow_dir),
        access=log.visit if chosen.access_log else unvisited,
        watch_files=lambda directory, tell: watch_files(directory, env, tell),
    )
    return Server(
        setup, list_routes(shell=not chosen.no_shell, files=not chosen.no_files, share=chosen.share)
    )
