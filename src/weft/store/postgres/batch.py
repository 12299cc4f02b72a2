"""Fold the events of one `apply` into the rows that it deletes and puts (pure)."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

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
from weft.model.ids import check_file_name, check_file_names
from weft.model.message import AnyMessage
from weft.model.part import AnyPart
from weft.model.project import Project
from weft.model.session import SessionInfo
from weft.model.transcript import grow_part
from weft.model.wire import encode
from weft.store.chain import collect_changes, encode_documents, encode_entry
from weft.store.lease import LeaseToken
from weft.store.rows import (
    MAX_INTEGER,
    SessionRow,
    to_ascii,
    to_bytes,
    to_integer,
    to_message_columns,
    to_part_columns,
    to_session_row,
)

DIFF, TODO = "diff", "todo"

MessageKey = tuple[str, str]
PartKey = tuple[str, str, str]
DetailKey = tuple[str, str]


class _GrowthRow(NamedTuple):
    session: str
    message: str
    part: str
    position: int
    delta: bytes


class RowBatch:
    """What a sequence of events changes, after the order of events has been taken into account.

    What is gone is deleted first, then rows are put, then growth is appended to parts that the batch does not put.
    """

    def __init__(self, events: Iterable[Durable] = ()) -> None:
        self._gone_sessions: set[str] = set()
        self._gone_messages: set[MessageKey] = set()
        self._gone_parts: set[PartKey] = set()
        # Values with their encoded documents, and documents alone.
        self._projects: dict[str, tuple[Project, bytes]] = {}
        self._sessions: dict[str, tuple[SessionInfo, bytes]] = {}
        self._details: dict[DetailKey, bytes] = {}
        self._messages: dict[MessageKey, tuple[AnyMessage, bytes]] = {}
        self._parts: dict[PartKey, tuple[AnyPart, bytes]] = {}
        self._growth: list[_GrowthRow] = []
        self._dirty: set[MessageKey] = set()
        events = list(events)
        documents = encode_documents(events)
        self._chained = collect_changes(events, documents)
        for event, document in zip(events, documents, strict=True):
            self._feed(event, document)

    def _feed(self, event: Durable, document: bytes) -> None:
        match event:
            case ProjectUpdated(info=project):
                self._projects[check_file_name("project", project.id)] = project, document
            case SessionCreated(info=session) | SessionUpdated(info=session):
                self._sessions[session.id] = session, document
                self._dirty.add((session.id, ""))
            case SessionDeleted(info=session):
                self._delete_session(check_file_name("session", session.id))
            case SessionDiffed(session_id=id):
                self._details[check_file_name("session", id), DIFF] = document
            case TodoUpdated(session_id=id):
                self._details[check_file_name("session", id), TODO] = document
            case MessageUpdated(info=message):
                self._messages[message.session_id, message.id] = message, document
                self._dirty.add((message.session_id, message.id))
            case MessageRemoved():
                self._remove_message((to_ascii(event.session_id), to_ascii(event.message_id)))
            case PartUpdated(part=part):
                self._put_part(part, document)
            case PartRemoved():
                self._remove_part(event)
            case PartGrew():
                self._grow(event)

    def _delete_session(self, id: str) -> None:
        self._gone_sessions.add(id)
        self._sessions.pop(id, None)
        self._details = {key: value for key, value in self._details.items() if key[0] != id}
        self._messages = {key: value for key, value in self._messages.items() if key[0] != id}
        self._parts = {key: value for key, value in self._parts.items() if key[0] != id}
        self._growth = [growth for growth in self._growth if growth.session != id]
        self._dirty = {key for key in self._dirty if key[0] != id}

    def _remove_message(self, key: MessageKey) -> None:
        self._gone_messages.add(key)
        self._messages.pop(key, None)
        self._parts = {part: value for part, value in self._parts.items() if part[:2] != key}
        self._growth = [growth for growth in self._growth if growth[:2] != key]
        self._dirty.discard(key)

    def _put_part(self, part: AnyPart, document: bytes) -> None:
        key = (part.session_id, part.message_id, part.id)
        self._parts[key] = part, document
        self._growth = [growth for growth in self._growth if growth[:3] != key]
        self._dirty.add(key[:2])

    def _remove_part(self, event: PartRemoved) -> None:
        key = (to_ascii(event.session_id), to_ascii(event.message_id), to_ascii(event.part_id))
        self._gone_parts.add(key)
        self._parts.pop(key, None)
        self._growth = [growth for growth in self._growth if growth[:3] != key]
        self._dirty.add(key[:2])

    def _grow(self, event: PartGrew) -> None:
        key = (to_ascii(event.session_id), to_ascii(event.message_id), to_ascii(event.part_id))
        if key in self._parts:
            grown = grow_part(self._parts[key][0], event)
            self._parts[key] = grown, encode(grown)
        elif event.field == "text" and 0 <= event.offset <= MAX_INTEGER and not self._is_gone(key):
            self._growth.append(_GrowthRow(*key, event.offset, to_bytes(event.delta)))
            self._dirty.add(key[:2])

    def _is_gone(self, part: PartKey) -> bool:
        return part in self._gone_parts or part[:2] in self._gone_messages or part[0] in self._gone_sessions

    def to_arguments(
        self, leases: Sequence[LeaseToken], *, revision: int, now: int, expected: int | None = None
    ) -> tuple[Any, ...]:
        """Return the arguments of the functions `apply` (see schema/0002_functions.sql) and, last, `extend_chains` (see
        schema/0005_chain.sql).

        `revision` is the new one of every row. `expected` is what the only session of the batch must have.
        """
        # Rows are sorted, so that two writers lock them in the same order.
        message_keys, part_keys = sorted(self._messages), sorted(self._parts)
        check_file_names("session", {key[0] for key in (*message_keys, *part_keys)})
        found_messages = [self._messages[key] for key in message_keys]
        found_parts = [self._parts[key] for key in part_keys]
        parts = to_part_columns([part for part, _ in found_parts], [document for _, document in found_parts])
        projects = [
            (id, to_integer(self._projects[id][0].time.created), self._projects[id][1])
            for id in sorted(self._projects)
        ]
        details = [(*key, self._details[key]) for key in sorted(self._details)]
        return (
            *_to_columns([(to_ascii(token.session), token.generation) for token in leases], 2),
            expected,
            revision,
            sorted(self._gone_sessions),
            *_to_columns(sorted(self._gone_messages), 2),
            *_to_columns(sorted(self._gone_parts), 3),
            *_to_columns(projects, 3),
            *_to_columns(
                [to_session_row(*self._sessions[id]) for id in sorted(self._sessions)],
                len(SessionRow._fields),
            ),
            *_to_columns(details, 3),
            [key[0] for key in message_keys],
            *to_message_columns(
                [message for message, _ in found_messages], [document for _, document in found_messages]
            ),
            [key[0] for key in part_keys],
            *parts._replace(lengths=[length is not None for length in parts.lengths]),
            *_to_columns(self._growth, len(_GrowthRow._fields)),
            *_to_columns(sorted(self._dirty), 2),
            *_to_columns(
                [(to_ascii(id), encode_entry(changes, now=now)) for id, changes in self._chained.items()], 2
            ),
        )


def _to_columns(rows: Sequence[tuple[Any, ...]], width: int) -> Sequence[Sequence[Any]]:
    """Turn rows into one list for each column."""
    return list(zip(*rows, strict=True)) if rows else [()] * width
