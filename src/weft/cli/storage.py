"""`weft storage init|du|gc`: create a store, show how much space sessions take, and remove what nothing refers to."""

import argparse
import asyncio
import os
import sys
from collections import defaultdict
from typing import Any

from weft.cli.arguments import add_format, add_store, parse_age
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, ProgressLine, format_size, sanitize, to_table, write_json
from weft.config.store_address import resolve_store_url
from weft.host.now import now as read_clock
from weft.host.paths import Paths, paths_from
from weft.local.reader import resolve_existing_store
from weft.maintenance.space import collect_snapshots, find_outputs, measure_space, remove_leftovers
from weft.model.display import format_count
from weft.model.ids import ProjectID, SessionID
from weft.model.url import to_store_identity
from weft.snapshot.gc import GcResult
from weft.store.findings import GC_LABEL, LargeDocument, Leftover, RemovedLeftovers
from weft.store.maintenance import StoreMaintenance, StoreRepairer, open_maintenance
from weft.store.reader import StoreReader
from weft.store.sizes import Size, StoreSizes
from weft.store.url import open_store
from weft.tool.spill import MAX_OUTPUT_AGE_MS

SHOWN = 20
TITLE_WIDTH = 50


def add_init_arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)


def init_command(args: argparse.Namespace) -> int:
    """Create the store, or upgrade it. Without this command the first start does the same."""
    url = resolve_store_url(os.environ, paths_from(os.environ), args.store)
    asyncio.run(_open_once(url))
    print(f"{to_store_identity(url)} is ready")
    return ExitCode.DONE


async def _open_once(url: str) -> None:
    async with open_store(url):
        pass


def add_du_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=("kind", "project", "session"), default="kind", help="add up by this")
    add_format(parser)
    add_store(parser)


def du_command(args: argparse.Namespace) -> int:
    """Print sizes by kind, project or session, largest first."""
    paths = paths_from(os.environ)
    store = open_maintenance(resolve_existing_store(os.environ, args.store), cache=paths.cache)
    sizes = measure_with_progress(store, paths)
    if args.format == "json":
        write_json(_to_report(sizes, args.by))
    else:
        _print_sizes(store.reader, sizes, args.by)
    return ExitCode.DONE


def measure_with_progress(store: StoreMaintenance, paths: Paths) -> StoreSizes:
    with ProgressLine("measuring files") as progress:
        return measure_space(store, paths, on_progress=progress)


def _sort_sizes(sizes: StoreSizes, by: str) -> dict[str, Size]:
    found = {"kind": sizes.kinds, "project": sizes.projects, "session": sizes.sessions}[by]
    return dict(sorted(found.items(), key=lambda item: (-item[1].bytes, item[0])))


def _to_report(sizes: StoreSizes, by: str) -> dict[str, Any]:
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
