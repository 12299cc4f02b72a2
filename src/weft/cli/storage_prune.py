"""`weft storage prune`: move old sessions to the trash, and empty the trash. Nothing does this by itself."""

import argparse
import asyncio
import os
import sys
from typing import Any

from weft.cli.arguments import add_format, add_store, add_yes, parse_age, parse_size
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, confirm, format_size, format_time, to_table, write_json
from weft.cli.storage import measure_with_progress
from weft.errors import InvalidInputError, NotFoundError
from weft.host.now import now as read_clock
from weft.host.paths import Paths, paths_from
from weft.local.reader import resolve_existing_store
from weft.maintenance.prune import (
    PruneChoice,
    PrunePolicy,
    PruneResult,
    SessionFamily,
    choose_families,
    empty_trash,
    prune,
)
from weft.model.display import format_count
from weft.model.ids import ProjectID
from weft.store.maintenance import StoreMaintenance, open_maintenance
from weft.store.url import open_store


def add_prune_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--older-than",
        type=parse_age,
        metavar="AGE",
        help="move sessions to the trash if they were not used for this long, such as 90d",
    )
    add(
        "--larger-than",
        type=parse_size,
        metavar="SIZE",
        help="move the least recently used sessions to the trash until the rest is below this size, such as 2G",
    )
    add("--project", metavar="ID", help="only sessions of this project")
    add(
        "--empty-trash",
        type=parse_age,
        metavar="AGE",
        help="delete what has been in the trash for this long",
    )
    add("--dry-run", action="store_true", help="only show what would be removed")
    add_yes(parser)
    add_format(parser)
    add_store(parser)


def prune_command(args: argparse.Namespace) -> int:
    now, paths = read_clock(), paths_from(os.environ)
    if args.older_than is None and args.larger_than is None and args.empty_trash is None:
        raise InvalidInputError(
            "prune",
            "nothing was selected",
            hint="pass --older-than 90d, --larger-than 2G or --empty-trash 30d",
        )
    maintenance = open_maintenance(resolve_existing_store(os.environ, args.store))
    return asyncio.run(_prune(args, maintenance, paths, now))


async def _prune(args: argparse.Namespace, maintenance: StoreMaintenance, paths: Paths, now: int) -> int:
    async with open_store(maintenance.url) as store:
        sizes = measure_with_progress(maintenance, paths)
        weights = {id: weight.bytes for id, weight in sizes.sessions.items() if id}
        sessions = await store.list_sessions()
        if args.project is not None and await store.find_project(ProjectID(args.project)) is None:
            raise NotFoundError(
                "project", args.project[:80], hint="weft project list shows the ids of all projects"
            )
        choice = choose_families(sessions, weights, _to_policy(args, now), now=now)
        bundles = [] if args.empty_trash is None else await store.list_trash()
        old = [bundle.id for bundle in bundles if bundle.time < now - args.empty_trash]
        as_json = args.format == "json"
        if not as_json:
            _print_plan(choice, old, now)
        nothing = not choice.chosen and not old
        pruned, emptied = None, list[str]()
        if not args.dry_run and not nothing:
            if not confirm(_to_question(choice, old), yes=args.yes):
                return ExitCode.DONE
            pruned = await prune(store, choice, now=now)
            if args.empty_trash is not None:
                emptied = await empty_trash(store, before=now - args.empty_trash)
            if not as_json:
                _print_done(pruned, emptied)
        if as_json:
            write_json(_to_report(choice, old, pruned, emptied))
    return ExitCode.DONE


def _to_policy(args: argparse.Namespace, now: int) -> PrunePolicy:
    return PrunePolicy(
        before=None if args.older_than is None else now - args.older_than,
        at_most=args.larger_than,
        project=None if args.project is None else ProjectID(args.project),
    )


def _to_question(choice: PruneChoice, old: list[str]) -> str:
    count = sum(len(family.members) for family in choice.chosen)
    parts = [
        *([f"move {format_count(count, 'session')} to the trash"] if count else []),
        *([f"delete {format_count(len(old), 'bundle')} in the trash for good"] if old else []),
    ]
    return f"{' and '.join(parts)}?".capitalize()


def _print_plan(choice: PruneChoice, old: list[str], now: int) -> None:
    paint = Paint(sys.stdout)
    rows = [_to_cells(family, "to the trash", now) for family in choice.chosen]
    rows += [_to_cells(spared.family, f"stays: {spared.reason}", now) for spared in choice.spared]
    if rows:
        head = ("session", "size", "last used", "sessions", "what", "title")
        print("\n".join(to_table(head, rows, paint, right="size sessions")))
    for id in old:
        print(f"trash {id}  {paint.red('for good')}")
    size = sum(family.bytes for family in choice.chosen)
    count = sum(len(family.members) for family in choice.chosen)
    print(
        f"{format_count(count, 'session')}, {format_size(size)}, to the trash"
        if count
        else "no session to prune"
    )


def _to_cells(family: SessionFamily, what: str, now: int) -> tuple[str, ...]:
    return (
        family.root.id,
        format_size(family.bytes),
        format_time(family.used, now=now),
        str(len(family.members)),
        what,
        family.root.title,
    )


def _print_done(pruned: PruneResult, emptied: list[str]) -> None:
    for family, bundle in pruned.discarded:
        print(f"{family.root.id} is in the trash as {bundle}")
    for id in emptied:
        print(f"{id} was deleted for good")
    if pruned.discarded:
        print(
            "weft session restore brings a bundle back; weft storage prune --empty-trash 30d frees the room"
        )


def _to_report(
    choice: PruneChoice, old: list[str], pruned: PruneResult | None, emptied: list[str]
) -> dict[str, Any]:
    bundles = {} if pruned is None else {family.root.id: bundle for family, bundle in pruned.discarded}
    spared = choice.spared if pruned is None else pruned.spared
    return {
        "dryRun": pruned is None,
        "chosen": [
            {**_to_family_row(family), "bundle": bundles.get(family.root.id)} for family in choice.chosen
        ],
        "spared": [{**_to_family_row(each.family), "reason": each.reason} for each in spared],
        "trash": old,
        "emptied": emptied,
        "bytes": sum(family.bytes for family in choice.chosen),
    }


def _to_family_row(family: SessionFamily) -> dict[str, Any]:
    return {
        "id": family.root.id,
        "title": family.root.title,
        "sessions": [session.id for session in family.members],
        "bytes": family.bytes,
        "used": family.used,
    }
