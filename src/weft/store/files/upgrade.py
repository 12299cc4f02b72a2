"""Prepare a JSON tree when a store is opened: finish interrupted writes, and upgrade older trees.

An interrupted upgrade continues where it stopped.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from weft.errors import DocumentError, InvalidIdError
from weft.host.files import Disk, hold_lock, read_file
from weft.model.damage import Damage
from weft.model.ids import GLOBAL_PROJECT, ProjectID, SessionID, check_file_name
from weft.model.project import Project, ProjectTime
from weft.model.wire import encode_pretty, parse
from weft.store.contract import RootCommit
from weft.store.files.documents import LIMIT
from weft.store.files.layout import SUFFIX, Layout, session_lock
from weft.store.files.lock import SessionLocks
from weft.store.files.tree import FORMAT, Tree

DocumentEditor = Callable[[dict[str, Any]], dict[str, Any]]


class OldestTreeImport:
    """Imports the sessions of OpenCode's first versions. `root_commit` returns the id of a checkout's project."""

    def __init__(self, layout: Layout, disk: Disk, root_commit: RootCommit) -> None:
        self._layout = layout
        self._disk = disk
        self._root_commit = root_commit
        self._old = layout.oldest
        self._ledger = f"{layout.upgrades}/1"
        self._imported = _read_lines(self._ledger)
        self._failed: list[Damage] = []
        self.found_any = False

    def run(self) -> list[Damage]:
        for name in _list_names(self._old):
            place = f"{self._old}/{name}/storage/session"
            if os.path.isdir(place):
                self.found_any = True
                self._import_project(name, place)
        return self._failed

    def _import_project(self, name: str, place: str) -> None:
        # OpenCode skips `global` and projects without a repository. We import both into `global`.
        worktree = "/" if name == GLOBAL_PROJECT else _find_worktree(place)
        commit = None if worktree == "/" else self._root_commit(worktree)
        project = ProjectID(commit) if commit else GLOBAL_PROJECT

        def adopt(session: dict[str, Any]) -> dict[str, Any]:
            at = {"directory": worktree} if worktree != "/" else {}
            return {**at, **session, "projectID": project}

        self._put_project(project, worktree if commit else "/", place)
        for session in _list_documents(f"{place}/info"):
            self._import(f"{place}/info/{session}", f"session/{project}/{session}", adopt)
        for session in _list_names(f"{place}/message"):
            for message in _list_documents(f"{place}/message/{session}"):
                self._import(f"{place}/message/{session}/{message}", f"message/{session}/{message}")
        for session in _list_names(f"{place}/part"):
            for message in _list_names(f"{place}/part/{session}"):
                for part in _list_documents(f"{place}/part/{session}/{message}"):
                    self._import(f"{place}/part/{session}/{message}/{part}", f"part/{message}/{part}")
        self._save_ledger()

    def _put_project(self, project: ProjectID, worktree: str, place: str) -> None:
        """Write a record for the project unless it has one. It is as old as its oldest session."""
        path = self._layout.project(project)
        if os.path.lexists(path):
            return
        created = min(_list_times(f"{place}/info"), default=0)
        record = Project(
            id=project,
            worktree=worktree,
            vcs=None if project == GLOBAL_PROJECT else "git",
            time=ProjectTime(created=created, updated=created, initialized=created),
        )
        try:
            self._put(path, encode_pretty(record))
        except OSError as error:
            self._failed.append(Damage(where=path, reason=error.strerror or str(error)))

    def _import(self, source: str, target: str, change: DocumentEditor | None = None) -> None:
        if source in self._imported:
            return
        try:
            for word in target.removesuffix(SUFFIX).split("/"):
                check_file_name("document", word)
            raw, document = _read(source)
            if not os.path.lexists(self._layout.absolute(target)):
                self._put(self._layout.absolute(target), encode_pretty(change(document)) if change else raw)
        except (DocumentError, InvalidIdError) as error:
            self._failed.append(Damage(where=source, reason=error.reason))
        except OSError as error:
            self._failed.append(Damage(where=source, reason=error.strerror or str(error)))
        else:
            self._imported[source] = None

    def _put(self, path: str, raw: bytes) -> None:
        temp = self._layout.temp("upgrade", "carried")
        self._disk.prepare(temp, raw)
        self._disk.move(temp, path)

    def _save_ledger(self) -> None:
        self._put(self._ledger, os.fsencode("".join(f"{source}\n" for source in self._imported)))


def _find_worktree(place: str) -> str:
    """Return the checkout in which the sessions ran, from the first message that names it."""
    for session in _list_names(f"{place}/message"):
        for name in _list_documents(f"{place}/message/{session}"):
            with suppress(OSError, DocumentError):
                _, message = _read(f"{place}/message/{session}/{name}")
                path = message.get("path")
                if isinstance(path, dict) and isinstance(path.get("root"), str) and path["root"]:
                    return str(path["root"])
    return "/"


def _list_times(infos: str) -> Iterator[int]:
    for name in _list_documents(infos):
        with suppress(OSError, DocumentError):
            _, session = _read(f"{infos}/{name}")
            time = session.get("time")
            if isinstance(time, dict) and isinstance(time.get("created"), int):
                yield time["created"]


def _read(path: str) -> tuple[bytes, dict[str, Any]]:
    raw, _ = read_file(path, limit=LIMIT)
    document = parse(raw, where=path)
    if not isinstance(document, dict):
        raise DocumentError(path, "not an object")
    return raw, document


def _list_documents(directory: str) -> list[str]:
    return [name for name in _list_names(directory) if name.endswith(SUFFIX)]


def _list_names(directory: str) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(os.listdir(directory))
    return []


def _read_lines(path: str) -> dict[str, None]:
    with suppress(FileNotFoundError):
        raw, _ = read_file(path, limit=LIMIT)
        return dict.fromkeys(os.fsdecode(raw).split("\n"))
    return {}


LOCK = "upgrade"


class TreeUpgrade:
    """Upgrades one tree step by step."""

    def __init__(self, tree: Tree, locks: SessionLocks, disk: Disk, root_commit: RootCommit) -> None:
        self._tree = tree
        self._layout = tree.layout
        self._locks = locks
        self._disk = disk
        self._root_commit = root_commit
        self._changed = False

    def run(self) -> list[Damage]:
        """Upgrade the tree to the current format. Return the documents that could not be upgraded."""
        if self._tree.format() == FORMAT:
            return []
        try:
            with hold_lock(self._layout.lock(LOCK)):
                return self._steps(self._tree.format())
        except OSError as error:
            if not os.path.isdir(self._layout.root):
                raise
            # On a read-only disk an older tree can still be read.
            return [Damage(where=self._layout.root, reason=f"not upgraded: {error.strerror}")]

    def _steps(self, begun: int) -> list[Damage]:
        failed: list[Damage] = []
        if begun < 1:
            oldest = OldestTreeImport(self._layout, self._disk, self._root_commit)
            failed += oldest.run()
            self._changed = oldest.found_any
            self._advance(1, failed)
        failed += self._move_all_diffs()
        self._advance(FORMAT, failed)
        return failed

    def _advance(self, number: int, failed: list[Damage]) -> None:
        if not failed:
            if self._changed:
                self._disk.flush_all()
            self._put(self._layout.migration, b"%d" % number)
            self._disk.flush(self._layout.root)

    def _move_all_diffs(self) -> list[Damage]:
        """Upgrade from format 1 to 2: move diffs from the session's summary into their own document."""
        failed: list[Damage] = []
        collection = self._layout.collection("session")
        for project in self._tree.documents.list_directories(collection):
            for name in self._tree.documents.list_names(f"{collection}/{project}"):
                path = f"{collection}/{project}/{name}{SUFFIX}"
                try:
                    with self._locks.writing([session_lock(SessionID(name))]):
                        self._move_diffs(path, project, SessionID(name))
                except FileNotFoundError:
                    continue  # deleted or moved since it was listed
                except DocumentError as error:
                    failed.append(Damage(where=path, reason=error.reason))
                except OSError as error:
                    failed.append(Damage(where=path, reason=error.strerror or str(error)))
        return failed

    def _move_diffs(self, path: str, project: str, id: SessionID) -> None:
        raw, _ = read_file(path, limit=LIMIT)
        old = parse(raw, where=path)
        if not isinstance(old, dict):
            raise DocumentError(path, "not a session")
        summary = old.get("summary")
        has_diffs = isinstance(summary, dict) and isinstance(summary.get("diffs"), list)
        if "projectID" in old and not has_diffs:
            return
        self._changed = True
        self._put_new(f"{self._layout.backups}/1/{self._layout.relative(path)}", raw)
        new = {**old, "projectID": old.get("projectID", project)}
        if isinstance(summary, dict) and has_diffs:
            # The diffs come first: if we are interrupted, they are still in the session too.
            self._put_new(self._layout.diff(id), encode_pretty(summary["diffs"]))
            new["summary"] = _summarise(summary, summary["diffs"])
        self._put(path, encode_pretty(new))

    def _put_new(self, path: str, raw: bytes) -> None:
        if not os.path.lexists(path):
            self._put(path, raw)

    def _put(self, path: str, raw: bytes) -> None:
        temp = self._layout.temp(LOCK, "lifted")
        self._disk.prepare(temp, raw)
        self._disk.move(temp, path)


def _summarise(summary: dict[str, Any], diffs: list[Any]) -> dict[str, Any]:
    """Return the summary with the diffs replaced by their totals. OpenCode drops the number of files; we keep it."""
    kept = {key: value for key, value in summary.items() if key != "diffs"}
    return {
        **kept,
        "additions": _sum_field(diffs, "additions"),
        "deletions": _sum_field(diffs, "deletions"),
        "files": kept.get("files", len(diffs)),
    }


def _sum_field(diffs: list[Any], key: str) -> int:
    numbers = [diff.get(key) for diff in diffs if isinstance(diff, dict)]
    return sum(int(number) for number in numbers if isinstance(number, int | float))


def prepare_tree(tree: Tree, root_commit: RootCommit, disk: Disk | None = None) -> list[Damage]:
    """Finish interrupted writes and upgrade the tree. Return the documents that could not be upgraded."""
    disk = disk or Disk()
    locks = SessionLocks(tree.layout, disk)
    with suppress(OSError):  # on a read-only disk nothing can be finished
        locks.recover()
    failed = TreeUpgrade(tree, locks, disk, root_commit).run()
    if tree.has_permission_files():
        from weft.store.files.permission_import import PermissionImport  # noqa: PLC0415  needed once

        try:
            PermissionImport(tree, locks, disk).run()
        except OSError as error:  # on a read-only disk, sessions can still be read
            reason = f"not moved into the store: {error.strerror or error}"
            failed.append(Damage(where=tree.layout.permission_files, reason=reason))
    return failed
