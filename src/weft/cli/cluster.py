"""`weft cluster`: the nodes that serve one store together, what they do, and how to take one out of service."""

import argparse
import asyncio
import os
import sys

from weft.api.cluster import ClusterStatus, NodeStatus
from weft.cli.arguments import add_cluster_store, add_format
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, format_duration, sanitize, to_table, write_json
from weft.errors import InvalidInputError, NotFoundError
from weft.local.reader import upgrade_existing_store
from weft.store.cluster import ClusterStore
from weft.store.event_log import SessionLog
from weft.store.url import open_store

SHOWN_LEASES = 20


def add_status_arguments(parser: argparse.ArgumentParser) -> None:
    add_cluster_store(parser)
    add_format(parser)


def add_drain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="the name or the id of a node (see weft cluster status)")
    add_cluster_store(parser)


def show_status(args: argparse.Namespace) -> int:
    status = asyncio.run(_read_status(args.store))
    if args.format == "json":
        write_json(status)
    else:
        print_status(status)
    return ExitCode.DONE


def drain_node(args: argparse.Namespace) -> int:
    nodes = asyncio.run(_drain(args.store, args.node))
    for node in nodes:
        name = node if node == args.node else f"{args.node} ({node})"
        print(f"{name} drains: it takes nothing new, hands its sessions over and ends")
    return ExitCode.DONE


async def _read_status(given: str | None) -> ClusterStatus:
    async with open_store(upgrade_existing_store(os.environ, given)) as store:
        return await _get_cluster(store.event_log).get_status()


async def _drain(given: str | None, node: str) -> list[str]:
    async with open_store(upgrade_existing_store(os.environ, given)) as store:
        cluster = _get_cluster(store.event_log)
        drained = await cluster.drain(node)
        if not drained:
            names = [each.name for each in (await cluster.get_status()).nodes if each.alive]
            there = f"there are {', '.join(names)}" if names else "no node is alive"
            raise NotFoundError("live node", node, hint=f"{there}; weft cluster status shows all of them")
        return drained


def _get_cluster(log: SessionLog | None) -> ClusterStore:
    if log is None or log.shared_log is None:
        raise InvalidInputError(
            "store",
            "only a Postgres store has nodes",
            hint="pass --store postgres://USER@HOST/DATABASE, or set WEFT_STORE",
        )
    return log.shared_log.cluster


def print_status(status: ClusterStatus) -> None:
    paint = Paint(sys.stdout)
    if not status.nodes:
        print("no node has joined; weft serve --store postgres://… starts one")
        return
    rows = [_to_row(node) for node in status.nodes]
    header = ("NODE", "STATE", "SESSIONS", "HEARTBEAT", "VERSION", "URL", "DIRECTORIES")
    for line in to_table(header, rows, paint, right="SESSIONS"):
        print(line)
    print()
    print(
        f"{paint.bold('queue')}   {_count(status.queued, 'delivery', 'deliveries')}{_age(status.queue_seconds)}"
    )
    print(
        f"{paint.bold('log')}     {_count(status.events, 'event', 'events')}, "
        f"{status.unplaced} not placed yet{_age(status.lag_seconds)}"
    )
    print(f"{paint.bold('leases')}  {len(status.leases)}")
    for lease in status.leases[:SHOWN_LEASES]:
        age = format_duration(round(lease.age * 1000))
        print(
            f"  {lease.session}  {sanitize(lease.owner)}  held for {age}, valid for {lease.left:.0f} s more"
        )
    if len(status.leases) > SHOWN_LEASES:
        print(f"  … and {len(status.leases) - SHOWN_LEASES} more (--format json lists all)")


def _to_row(node: NodeStatus) -> tuple[str, ...]:
    state = "dead" if not node.alive else "draining" if node.draining else "serving"
    return (
        sanitize(node.name),
        state,
        str(node.sessions),
        f"{node.seconds:.1f} s ago",
        sanitize(node.version),
        sanitize(node.url),
        sanitize(" ".join(node.roots)),
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _age(seconds: float) -> str:
    return f", the oldest for {seconds:.1f} s" if seconds else ""
