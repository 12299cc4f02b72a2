"""Upkeep: what a tree needs before it can be relied on, if anything."""

from contextlib import suppress

from weft.host.files import Disk
from weft.model.damage import Damage
from weft.store.carry_over import RootCommit
from weft.store.files_upgrade import Upgrade
from weft.store.guard import Guard
from weft.store.tree import Tree


def keep_up(tree: Tree, root_commit: RootCommit, disk: Disk | None = None) -> list[Damage]:
    """Finish what a crash cut short, and bring an older tree up to date. Gives back what stood in the way."""
    disk = disk or Disk()
    guard = Guard(tree.layout, disk)
    with suppress(OSError):  # nothing can be finished where nothing can be written
        guard.recover()
    return Upgrade(tree, guard, disk, root_commit).run()
