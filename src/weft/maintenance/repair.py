"""Carry out the repairs that need no decision by the user. Originals go to `.weft/backup` first."""

import os
import stat
from collections.abc import Iterable
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import NotFoundError, WeftError
from weft.host.machine import PUBLIC_BITS
from weft.maintenance.doctor import read_overview_from_tree
from weft.maintenance.environment import DoctorInput
from weft.maintenance.findings import DoctorFinding, FindingItem
from weft.maintenance.project_repair import find_misfiled
from weft.model.display import format_count
from weft.model.event import SessionCreated, SessionUpdated
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.search.database import discard_index
from weft.store.files.layout import SUFFIX, session_lock
from weft.store.files.lock import drop_abandoned
from weft.store.files.repair import TreeRepairer, rebuild_session
from weft.store.files.tree import Tree


class RepairResult(Struct, frozen=True, kw_only=True):
    """What happened to one item: what was done, or why it failed."""

    where: str
    done: str = ""
    failed: str = ""


class FindingRepairer:
    """Repairs findings item by item. A failure does not stop the others."""

    def __init__(self, target: DoctorInput) -> None:
        self._target = target
        self._repairer = TreeRepairer(Tree(target.root), "doctor", target.now)
        self._layout = self._repairer.layout
        self._tree = self._repairer.tree

    @property
    def backup(self) -> str:
        """The directory of the backup; "" if nothing was backed up."""
        return self._repairer.backup if os.path.isdir(self._repairer.backup) else ""

    @cached_property
    def _homes(self) -> dict[SessionID, ProjectID]:
        """The right project of each misfiled session."""
        return {
            misfiled.session.id: misfiled.project
            for misfiled in find_misfiled(read_overview_from_tree(self._tree))
        }

    def repair(self, findings: Iterable[DoctorFinding]) -> list[RepairResult]:
        return [self._try(finding, item) for finding in findings if finding.cure for item in finding.items]

    def _try(self, finding: DoctorFinding, item: FindingItem) -> RepairResult:
        try:
            done = self._repair(finding, item)
        except WeftError as error:
            return RepairResult(where=item.where, failed=str(error))
        except OSError as error:
            return RepairResult(where=item.where, failed=error.strerror or str(error))
        return (
            RepairResult(where=item.where, done=done)
            if done
            else RepairResult(where=item.where, failed="nothing was changed")
        )

    def _repair(self, finding: DoctorFinding, item: FindingItem) -> str:
        match finding.cure:
            case "":
                return ""
            case "lock-up":
                return self._restrict_permissions(item.where)
            case "recover":
                self._repairer.recover()
                return "" if os.path.lexists(item.where) else "finished or removed"
            case "lay-aside":
                return self._move_aside(item.where)
            case "rebuild":
                return self._rebuild(SessionID(os.path.basename(item.where)))
            case "uproot":
                return self._clear_parent(SessionID(item.where))
            case "unite":
                return self._remove_duplicates(SessionID(os.path.basename(item.where).removesuffix(SUFFIX)))
            case "unindex":
                discard_index(item.where)
                return "removed; the next search rebuilds it"
            case "drop-lease":
                session = SessionID(os.path.basename(item.where))
                return "removed" if drop_abandoned(self._layout, session) else ""
            case "adopt":
                return self._move_to_project(SessionID(item.where))

    def _restrict_permissions(self, path: str) -> str:
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~PUBLIC_BITS)
        return "other users can no longer read it"

    def _move_aside(self, path: str) -> str:
        """Move an unreadable document to the backup, with what depends on it; rebuild it if it is a session."""
        words = self._layout.relative(path).removesuffix(SUFFIX).split("/")
        match words:
            case ["session", project, id]:
                return self._back_up_session(SessionID(id), ProjectID(project), path)
            case ["message", session, id]:
                with self._repairer.holding(session_lock(SessionID(session))):
                    self._repairer.move_to_backup(self._layout.parts(MessageID(id)))
                    return "moved to the backup with its parts" if self._repairer.move_to_backup(path) else ""
            case ["part", _, _] | ["session_diff" | "todo" | "project", _]:
                with self._repairer.holding("care"):
                    return "moved to the backup" if self._repairer.move_to_backup(path) else ""
            case _:
                return ""

    def _back_up_session(self, id: SessionID, project: ProjectID, path: str) -> str:
        with self._repairer.holding(session_lock(id)) as held:
            self._repairer.move_to_backup(path)
            if self._tree.find_session(id) is not None:
                return "moved to the backup; another document of it is intact"
            return "moved to the backup; " + self._rebuild_held(id, held, project)

    def _rebuild(self, id: SessionID) -> str:
        with self._repairer.holding(session_lock(id)) as held:
            return "" if self._tree.projects_of(id) else self._rebuild_held(id, held)

    def _rebuild_held(self, id: SessionID, held: tuple[str, ...], project: ProjectID | None = None) -> str:
        messages = self._repairer.messages.list_messages(id)
        session = rebuild_session(id, messages, self._tree.list_projects(), project=project)
        if session is None:
            return "it has no messages to rebuild it from"
        self._repairer.put_held(held, SessionCreated(info=session))
        return f"rebuilt from {format_count(len(messages), 'message')}"

    def _clear_parent(self, id: SessionID) -> str:
        with self._repairer.holding(session_lock(id)) as held:
            session = self._tree.find_session(id)
            if session is None:
                raise NotFoundError("session", id)
            self._repairer.put_held(held, SessionUpdated(info=replace(session, parent_id=None)))
        return "made a top-level session"

    def _remove_duplicates(self, id: SessionID) -> str:
        with self._repairer.holding(session_lock(id)) as held:
            session = self._tree.find_session(id)
            if session is None:
                return ""
            self._repairer.put_held(held, SessionUpdated(info=session))
        return f"kept in {session.project_id} only"

    def _move_to_project(self, id: SessionID) -> str:
        project = self._homes.get(id)
        if project is None:
            return ""
        with self._repairer.holding(session_lock(id)) as held:
            session = self._tree.find_session(id)
            if session is None:
                return ""
            moved = replace(session, project_id=project)
            self._repairer.put_held(held, SessionUpdated(info=moved))
        return f"moved to {moved.project_id}"
