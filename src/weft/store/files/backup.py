"""Change a tree under its locks, and back up first what a change replaces or removes."""

import os
from collections.abc import Generator
from contextlib import contextmanager

from weft.host.files import Disk, read_file
from weft.model.event import Durable
from weft.model.ids import SessionID
from weft.store.chain import make_removal
from weft.store.files.batch import Batch, WritePlan
from weft.store.files.creation_order import note_changes
from weft.store.files.documents import LIMIT
from weft.store.files.layout import Layout, session_lock
from weft.store.files.lock import SessionLocks
from weft.store.files.messages import MessageReader
from weft.store.files.tree import Tree
from weft.store.files.writer import BatchWriter

# The lock for what belongs to no session.
MAINTENANCE_LOCK = "care"


class BackupWriter:
    """Saves originals below `.weft/backup/<label>-<now>`, each at its own path. `now` is in ms."""

    def __init__(self, tree: Tree, label: str, now: int) -> None:
        self.tree = tree
        self.messages = MessageReader(tree)
        self.layout: Layout = tree.layout
        self.directory = f"{self.layout.backups}/{label}-{now}"
        self.disk = Disk()
        self._locks = SessionLocks(self.layout, self.disk)
        self._writer = BatchWriter(self.layout, self.disk, self._locks)

    @contextmanager
    def holding(self, *locks: str) -> Generator[tuple[str, ...]]:
        with self._locks.writing(locks) as held:
            yield held

    def recover(self) -> None:
        """Finish the batches of dead writers and remove their temporary files."""
        self._locks.recover()

    def write(self, held: tuple[str, ...], event: Durable) -> None:
        """Apply an event, all or nothing. The caller holds its lock."""
        batch = Batch(self.tree, self.messages)
        batch.feed([event])
        plan = batch.plan()
        self._back_up(plan, held[0])
        self._writer.write(plan, held, flush=True, repair=True)

    def record_removal(self, session: SessionID, *keys: str) -> None:
        """Record in the chain of a session that documents were moved here. The caller holds the lock of the session."""
        plan = WritePlan(
            clears=[], puts={}, drops=[], extension=None, tidy=[], chained={session: make_removal(*keys)}
        )
        self._writer.write(plan, (session_lock(session),), flush=True, repair=True)

    def move_here(self, path: str) -> bool:
        """Move a file or directory to the backup. The caller holds its lock. Return False if it is already gone."""
        target = self._find_free_path(f"{self.directory}/{self.layout.relative(path)}")
        try:
            self.disk.move(path, target)
        except FileNotFoundError:
            return False
        note_changes(self.layout, [self.layout.relative(path)])
        self.disk.prune(os.path.dirname(path))
        return True

    def _back_up(self, plan: WritePlan, lock: str) -> None:
        for path in (*plan.puts, *plan.drops):
            if os.path.isfile(path):
                temp = self.layout.temp(lock, f"{os.urandom(6).hex()}.aside")
                self.disk.prepare(temp, read_file(path, limit=LIMIT)[0], flush=True)
                self.disk.move(temp, self._find_free_path(f"{self.directory}/{self.layout.relative(path)}"))

    def _find_free_path(self, path: str) -> str:
        number = 0
        while os.path.lexists(f"{path}~{number}" if number else path):
            number += 1
        return f"{path}~{number}" if number else path
