"""From 0 to 1: sessions that lie with their project, as the first versions laid them, are carried into the tree.

The originals stay where they are. What was carried is written down, so that taking the work up again neither does it
twice nor brings back what has been deleted since.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from weft.errors import DocumentError, InvalidIdError
from weft.host.files import Disk, read_file
from weft.model.damage import Damage
from weft.model.ids import GLOBAL_PROJECT, ProjectID, file_name
from weft.model.project import Project, ProjectTime
from weft.model.wire import encode_pretty, parse
from weft.store.documents import LIMIT
from weft.store.layout import SUFFIX, Layout

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
