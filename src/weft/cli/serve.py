"""`weft serve`: sessions over HTTP, for OpenCode's clients and for programs."""

import argparse
import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from msgspec import Struct

from weft.app.open import Opening, open_app
from weft.app.trust import is_trusted
from weft.cli.exit import Exit
from weft.cli.paint import Paint, plain
from weft.cli.serving.door import Entrance, to_entrance
from weft.cli.serving.welcome import to_welcome
from weft.config.load import load_config
from weft.config.schema import Server as Configured
from weft.config.sources import Situation
from weft.errors import ConfigError, InvalidInputError
from weft.host.clock import SystemClock
from weft.host.ending import LastResort
from weft.host.paths import paths_from
from weft.project.look import look
from weft.server.application import build_app
from weft.server.asgi import Server, Setup, unheard
from weft.server.routes.table import list_routes

PORT: Final = 4096
LOCAL: Final = "127.0.0.1"
MOST_CONNECTIONS: Final = 4000
BACKLOG: Final = 2048
SETTLE_SECONDS: Final = 30
LONGEST_MESSAGE: Final = 1 << 20


class Serving(Struct, frozen=True, kw_only=True):
    """A server about to start: what was chosen, where it listens, who may come in."""

    chosen: argparse.Namespace
    directory: str
    socket: socket.socket
    url: str
    entrance: Entrance


def serve(chosen: argparse.Namespace) -> int:
    env = os.environ
    directory = look(chosen.dir).directory
    said = find_configured(chosen.dir, env)
    hostname = chosen.hostname or said.hostname or LOCAL
    chosen.cors = [*chosen.cors, *(said.cors or ())]
    entrance = to_entrance(chosen, hostname, paths_from(env), env)
    with listening(hostname, said.port if chosen.port is None else chosen.port) as bound:
        name = f"[{hostname}]" if ":" in hostname else hostname
        serving = Serving(
            chosen=chosen,
            directory=directory,
            socket=bound,
            url=f"http://{name}:{bound.getsockname()[1]}",
            entrance=entrance,
        )
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
    """Until somebody ends it."""
    server = make_server(serving, env)
    listener = Listener(to_config(build_app(server)))
    stopping = Stopping(server, listener)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.asked, number)
    async with asyncio.TaskGroup() as tasks:
        stopping.tasks = tasks
        tasks.create_task(listener.serve(sockets=[serving.socket]))
        await listener.ready.wait()
        if listener.started:
            for line in to_welcome(serving.url, serving.directory, serving.entrance):
                print(line, flush=True)


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
        timeout_graceful_shutdown=SETTLE_SECONDS,
        ws_max_size=LONGEST_MESSAGE,
    )


def make_server(serving: Serving, env: Mapping[str, str]) -> Server:
    chosen = serving.chosen

    def opening(directory: str) -> Opening:
        return Opening(directory=directory, env=env, store=chosen.store, answered=True, warn=warn)

    setup = Setup(
        open=lambda directory: open_app(opening(directory)),
        here=serving.directory,
        door=serving.entrance.door,
        name=secrets.token_hex(4),
        note=note,
        now=SystemClock().now,
        access=note if chosen.access_log else unheard,
    )
    return Server(setup, list_routes(shell=not chosen.no_shell, files=not chosen.no_files))


class Stopping:
    """The first signal settles every run and closes every connection; a second one ends the process at once."""

    def __init__(self, server: Server, listener: uvicorn.Server) -> None:
        self._server = server
        self._listener = listener
        self._last = LastResort()
        self._asked = False
        self.tasks: asyncio.TaskGroup | None = None

    def asked(self, number: int) -> None:
        if self._asked or self.tasks is None:
            self._last.end_now(128 + number)
            return
        self._asked = True
        note("ending: runs are being settled; once more ends at once")
        self._last.end_within(2 * SETTLE_SECONDS, Exit.FAILED)
        self.tasks.create_task(self._settle())

    async def _settle(self) -> None:
        try:
            await self._server.leave()
        finally:
            self._listener.should_exit = True
            self._last.disarm()


def warn(warning: ConfigError) -> None:
    hint = f" ({warning.hint})" if warning.hint else ""
    note(f"warning: {warning}{hint}")


def note(line: str) -> None:
    """One line for whoever looks after the server."""
    print(Paint(sys.stderr).dim(plain(line).replace("\n", " ")), file=sys.stderr, flush=True)
