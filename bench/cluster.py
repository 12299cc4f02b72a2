"""What many nodes cost: CPU per streamed token on Postgres beside files, and how far behind a listener on another node is.

    python bench/cluster.py postgres://…?schema=NAME [--sessions 32] [--rate 50] [--seconds 10]
    python bench/cluster.py postgres://…?schema=NAME --costs

A scripted model streams tokens at the given rate in each of the sessions of one process. CPU is that of this process alone;
that of the Postgres server is not counted. Each token is the time at which it was made, so that a listener in another process,
which follows the log as a node does, knows how late it hears of it. The schema is created, and stays.

`--costs` counts what a token, a step, a session, a listener and an idle node cost (see `costs.py`, which has to be run on the
machine of the server, by a user who may read its processes).
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

from running import place

from weft.api.cluster import SharedEvent
from weft.cluster.follower import LogFollower
from weft.host.clock import SystemClock
from weft.local.open import OpenOptions, open_directory
from weft.model.event import PartGrew
from weft.model.event_wire import event_from_json
from weft.model.input import SessionInput, prompt
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.chunk import AnyChunk, Finished, Started, TextDelta, TextEnd, TextStart, Usage
from weft.provider.contract import ModelRequest
from weft.provider.registry import ServedModel
from weft.store.url import open_store

START_SECONDS = 2.0


class StampingProvider:
    """Streams the time at a given rate per second."""

    def __init__(self, rate: float, tokens: int) -> None:
        self._rate = rate
        self._tokens = tokens

    async def stream(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
        yield Started()
        yield TextStart(id="t")
        loop = asyncio.get_running_loop()
        start = loop.time()
        for number in range(self._tokens):
            await asyncio.sleep(max(0.0, start + number / self._rate - loop.time()))
            yield TextDelta(id="t", text=f"{time.time():.6f} ")
        yield TextEnd(id="t")
        yield Finished(reason="stop", raw_reason="stop", usage=Usage(input=1, output=self._tokens))


async def stream(store: str, args: argparse.Namespace) -> float:
    """Return the CPU seconds for each token of all sessions."""
    tokens = round(args.rate * args.seconds)
    model = ServedModel(make_scripted_model("bench"), StampingProvider(args.rate, tokens))
    with place() as (directory, env):
        config = {"model": "scripted/bench", "snapshot": False}
        own = {**env, "OPENCODE_CONFIG_CONTENT": json.dumps(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
        url = store or f"file:{directory}/.storage"
        async with open_directory(
            OpenOptions(directory=directory, env=own, models=(model,), store=url)
        ) as api:
            sessions = [(await api.create_session(SessionInput(title="b"))).id for _ in range(args.sessions)]
            before = time.process_time()
            await asyncio.gather(*(api.prompt(session, prompt("go")) for session in sessions))
            return (time.process_time() - before) / (tokens * args.sessions)


async def listen(store: str) -> None:
    """Follow the log until the input ends, then print when each token was made, its delay in milliseconds, and the CPU for an
    event."""
    delays: list[tuple[float, float]] = []
    events = 0

    def deliver(shared: SharedEvent) -> None:
        nonlocal events
        events += 1
        now, event = time.time(), event_from_json(shared.body)
        if isinstance(event, PartGrew):
            delays.extend((float(stamp), 1000 * (now - float(stamp))) for stamp in event.delta.split())

    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(open_store(store))
        assert opened.event_log is not None
        follower = LogFollower(opened.event_log, SystemClock(), writer="bench", on_message=lambda _: None)
        await follower.start()
        following = asyncio.ensure_future(follower.follow(deliver))
        print("ready", flush=True)
        before = time.process_time()
        await asyncio.to_thread(sys.stdin.read)
        await follower.catch_up()
        spent = time.process_time() - before
        following.cancel()
    print(json.dumps([delays, spent / max(1, events), events]))


def measure_delay(args: argparse.Namespace) -> tuple[float, list[tuple[float, float]], float, int]:
    """Return the CPU for a token, the delays of the listener, its CPU for an event, and how many there were."""
    command = [sys.executable, __file__, args.store, "--listen"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ
    ) as listener:
        assert listener.stdin is not None
        assert listener.stdout is not None
        listener.stdout.readline()
        cost = asyncio.run(stream(args.store, args))
        listener.stdin.close()
        delays, followed, events = json.loads(listener.stdout.read())
        return cost, sorted(delays), followed, events


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("--sessions", type=int, default=32)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--listen", action="store_true")
    parser.add_argument("--costs", nargs="?", const="all", choices=("all", "work", "memory", "listeners"))
    args = parser.parse_args()
    if args.costs:
        from costs import print_costs  # noqa: PLC0415  it imports this module

        print_costs(args.store, args.costs)
        return
    if args.listen:
        asyncio.run(listen(args.store))
        return
    files = asyncio.run(stream("", args))
    shared, delays, followed, events = measure_delay(args)
    print(f"{args.sessions} sessions at {args.rate:g} tokens a second for {args.seconds:g} s")
    print(f"  CPU per token, files     {files * 1e6:7.1f} µs")
    print(f"  CPU per token, Postgres  {shared * 1e6:7.1f} µs   {shared / files:.2f} times")
    print(f"  CPU of a node that only follows, per event {followed * 1e6:.1f} µs ({events} events)")
    begin = delays[0][0] + START_SECONDS
    for what, counted in (
        ("all tokens", [late for _, late in delays]),
        (f"all but the first {START_SECONDS:g} s, in which every session begins", [late for at, late in delays if at > begin]),
    ):  # fmt: skip
        counted.sort()
        shares = ", ".join(
            f"{share:.0%} {counted[min(len(counted) - 1, int(share * len(counted)))]:.1f} ms"
            for share in (0.5, 0.9, 0.99, 1)
        )
        print(f"  delay of a listener on another node, {what}: {shares}")


if __name__ == "__main__":
    main()
