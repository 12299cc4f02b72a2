"""`weft storage du|gc`: show how much space sessions take, and remove what nothing refers to."""

import argparse
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
from weft.maintenance.space import collect_snapshots, find_outputs, measure_space, remove_leftovers
from weft.model.ids import ProjectID, SessionID
from weft.snapshot.gc import GcResult
from weft.store.findings import GC_LABEL, LargeDocument, Leftover, RemovedLeftovers
from weft.store.maintenance import StoreMaintenance, StoreRepairer, open_maintenance
from weft.store.reader import StoreReader
from weft.store.sizes import Size, StoreSizes
from weft.tool.spill import MAX_OUTPUT_AGE_MS

SHOWN = 20
TITLE_WIDTH = 50


def add_du_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=("kind", "project", "session"), default="kind", help="add up by this")
    add_format(parser)
    add_store(parser)


def du_command(chosen: argparse.Namespace) -> int:
    """Print sizes by kind, project or session, largest first."""
    paths = paths_from(os.environ)
    store = open_maintenance(resolve_store_url(os.environ, paths, chosen.store))
    sizes = measure_with_progress(store, paths)
    if chosen.format == "json":
        write_json(_to_report(sizes, chosen.by))
    else:
        _print_sizes(store.reader, sizes, chosen.by)
    return ExitCode.DONE


def measure_with_progress(store: StoreMaintenance, paths: Paths) -> StoreSizes:
    with ProgressLine("weighing files") as progress:
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


def gc_command(chosen: argparse.Namespace) -> int:
    """Remove what nothing refers to. Documents are kept aside for a month, in case somebody misses them."""
    paths, now, dry_run = paths_from(os.environ), read_clock(), chosen.dry_run
    url = resolve_store_url(os.environ, paths, chosen.store)
    store = open_maintenance(url)
    if not dry_run:
        store.upgrade()
    store.check_format()
    before = now - chosen.age
    leftovers = store.find_leftovers(before=before)
    with ProgressLine("looking for spilled outputs") as progress:
        outputs = find_outputs(
            store, paths, before=now - max(chosen.age, MAX_OUTPUT_AGE_MS), on_progress=progress
        )
    repairer = store.make_repairer(GC_LABEL, now=now)
    removed = None if dry_run else remove_leftovers(repairer, leftovers, outputs, before=before)
    shrunk = _shrink(store, repairer, dry_run=dry_run) if chosen.compact_summaries else []
    # Look again: by now there may be sessions that did not exist before.
    with ProgressLine("looking through snapshots"):
        snapshots = collect_snapshots(open_maintenance(url), paths, os.environ, now=now, dry_run=dry_run)
    found = [*leftovers, *outputs]
    if chosen.format == "json":
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
    verb = "would go" if result is None else "swept away"
    print(f"{total} in {len(listed)} leftovers {verb}" if listed else "nothing to sweep away")
    if result is not None and result.backup:
        print(paint.dim(f"documents were laid aside in {result.backup}, and go for good after a month"))
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
