"""`weft serve`: sessions over HTTP, for OpenCode's clients and for programs."""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import uvicorn
from msgspec import Struct
from msgspec.structs import replace

from weft.cli.arguments import add_place, parse_count, parse_port
from weft.cli.config import read_scope
from weft.cli.exit import ExitCode
from weft.cli.serve_access import (
    ServerAccess,
    allow_share_pages,
    announce_share_url,
    make_access,
    to_share_url,
    to_welcome,
)
from weft.cli.serve_log import ServerLog, open_log
from weft.config.load import load_config
from weft.config.schema import ServerConfig
from weft.config.store_address import resolve_store_url
from weft.errors import DocumentError, InvalidInputError, StoreError, WeftError
from weft.host.clock import SystemClock
from weft.host.exit import ExitTimer, handle_signals
from weft.host.machine import collect_more_often, limit_free_memory
from weft.host.paths import paths_from
from weft.host.processes import describe_process
from weft.local.file_watcher import watch_files
from weft.local.open import OpenOptions, open_directory, to_damage_warner
from weft.local.tokens import EndedLoginStore, TokenStore
from weft.model.principal import ADMINISTRATOR, Caller
from weft.project.checkout import find_checkout
from weft.server.application import build_app
from weft.server.directories import ApiOpener
from weft.server.http_server import HttpServer, ServerSetup, ignore_request
from weft.server.routes.table import list_routes
from weft.store.contract import Store
from weft.store.url import open_store

if TYPE_CHECKING:  # for types alone: most servers are not part of a cluster
    from weft.api import Api
    from weft.cluster.git_workspace import Workspaces
    from weft.cluster.node import ClusterNode

DEFAULT_PORT: Final = 4096
NODE_NAME_VARIABLE: Final = "WEFT_NODE_NAME"
DEFAULT_HOST: Final = "127.0.0.1"
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
        type=parse_port,
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
    add_node_arguments(parser)
    add("--log-format", choices=("text", "json"), default="text", help="the format of the log")
    add("--access-log", action="store_true", help="log every request")
    add(
        "--share",
        action="store_true",
        help="show shared sessions below /s/ to everybody who knows their address",
    )
    add("--share-url", metavar="URL", help="with --share: the address at which others reach this server")
    add_place(parser, memory=True)


def add_node_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what only a server that is a node of a cluster uses."""
    add = parser.add_argument
    add(
        "--node-name",
        metavar="NAME",
        help=f"the name of this node in a cluster (default: {NODE_NAME_VARIABLE}, else the name of the machine)",
    )
    add(
        "--workspace",
        action="append",
        default=[],
        metavar="NAME=REPOSITORY",
        help="offer a git workspace: sessions in it get a checkout of their own, in which any node that offers the workspace can continue them (repeatable)",
    )
    add(
        "--workspace-root",
        metavar="PATH",
        help="keep the checkouts of workspaces below this directory, the same path on every node (default: weft/workspace in the data directory)",
    )


# Called with a server that answers, its address, and a function that prints a line below the welcome.
OnReady = Callable[[HttpServer, str, Callable[[str], None]], None]


class ServerStart(Struct, frozen=True, kw_only=True):
    """A server that is about to start. `share_url` is the address of shared sessions, empty without `--share`."""

    args: argparse.Namespace
    directory: str
    socket: socket.socket
    url: str
    access: ServerAccess
    log: ServerLog
    share_url: str = ""
    on_ready: OnReady


def ignore_ready(_: HttpServer, __: str, ___: Callable[[str], None]) -> None:
    pass


def serve(args: argparse.Namespace, *, on_ready: OnReady = ignore_ready) -> int:
    """Serve until a signal arrives. `on_ready` is called when the server answers."""
    env = os.environ
    limit_free_memory(env)
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
        share_url = to_share_url(args, url)
        start = ServerStart(
            args=args,
            directory=find_checkout(args.dir).directory,
            socket=listener,
            url=url,
            access=allow_share_pages(access, share_url),
            log=log,
            share_url=share_url,
            on_ready=on_ready,
        )
        asyncio.run(run_server(start, env))
    return ExitCode.DONE


def read_server_config(directory: str, env: Mapping[str, str]) -> ServerConfig:
    """Return the `server` settings of trusted sources: a project must not open a port by itself."""
    checkout = find_checkout(directory)
    scope = read_scope(checkout.directory, checkout.top or checkout.directory, env)
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
                    hint=_explain_bind_error(hostname, error),
                ) from error
            break
        yield listener


def _explain_bind_error(hostname: str, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "stop the server that uses it, or choose another port; --port 0 takes a free one"
        case errno.EACCES:
            return "choose a port above 1023"
        case _:
            return f"{hostname} must be an address of this machine: 127.0.0.1 for it alone, 0.0.0.0 for all"


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
    warn, url = make_warner(start.log), resolve_store_url(env, paths_from(env), start.args.store)
    async with open_store(url, damaged=to_damage_warner(warn)) as store:
        if store.event_log is None:
            if start.args.workspace:
                hint = "start it with --store postgres://…, or leave out --workspace"
                raise InvalidInputError("--workspace", "the store of this server has no nodes", hint=hint)
            await run_listener(start, make_server(start, env, warn, store), env)
            return
        async with open_serving_node(start, env, store) as node:
            await run_listener(start, make_server(start, env, warn, store, node), env, node)


async def run_listener(
    start: ServerStart, server: HttpServer, env: Mapping[str, str], node: ClusterNode | None = None
) -> None:
    """Answer requests, and do the work of a node if it is one, until a signal arrives."""
    listener = UvicornServer(to_uvicorn_config(build_app(server)))
    shutdown = ServerShutdown(server, listener, grace=start.args.grace, log=start.log, node=node)
    with shutdown.listening():
        async with (
            announce_share_url(start.share_url, start.url, env, start.args.store),
            asyncio.TaskGroup() as tasks,
        ):
            shutdown.tasks = tasks
            tasks.create_task(listener.serve(sockets=[start.socket]))
            await listener.ready.wait()
            if listener.started:
                collect_more_often()
                print_welcome(start)
                start.on_ready(server, start.url, start.log.out.put)
                if node is not None:
                    await run_in_cluster(node, server, shutdown)


async def run_in_cluster(node: ClusterNode, server: HttpServer, shutdown: ServerShutdown) -> None:
    """Do the work of a node until the server ends. A node that is told to drain ends like one that gets a signal."""
    from weft.cluster.node import run_node  # noqa: PLC0415  most servers are not part of a cluster

    node.attach(server.get_api_of)
    async with run_node(node):
        await node.draining.wait()
        shutdown.begin()
        await shutdown.settled.wait()


def list_roots(start: ServerStart, workspaces: Workspaces | None) -> list[str]:
    """Return the directories that a node serves with everything below them."""
    homes = () if workspaces is None else workspaces.roots
    return [os.path.realpath(path) for path in (start.directory, *start.args.allow_dir, *homes)]


@asynccontextmanager
async def open_serving_node(
    start: ServerStart, env: Mapping[str, str], store: Store
) -> AsyncIterator[ClusterNode]:
    """Join the cluster of the store."""
    from weft.cluster.node import open_node  # noqa: PLC0415  most servers are not part of a cluster

    name = start.args.node_name or env.get(NODE_NAME_VARIABLE) or os.uname().nodename
    workspaces = make_workspaces(start, env, store, name)
    start.log.set_node(name)
    async with open_node(
        store,
        SystemClock(),
        owner=describe_process(),
        name=name,
        url=start.url,
        roots=list_roots(start, workspaces),
        note=start.log.note,
    ) as node:
        node.workspaces = workspaces
        yield node


def make_workspaces(start: ServerStart, env: Mapping[str, str], store: Store, node: str) -> Workspaces | None:
    """Return the git workspaces that this node offers, None if there are none."""
    if not start.args.workspace:
        return None
    from weft.cluster.git_workspace import Workspaces, list_clones  # noqa: PLC0415  few nodes have git workspaces
    from weft.snapshot.location import choose_base  # noqa: PLC0415  few nodes have git workspaces

    paths = paths_from(env)
    root = start.args.workspace_root or os.path.join(paths.data, "weft", "workspace")
    return Workspaces(
        list_clones(start.args.workspace, root, env),
        store,
        SystemClock(),
        node=node,
        snapshots=choose_base(paths, resolve_store_url(env, paths, start.args.store)),
        note=start.log.note,
    )


def print_welcome(start: ServerStart) -> None:
    """Print a line to paste for each client; or, if the log is JSON, one JSON line."""
    if start.log.json:
        start.log.log_start(start.url, start.directory, share_url=start.share_url)
        return
    for line in to_welcome(start.url, start.directory, start.access):
        start.log.out.put(line)
    if start.share_url:
        start.log.out.put(f"shared sessions are shown below {start.share_url}/s/")


def make_web_socket(**options: Any) -> asyncio.Protocol:
    """Return the protocol of one WebSocket connection."""
    from uvicorn.protocols.websockets.wsproto_impl import WSProtocol  # noqa: PLC0415  few clients use one

    return WSProtocol(**options)


def to_uvicorn_config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http="httptools",
        ws=cast("type[asyncio.Protocol]", make_web_socket),  # uvicorn calls it for each connection
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


def make_warner(log: ServerLog) -> Callable[[WeftError], None]:
    reported: set[str] = set()

    def warn(warning: WeftError) -> None:
        # All directories share one store, and each finds the same damage.
        if isinstance(warning, DocumentError):
            if str(warning) in reported:
                return
            reported.add(str(warning))
        log.warn(f"{warning} ({warning.hint})" if warning.hint else str(warning))

    return warn


def make_server(
    start: ServerStart,
    env: Mapping[str, str],
    warn: Callable[[WeftError], None],
    store: Store,
    node: ClusterNode | None = None,
) -> HttpServer:
    """Return the server. Its tokens are in the `store`, which stays open as long as it runs."""
    args, log = start.args, start.log

    def to_open_options(directory: str, caller: Caller = ADMINISTRATOR) -> OpenOptions:
        return OpenOptions(
            directory=directory,
            env=env,
            store=args.store,
            can_ask=True,
            share_url=start.share_url,
            caller=caller,
            warn=warn,
            # Nodes share one store, and so do all who write to one change log.
            opened_store=store if node is not None or store.change_log is not None else None,
        )

    @asynccontextmanager
    async def open_api(directory: str) -> AsyncIterator[Api]:
        options = await prepare_workspace(
            to_open_options(directory), None if node is None else node.workspaces
        )
        async with open_directory(options) as local:
            if node is None:
                yield local
                return
            async with node.join_api(local, directory) as api:
                yield api

    setup = ServerSetup(
        open=open_api,
        default_directory=start.directory,
        access=start.access.policy,
        name=secrets.token_hex(4),
        note=log.note,
        now=SystemClock().now,
        allowed=tuple(os.path.abspath(path) for path in args.allow_dir),
        tokens=TokenStore(store, SystemClock().now),
        ended_logins=EndedLoginStore(store, SystemClock().now),
        open_for=make_owned_opener(to_open_options, node),
        on_request=log.log_request if args.access_log else ignore_request,
        watch_files=lambda directory, notify: watch_files(directory, env, notify),
        cluster=node,
        change_log=store.change_log,
        open_cluster=None
        if node is None
        else partial(node.open_view, resolve_store_url(env, paths_from(env), args.store), store),
    )
    return HttpServer(setup, list_routes(shell=not args.no_shell, files=not args.no_files, share=args.share))


async def prepare_workspace(options: OpenOptions, workspaces: Workspaces | None) -> OpenOptions:
    """Make the checkout of a git workspace that a directory is in, if this node does not have it.

    Return the options to open the directory, which then also carry its files.
    """
    if workspaces is None:
        return options
    await workspaces.prepare(options.directory)
    return replace(options, carry_files=workspaces.make_carrier(options.directory))


def make_owned_opener(
    to_options: Callable[[str, Caller], OpenOptions], node: ClusterNode | None
) -> Callable[[Caller], ApiOpener]:
    """Return a function that opens directories for a principal."""

    def open_for(caller: Caller) -> ApiOpener:
        @asynccontextmanager
        async def open_owned(directory: str) -> AsyncIterator[Api]:
            assert caller.principal is not None, "administrators use the main server"
            if node is None:
                async with open_directory(to_options(directory, caller)) as local:
                    yield local
                return
            owner = caller.principal.name
            # Besides its own checkouts a principal sees nothing of workspaces.
            hiding = replace(caller, hidden=(*caller.hidden, *node.workspace_roots))
            options = await prepare_workspace(to_options(directory, hiding), node.find_workspaces(owner))
            async with open_directory(options) as local, node.join_api(local, directory, owner) as api:
                yield api

        return open_owned

    return open_for


class ServerShutdown:
    """Ends a server at a signal.

    At the first signal no new connection is accepted and runs may continue for the `grace` period. Then the remaining
    runs are settled and every connection is closed. A second signal ends the process at once.
    """

    def __init__(
        self,
        server: HttpServer,
        listener: uvicorn.Server,
        *,
        grace: float,
        log: ServerLog,
        node: ClusterNode | None = None,
    ) -> None:
        self._server = server
        self._listener = listener
        self._grace = grace
        self._log = log
        self._node = node
        self._begun = False
        self.settled = asyncio.Event()
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
        self.begin()

    def begin(self) -> None:
        """Begin to end, once."""
        if self._begun or self.tasks is None:
            return
        self._begun = True
        for server in self._listener.servers:
            server.close()  # open connections stay
        self.tasks.create_task(self._settle())
        self._log.note(
            f"ending: runs may continue for {self._grace:g} s and are then settled; a second signal ends at once"
        )

    async def _settle(self) -> None:
        try:
            if self._node is not None:
                with suppress(StoreError):
                    await self._node.drain()
            await self._server.shut_down(self._grace)
        finally:
            self._listener.should_exit = True
            self.settled.set()
