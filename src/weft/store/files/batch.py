"""Compute what a batch of events changes in the tree, before anything is written."""

import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from weft.host.files import read_file
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
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage
from weft.model.part import AnyPart
from weft.model.session import SessionInfo
from weft.model.transcript import grow_part
from weft.model.wire import encode_pretty
from weft.store.chain import ChainedChanges, collect_changes, encode_documents
from weft.store.files.documents import LIMIT
from weft.store.files.growth import (
    FIELD,
    GrowthPiece,
    can_grow,
    encode_header,
    encode_pieces,
    find_growth_end,
)
from weft.store.files.layout import SUFFIX, Layout, project_lock, session_lock
from weft.store.files.messages import MessageReader
from weft.store.files.tree import Tree, list_part_owners


class GrowthAppend(Struct, frozen=True):
    """Bytes to append to a growth file, and the offset where they go."""

    path: str
    at: int
    raw: bytes


class WritePlan(Struct, frozen=True):
    """The changes of one batch: directories to clear, paths to move, documents to put and drop; or one append alone.

    `tidy` are files that have no effect afterwards; removing them may fail. A `fresh` directory does not exist yet and
    nobody else knows its name, so it can be renamed into place with all its files. `chained` are the changes that the chains of
    their sessions record.
    """

    clears: list[str]
    puts: dict[str, bytes]
    drops: list[str]
    extension: GrowthAppend | None
    tidy: list[str]
    moves: Mapping[str, str] = MappingProxyType({})
    fresh: frozenset[str] = frozenset()
    chained: Mapping[SessionID, ChainedChanges] = MappingProxyType({})


def must_flush(event: Durable) -> bool:
    """Return True if somebody relies on this event once it is applied, so that it must reach the disk first.

    Everything else only has to outlive the process: until the message of a running step is complete, a power cut may
    lose what the step wrote.
    """
    match event:
        case SessionCreated() | SessionDeleted() | MessageRemoved() | PartRemoved():
            return True
        case MessageUpdated(info=AssistantMessage(time=time)):
            return time.completed is not None
        case MessageUpdated():
            return True
        case (
            ProjectUpdated() | SessionUpdated() | SessionDiffed() | TodoUpdated() | PartUpdated() | PartGrew()
        ):
            return False


def lock_of(event: Durable) -> str:
    """Return the lock that guards what this event changes."""
    match event:
        case ProjectUpdated(info=project):
            return project_lock(project.id)
        case SessionCreated(info=session) | SessionUpdated(info=session) | SessionDeleted(info=session):
            return session_lock(session.id)
        case MessageUpdated(info=message):
            return session_lock(message.session_id)
        case PartUpdated(part=part):
            return session_lock(part.session_id)
        case SessionDiffed() | TodoUpdated() | MessageRemoved() | PartGrew() | PartRemoved():
            return session_lock(event.session_id)


class Batch:
    """Folds events into a plan. If two events touch the same document, the later one wins."""

    def __init__(self, tree: Tree, messages: MessageReader) -> None:
        self._tree = tree
        self._messages = messages
        self._layout: Layout = tree.layout
        self._puts: dict[str, Any] = {}
        self._compact: dict[str, bytes] = {}  # the encoded documents of puts, as far as they are known
        self._drops: dict[str, None] = {}
        self._clears: dict[str, None] = {}
        self._tidy: dict[str, None] = {}
        self._growths: dict[tuple[MessageID, PartID], list[PartGrew]] = {}
        self._parts: dict[str, tuple[MessageID, PartID]] = {}
        self._new: set[SessionID] = set()
        self._chained: Mapping[SessionID, ChainedChanges] = {}

    def feed(self, events: Sequence[Durable]) -> None:
        """Take all events of the batch."""
        documents = encode_documents(events)
        for event, document in zip(events, documents, strict=True):
            self._feed(event, document)
        self._chained = collect_changes(events, documents)

    def _feed(self, event: Durable, document: bytes) -> None:
        layout = self._layout
        match event:
            case ProjectUpdated(info=project):
                self._put(layout.project(project.id), project, document)
            case SessionCreated(info=session):
                if not self._tree.projects_of(session.id):
                    self._new.add(session.id)
                self._put_session(session, document)
            case SessionUpdated(info=session):
                self._put_session(session, document)
            case SessionDeleted(info=session):
                self._delete_session(session.id)
            case SessionDiffed(session_id=session_id, diff=diff):
                self._put(layout.diff(session_id), diff, document)
            case TodoUpdated(session_id=session_id, todos=todos):
                self._put(layout.todo(session_id), todos, document)
            case MessageUpdated(info=message):
                self._put(layout.message(message.session_id, message.id), message, document)
            case MessageRemoved(session_id=session_id, message_id=id):
                self._drop(layout.message(session_id, id))
                self._clear_parts([id])
            case PartUpdated(part=part):
                self._put_part(part.message_id, part.id, part, document)
            case PartRemoved(message_id=message_id, part_id=id):
                self._growths.pop((message_id, id), None)
                self._drop(layout.part(message_id, id))
                self._tidy[layout.growth(message_id, id)] = None
            case PartGrew():
                self._grow(event)

    def plan(self) -> WritePlan:
        for id, changes in self._chained.items():
            if changes.restarted:
                self._drops.pop(self._layout.chain(id), None)  # the new chain replaces it
        extension = self._settle_growth()
        fresh = self._list_fresh()
        puts = {
            path: encode_pretty(value, compact=self._compact.get(path)) for path, value in self._puts.items()
        }
        for path, raw in list(puts.items()):
            known = path in self._parts and os.path.dirname(path) not in fresh
            growth = self._layout.growth(*self._parts[path]) if known else ""
            if growth and find_growth_end(growth, raw):
                # Growth is tied to the exact bytes of a document. These are the same bytes again, so the old growth must go.
                self._drops[growth] = None
                if _read(path) == raw:
                    del puts[path]
        return WritePlan(
            clears=[path for path in self._clears if os.path.lexists(path)],
            puts=puts,
            drops=[path for path in self._drops if os.path.lexists(path)],
            extension=extension,
            tidy=[path for path in self._tidy if path not in self._drops and os.path.lexists(path)],
            fresh=fresh,
            chained=self._chained,
        )

    def _list_fresh(self) -> frozenset[str]:
        """Return the directories that do not exist yet and will hold the messages and parts of a new session."""
        if not self._new:
            return frozenset()
        directories = {
            os.path.dirname(path)
            for path, value in self._puts.items()
            if getattr(value, "session_id", None) in self._new
        }
        return frozenset(path for path in directories if not os.path.lexists(path))

    # --- sessions ---

    def _put_session(self, session: SessionInfo, document: bytes) -> None:
        # A session may move to another project. Its document then belongs into that project's directory only.
        path = self._layout.session(session.project_id, session.id)
        self._drop_session(session.id)
        self._put(path, session, document)

    def _drop_session(self, id: SessionID) -> None:
        name = f"/{id}{SUFFIX}"
        for path in [
            path for path in self._puts if path.endswith(name) and isinstance(self._puts[path], SessionInfo)
        ]:
            self._drop(path)
        for project in self._tree.projects_of(id):
            self._drop(self._layout.session(project, id))

    def _delete_session(self, id: SessionID) -> None:
        self._drop_session(id)
        self._drop(self._layout.diff(id))
        self._drop(self._layout.todo(id))
        self._drop(self._layout.chain(id))
        for path in [path for path, value in self._puts.items() if getattr(value, "session_id", None) == id]:
            self._drop(path)
        self._clear(self._layout.messages(id))
        self._clear_parts(list_part_owners(self._tree, [id]))

    # --- parts ---

    def _clear_parts(self, messages: Iterable[MessageID]) -> None:
        for message in messages:
            self._clear(self._layout.parts(message))
            self._tidy[self._layout.growth_directory(message)] = None
            for key in [key for key in self._growths if key[0] == message]:
                del self._growths[key]

    def _put_part(self, message: MessageID, id: PartID, part: AnyPart, document: bytes | None = None) -> None:
        path = self._layout.part(message, id)
        self._growths.pop((message, id), None)
        self._parts[path] = message, id
        self._tidy[self._layout.growth(message, id)] = None
        self._put(path, part, document)

    def _grow(self, event: PartGrew) -> None:
        path = self._layout.part(event.message_id, event.part_id)
        if path in self._puts:
            self._put(path, grow_part(self._puts[path], event))
        elif event.field == FIELD and not self._is_gone(path):
            self._growths.setdefault((event.message_id, event.part_id), []).append(event)

    def _settle_growth(self) -> GrowthAppend | None:
        """Return an append if growth is the only change. Otherwise write each grown part as a whole document."""
        growths = {key: growth for key, growth in self._growths.items() if self._can_grow(*key)}
        if len(growths) == 1 and not (self._puts or self._drops or self._clears):
            [((message, id), growth)] = growths.items()
            return self._to_append(message, id, growth)
        for (message, id), growth in growths.items():
            part = self._messages.find_part(message, id)
            if part is not None:
                for event in growth:
                    part = grow_part(part, event)
                self._put_part(message, id, part)
        return None

    def _to_append(self, message: MessageID, id: PartID, growth: list[PartGrew]) -> GrowthAppend:
        document = _read(self._layout.part(message, id))
        path = self._layout.growth(message, id)
        at = find_growth_end(path, document)
        lines = encode_pieces(GrowthPiece(offset=event.offset, delta=event.delta) for event in growth)
        return GrowthAppend(path, at, lines if at else encode_header(document) + lines)

    def _can_grow(self, message: MessageID, id: PartID) -> bool:
        part = self._tree.documents.find(self._layout.part(message, id), AnyPart)
        return part is not None and can_grow(part)

    # --- documents ---

    def _put(self, path: str, value: Any, document: bytes | None = None) -> None:
        self._drops.pop(path, None)
        self._puts[path] = value
        if document is None:
            self._compact.pop(path, None)
        else:
            self._compact[path] = document

    def _drop(self, path: str) -> None:
        self._puts.pop(path, None)
        self._drops[path] = None

    def _clear(self, directory: str) -> None:
        below = f"{directory}/"
        for documents in (self._puts, self._drops):
            for path in [path for path in documents if path.startswith(below)]:
                del documents[path]
        self._clears[directory] = None

    def _is_gone(self, path: str) -> bool:
        return path in self._drops or os.path.dirname(path) in self._clears


def _read(path: str) -> bytes:
    try:
        return read_file(path, limit=LIMIT)[0]
    except FileNotFoundError:
        return b""
