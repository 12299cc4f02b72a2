"""What a token, a step, a session, a listener and an idle node cost: CPU here and in Postgres, statements, and bytes.

Run by `bench/cluster.py URL --costs`. CPU of the server is that of all its processes, read from /proc, so the server has to be on
this machine and idle otherwise. Statements are the transactions that it counts: each statement of weft is one.
"""

import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cluster import StampingProvider
from running import place

from weft.api import Api
from weft.cli.serve import UvicornServer, to_uvicorn_config
from weft.cluster.node import ClusterNode, open_node, run_node
from weft.host.clock import SystemClock
from weft.host.processes import describe_process
from weft.local.open import OpenOptions, open_directory
from weft.model.input import SessionInput, prompt
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.contract import Provider
from weft.provider.registry import ServedModel
from weft.provider.scripted import Say, ScriptedProvider, UseTool
from weft.server.access import AccessPolicy
from weft.server.application import build_app
from weft.server.http_server import HttpServer, ServerSetup
from weft.server.routes.table import list_routes
from weft.store.postgres.address import parse_address
from weft.store.postgres.connection import load_driver
from weft.store.url import open_store

RATE = 50.0
STREAM_SECONDS = 8.0
STREAMS = 32
STEPS = 100
SESSIONS = 200
LISTENERS = 400
IDLE_SECONDS = 10.0
# Postgres adds up what its connections did at most once a second.
STATISTICS_SECONDS = 1.5
TICKS = os.sysconf("SC_CLK_TCK")
COUNT = """SELECT pg_backend_pid(), (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),
pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8,
(SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::float8 FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
 WHERE nspname = $1 AND relkind = 'r')"""


class Work(NamedTuple):
    """What was done so far: CPU seconds here and in Postgres, statements, bytes of the log of changes, bytes of tables."""

    node: float
    server: float
    statements: float
    wal: float
    stored: float

    def since(self, before: "Work") -> "Work":
        return Work(*(now - then for now, then in zip(self, before, strict=True)))


class Meter:
    """Reads the counters of this process and of the server, on a connection of its own."""

    def __init__(self, connection: Any, schema: str) -> None:
        self._connection = connection
        self._schema = schema

    async def read(self) -> Work:
        node = time.process_time()
        await asyncio.sleep(STATISTICS_SECONDS)
        ((pid, statements, wal, stored),) = await self._connection.fetch(COUNT, self._schema)
        return Work(node, read_tree_cpu(read_stat(pid)[1]), statements, wal, stored)

    async def measure(self, what: str, count: int, work: Callable[[], Awaitable[Any]]) -> None:
        before = await self.read()
        await work()
        done = (await self.read()).since(before)
        print(
            f"{what:34} node {done.node / count * 1e6:8.0f} µs   Postgres {done.server / count * 1e6:8.0f} µs"
            f"   {done.statements / count:7.3f} statements   {done.wal / count:8.0f} bytes of WAL"
            f"   {done.stored / count:7.0f} bytes of tables",
            flush=True,
        )


def read_stat(pid: int) -> tuple[float, int]:
    """Return the CPU seconds of a process with its ended children, and its parent."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(fields[number]) for number in (11, 12, 13, 14)) / TICKS, int(fields[1])


def read_tree_cpu(postmaster: int) -> float:
    total = read_stat(postmaster)[0]
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                seconds, parent = read_stat(int(name))
            except (FileNotFoundError, ProcessLookupError):
                continue
            total += seconds if parent == postmaster else 0
    return total


def read_memory() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@asynccontextmanager
async def open_cluster_api(
    store: str, provider: Provider
) -> AsyncIterator[tuple[Api, ClusterNode, HttpServer]]:
    """Open a node with one directory, and its server without a socket."""
    model = ServedModel(make_scripted_model("bench"), provider)
    with place() as (directory, env):
        config = {"model": "scripted/bench", "snapshot": False}
        own = {**env, "OPENCODE_CONFIG_CONTENT": json.dumps(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
        for number in range(STEPS):  # the same call again and again would end the run
            (Path(directory) / f"{number}.txt").write_text("small\n")
        async with AsyncExitStack() as stack:
            opened = await stack.enter_async_context(open_store(store))
            node = await stack.enter_async_context(
                open_node(
                    opened, SystemClock(), owner=describe_process(), name="bench", url="", roots=[directory], note=print
                )
            )  # fmt: skip

            @asynccontextmanager
            async def open_api(path: str) -> AsyncIterator[Api]:
                options = OpenOptions(
                    directory=path, env=own, models=(model,), store=store, opened_store=opened
                )
                async with open_directory(options) as local, node.join_api(local, path) as api:
                    yield api

            setup = ServerSetup(
                open=open_api, default_directory=directory, access=AccessPolicy(password=None), name="bench", note=print,
                now=SystemClock().now, cluster=node,
            )  # fmt: skip
            server = HttpServer(setup, list_routes())
            await stack.enter_async_context(server.run(None))  # type: ignore[arg-type]  it is not used
            node.attach(server.get_api_of)
            await stack.enter_async_context(run_node(node))
            yield await server.get_api(directory), node, server


@asynccontextmanager
async def open_meter(store: str) -> AsyncIterator[Meter]:
    address = parse_address(store)
    connection = await load_driver().connect(address.dsn)
    try:
        yield Meter(connection, address.schema)
    finally:
        await connection.close()


async def make_sessions(api: Api, many: int) -> list[Any]:
    return [(await api.create_session(SessionInput(title="b"))).id for _ in range(many)]


async def prompt_all(api: Api, sessions: list[Any]) -> None:
    await asyncio.gather(*(api.prompt(session, prompt("go")) for session in sessions))


async def measure_work(store: str) -> None:
    tokens = round(RATE * STREAM_SECONDS)
    async with open_meter(store) as meter:
        async with open_cluster_api(store, StampingProvider(RATE, tokens)) as (api, _, _):
            await meter.measure(
                "a second of an idle node", round(IDLE_SECONDS), lambda: asyncio.sleep(IDLE_SECONDS)
            )
            await meter.measure("a session that is created", SESSIONS, lambda: make_sessions(api, SESSIONS))
            sessions = await make_sessions(api, STREAMS)
            await meter.measure(
                f"a token, {STREAMS} sessions at {RATE:g}/s",
                STREAMS * tokens,
                lambda: prompt_all(api, sessions),
            )
        calls = [[UseTool(tool="read", input={"filePath": f"{number}.txt"})] for number in range(STEPS)]
        scripted = ScriptedProvider([*calls, [Say(text="Done.")]], SystemClock())
        async with open_cluster_api(store, scripted) as (api, _, _):
            sessions = await make_sessions(api, 1)
            await meter.measure("a step with a call", STEPS, lambda: prompt_all(api, sessions))
        assert len(scripted.requests) == STEPS + 1


async def measure_memory(store: str) -> None:
    """Print what a session that runs needs, and one that rests."""
    async with open_cluster_api(store, StampingProvider(1.0, 15)) as (api, _, _):
        await prompt_all(api, await make_sessions(api, 2))  # loads what every run needs
        before = read_memory()
        sessions = await make_sessions(api, SESSIONS)
        created = read_memory()
        running = asyncio.ensure_future(prompt_all(api, sessions))
        while len(await api.list_status()) < SESSIONS:  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(0.2)
        await asyncio.sleep(2)
        during = read_memory()
        await running
        print(f"memory: {(created - before) / SESSIONS / 1024:.1f} KB a session that rests, "
              f"{(during - created) / SESSIONS / 1024:.1f} KB one that runs")  # fmt: skip


LISTEN = """
import selectors, socket, sys
port, many = int(sys.argv[1]), int(sys.argv[2])
waiting, total = selectors.DefaultSelector(), 0
for _ in range(many):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(b"GET /event?deltas=1 HTTP/1.1\\r\\nhost: 127.0.0.1\\r\\n\\r\\n")
    waiting.register(connection, selectors.EVENT_READ)
open_ones = many
while open_ones:
    for key, _ in waiting.select():
        piece = key.fileobj.recv(1 << 16)
        total += len(piece)
        if not piece:
            waiting.unregister(key.fileobj)
            open_ones -= 1
print(total)
"""


async def measure_listeners(store: str, many: int) -> tuple[float, int, int, int]:
    """Return CPU seconds, the memory of the listeners, the bytes that they got, and the tokens of a stream."""
    tokens = round(RATE * STREAM_SECONDS)
    async with open_cluster_api(store, StampingProvider(RATE, tokens)) as (api, _, server):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
            bound.bind(("127.0.0.1", 0))
            bound.listen(1024)
            config = to_uvicorn_config(build_app(server))
            config.lifespan = "off"  # it runs already
            listener = UvicornServer(config)
            serving = asyncio.ensure_future(listener.serve(sockets=[bound]))
            await listener.ready.wait()
            sessions = await make_sessions(api, 1)
            before = read_memory()
            command = [sys.executable, "-c", LISTEN, str(bound.getsockname()[1]), str(many)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as readers:  # noqa: ASYNC220  it takes no time
                while server.event_metrics.streams < many:  # noqa: ASYNC110  there is no event for it
                    await asyncio.sleep(0.05)
                memory, start = read_memory() - before, time.process_time()
                await prompt_all(api, sessions)
                spent = time.process_time() - start
                server.counter.end()
                assert readers.stdout is not None
                received = int(await asyncio.to_thread(readers.stdout.read))
            listener.should_exit = True
            await serving
    return spent, memory, received, tokens


async def print_listeners(store: str) -> None:
    alone, _, _, tokens = await measure_listeners(store, 0)
    spent, memory, received, _ = await measure_listeners(store, LISTENERS)
    each = (spent - alone) / LISTENERS
    print(
        f"a listener ({LISTENERS} of them, one session at {RATE:g}/s): {each / tokens * 1e6:.1f} µs a token, "
        f"{received / LISTENERS / tokens:.0f} bytes a token, {memory / LISTENERS / 1024:.1f} KB of memory"
    )


MEASURES = {"work": measure_work, "memory": measure_memory, "listeners": print_listeners}


def print_costs(store: str, which: str) -> None:
    """Print what one measure finds, or all of them, each in a process of its own: memory that is free is reused."""
    if which in MEASURES:
        asyncio.run(MEASURES[which](store))
        return
    print(f"memory of a process with everything imported: {read_memory() / 1e6:.0f} MB", flush=True)
    for name in MEASURES:
        subprocess.run(
            [sys.executable, str(Path(__file__).with_name("cluster.py")), store, "--costs", name], check=True
        )
