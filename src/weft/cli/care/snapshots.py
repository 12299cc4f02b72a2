"""Snapshots in `weft storage gc`: what no session needs any more, told and swept."""

import os
from typing import Any

from weft.cli.care.amount import told_size
from weft.cli.paint import Paint, plain
from weft.cli.progress import Progress
from weft.config.store_address import find_own_setting
from weft.host.paths import Paths
from weft.model.ids import SessionID
from weft.snapshot.gc import GRACE_MS, Sweep, Swept, sweep_all
from weft.snapshot.place import KEY, base_for, to_limits
from weft.store.files.inventory import take_inventory
from weft.store.files.reader import Tree
from weft.store.files.trash import Trash


def sweep_snapshots(tree: Tree, paths: Paths, *, now: int, dry_run: bool) -> list[Swept]:
    """For every directory that has any."""
    base = base_for(paths, f"file:{tree.layout.root}")
    if not os.path.isdir(base):
        return []
    inventory = take_inventory(tree.layout)
    trashed = {session.id for bundle in Trash(tree).list_bundles() for session in bundle.sessions}

    def is_alive(session: SessionID) -> bool:
        return inventory.is_there(session) or session in trashed

    budget = to_limits(find_own_setting(paths, KEY)).max_bytes
    with Progress("looking through snapshots"):
        how = Sweep(is_alive=is_alive, now=now, budget=budget, dry_run=dry_run, grace_ms=GRACE_MS)
        return sweep_all(base, os.environ, how)


def to_snapshot_report(swept: list[Swept]) -> list[dict[str, Any]]:
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


def print_snapshots(swept: list[Swept], paint: Paint) -> None:
    for each in swept:
        if each.skipped:
            print(f"{paint.bold('snapshots')}  {plain(each.root)}  {paint.dim(each.skipped)}")
        elif each.before > each.after or each.released:
            was = f"{told_size(each.before)} → {told_size(each.after)}"
            print(f"{paint.bold('snapshots')}  {plain(each.root)}  {paint.dim(was)}")
            for session, reason in each.released:
                print(f"  {plain(session)}  {paint.dim(reason)}")
