"""`weft storage du` and `gc`: what stored sessions take up, and sweeping away what nothing leads to."""

import argparse
import os
import sys
from collections import defaultdict
from typing import Any

from weft.cli.care.amount import told_size
from weft.cli.care.snapshots import print_snapshots, sweep_snapshots, to_snapshot_report
from weft.cli.exit import Exit
from weft.cli.paint import Paint, plain, write_json
from weft.cli.progress import Progress
from weft.cli.table import to_table
from weft.config.store_address import storage_root
from weft.host.now import now as read_clock
from weft.host.paths import Paths, paths_from
from weft.model.ids import ProjectID, SessionID
from weft.search.database import index_path
from weft.snapshot.place import base_for
from weft.store.files.inventory import take_inventory
from weft.store.files.leftovers import GC_LABEL, Leftover, Leftovers, Swept, find_spills, sweep
from weft.store.files.reader import Tree
from weft.store.files.repair import Caretaker, Shrunk, find_oversized, shrink
from weft.store.files.sizes import Sizes, Weight, measure
from weft.store.files.upgrade import keep_up
from weft.store.url import ask_git
from weft.tool.spill import KEPT_MS

SHOWN = 20
TITLE_WIDTH = 50


def du(chosen: argparse.Namespace) -> int:
    """Sizes by kind, project or session, largest first."""
    paths = paths_from(os.environ)
    tree = Tree(storage_root(os.environ, paths, chosen.store))
    sizes = weigh_store(tree, paths)
    if chosen.format == "json":
        _print_json(_to_report(sizes, chosen.by))
    else:
        _print_sizes(tree, sizes, chosen.by)
    return Exit.DONE


def weigh_store(tree: Tree, paths: Paths) -> Sizes:
    """The tree, and what lies beside it if it is in the usual place."""
    places = {"index": index_path(paths.cache, tree.layout.root)}
    places |= {"undo": base_for(paths, f"file:{tree.layout.root}")}
    if os.path.realpath(tree.layout.root) == os.path.realpath(paths.storage):
        places |= {"tool-output": paths.tool_output, "snapshots": paths.snapshots}
    with Progress("weighing files") as told:
        return measure(tree.layout, take_inventory(tree.layout), places, told=told)


def _weights(sizes: Sizes, by: str) -> dict[str, Weight]:
    found = {"kind": sizes.kinds, "project": sizes.projects, "session": sizes.sessions}[by]
    return dict(sorted(found.items(), key=lambda item: (-item[1].bytes, item[0])))


def _to_report(sizes: Sizes, by: str) -> dict[str, Any]:
    rows = [
        {by: name, "bytes": each.bytes, "files": each.files} for name, each in _weights(sizes, by).items()
    ]
    return {"total": sizes.total, "by": by, "rows": rows}


def _print_sizes(tree: Tree, sizes: Sizes, by: str) -> None:
    paint = Paint(sys.stdout)
    rows = [
        (told_size(each.bytes), f"{each.files:,}", name or "(none)", _about(tree, by, name))
        for name, each in _weights(sizes, by).items()
    ]
    rows.append((told_size(sizes.total.bytes), f"{sizes.total.files:,}", "total", ""))
    print("\n".join(to_table(("size", "files", by, ""), rows, paint, right="size files")))


def _about(tree: Tree, by: str, name: str) -> str:
    if by == "project" and name:
        project = tree.find_project(ProjectID(name))
        return project.worktree if project else "(no record)"
    if by == "session" and name:
        session = tree.find_session(SessionID(name))
        return session.title[:TITLE_WIDTH] if session else ""
    return ""


def gc(chosen: argparse.Namespace) -> int:
    """What may be missed is laid aside for a month; the rest goes at once."""
    paths, now = paths_from(os.environ), read_clock()
    tree = Tree(storage_root(os.environ, paths, chosen.store))
    if not chosen.dry_run and not tree.is_settled():
        keep_up(tree, ask_git)
    tree.format()
    before = now - chosen.age
    found = find_all(tree, paths, before=before, spilled_before=now - max(chosen.age, KEPT_MS))
    caretaker = Caretaker(tree, GC_LABEL, now)
    swept = None if chosen.dry_run else sweep(caretaker, found, before=before)
    shrunk = _compact(caretaker, dry_run=chosen.dry_run) if chosen.compact_summaries else []
    kept = sweep_snapshots(tree, paths, now=now, dry_run=chosen.dry_run)
    if chosen.format == "json":
        _print_json({**_to_gc_report(found, swept, shrunk), "snapshots": to_snapshot_report(kept)})
    else:
        print_snapshots(kept, Paint(sys.stdout))
        _print_gc(found, swept, shrunk)
    return Exit.FAILED if swept and swept.failed else Exit.DONE


def find_all(tree: Tree, paths: Paths, *, before: int, spilled_before: int) -> list[Leftover]:
    found = Leftovers(tree, take_inventory(tree.layout), before=before).find()
    # Another store's parts may name what lies in the usual place: only the usual store's say what is not named.
    if os.path.realpath(tree.layout.root) == os.path.realpath(paths.storage):
        with Progress("looking for spilled outputs") as told:
            found += find_spills(tree.layout, paths.tool_output, before=spilled_before, told=told)
    return found


def _compact(caretaker: Caretaker, *, dry_run: bool) -> list[Shrunk]:
    inventory = take_inventory(caretaker.layout)
    with Progress("looking for large summaries") as told:
        if dry_run:
            return find_oversized(caretaker.tree, inventory, told=told)
        return shrink(caretaker, inventory, told=told)


def _to_gc_report(found: list[Leftover], swept: Swept | None, shrunk: list[Shrunk]) -> dict[str, Any]:
    return {
        "dryRun": swept is None,
        "found": found,
        "removed": [] if swept is None else swept.removed,
        "failed": [] if swept is None else [{"path": path, "reason": why} for path, why in swept.failed],
        "backup": "" if swept is None else swept.backup,
        "shrunk": shrunk,
        "bytes": sum(each.bytes for each in (found if swept is None else swept.removed)),
    }


def _print_gc(found: list[Leftover], swept: Swept | None, shrunk: list[Shrunk]) -> None:
    paint = Paint(sys.stdout)
    taken = found if swept is None else list(swept.removed)
    kinds: defaultdict[str, list[Leftover]] = defaultdict(list)
    for each in taken:
        kinds[each.kind].append(each)
    for kind, each_kind in kinds.items():
        print(f"{paint.bold(kind)}  {len(each_kind)}, {told_size(sum(each.bytes for each in each_kind))}")
        for each in each_kind[:SHOWN]:
            print(f"  {plain(each.path)}  {paint.dim(each.reason)}")
        if len(each_kind) > SHOWN:
            print(paint.dim(f"  and {len(each_kind) - SHOWN} more (--format json lists all)"))
    for small in shrunk:
        was = (
            f"{told_size(small.bytes)} → {told_size(small.after)}" if small.after else told_size(small.bytes)
        )
        print(f"{paint.bold('summary')}  {plain(small.path)}  {paint.dim(was)}")
    total = told_size(sum(each.bytes for each in taken))
    said = "would go" if swept is None else "swept away"
    print(f"{total} in {len(taken)} leftovers {said}" if taken else "nothing to sweep away")
    if swept is not None and swept.backup:
        print(paint.dim(f"documents were laid aside in {swept.backup}, and go for good after a month"))
    for path, reason in swept.failed if swept is not None else ():
        print(f"{Paint(sys.stderr).red('error:')} {path}: {reason}", file=sys.stderr)


def _print_json(report: Any) -> None:
    write_json(report)
