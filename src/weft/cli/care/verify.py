"""`weft storage verify` and `migrate`: every document checked and counted, here or on its way to another store."""

import argparse
import asyncio
import os
import sys
from typing import Any

from weft.cli.exit import Exit
from weft.cli.paint import Paint, plain, write_json
from weft.cli.progress import Progress
from weft.cli.table import to_table
from weft.config.store_address import storage_root, store_url
from weft.errors import InvalidInputError
from weft.host.now import now as read_clock
from weft.host.paths import paths_from
from weft.maintenance.migrate import Migration, Moved, Tally, migrate
from weft.maintenance.verify import Verdict, open_reader, verify_tree
from weft.model.readable import plural
from weft.store.url import open_store

HASH_SHOWN = 12
TITLE_WIDTH = 40


def verify_command(chosen: argparse.Namespace) -> int:
    root = storage_root(os.environ, paths_from(os.environ), chosen.store)
    reader = open_reader(root)
    reader.tree.format()
    with Progress("reading sessions") as told:
        verdict = verify_tree(reader, now=read_clock(), told=told)
    if chosen.format == "json":
        _print_json(_to_report(verdict))
    else:
        _print_verdict(verdict)
    return Exit.FAILED if verdict.problems else Exit.DONE


def _to_report(verdict: Verdict) -> dict[str, Any]:
    return {"sessions": verdict.tallies, "problems": verdict.problems, "totals": _totals(verdict)}


def _totals(verdict: Verdict) -> dict[str, int]:
    return {
        "sessions": len(verdict.tallies),
        "messages": sum(each.messages for each in verdict.tallies),
        "parts": sum(each.parts for each in verdict.tallies),
        "problems": len(verdict.problems),
    }


def _print_verdict(verdict: Verdict) -> None:
    paint = Paint(sys.stdout)
    head = ("session", "messages", "parts", "diffs", "todos", "hash")
    rows = [(each.session, *_counts(each)) for each in verdict.tallies]
    if rows:
        print("\n".join(to_table(head, rows, paint, right="messages parts diffs todos")))
    for problem in verdict.problems:
        print(f"{paint.red('problem:')} {plain(problem.where)}: {plain(problem.reason)}")
    print(", ".join(f"{count} {name}" for name, count in _totals(verdict).items()))
    if verdict.problems:
        print(paint.dim("weft doctor says what they mean and what to do"))


def _counts(each: Tally) -> tuple[str, ...]:
    numbers = (each.messages, each.parts, each.diffs, each.todos)
    return (*(str(number) for number in numbers), each.hash[:HASH_SHOWN])


def migrate_command(chosen: argparse.Namespace) -> int:
    paths = paths_from(os.environ)
    source, target = (store_url(os.environ, paths, url) for url in (chosen.source, chosen.target))
    if source == target:
        raise InvalidInputError("--to", "it is the store to read from", hint="name another place")
    if not _is_there(source):
        raise InvalidInputError("--from", f"there is no store at {source}")
    if chosen.dry_run and not _is_there(target):
        target = "memory:"  # a dry run makes no store: comparing with an empty one comes to the same
    migration = asyncio.run(_migrate(source, target, dry_run=chosen.dry_run))
    if chosen.format == "json":
        _print_json({"complete": migration.complete, "dryRun": chosen.dry_run, **_plain(migration)})
    else:
        _print_migration(migration, dry_run=chosen.dry_run)
    return Exit.DONE if migration.complete else Exit.FAILED


def _is_there(url: str) -> bool:
    return not url.startswith("file:") or os.path.isdir(url.removeprefix("file:"))


async def _migrate(source: str, target: str, *, dry_run: bool) -> Migration:
    async with open_store(source) as old, open_store(target) as new:
        with Progress("copying sessions") as told:
            return await migrate(old, new, dry_run=dry_run, told=told)


def _plain(migration: Migration) -> dict[str, Any]:
    return {"projects": migration.projects, "sessions": migration.moved, "damage": migration.damage}


def _print_migration(migration: Migration, *, dry_run: bool) -> None:
    paint = Paint(sys.stdout)
    head = ("session", "before", "after", "hash", "outcome", "title")
    if migration.moved:
        print("\n".join(to_table(head, [_row(each) for each in migration.moved], paint)))
    for damage in migration.damage:
        print(f"{paint.red('not copied:')} {plain(damage.where)}: {plain(damage.reason)}")
    counts = dict.fromkeys(("copied", "grown", "same", "ahead", "differs", "failed"), 0)
    for each in migration.moved:
        counts[each.outcome] += 1
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    print(
        f"{plural(migration.projects, 'project')}, {plural(len(migration.moved), 'session')}{': ' if told else ''}{told}"
    )
    if dry_run:
        print(paint.dim("nothing was written"))


def _row(moved: Moved) -> tuple[str, ...]:
    same = moved.before is not None and moved.after is not None and moved.before.hash == moved.after.hash
    hashed = moved.before.hash[:HASH_SHOWN] if moved.before is not None else ""
    return (
        moved.session,
        _numbers(moved.before),
        _numbers(moved.after),
        f"{hashed} =" if same else hashed,
        moved.outcome + (f": {moved.reason}" if moved.reason else ""),
        moved.title[:TITLE_WIDTH],
    )


def _numbers(each: Tally | None) -> str:
    return "-" if each is None else f"{each.messages}/{each.parts}"


def _print_json(report: Any) -> None:
    write_json(report)
