"""A store in dictionaries: the reference for every other backend, and the fastest store for tests."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from weft.errors import ConflictError, NotFoundError, SessionBusyError
from weft.model.damage import Damage
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
from weft.model.message import MessageWithParts, find_end
from weft.model.project import Project
from weft.model.session import Session, Todo, TrashBundle, make_bundle_name, newest_sort_key
from weft.model.transcript import Transcript
from weft.model.wire import encode, parse
from weft.store.contract import Key, SessionEditor

Tables = tuple[dict[SessionID, Any], ...]


class MemoryStore:
    """Keeps everything in memory. Its contents end with the process."""

    def __init__(self) -> None:
        self._projects: dict[ProjectID, Project] = {}
        self._sessions: dict[SessionID, Session] = {}
        self._transcripts: dict[SessionID, Transcript] = {}
        self._diffs: dict[SessionID, tuple[FileDiff, ...]] = {}
        self._todos: dict[SessionID, tuple[Todo, ...]] = {}
        self._kept: dict[Key, bytes] = {}
        self._trash: dict[str, tuple[TrashBundle, Tables]] = {}
        self._owners: dict[SessionID, str] = {}

    async def apply(self, *events: Durable) -> None:
        for event in events:
            match event:
                case ProjectUpdated(info=project):
                    self._projects[project.id] = project
                case SessionCreated(info=session) | SessionUpdated(info=session):
                    self._sessions[session.id] = session
                case SessionDeleted(info=session):
                    self._take([session.id])
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
        return sort_oldest_first(s for s in self._sessions.values() if project in (None, s.project_id))

    async def get_session(self, id: SessionID) -> Session:
        if id not in self._sessions:
            raise NotFoundError("session", id)
        return self._sessions[id]

    async def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        messages = self._transcript(session).messages()
        messages = messages[: find_end(before, (message.info.id for message in messages))]
        return messages if last is None else messages[max(0, len(messages) - last) :]

    async def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None:
        return self._transcript(session).find(id)

    async def list_diff(self, session: SessionID) -> list[FileDiff]:
        return list(self._diffs.get(session, ()))

    async def list_todos(self, session: SessionID) -> list[Todo]:
        return list(self._todos.get(session, ()))

    async def discard(self, sessions: Sequence[SessionID], *, at: int) -> TrashBundle:
        found = [await self.get_session(id) for id in sessions]
        trashed = TrashBundle(id=make_bundle_name(at, sessions[0]), time=at, sessions=tuple(found))
        self._trash[trashed.id] = trashed, self._take(sessions)
        return trashed

    async def restore(self, bundle: str) -> TrashBundle:
        trashed, aside = self._bundle(bundle)
        for session in trashed.sessions:
            if session.id in self._sessions:
                raise ConflictError("session", session.id, "exists again")
        for table, removed in zip(self._tables(), aside, strict=True):
            table.update(removed)
        del self._trash[bundle]
        return trashed

    async def purge(self, bundle: str) -> None:
        self._bundle(bundle)
        del self._trash[bundle]

    async def list_trash(self) -> list[TrashBundle]:
        return sorted((trashed for trashed, _ in self._trash.values()), key=lambda it: (it.time, it.id))

    async def put_value(self, key: Key, value: Any) -> None:
        if value is None:
            self._kept.pop(key, None)
        else:
            self._kept[key] = encode(
                value
            )  # encoded, so that later changes to the caller's value have no effect here

    async def find_value(self, key: Key) -> Any:
        raw = self._kept.get(key)
        return None if raw is None else parse(raw)

    async def update_value(self, key: Key, change: Callable[[Any], Any]) -> Any:
        new_value = change(await self.find_value(key))
        await self.put_value(key, new_value)
        return new_value

    @asynccontextmanager
    async def lease(self, session: SessionID, owner: str) -> AsyncIterator[None]:
        if session in self._owners:
            raise SessionBusyError(session, self._owners[session])
        self._owners[session] = owner
        try:
            yield
        finally:
            del self._owners[session]

    async def find_holder(self, session: SessionID) -> str | None:
        return self._owners.get(session)

    async def list_abandoned(self) -> list[SessionID]:
        return []  # leases end with the process, so none can be left behind

    async def damage(self) -> list[Damage]:
        return []

    def _transcript(self, session: SessionID) -> Transcript:
        return self._transcripts.setdefault(session, Transcript())

    def _take(self, sessions: Iterable[SessionID]) -> Tables:
        """Remove everything that belongs to these sessions and return it."""
        return tuple({id: table.pop(id) for id in sessions if id in table} for table in self._tables())

    def _tables(self) -> Tables:
        return self._sessions, self._transcripts, self._diffs, self._todos

    def _bundle(self, id: str) -> tuple[TrashBundle, Tables]:
        if id not in self._trash:
            raise NotFoundError("bundle in the trash", id)
        return self._trash[id]


def sort_oldest_first(sessions: Iterable[Session]) -> list[Session]:
    return sorted(sessions, key=newest_sort_key, reverse=True)
