"""`weft storage du|gc`: show how much space sessions take, and remove what nothing refers to."""

import argparse
import os
import sys
from collections import defaultdict
from typing import Any

from weft.cli.arguments import add_format, add_store, parse_age
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, ProgressLine, format_size, sanitize, to_table, write_json
from weft.config.store_address import find_own_setting, resolve_storage_root
from weft.host.now import now as read_clock
from weft.host.paths import Paths, paths_from
from weft.model.ids import ProjectID, SessionID
from weft.search.database import index_path
from weft.snapshot.gc import GRACE_MS, GcOptions, collect_all
from weft.snapshot.gc import GcResult as SweptSnapshots
from weft.snapshot.location import LIMITS_KEY, find_base, to_limits
from weft.store.files.inventory import take_inventory
from weft.store.files.leftovers import (
    GC_LABEL,
    Leftover,
    LeftoverFinder,
    RemovedLeftovers,
    find_spills,
    remove_leftovers,
)
from weft.store.files.repair import ShrunkDocument, TreeRepairer, find_oversized, shrink
from weft.store.files.sizes import Size, StoreSizes, measure
from weft.store.files.trash import Trash
from weft.store.files.tree import Tree
from weft.store.files.upgrade import upgrade_tree
from weft.store.url import find_root_commit
from weft.tool.spill import KEPT_MS

SHOWN = 20
TITLE_WIDTH = 50


def add_du_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=("kind", "project", "session"), default="kind", help="add up by this")
    add_format(parser)
    add_store(parser)


def du_command(chosen: argparse.Namespace) -> int:
    """Print sizes by kind, project or session, largest first."""
    paths = paths_from(os.environ)
    tree = Tree(resolve_storage_root(os.environ, paths, chosen.store))
    sizes = measure_store(tree, paths)
    if chosen.format == "json":
        write_json(_to_report(sizes, chosen.by))
    else:
        _print_sizes(tree, sizes, chosen.by)
    return ExitCode.DONE


def measure_store(tree: Tree, paths: Paths) -> StoreSizes:
    """Measure the store, and what belongs to it elsewhere if it is the default store."""
    places = {"index": index_path(paths.cache, tree.layout.root)}
    places |= {"undo": find_base(paths, f"file:{tree.layout.root}")}
    if os.path.realpath(tree.layout.root) == os.path.realpath(paths.storage):
        places |= {"tool-output": paths.tool_output, "snapshots": paths.snapshots}
    with ProgressLine("weighing files") as progress:
        return measure(tree.layout, take_inventory(tree.layout), places, on_progress=progress)


def _sort_weights(sizes: StoreSizes, by: str) -> dict[str, Size]:
    found = {"kind": sizes.kinds, "project": sizes.projects, "session": sizes.sessions}[by]
    return dict(sorted(found.items(), key=lambda item: (-item[1].bytes, item[0])))


def _to_report(sizes: StoreSizes, by: str) -> dict[str, Any]:
    rows = [
        {by: name, "bytes": each.bytes, "files": each.files}
        for name, each in _sort_weights(sizes, by).items()
    ]
    return {"total": sizes.total, "by": by, "rows": rows}


def _print_sizes(tree: Tree, sizes: StoreSizes, by: str) -> None:
    paint = Paint(sys.stdout)
    rows = [
        (format_size(each.bytes), f"{each.files:,}", name or "(none)", _describe(tree, by, name))
        for name, each in _sort_weights(sizes, by).items()
    ]
    rows.append((format_size(sizes.total.bytes), f"{sizes.total.files:,}", "total", ""))
    print("\n".join(to_table(("size", "files", by, ""), rows, paint, right="size files")))


def _describe(tree: Tree, by: str, name: str) -> str:
    if by == "project" and name:
        project = tree.find_project(ProjectID(name))
        return project.worktree if project else "(no record)"
    if by == "session" and name:
        session = tree.find_session(SessionID(name))
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
    paths, now = paths_from(os.environ), read_clock()
    tree = Tree(resolve_storage_root(os.environ, paths, chosen.store))
    if not chosen.dry_run and not tree.is_settled():
        upgrade_tree(tree, find_root_commit)
    tree.format()
    before = now - chosen.age
    found = find_leftovers(tree, paths, before=before, spilled_before=now - max(chosen.age, KEPT_MS))
    caretaker = TreeRepairer(tree, GC_LABEL, now)
    swept = None if chosen.dry_run else remove_leftovers(caretaker, found, before=before)
    shrunk = _shrink_summaries(caretaker, dry_run=chosen.dry_run) if chosen.compact_summaries else []
    kept = sweep_snapshots(tree, paths, now=now, dry_run=chosen.dry_run)
    if chosen.format == "json":
        write_json({**_to_gc_report(found, swept, shrunk), "snapshots": to_snapshot_report(kept)})
    else:
        print_snapshots(kept, Paint(sys.stdout))
        _print_gc(found, swept, shrunk)
    return ExitCode.FAILED if swept and swept.failed else ExitCode.DONE


def find_leftovers(tree: Tree, paths: Paths, *, before: int, spilled_before: int) -> list[Leftover]:
    found = LeftoverFinder(tree, take_inventory(tree.layout), before=before).find()
    # Spilled outputs are shared by all stores. Only the default store is searched for references to them.
    if os.path.realpath(tree.layout.root) == os.path.realpath(paths.storage):
        with ProgressLine("looking for spilled outputs") as progress:
            found += find_spills(tree.layout, paths.tool_output, before=spilled_before, on_progress=progress)
    return found


def _shrink_summaries(caretaker: TreeRepairer, *, dry_run: bool) -> list[ShrunkDocument]:
    inventory = take_inventory(caretaker.layout)
    with ProgressLine("looking for large summaries") as progress:
        if dry_run:
            return find_oversized(caretaker.tree, inventory, on_progress=progress)
        return shrink(caretaker, inventory, on_progress=progress)


def _to_gc_report(
    found: list[Leftover], swept: RemovedLeftovers | None, shrunk: list[ShrunkDocument]
) -> dict[str, Any]:
    return {
        "dryRun": swept is None,
        "found": found,
        "removed": [] if swept is None else swept.removed,
        "failed": [] if swept is None else [{"path": path, "reason": why} for path, why in swept.failed],
        "backup": "" if swept is None else swept.backup,
        "shrunk": shrunk,
        "bytes": sum(each.bytes for each in (found if swept is None else swept.removed)),
    }


def _print_gc(found: list[Leftover], swept: RemovedLeftovers | None, shrunk: list[ShrunkDocument]) -> None:
    paint = Paint(sys.stdout)
    taken = found if swept is None else list(swept.removed)
    kinds: defaultdict[str, list[Leftover]] = defaultdict(list)
    for each in taken:
        kinds[each.kind].append(each)
    for kind, each_kind in kinds.items():
        print(f"{paint.bold(kind)}  {len(each_kind)}, {format_size(sum(each.bytes for each in each_kind))}")
        for each in each_kind[:SHOWN]:
            print(f"  {sanitize(each.path)}  {paint.dim(each.reason)}")
        if len(each_kind) > SHOWN:
            print(paint.dim(f"  and {len(each_kind) - SHOWN} more (--format json lists all)"))
    for small in shrunk:
        was = (
            f"{format_size(small.bytes)} → {format_size(small.after)}"
            if small.after
            else format_size(small.bytes)
        )
        print(f"{paint.bold('summary')}  {sanitize(small.path)}  {paint.dim(was)}")
    total = format_size(sum(each.bytes for each in taken))
    said = "would go" if swept is None else "swept away"
    print(f"{total} in {len(taken)} leftovers {said}" if taken else "nothing to sweep away")
    if swept is not None and swept.backup:
        print(paint.dim(f"documents were laid aside in {swept.backup}, and go for good after a month"))
    for path, reason in swept.failed if swept is not None else ():
        print(f"{Paint(sys.stderr).red('error:')} {path}: {reason}", file=sys.stderr)


def sweep_snapshots(tree: Tree, paths: Paths, *, now: int, dry_run: bool) -> list[SweptSnapshots]:
    """Remove the snapshots that no session needs, in every directory that has any."""
    base = find_base(paths, f"file:{tree.layout.root}")
    if not os.path.isdir(base):
        return []
    inventory = take_inventory(tree.layout)
    trashed = {session.id for bundle in Trash(tree).list_bundles() for session in bundle.sessions}

    def is_alive(session: SessionID) -> bool:
        return inventory.is_there(session) or session in trashed

    budget = to_limits(find_own_setting(paths, LIMITS_KEY)).max_bytes
    with ProgressLine("looking through snapshots"):
        how = GcOptions(is_alive=is_alive, now=now, budget=budget, dry_run=dry_run, grace_ms=GRACE_MS)
        return collect_all(base, os.environ, how)


def to_snapshot_report(swept: list[SweptSnapshots]) -> list[dict[str, Any]]:
    return [
        {
            "root": each.root,
            "before": each.before,
            "after": each.after,
            "released": [{"session": session, "reason": reason} for session, reason in each.released],
            "skipped": each.skipped,
        }
        for each in swept
    ]


def print_snapshots(swept: list[SweptSnapshots], paint: Paint) -> None:
    for each in swept:
        if each.skipped:
            print(f"{paint.bold('snapshots')}  {sanitize(each.root)}  {paint.dim(each.skipped)}")
        elif each.before > each.after or each.released:
            was = f"{format_size(each.before)} → {format_size(each.after)}"
            print(f"{paint.bold('snapshots')}  {sanitize(each.root)}  {paint.dim(was)}")
            for session, reason in each.released:
                print(f"  {sanitize(session)}  {paint.dim(reason)}")
