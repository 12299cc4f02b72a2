"""Upgrades of an older JSON tree, taken up again where they stopped until nothing failed.

OpenCode marks an upgrade done even when it failed. Here an item that fails is reported and tried again at the next
opening, the rest go on, and the number advances only when all is done.
"""

import os
from typing import Any

from weft.errors import DocumentError
from weft.host.files import Disk, locked, read_file
from weft.model.damage import Damage
from weft.model.ids import SessionID
from weft.model.wire import encode_pretty, parse
from weft.store.carry_over import CarryOver, RootCommit
from weft.store.documents import LIMIT
from weft.store.guard import Guard
from weft.store.layout import SUFFIX, session_lock
from weft.store.tree import FORMAT, Tree

LOCK = "upgrade"


class Upgrade:
    def __init__(self, tree: Tree, guard: Guard, disk: Disk, root_commit: RootCommit) -> None:
        self._tree = tree
        self._layout = tree.layout
        self._guard = guard
        self._disk = disk
        self._root_commit = root_commit
        self._changed = False

    def run(self) -> list[Damage]:
        """Bring the tree to the format we know. Gives back what stood in the way."""
        if self._tree.format() == FORMAT:
            return []
        try:
            with locked(self._layout.lock(LOCK)):
                return self._steps(self._tree.format())
        except OSError as error:
            if not os.path.isdir(self._layout.root):
                raise
            # Where nothing can be written an older tree can still be read.
            return [Damage(where=self._layout.root, reason=f"not upgraded: {error.strerror}")]

    def _steps(self, begun: int) -> list[Damage]:
        failed: list[Damage] = []
        if begun < 1:
            carry = CarryOver(self._layout, self._disk, self._root_commit)
            failed += carry.run()
            self._changed = carry.found_any
            self._advance(1, failed)
        failed += self._lift_diffs()
        self._advance(FORMAT, failed)
        return failed

    def _advance(self, number: int, failed: list[Damage]) -> None:
        if not failed:
            if self._changed:
                self._disk.flush_all()
            self._put(self._layout.migration, b"%d" % number)
            self._disk.flush(self._layout.root)

    def _lift_diffs(self) -> list[Damage]:
        """From 1 to 2: diffs move out of the session's summary into a document of their own."""
        failed: list[Damage] = []
        shelf = self._layout.shelf("session")
        for project in self._tree.documents.directories(shelf):
            for name in self._tree.documents.names(f"{shelf}/{project}"):
                path = f"{shelf}/{project}/{name}{SUFFIX}"
                try:
                    with self._guard.writing([session_lock(SessionID(name))]):
                        self._lift(path, project, SessionID(name))
                except FileNotFoundError:
                    continue  # deleted or moved since it was listed
                except DocumentError as error:
                    failed.append(Damage(where=path, reason=error.reason))
                except OSError as error:
                    failed.append(Damage(where=path, reason=error.strerror or str(error)))
        return failed

    def _lift(self, path: str, project: str, id: SessionID) -> None:
        raw, _ = read_file(path, limit=LIMIT)
        old = parse(raw, where=path)
        if not isinstance(old, dict):
            raise DocumentError(path, "not a session")
        summary = old.get("summary")
        lifted = isinstance(summary, dict) and isinstance(summary.get("diffs"), list)
        if "projectID" in old and not lifted:
            return
        self._changed = True
        self._put_new(f"{self._layout.backups}/1/{self._layout.relative(path)}", raw)
        new = {**old, "projectID": old.get("projectID", project)}
        if isinstance(summary, dict) and lifted:
            # The diffs first: should the rest not be reached, they are still in the session too.
            self._put_new(self._layout.diff(id), encode_pretty(summary["diffs"]))
            new["summary"] = _counted(summary, summary["diffs"])
        self._put(path, encode_pretty(new))

    def _put_new(self, path: str, raw: bytes) -> None:
        if not os.path.lexists(path):
            self._put(path, raw)

    def _put(self, path: str, raw: bytes) -> None:
        temp = self._layout.temp(LOCK, "lifted")
        self._disk.prepare(temp, raw)
        self._disk.move(temp, path)


def _counted(summary: dict[str, Any], diffs: list[Any]) -> dict[str, Any]:
    """The summary without its diffs but with their numbers. OpenCode drops the number of files; we count them."""
    kept = {key: value for key, value in summary.items() if key != "diffs"}
    return {
        **kept,
        "additions": _total(diffs, "additions"),
        "deletions": _total(diffs, "deletions"),
        "files": kept.get("files", len(diffs)),
    }


def _total(diffs: list[Any], key: str) -> int:
    numbers = [diff.get(key) for diff in diffs if isinstance(diff, dict)]
    return sum(int(number) for number in numbers if isinstance(number, int | float))
