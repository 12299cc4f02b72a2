"""Upgrade older JSON trees, resuming where an earlier attempt stopped."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from weft.errors import DocumentError, InvalidIdError
from weft.host.files import Disk, locked, read_file
from weft.model.damage import Damage
from weft.model.ids import GLOBAL_PROJECT, ProjectID, SessionID, file_name
from weft.model.project import Project, ProjectTime
from weft.model.wire import encode_pretty, parse
from weft.store.files.documents import LIMIT
from weft.store.files.layout import SUFFIX, Layout, session_lock
from weft.store.files.lock import Guard
from weft.store.files.reader import FORMAT, Tree

RootCommit = Callable[[str], str | None]
Change = Callable[[dict[str, Any]], dict[str, Any]]


class CarryOver:
    """`root_commit` says which commit a checkout began with: that is the id of its project."""

    def __init__(self, layout: Layout, disk: Disk, root_commit: RootCommit) -> None:
        self._layout = layout
        self._disk = disk
        self._root_commit = root_commit
        self._old = layout.oldest
        self._ledger = f"{layout.upgrades}/1"
        self._carried = _lines(self._ledger)
        self._failed: list[Damage] = []
        self.found_any = False

    def run(self) -> list[Damage]:
        for name in _names(self._old):
            place = f"{self._old}/{name}/storage/session"
            if os.path.isdir(place):
                self.found_any = True
                self._carry_project(name, place)
        return self._failed

    def _carry_project(self, name: str, place: str) -> None:
        # OpenCode leaves out `global`, and whatever has no repository any more. Both are carried here, to `global`.
        worktree = "/" if name == GLOBAL_PROJECT else _worktree(place)
        commit = None if worktree == "/" else self._root_commit(worktree)
        project = ProjectID(commit) if commit else GLOBAL_PROJECT

        def adopted(session: dict[str, Any]) -> dict[str, Any]:
            at = {"directory": worktree} if worktree != "/" else {}
            return {**at, **session, "projectID": project}

        self._put_project(project, worktree if commit else "/", place)
        for session in _documents(f"{place}/info"):
            self._carry(f"{place}/info/{session}", f"session/{project}/{session}", adopted)
        for session in _names(f"{place}/message"):
            for message in _documents(f"{place}/message/{session}"):
                self._carry(f"{place}/message/{session}/{message}", f"message/{session}/{message}")
        for session in _names(f"{place}/part"):
            for message in _names(f"{place}/part/{session}"):
                for part in _documents(f"{place}/part/{session}/{message}"):
                    self._carry(f"{place}/part/{session}/{message}/{part}", f"part/{message}/{part}")
        self._write_down()

    def _put_project(self, project: ProjectID, worktree: str, place: str) -> None:
        """A record for the project, unless it has one. It is as old as its oldest session."""
        path = self._layout.project(project)
        if os.path.lexists(path):
            return
        created = min(_times(f"{place}/info"), default=0)
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

    def _carry(self, source: str, target: str, change: Change | None = None) -> None:
        if source in self._carried:
            return
        try:
            for word in target.removesuffix(SUFFIX).split("/"):
                file_name("document", word)
            raw, document = _read(source)
            if not os.path.lexists(self._layout.absolute(target)):
                self._put(self._layout.absolute(target), encode_pretty(change(document)) if change else raw)
        except (DocumentError, InvalidIdError) as error:
            self._failed.append(Damage(where=source, reason=error.reason))
        except OSError as error:
            self._failed.append(Damage(where=source, reason=error.strerror or str(error)))
        else:
            self._carried[source] = None

    def _put(self, path: str, raw: bytes) -> None:
        temp = self._layout.temp("upgrade", "carried")
        self._disk.prepare(temp, raw)
        self._disk.move(temp, path)

    def _write_down(self) -> None:
        self._put(self._ledger, "".join(f"{source}\n" for source in self._carried).encode())


def _worktree(place: str) -> str:
    """Where the sessions were held: the first message that knows it says so."""
    for session in _names(f"{place}/message"):
        for name in _documents(f"{place}/message/{session}"):
            with suppress(OSError, DocumentError):
                _, message = _read(f"{place}/message/{session}/{name}")
                path = message.get("path")
                if isinstance(path, dict) and isinstance(path.get("root"), str) and path["root"]:
                    return str(path["root"])
    return "/"


def _times(infos: str) -> Iterator[int]:
    for name in _documents(infos):
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


def _documents(directory: str) -> list[str]:
    return [name for name in _names(directory) if name.endswith(SUFFIX)]


def _names(directory: str) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(os.listdir(directory))
    return []


def _lines(path: str) -> dict[str, None]:
    with suppress(FileNotFoundError):
        raw, _ = read_file(path, limit=LIMIT)
        return dict.fromkeys(raw.decode().splitlines())
    return {}


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


def keep_up(tree: Tree, root_commit: RootCommit, disk: Disk | None = None) -> list[Damage]:
    """Finish what a crash cut short, and bring an older tree up to date. Gives back what stood in the way."""
    disk = disk or Disk()
    guard = Guard(tree.layout, disk)
    with suppress(OSError):  # nothing can be finished where nothing can be written
        guard.recover()
    return Upgrade(tree, guard, disk, root_commit).run()
