"""`weft storage init|du|gc|prune`: create a store, show how much space sessions take, remove what nothing refers to, and move old
sessions to the trash.
"""

import argparse
import asyncio
import os
import sys
from collections import defaultdict
from typing import Any

from weft.cli.arguments import add_format, add_store, add_yes, parse_age, parse_size
from weft.cli.exit import ExitCode
from weft.cli.output import (
    Paint,
    ProgressLine,
    confirm,
    format_size,
    format_time,
    sanitize,
    to_table,
    write_json,
)
from weft.config.store_address import resolve_store_url
from weft.errors import InvalidInputError, NotFoundError
from weft.host.now import now as read_clock
from weft.host.paths import Paths, paths_from
from weft.local.reader import resolve_existing_store, upgrade_existing_store
from weft.maintenance.prune import (
    PruneChoice,
    PrunePolicy,
    PruneResult,
    SessionFamily,
    choose_families,
    empty_trash,
    prune,
)
from weft.maintenance.space import collect_snapshots, find_outputs, measure_space, remove_leftovers
from weft.model.display import format_count
from weft.model.ids import ProjectID, SessionID
from weft.model.url import to_store_identity
from weft.snapshot.gc import GcResult
from weft.store.findings import GC_LABEL, LargeDocument, Leftover, RemovedLeftovers
from weft.store.maintenance import StoreMaintenance, StoreRepairer, open_maintenance
from weft.store.reader import StoreReader
from weft.store.sizes import Size, StoreSizes
from weft.store.url import is_persistent, open_store
from weft.tool.spill import MAX_OUTPUT_AGE_MS

SHOWN = 20
TITLE_WIDTH = 50

# --- init ---


def add_init_arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)


def init_command(args: argparse.Namespace) -> int:
    """Create the store, or upgrade it. Without this command the first start does the same."""
    url = resolve_store_url(os.environ, paths_from(os.environ), args.store)
    if not is_persistent(url):
        raise InvalidInputError(
            "store",
            "a store in memory ends with the command, so there is nothing to prepare",
            hint="name another with --store: a directory, sqlite:PATH or postgres://…",
        )
    asyncio.run(_open_once(url))
    print(f"{to_store_identity(url)} is ready")
    return ExitCode.DONE


async def _open_once(url: str) -> None:
    with ProgressLine("preparing the store", every=1) as progress:
        async with open_store(url, upgrading=progress):
            pass


# --- du ---


def add_du_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=("kind", "project", "session"), default="kind", help="add up by this")
    add_format(parser)
    add_store(parser)


def du_command(args: argparse.Namespace) -> int:
    """Print sizes by kind, project or session, largest first."""
    paths = paths_from(os.environ)
    store = open_maintenance(resolve_existing_store(os.environ, args.store), cache=paths.cache)
    sizes = _measure_with_progress(store, paths)
    if args.format == "json":
        write_json(_to_sizes_report(sizes, args.by))
    else:
        _print_sizes(store.reader, sizes, args.by)
    return ExitCode.DONE


def _measure_with_progress(store: StoreMaintenance, paths: Paths) -> StoreSizes:
    with ProgressLine("measuring files") as progress:
        return measure_space(store, paths, on_progress=progress)


def _sort_sizes(sizes: StoreSizes, by: str) -> dict[str, Size]:
    found = {"kind": sizes.kinds, "project": sizes.projects, "session": sizes.sessions}[by]
    return dict(sorted(found.items(), key=lambda item: (-item[1].bytes, item[0])))


def _to_sizes_report(sizes: StoreSizes, by: str) -> dict[str, Any]:
    rows = [
        {by: name, "bytes": each.bytes, "files": each.files} for name, each in _sort_sizes(sizes, by).items()
    ]
    return {"total": sizes.total, "by": by, "rows": rows}


def _print_sizes(reader: StoreReader, sizes: StoreSizes, by: str) -> None:
    paint = Paint(sys.stdout)
    rows = [
        (format_size(each.bytes), f"{each.files:,}", name or "(none)", _describe(reader, by, name))
        for name, each in _sort_sizes(sizes, by).items()
    ]
    rows.append((format_size(sizes.total.bytes), f"{sizes.total.files:,}", "total", ""))
    print("\n".join(to_table(("size", "files", by, ""), rows, paint, right="size files")))


def _describe(reader: StoreReader, by: str, name: str) -> str:
    if by == "project" and name:
        project = reader.find_project(ProjectID(name))
        return project.worktree if project else "(no record)"
    if by == "session" and name:
        session = reader.find_session(SessionID(name))
        return session.title[:TITLE_WIDTH] if session else ""
    return ""


# --- gc ---


def add_gc_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dry-run", action="store_true", help="only show what would be removed")
    add(
        "--age",
        type=parse_age,
        default=parse_age("1d"),
        metavar="AGE",
        help="keep what is younger than this (default 1d)",
    )
    add("--compact-summaries", action="store_true", help="also shrink summaries that contain whole files")
    add_format(parser)
    add_store(parser)


def gc_command(args: argparse.Namespace) -> int:
    """Remove data that nothing refers to. Documents are kept aside for a month, in case somebody misses them."""
    paths, now, dry_run = paths_from(os.environ), read_clock(), args.dry_run
    url = resolve_existing_store(os.environ, args.store)
    store = open_maintenance(url)
    if not dry_run:
        store.upgrade()
    store.check_format()
    before = now - args.age
    leftovers = store.find_leftovers(before=before)
    with ProgressLine("looking for spilled outputs") as progress:
        outputs = find_outputs(
            store, paths, before=now - max(args.age, MAX_OUTPUT_AGE_MS), on_progress=progress
        )
    repairer = store.make_repairer(GC_LABEL, now=now)
    removed = None if dry_run else remove_leftovers(repairer, leftovers, outputs, before=before)
    shrunk = _shrink(store, repairer, dry_run=dry_run) if args.compact_summaries else []
    # Look again: by now there may be sessions that did not exist before.
    with ProgressLine("looking through snapshots"):
        snapshots = collect_snapshots(open_maintenance(url), paths, os.environ, now=now, dry_run=dry_run)
    found = [*leftovers, *outputs]
    if args.format == "json":
        write_json({**_to_gc_report(found, removed, shrunk), "snapshots": _to_snapshot_report(snapshots)})
    else:
        _print_snapshots(snapshots, Paint(sys.stdout))
        _print_gc(found, removed, shrunk)
    return ExitCode.FAILED if removed and removed.failed else ExitCode.DONE


def _shrink(store: StoreMaintenance, repairer: StoreRepairer, *, dry_run: bool) -> list[LargeDocument]:
    with ProgressLine("looking for large summaries") as progress:
        if dry_run:
            return store.find_large(on_progress=progress)
        return repairer.shrink_large(on_progress=progress)


def _to_gc_report(
    found: list[Leftover], result: RemovedLeftovers | None, shrunk: list[LargeDocument]
) -> dict[str, Any]:
    removed = [] if result is None else result.removed
    return {
        "dryRun": result is None,
        "found": [_to_leftover_row(each) for each in found],
        "removed": [_to_leftover_row(each) for each in removed],
        "failed": [] if result is None else [{"path": it.where, "reason": it.reason} for it in result.failed],
        "backup": "" if result is None else result.backup,
        "shrunk": [{"path": each.where, "bytes": each.bytes, "after": each.after} for each in shrunk],
        "bytes": sum(each.bytes for each in (found if result is None else removed)),
    }


def _to_leftover_row(leftover: Leftover) -> dict[str, Any]:
    return {
        "kind": leftover.kind,
        "path": leftover.where,
        "reason": leftover.reason,
        "bytes": leftover.bytes,
        "session": leftover.session,
        "message": leftover.message,
        "keeping": leftover.keeping,
    }


def _print_gc(found: list[Leftover], result: RemovedLeftovers | None, shrunk: list[LargeDocument]) -> None:
    paint = Paint(sys.stdout)
    listed = found if result is None else list(result.removed)
    kinds: defaultdict[str, list[Leftover]] = defaultdict(list)
    for each in listed:
        kinds[each.kind].append(each)
    for kind, leftovers in kinds.items():
        print(f"{paint.bold(kind)}  {len(leftovers)}, {format_size(sum(each.bytes for each in leftovers))}")
        for each in leftovers[:SHOWN]:
            print(f"  {sanitize(each.where)}  {paint.dim(each.reason)}")
        if len(leftovers) > SHOWN:
            print(paint.dim(f"  and {len(leftovers) - SHOWN} more (--format json lists all)"))
    for document in shrunk:
        after = f" → {format_size(document.after)}" if document.after else ""
        size = f"{format_size(document.bytes)}{after}"
        print(f"{paint.bold('summary')}  {sanitize(document.where)}  {paint.dim(size)}")
    total = format_size(sum(each.bytes for each in listed))
    verb = "would be removed" if result is None else "removed"
    print(f"{total} in {format_count(len(listed), 'leftover')} {verb}" if listed else "nothing to remove")
    if result is not None and result.backup:
        print(paint.dim(f"documents were backed up in {result.backup}; they are deleted after a month"))
    for failure in result.failed if result is not None else ():
        print(f"{Paint(sys.stderr).red('error:')} {failure.where}: {failure.reason}", file=sys.stderr)


def _to_snapshot_report(results: list[GcResult]) -> list[dict[str, Any]]:
    return [
        {
            "root": each.root,
            "before": each.before,
            "after": each.after,
            "released": [{"session": session, "reason": reason} for session, reason in each.released],
            "skipped": each.skipped,
        }
        for each in results
    ]


def _print_snapshots(results: list[GcResult], paint: Paint) -> None:
    for each in results:
        if each.skipped:
            print(f"{paint.bold('snapshots')}  {sanitize(each.root)}  {paint.dim(each.skipped)}")
        elif each.before > each.after or each.released:
            was = f"{format_size(each.before)} → {format_size(each.after)}"
            print(f"{paint.bold('snapshots')}  {sanitize(each.root)}  {paint.dim(was)}")
            for session, reason in each.released:
                print(f"  {sanitize(session)}  {paint.dim(reason)}")


# --- prune ---


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
    """Move old sessions to the trash, and empty the trash. Nothing does this by itself."""
    now, paths = read_clock(), paths_from(os.environ)
    if args.older_than is None and args.larger_than is None and args.empty_trash is None:
        raise InvalidInputError(
            "prune",
            "nothing was selected",
            hint="pass --older-than 90d, --larger-than 2G or --empty-trash 30d",
        )
    maintenance = open_maintenance(upgrade_existing_store(os.environ, args.store))
    return asyncio.run(_prune(args, maintenance, paths, now))


async def _prune(args: argparse.Namespace, maintenance: StoreMaintenance, paths: Paths, now: int) -> int:
    async with open_store(maintenance.url) as store:
        sizes = _measure_with_progress(maintenance, paths)
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
            _print_prune_plan(choice, old, now)
        nothing = not choice.chosen and not old
        pruned, emptied = None, list[str]()
        if not args.dry_run and not nothing:
            if not confirm(_to_prune_question(choice, old), yes=args.yes):
                return ExitCode.DONE
            pruned = await prune(store, choice, now=now)
            if args.empty_trash is not None:
                emptied = await empty_trash(store, before=now - args.empty_trash)
            if not as_json:
                _print_pruned(pruned, emptied)
        if as_json:
            write_json(_to_prune_report(choice, old, pruned, emptied))
    return ExitCode.DONE


def _to_policy(args: argparse.Namespace, now: int) -> PrunePolicy:
    return PrunePolicy(
        before=None if args.older_than is None else now - args.older_than,
        at_most=args.larger_than,
        project=None if args.project is None else ProjectID(args.project),
    )


def _to_prune_question(choice: PruneChoice, old: list[str]) -> str:
    count = sum(len(family.members) for family in choice.chosen)
    parts = [
        *([f"move {format_count(count, 'session')} to the trash"] if count else []),
        *([f"delete {format_count(len(old), 'bundle')} in the trash for good"] if old else []),
    ]
    return f"{' and '.join(parts)}?".capitalize()


def _print_prune_plan(choice: PruneChoice, old: list[str], now: int) -> None:
    paint = Paint(sys.stdout)
    rows = [_to_family_cells(family, "to the trash", now) for family in choice.chosen]
    rows += [_to_family_cells(spared.family, f"stays: {spared.reason}", now) for spared in choice.spared]
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


def _to_family_cells(family: SessionFamily, what: str, now: int) -> tuple[str, ...]:
    return (
        family.root.id,
        format_size(family.bytes),
        format_time(family.used, now=now),
        str(len(family.members)),
        what,
        family.root.title,
    )


def _print_pruned(pruned: PruneResult, emptied: list[str]) -> None:
    for family, bundle in pruned.discarded:
        print(f"{family.root.id} is in the trash as {bundle}")
    for id in emptied:
        print(f"{id} was deleted for good")
    if pruned.discarded:
        print(
            "weft session restore brings a bundle back; weft storage prune --empty-trash 30d frees the room"
        )


def _to_prune_report(
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
