"""Caretaker: changes a tree by hand, under its locks, and lays aside first what it changes or takes away."""

import os
from collections.abc import Generator
from contextlib import contextmanager

from weft.host.files import Disk, read_file
from weft.model.event import Durable
from weft.store.batch import Batch, Plan, lock_of
from weft.store.documents import LIMIT
from weft.store.guard import Guard
from weft.store.layout import Layout
from weft.store.messages import Messages
from weft.store.tree import Tree
from weft.store.writer import Writer


class Caretaker:
    """`label` and `now` (ms) name the directory below `.weft/backup` that the originals go to, each at its own path."""

    def __init__(self, tree: Tree, label: str, now: int, *, disk: Disk | None = None) -> None:
        self.tree = tree
        self.messages = Messages(tree)
        self.layout: Layout = tree.layout
        self.backup = f"{self.layout.backups}/{label}-{now}"
        self.disk = disk or Disk()
        self._guard = Guard(self.layout, self.disk)
        self._writer = Writer(self.layout, self.disk, self._guard)

    @contextmanager
    def holding(self, *locks: str) -> Generator[tuple[str, ...]]:
        with self._guard.writing(locks) as held:
            yield held

    def recover(self) -> None:
        """Finish what dead writers began, and sweep away what they were writing."""
        self._guard.recover()

    def put(self, *events: Durable) -> None:
        """Apply events, all or nothing. The documents they replace or remove are copied aside first."""
        with self.holding(*(lock_of(event) for event in events)) as held:
            self.put_held(held, *events)

    def put_held(self, held: tuple[str, ...], *events: Durable) -> None:
        """The same for who holds the locks already."""
        batch = Batch(self.tree, self.messages)
        for event in events:
            batch.feed(event)
        plan = batch.plan()
        self._copy_aside(plan, held[0])
        self._writer.write(plan, held, flush=True)

    def lay_aside(self, path: str) -> bool:
        """Move a file or a directory out of the way; the caller holds its lock. False if it is gone already."""
        target = self._free(f"{self.backup}/{self.layout.relative(path)}")
        try:
            self.disk.move(path, target)
        except FileNotFoundError:
            return False
        self.disk.prune(os.path.dirname(path))
        return True

    def _copy_aside(self, plan: Plan, lock: str) -> None:
        for path in (*plan.puts, *plan.drops):
            if os.path.isfile(path):
                temp = self.layout.temp(lock, f"{os.urandom(6).hex()}.aside")
                self.disk.prepare(temp, read_file(path, limit=LIMIT)[0], flush=True)
                self.disk.move(temp, self._free(f"{self.backup}/{self.layout.relative(path)}"))

    def _free(self, path: str) -> str:
        number = 0
        while os.path.lexists(f"{path}~{number}" if number else path):
            number += 1
        return f"{path}~{number}" if number else path
