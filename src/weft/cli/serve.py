"""`weft serve`: sessions over HTTP, for OpenCode's clients and for programs."""

import argparse
import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import uvicorn
from msgspec import Struct
from msgspec.structs import replace

from weft.cli.arguments import add_place, parse_count
from weft.cli.config import to_scope
from weft.cli.exit import ExitCode
from weft.cli.serve_access import (
    PASSWORD_VARIABLE,
    ServerAccess,
    announce_pages,
    make_access,
    to_welcome,
)
from weft.cli.serve_log import ServerLog, open_log
from weft.client.address import is_loopback
from weft.config.load import load_config
from weft.config.schema import ServerConfig
from weft.config.store_address import resolve_store_url
from weft.errors import DocumentError, InvalidInputError, WeftError
from weft.host.clock import SystemClock
from weft.host.exit import ExitTimer, handle_signals
from weft.host.paths import paths_from
from weft.local.open import OpenOptions, open_directory
from weft.local.watcher import watch_files
from weft.project.checkout import find_checkout
from weft.server.application import build_app
from weft.server.http_server import HttpServer, ServerSetup, ignore_request
from weft.server.routes.table import list_routes
from weft.server.share_pages import SHARE_ROOT
from weft.share.contract import check_address
from weft.store.url import open_store

DEFAULT_PORT: Final = 4096
DEFAULT_HOST: Final = "127.0.0.1"
WILDCARD_HOSTS: Final = frozenset({"0.0.0.0", "::"})
MAX_CONNECTIONS: Final = 4000
SOCKET_BACKLOG: Final = 2048
MAX_MESSAGE_BYTES: Final = 1 << 20
# After this time the connection of a client that does not read is closed, and the data that is queued for it is dropped.
SEND_TIMEOUT_MS: Final = 60_000
# How long settling the runs and closing the connections may take together, after the grace period.
SETTLE_SECONDS: Final = 20
# How long closing the connections may take.
CLOSE_SECONDS: Final = 5


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--hostname", metavar="HOST", help="listen at this address (default: 127.0.0.1)")
    add(
        "--port",
        type=parse_count,
        metavar="N",
        help="listen at this port; 0 for any free port (default: 4096)",
    )
    add(
        "--auth",
        choices=("password", "none"),
        help="none: no password, only for this machine (default: WEFT_SERVE_AUTH, else password)",
    )
    add(
        "--cors",
        nargs="+",
        action="extend",
        default=[],
        metavar="ORIGIN",
        help="accept requests of pages from this origin (repeatable)",
    )
    add("--mdns", action="store_true", help=argparse.SUPPRESS)
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="accept requests for this host name, too (repeatable)",
    )
    add(
        "--no-shell",
        action="store_true",
        help="offer no shell commands, no terminals, and no change of settings that name programs",
    )
    add("--no-files", action="store_true", help="do not offer to read files")
    add(
        "--allow-dir",
        action="append",
        default=[],
        metavar="PATH",
        help="let clients open this directory and those below it, besides known projects (repeatable)",
    )
    add(
        "--grace",
        type=parse_count,
        default=10,
        metavar="SECONDS",
        help="how long runs may continue when the server ends (default: 10)",
    )
    add("--log-format", choices=("text", "json"), default="text", help="the format of the log")
    add("--access-log", action="store_true", help="log every request")
    add(
        "--share",
        action="store_true",
        help="show shared sessions below /s/ to everybody who knows their address",
    )
    add("--share-url", metavar="URL", help="with --share: the address at which others reach this server")
    add_place(parser, memory=True)


class ServerStart(Struct, frozen=True, kw_only=True):
    """A server that is about to start. `pages` is the address of shared sessions, empty without `--share`."""

    args: argparse.Namespace
    directory: str
    socket: socket.socket
    url: str
    access: ServerAccess
    log: ServerLog
    pages: str = ""


def serve(args: argparse.Namespace) -> int:
    env = os.environ
    configured = read_server_config(args.dir, env)
    hostname = args.hostname or configured.hostname or DEFAULT_HOST
    args.cors = [*args.cors, *(configured.cors or ())]
    access = make_access(args, hostname, paths_from(env), env)
    with (
        bind_socket(hostname, configured.port if args.port is None else args.port) as listener,
        open_log(SystemClock().now, json=args.log_format == "json", level=args.log_level) as log,
    ):
        if args.mdns:
            log.warn("--mdns does nothing: weft does not announce servers on the network")
        name = f"[{hostname}]" if ":" in hostname else hostname
        url = f"http://{name}:{listener.getsockname()[1]}"
        pages = to_pages_url(args, url)
        start = ServerStart(
            args=args,
            directory=find_checkout(args.dir).directory,
            socket=listener,
            url=url,
            access=open_pages(access, pages),
            log=log,
            pages=pages,
        )
        asyncio.run(run_server(start, env))
    return ExitCode.DONE


def read_server_config(directory: str, env: Mapping[str, str]) -> ServerConfig:
    """Return the `server` settings of trusted sources: a project must not open a port by itself."""
    checkout = find_checkout(directory)
    scope = to_scope(checkout.directory, checkout.top or checkout.directory, env)
    return load_config(scope).trusted_config.server or ServerConfig()


@contextmanager
def bind_socket(hostname: str, port: int | None) -> Generator[socket.socket]:
    """Open a listening socket. Without a port, try the default one and then any free one.

    Raise `InvalidInputError` if the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in hostname else socket.AF_INET
    # Without an explicit protocol asyncio does not set TCP_NODELAY, and every small response waits 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # only Linux has it; connections inherit it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SEND_TIMEOUT_MS)
        for candidate in (DEFAULT_PORT, 0) if port is None else (port,):
            try:
                listener.bind((hostname.strip("[]"), candidate))
                listener.listen(SOCKET_BACKLOG)
            except OSError as error:
                if port is None and candidate == DEFAULT_PORT:
                    continue
                raise InvalidInputError(
                    "--port",
                    f"{hostname}:{candidate} cannot be used: {error.strerror}",
                    hint="choose another port or address",
                ) from error
            break
        yield listener


class UvicornServer(uvicorn.Server):
    """A server that leaves signals to us, so that runs are settled before connections are closed.

    `ready` is set when it answers requests, or has failed to start.
    """

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


async def run_server(start: ServerStart, env: Mapping[str, str]) -> None:
    """Serve until a signal arrives. Raise an error before anything is announced if the store cannot be used."""
    async with open_store(resolve_store_url(env, paths_from(env), start.args.store)):
        pass
    server = make_server(start, env)
    listener = UvicornServer(to_uvicorn_config(build_app(server)))
    shutdown = ServerShutdown(server, listener, grace=start.args.grace, log=start.log)
    with shutdown.listening():
        async with (
            announce_pages(start.pages, start.url, env, start.args.store),
            asyncio.TaskGroup() as tasks,
        ):
            shutdown.tasks = tasks
            tasks.create_task(listener.serve(sockets=[start.socket]))
            await listener.ready.wait()
            if listener.started:
                print_welcome(start)


def print_welcome(start: ServerStart) -> None:
    """Print a line to paste for each client; or, if the log is JSON, one JSON line."""
    if start.log.json:
        start.log.log_start(start.url, start.directory, pages=start.pages)
        return
    for line in to_welcome(start.url, start.directory, start.access):
        start.log.out.put(line)
    if start.pages:
        start.log.out.put(f"shared sessions are shown below {start.pages}/s/")


def to_uvicorn_config(app: Any) -> uvicorn.Config:
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
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=CLOSE_SECONDS,
        ws_max_size=MAX_MESSAGE_BYTES,
    )


def make_server(start: ServerStart, env: Mapping[str, str]) -> HttpServer:
    args, log = start.args, start.log
    reported: set[str] = set()

    def warn(warning: WeftError) -> None:
        # All directories share one store, and each finds the same damage.
        if isinstance(warning, DocumentError):
            if str(warning) in reported:
                return
            reported.add(str(warning))
        log.warn(f"{warning} ({warning.hint})" if warning.hint else str(warning))

    def to_open_options(directory: str) -> OpenOptions:
        return OpenOptions(
            directory=directory, env=env, store=args.store, answered=True, pages=start.pages, warn=warn
        )

    setup = ServerSetup(
        open=lambda directory: open_directory(to_open_options(directory)),
        default_directory=start.directory,
        access=start.access.policy,
        name=secrets.token_hex(4),
        note=log.note,
        now=SystemClock().now,
        allowed=tuple(os.path.abspath(path) for path in args.allow_dir),
        on_request=log.log_request if args.access_log else ignore_request,
        watch_files=lambda directory, notify: watch_files(directory, env, notify),
    )
    return HttpServer(setup, list_routes(shell=not args.no_shell, files=not args.no_files, share=args.share))


class ServerShutdown:
    """Ends a server at a signal.

    At the first signal no new connection is accepted and runs may continue for the `grace` period. Then the remaining
    runs are settled and every connection is closed. A second signal ends the process at once.
    """

    def __init__(self, server: HttpServer, listener: uvicorn.Server, *, grace: float, log: ServerLog) -> None:
        self._server = server
        self._listener = listener
        self._grace = grace
        self._log = log
        self.tasks: asyncio.TaskGroup | None = None

    @contextmanager
    def listening(self) -> Generator[None]:
        """Receive signals while this is open. The exit timer stays armed: it ends a process that hangs at exit."""
        seconds = self._grace + SETTLE_SECONDS
        with handle_signals(
            (signal.SIGINT, signal.SIGTERM),
            self._handle_signal,
            ExitTimer(),
            seconds=seconds,
            code=ExitCode.FAILED,
        ):
            yield

    def _handle_signal(self, number: int) -> None:
        if self.tasks is None:  # the server has not started yet
            ExitTimer().end_now(128 + number)
            return
        for server in self._listener.servers:
            server.close()  # open connections stay
        self.tasks.create_task(self._settle())
        self._log.note(
            f"ending: runs may continue for {self._grace:g} s and are then settled; a second signal ends at once"
        )

    async def _settle(self) -> None:
        try:
            await self._server.shut_down(self._grace)
        finally:
            self._listener.should_exit = True


# --- serve --share ---


def to_pages_url(args: argparse.Namespace, url: str) -> str:
    """Return the address below which shared sessions are shown; empty without `--share`."""
    if args.share_url and not args.share:
        raise InvalidInputError("--share-url", "it needs --share", hint="pass both")
    if not args.share:
        return ""
    if args.share_url:
        return check_address(args.share_url, "--share-url")
    if urlsplit(url).hostname in WILDCARD_HOSTS:
        hint = "such as https://share.example.org"
        raise InvalidInputError(
            "--share-url", "pass the address at which others reach this server", hint=hint
        )
    return url


def open_pages(access: ServerAccess, pages: str) -> ServerAccess:
    """Let everybody see the pages of shared sessions; everything else still needs the password."""
    if not pages:
        return access
    host = urlsplit(pages).hostname or ""
    name = f"[{host}]" if ":" in host else host
    if access.policy.password is None and not is_loopback(host):
        raise InvalidInputError(
            "--share-url",
            "it would open the whole server to others, because the server has no password",
            hint=f"leave out --auth none, and set {PASSWORD_VARIABLE}",
        )
    policy = replace(access.policy, hosts=access.policy.hosts | {name}, open_to_all=SHARE_ROOT)
    return replace(access, policy=policy)
