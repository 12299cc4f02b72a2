"""A store in dictionaries: the reference that every other backend is compared with, and the fastest one for tests."""

from collections.abc import Iterable
from typing import Any

from weft.errors import NotFoundError
from weft.model.diff import FileDiff
from weft.model.event import (
    Durable,
    MessageRemoved,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    ProjectUpdated,
    SessionCreated,
    SessionDeleted,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import MessageWithParts
from weft.model.project import Project
from weft.model.session import Session, newest_first
from weft.model.todo import Todo
from weft.model.transcript import Transcript
from weft.model.wire import encode, parse
from weft.store.contract import Key, SessionEditor
from weft.store.damage import Damage


class MemoryStore:
    def __init__(self) -> None:
        self._projects: dict[ProjectID, Project] = {}
        self._sessions: dict[SessionID, Session] = {}
        self._transcripts: dict[SessionID, Transcript] = {}
        self._diffs: dict[SessionID, tuple[FileDiff, ...]] = {}
        self._todos: dict[SessionID, tuple[Todo, ...]] = {}
        self._kept: dict[Key, bytes] = {}

    async def apply(self, *events: Durable) -> None:
        for event in events:
            match event:
                case ProjectUpdated(info=project):
                    self._projects[project.id] = project
                case SessionCreated(info=session) | SessionUpdated(info=session):
                    self._sessions[session.id] = session
                case SessionDeleted(info=session):
                    self._forget(session.id)
                case SessionDiffed(session_id=id, diff=diff):
                    self._diffs[id] = diff
                case TodoUpdated(session_id=id, todos=todos):
                    self._todos[id] = todos
                case MessageUpdated(info=message):
                    self._transcript(message.session_id).feed(event)
                case PartUpdated(part=part):
                    self._transcript(part.session_id).feed(event)
                case MessageRemoved() | PartRemoved() | PartGrew():
                    self._transcript(event.session_id).feed(event)

    async def edit(self, session: SessionID, editor: SessionEditor) -> Session:
        edited = editor(await self.get_session(session))
        self._sessions[session] = edited
        return edited

    async def list_projects(self) -> list[Project]:
        return sorted(self._projects.values(), key=lambda project: (project.time.created, project.id))

    async def find_project(self, id: ProjectID) -> Project | None:
        return self._projects.get(id)

    async def list_sessions(self, project: ProjectID | None = None) -> list[Session]:
        return oldest_first(s for s in self._sessions.values() if project in (None, s.project_id))

    async def get_session(self, id: SessionID) -> Session:
        if id not in self._sessions:
            raise NotFoundError("session", id)
        return self._sessions[id]

    async def list_messages(self, session: SessionID, *, last: int | None = None) -> list[MessageWithParts]:
        messages = self._transcript(session).messages()
        return messages if last is None else messages[max(0, len(messages) - last) :]

    async def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None:
        return self._transcript(session).find(id)

    async def list_diff(self, session: SessionID) -> list[FileDiff]:
        return list(self._diffs.get(session, ()))

    async def list_todos(self, session: SessionID) -> list[Todo]:
        return list(self._todos.get(session, ()))

    async def keep(self, key: Key, value: Any) -> None:
        if value is None:
            self._kept.pop(key, None)
        else:
            self._kept[key] = encode(value)  # so that whoever changes it later does not change it here

    async def kept(self, key: Key) -> Any:
        raw = self._kept.get(key)
        return None if raw is None else parse(raw)

    async def damage(self) -> list[Damage]:
        return []

    def _transcript(self, session: SessionID) -> Transcript:
        return self._transcripts.setdefault(session, Transcript())

    def _forget(self, session: SessionID) -> None:
        for drawer in (self._sessions, self._transcripts, self._diffs, self._todos):
            drawer.pop(session, None)


def oldest_first(sessions: Iterable[Session]) -> list[Session]:
    return sorted(sessions, key=newest_first, reverse=True)
