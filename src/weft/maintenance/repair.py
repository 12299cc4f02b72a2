"""Repair what needs nobody's judgement; originals go to `.weft/backup` first."""

import os
import stat
from collections.abc import Iterable
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import NotFoundError, WeftError
from weft.host.machine import OTHERS
from weft.maintenance.doctor import look_around_tree
from weft.maintenance.environment import Case
from weft.maintenance.findings import Finding, Item
from weft.maintenance.stray_sessions import find_strays
from weft.model.event import SessionCreated, SessionUpdated
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.readable import plural
from weft.search.database import discard
from weft.store.files.layout import SUFFIX, session_lock
from weft.store.files.lock import drop_abandoned
from weft.store.files.reader import Tree
from weft.store.files.repair import Caretaker, rebuilt


class Cured(Struct, frozen=True, kw_only=True):
    """What became of one item: what was done, or why it could not be."""

    where: str
    done: str = ""
    failed: str = ""


class Doctor:
    """Puts right what was found, one item after the other: one that fails holds up no other."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._caretaker = Caretaker(Tree(case.root), "doctor", case.now)
        self._layout = self._caretaker.layout
        self._tree = self._caretaker.tree

    @property
    def backup(self) -> str:
        """Where the originals are; "" if nothing had to be laid aside."""
        return self._caretaker.backup if os.path.isdir(self._caretaker.backup) else ""

    @cached_property
    def _homes(self) -> dict[SessionID, ProjectID]:
        """Where the sessions belong that are recorded elsewhere."""
        return {stray.session.id: stray.project for stray in find_strays(look_around_tree(self._tree))}

    def treat(self, findings: Iterable[Finding]) -> list[Cured]:
        return [self._try(finding, item) for finding in findings if finding.cure for item in finding.items]

    def _try(self, finding: Finding, item: Item) -> Cured:
        try:
            done = self._cure(finding, item)
        except WeftError as error:
            return Cured(where=item.where, failed=str(error))
        except OSError as error:
            return Cured(where=item.where, failed=error.strerror or str(error))
        return Cured(where=item.where, done=done) if done else Cured(where=item.where, failed="left as it is")

    def _cure(self, finding: Finding, item: Item) -> str:
        match finding.cure:
            case "":
                return ""
            case "lock-up":
                return self._lock_up(item.where)
            case "recover":
                self._caretaker.recover()
                return "" if os.path.lexists(item.where) else "finished or swept away"
            case "lay-aside":
                return self._lay_aside(item.where)
            case "rebuild":
                return self._rebuild(SessionID(os.path.basename(item.where)))
            case "uproot":
                return self._uproot(SessionID(item.where))
            case "unite":
                return self._unite(SessionID(os.path.basename(item.where).removesuffix(SUFFIX)))
            case "unindex":
                discard(item.where)
                return "removed; the next search makes it anew"
            case "drop-lease":
                session = SessionID(os.path.basename(item.where))
                return "removed" if drop_abandoned(self._layout, session) else ""
            case "adopt":
                return self._adopt(SessionID(item.where))

    def _lock_up(self, path: str) -> str:
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~OTHERS)
        return "closed to others"

    def _lay_aside(self, path: str) -> str:
        """Out of the way with what cannot be read. What hangs on it comes along, or is saved."""
        words = self._layout.relative(path).removesuffix(SUFFIX).split("/")
        match words:
            case ["session", project, id]:
                return self._save(SessionID(id), ProjectID(project), path)
            case ["message", session, id]:
                with self._caretaker.holding(session_lock(SessionID(session))):
                    self._caretaker.lay_aside(self._layout.parts(MessageID(id)))
                    return "laid aside with its parts" if self._caretaker.lay_aside(path) else ""
            case ["part", _, _] | ["session_diff" | "todo" | "project", _]:
                with self._caretaker.holding("care"):
                    return "laid aside" if self._caretaker.lay_aside(path) else ""
            case _:
                return ""

    def _save(self, id: SessionID, project: ProjectID, path: str) -> str:
        with self._caretaker.holding(session_lock(id)) as held:
            self._caretaker.lay_aside(path)
            if self._tree.find_session(id) is not None:
                return "laid aside; another document of it is whole"
            return "laid aside; " + self._make_anew(id, held, project)

    def _rebuild(self, id: SessionID) -> str:
        with self._caretaker.holding(session_lock(id)) as held:
            return "" if self._tree.projects_of(id) else self._make_anew(id, held)

    def _make_anew(self, id: SessionID, held: tuple[str, ...], project: ProjectID | None = None) -> str:
        messages = self._caretaker.messages.list_messages(id)
        session = rebuilt(id, messages, self._tree.list_projects(), project=project)
        if session is None:
            return "it has no messages to make it from"
        self._caretaker.put_held(held, SessionCreated(info=session))
        return f"made anew from {plural(len(messages), 'message')}"

    def _uproot(self, id: SessionID) -> str:
        with self._caretaker.holding(session_lock(id)) as held:
            session = self._tree.find_session(id)
            if session is None:
                raise NotFoundError("session", id)
            self._caretaker.put_held(held, SessionUpdated(info=replace(session, parent_id=None)))
        return "stands by itself now"

    def _unite(self, id: SessionID) -> str:
        with self._caretaker.holding(session_lock(id)) as held:
            session = self._tree.find_session(id)
            if session is None:
                return ""
            self._caretaker.put_held(held, SessionUpdated(info=session))
        return f"is in {session.project_id} alone now"

    def _adopt(self, id: SessionID) -> str:
        project = self._homes.get(id)
        if project is None:
            return ""
        with self._caretaker.holding(session_lock(id)) as held:
            session = self._tree.find_session(id)
            if session is None:
                return ""
            moved = replace(session, project_id=project)
            self._caretaker.put_held(held, SessionUpdated(info=moved))
        return f"recorded in {moved.project_id}"
