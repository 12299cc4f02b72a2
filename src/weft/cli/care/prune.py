"""`weft storage prune`: old sessions into the trash, and old trash away. Nothing ever does this by itself."""

import argparse
import asyncio
import os
import sys
from typing import Any

from weft.cli.care.amount import told_size
from weft.cli.care.storage import weigh_store
from weft.cli.confirm import confirmed
from weft.cli.exit import Exit
from weft.cli.paint import Paint, write_json
from weft.cli.sessions import told
from weft.cli.table import to_table
from weft.config.store_address import storage_root
from weft.errors import InvalidInputError
from weft.host.now import now as read_clock
from weft.host.paths import paths_from
from weft.maintenance.prune import Choice, Family, Policy, Pruned, choose, empty_trash, prune
from weft.model.ids import ProjectID
from weft.model.readable import plural
from weft.store.files.reader import Tree
from weft.store.url import open_store


def prune_command(chosen: argparse.Namespace) -> int:
    now, paths = read_clock(), paths_from(os.environ)
    if chosen.older_than is None and chosen.larger_than is None and chosen.empty_trash is None:
        raise InvalidInputError(
            "prune",
            "nothing says what may go",
            hint="pass --older-than 90d, --larger-than 2G or --empty-trash 30d",
        )
    root = storage_root(os.environ, paths, chosen.store)
    return asyncio.run(_prune(chosen, root, now))


async def _prune(chosen: argparse.Namespace, root: str, now: int) -> int:
    async with open_store(f"file:{root}") as store:
        sizes = weigh_store(Tree(root), paths_from(os.environ))
        weights = {id: weight.bytes for id, weight in sizes.sessions.items() if id}
        sessions = await store.list_sessions()
        choice = choose(sessions, weights, _policy(chosen, now), now=now)
        bundles = [] if chosen.empty_trash is None else await store.list_trash()
        old = [bundle.id for bundle in bundles if bundle.time < now - chosen.empty_trash]
        as_json = chosen.format == "json"
        if not as_json:
            _print_plan(choice, old, now)
        nothing = not choice.chosen and not old
        pruned, emptied = None, list[str]()
        if not chosen.dry_run and not nothing:
            if not confirmed(_question(choice, old), yes=chosen.yes):
                return Exit.DONE
            pruned = await prune(store, choice, now=now)
            if chosen.empty_trash is not None:
                emptied = await empty_trash(store, before=now - chosen.empty_trash)
            if not as_json:
                _print_done(pruned, emptied)
        if as_json:
            report = _to_report(choice, old, pruned, emptied)
            write_json(report)
    return Exit.DONE


def _policy(chosen: argparse.Namespace, now: int) -> Policy:
    return Policy(
        before=None if chosen.older_than is None else now - chosen.older_than,
        at_most=chosen.larger_than,
        project=None if chosen.project is None else ProjectID(chosen.project),
    )


def _question(choice: Choice, old: list[str]) -> str:
    count = sum(len(family.members) for family in choice.chosen)
    parts = [
        *([f"move {plural(count, 'session')} to the trash"] if count else []),
        *([f"throw away {len(old)} bundles of the trash for good"] if old else []),
    ]
    return f"{' and '.join(parts)}?".capitalize()


def _print_plan(choice: Choice, old: list[str], now: int) -> None:
    paint = Paint(sys.stdout)
    rows = [_row(family, "to the trash", now) for family in choice.chosen]
    rows += [_row(spared.family, f"stays: {spared.reason}", now) for spared in choice.spared]
    if rows:
        head = ("session", "size", "last used", "sessions", "what", "title")
        print("\n".join(to_table(head, rows, paint, right="size sessions")))
    for id in old:
        print(f"trash {id}  {paint.red('for good')}")
    size = sum(family.bytes for family in choice.chosen)
    count = sum(len(family.members) for family in choice.chosen)
    print(f"{plural(count, 'session')}, {told_size(size)}, to the trash" if count else "no session to prune")


def _row(family: Family, what: str, now: int) -> tuple[str, ...]:
    return (
        family.root.id,
        told_size(family.bytes),
        told(family.used, now=now),
        str(len(family.members)),
        what,
        family.root.title,
    )


def _print_done(pruned: Pruned, emptied: list[str]) -> None:
    for family, bundle in pruned.discarded:
        print(f"{family.root.id} is in the trash as {bundle}")
    for id in emptied:
        print(f"{id} is gone for good")
    if pruned.discarded:
        print(
            "weft session restore brings a bundle back; weft storage prune --empty-trash 30d frees the room"
        )


def _to_report(choice: Choice, old: list[str], pruned: Pruned | None, emptied: list[str]) -> dict[str, Any]:
    bundles = {} if pruned is None else {family.root.id: bundle for family, bundle in pruned.discarded}
    spared = choice.spared if pruned is None else pruned.spared
    return {
        "dryRun": pruned is None,
        "chosen": [{**_plain(family), "bundle": bundles.get(family.root.id)} for family in choice.chosen],
        "spared": [{**_plain(each.family), "reason": each.reason} for each in spared],
        "trash": old,
        "emptied": emptied,
        "bytes": sum(family.bytes for family in choice.chosen),
    }


def _plain(family: Family) -> dict[str, Any]:
    return {
        "id": family.root.id,
        "title": family.root.title,
        "sessions": [session.id for session in family.members],
        "bytes": family.bytes,
        "used": family.used,
    }
