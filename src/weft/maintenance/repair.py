"""Carry out the repairs that need no decision by the user. The store backs up the originals first."""

import os
import stat
from collections.abc import Iterable
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import NotFoundError, WeftError
from weft.host.machine import PUBLIC_BITS
from weft.maintenance.environment import DoctorInput
from weft.maintenance.project_repair import find_misfiled, read_overview_now
from weft.model.display import format_count
from weft.model.health import DoctorFinding, FindingItem
from weft.model.ids import ProjectID, SessionID
from weft.store.findings import SetAside

LABEL = "doctor"


class RepairResult(Struct, frozen=True, kw_only=True):
    """What happened to one item: what was done, or why it failed."""

    where: str
    done: str = ""
    failed: str = ""


class FindingRepairer:
    """Repairs findings item by item. A failure does not stop the others."""

    def __init__(self, target: DoctorInput) -> None:
        self._store = target.open_maintenance()
        self._repairer = self._store.make_repairer(LABEL, now=target.now)

    @property
    def backup(self) -> str:
        """Where the backup is; "" if nothing was backed up."""
        return self._repairer.backup

    @cached_property
    def _projects(self) -> dict[SessionID, ProjectID]:
        """The right project of each misfiled session."""
        return {
            misfiled.session.id: misfiled.project
            for misfiled in find_misfiled(read_overview_now(self._store.reader))
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
        if not done:
            return RepairResult(where=item.where, failed="nothing was changed")
        return RepairResult(where=item.where, done=done)

    def _repair(self, finding: DoctorFinding, item: FindingItem) -> str:
        """Repair one item. Return what was done, "" if nothing was changed."""
        session = item.session or SessionID("")
        match finding.cure:
            case "":
                return ""
            case "lock-up":
                return _restrict_permissions(item.where)
            case "recover":
                return "finished or removed" if self._repairer.finish_write(item.where) else ""
            case "lay-aside" | "salvage":
                return self._set_aside(item.where)
            case "rebuild":
                return _describe_rebuilt(self._repairer.rebuild_session(session))
            case "uproot":
                return self._clear_parent(session)
            case "unite":
                return self._remove_duplicates(session)
            case "unindex":
                self._repairer.drop_index()
                return "removed; the next search rebuilds it"
            case "drop-lease":
                return "removed" if self._repairer.drop_lease(session) else ""
            case "adopt":
                return self._move_to_project(session)

    def _set_aside(self, where: str) -> str:
        aside = self._repairer.set_aside(where)
        return "" if aside is None else f"moved to {aside.place or self.backup}{_describe(aside)}"

    def _clear_parent(self, id: SessionID) -> str:
        if self._repairer.edit_session(id, lambda session: replace(session, parent_id=None)) is None:
            raise NotFoundError("session", id)
        return "made a top-level session"

    def _remove_duplicates(self, id: SessionID) -> str:
        session = self._repairer.edit_session(id, lambda session: session)
        return "" if session is None else f"kept in {session.project_id} only"

    def _move_to_project(self, id: SessionID) -> str:
        project = self._projects.get(id)
        if project is None:
            return ""
        moved = self._repairer.edit_session(id, lambda session: replace(session, project_id=project))
        return "" if moved is None else f"moved to {project}"


def _restrict_permissions(path: str) -> str:
    os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~PUBLIC_BITS)
    return "other users can no longer read it"


def _describe(aside: SetAside) -> str:
    """Return a remark about a document that was moved to the backup, or about a whole database."""
    if aside.place:
        if not aside.salvaged:
            return "; no session in it can be read, so the new database has none"
        return f"; what can still be read was copied into a new database: {format_count(aside.salvaged, 'session')}"
    if aside.with_parts:
        return " with its parts"
    if aside.is_intact:
        return "; another document of it is intact"
    if aside.rebuilt_from is not None:
        return f"; {_describe_rebuilt(aside.rebuilt_from)}"
    return ""


def _describe_rebuilt(messages: int | None) -> str:
    if messages is None:
        return ""
    if not messages:
        return "it has no messages to rebuild it from"
    return f"rebuilt from {format_count(messages, 'message')}"
