"""`weft storage migrate`: copy all sessions into another store."""

import argparse
import asyncio
import os
import sys
from typing import Any

from weft.cli.arguments import add_format
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, ProgressLine, sanitize, to_table, write_json
from weft.cli.storage_verify import HASH_SHOWN
from weft.config.store_address import resolve_store_url
from weft.errors import InvalidInputError
from weft.host.paths import paths_from
from weft.maintenance.migrate import CopiedSession, Migration, SessionDigest, explain_kept, migrate
from weft.model.display import format_count
from weft.model.url import to_store_identity
from weft.store.url import is_persistent, open_store, store_exists

TITLE_WIDTH = 40


def add_migrate_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "source",
        metavar="FROM",
        nargs="?",
        help="the store to read: a directory, file:PATH, sqlite:PATH or postgres://…",
    )
    add("target", metavar="TO", nargs="?", help="the store to write; it is created if it does not exist")
    add("--from", dest="source_option", metavar="URL", help=argparse.SUPPRESS)
    add("--to", dest="target_option", metavar="URL", help=argparse.SUPPRESS)
    add("--dry-run", action="store_true", help="only show what would be written")
    add_format(parser)


def migrate_command(args: argparse.Namespace) -> int:
    paths = paths_from(os.environ)
    named = (args.source_option or args.source, args.target_option or args.target)
    if None in named:
        raise InvalidInputError(
            "FROM TO",
            "two stores are needed",
            hint="weft storage migrate ~/.local/share/opencode/storage sqlite:PATH",
        )
    source, target = (resolve_store_url(os.environ, paths, url) for url in named)
    if source == target:
        raise InvalidInputError("TO", "it is the same store as FROM", hint="name another store")
    for name, url in (("FROM", source), ("TO", target)):
        if not is_persistent(url):
            raise InvalidInputError(
                name,
                "a store in memory ends with the command",
                hint="name a directory, sqlite:PATH or postgres://…",
            )
    if not store_exists(source):
        raise InvalidInputError(
            "FROM",
            f"there is no store at {to_store_identity(source)}",
            hint="check the path for a mistake; weft storage du shows where your sessions are stored",
        )
    if args.dry_run and not store_exists(target):
        target = "memory:"  # a dry run creates no store: comparing with an empty one gives the same result
    migration = asyncio.run(_migrate(source, target, dry_run=args.dry_run))
    if args.format == "json":
        write_json(
            {"complete": migration.complete, "dryRun": args.dry_run, **_to_migration_report(migration)}
        )
    else:
        _print_migration(migration, dry_run=args.dry_run)
    return ExitCode.DONE if migration.complete else ExitCode.FAILED


async def _migrate(source: str, target: str, *, dry_run: bool) -> Migration:
    async with open_store(source) as old, open_store(target) as new:
        with ProgressLine("copying sessions") as progress:
            return await migrate(old, new, dry_run=dry_run, on_progress=progress)


def _to_migration_report(migration: Migration) -> dict[str, Any]:
    return {
        "projects": migration.projects,
        "sessions": migration.sessions,
        "damage": migration.damage,
        "values": migration.values,
        "lines": migration.lines,
        "bundles": migration.bundles,
        "kept": migration.kept,
    }


def _print_migration(migration: Migration, *, dry_run: bool) -> None:
    paint = Paint(sys.stdout)
    head = ("session", "before", "after", "hash", "outcome", "title")
    if migration.sessions:
        print("\n".join(to_table(head, [_to_cells(each) for each in migration.sessions], paint)))
    for damage in migration.damage:
        print(f"{paint.red('not copied:')} {sanitize(damage.where)}: {sanitize(damage.reason)}")
    counts = dict.fromkeys(("copied", "grown", "same", "ahead", "differs", "failed"), 0)
    for each in migration.sessions:
        counts[each.outcome] += 1
    summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    print(
        f"{format_count(migration.projects, 'project')}, {format_count(len(migration.sessions), 'session')}{': ' if summary else ''}{summary}"
    )
    others = (
        format_count(count, name)
        for count, name in (
            (migration.values, "record"),
            (migration.lines, "log line"),
            (migration.bundles, "removal"),
        )
        if count
    )
    if also := ", ".join(others):
        print(f"also copied: {also}")
    for name in migration.kept:
        print(f"{paint.yellow('left alone:')} {sanitize(name)}: {explain_kept(name)}")
    if dry_run:
        print(paint.dim("nothing was written"))


def _to_cells(copied: CopiedSession) -> tuple[str, ...]:
    same = copied.before is not None and copied.after is not None and copied.before.hash == copied.after.hash
    hashed = copied.before.hash[:HASH_SHOWN] if copied.before is not None else ""
    return (
        copied.session,
        _format_size(copied.before),
        _format_size(copied.after),
        f"{hashed} =" if same else hashed,
        copied.outcome + (f": {copied.reason}" if copied.reason else ""),
        copied.title[:TITLE_WIDTH],
    )


def _format_size(each: SessionDigest | None) -> str:
    return "-" if each is None else f"{each.messages}/{each.parts}"
