"""Select messages with their parts, and build them from rows."""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import apsw
from msgspec.structs import replace

from weft.errors import DocumentError, NotFoundError
from weft.model.ids import MessageID, SessionID
from weft.model.message import AnyMessage, MessageWithParts, message_sort_key, sort_parts
from weft.model.part import AnyPart, ReasoningPart, TextPart
from weft.model.wire import decode_many
from weft.store.rows import to_ascii
from weft.store.sqlite.connection import SqlRow, select
from weft.store.sqlite.events import find_history, fold_growth

# Messages of one time and position are sorted by id (see `_sort_ties`): SQLite would sort all of them once more.
IN_ORDER = "ORDER BY created, position"
NEWEST_FIRST = "ORDER BY created DESC, position DESC, id DESC LIMIT ?"
SELECT_MESSAGES = "SELECT id, document FROM message WHERE history = ?"
SELECT_PLACE = "SELECT created, position, id FROM message WHERE history = ? AND id = ?"
SELECT_PARTS = "SELECT message, id, number, document FROM part WHERE history = ?"
SELECT_GROWTH = "SELECT part, start, delta FROM growth WHERE history = ?"

ReportDamage = Callable[[str, str, DocumentError], None]


class MessageRows(NamedTuple):
    """The rows of some messages of a session, oldest first, their parts, and the growth of those."""

    messages: list[SqlRow]
    parts: list[SqlRow]
    growth: list[SqlRow]


NO_ROWS = MessageRows([], [], [])


def select_messages(
    connection: apsw.Connection, session: SessionID, *, last: int | None, before: MessageID | None
) -> MessageRows:
    """Select the `last` messages, counted back from `before`. Raise `NotFoundError` if that does not exist."""
    history = find_history(connection, session)
    if before is None and last is None:
        return select_history(connection, history)
    condition, values = "", [history]
    if before is not None:
        place = select(connection, SELECT_PLACE, (history, to_ascii(before)))
        if not place:
            raise NotFoundError("message", before)
        condition = " AND (created, position, id) < (?, ?, ?)"
        values += place[0]
    messages = select(
        connection,
        f"{SELECT_MESSAGES}{condition} {NEWEST_FIRST}",
        (*values, -1 if last is None else max(0, last)),
    )
    messages.reverse()
    return _select_parts_of(connection, history, messages)


def select_message(connection: apsw.Connection, session: SessionID, id: MessageID) -> MessageRows:
    """Select one message, if it exists."""
    return select_some_messages(connection, find_history(connection, session), [id])


def select_some_messages(connection: apsw.Connection, history: int | None, ids: Sequence[str]) -> MessageRows:
    """Select those of these messages that exist, in any order."""
    messages = select(
        connection,
        f"{SELECT_MESSAGES} AND id IN (SELECT value FROM json_each(?))",
        (history, json.dumps(ids)),
    )
    return _select_parts_of(connection, history, messages)


def select_history(connection: apsw.Connection, history: int | None) -> MessageRows:
    """Select all messages of a history, also of one in the trash."""
    if history is None:
        return NO_ROWS
    return MessageRows(
        select(connection, f"{SELECT_MESSAGES} {IN_ORDER}", (history,)),
        select(connection, SELECT_PARTS, (history,)),
        select(connection, f"{SELECT_GROWTH} ORDER BY number", (history,)),
    )


def _select_parts_of(connection: apsw.Connection, history: int | None, messages: list[SqlRow]) -> MessageRows:
    ids = json.dumps([id for id, _ in messages])
    parts = select(
        connection, f"{SELECT_PARTS} AND message IN (SELECT value FROM json_each(?))", (history, ids)
    )
    growth = select(connection, f"{SELECT_GROWTH} ORDER BY number", (history,))
    return MessageRows(messages, parts, growth)


def build_messages(session: str, rows: MessageRows, report: ReportDamage) -> list[MessageWithParts]:
    """Build messages from their rows (pure). Leave out what is unreadable, and report it."""
    parts = _build_parts(session, rows, report)
    infos = decode_many([document for _, document in rows.messages], AnyMessage)
    found: list[MessageWithParts] = []
    for (id, _), info in zip(rows.messages, infos, strict=True):
        if type(info) is DocumentError:  # `isinstance` takes longer if the answer is no
            report("message", f"{session}/{id}", info)
            continue
        found.append(MessageWithParts(info=info, parts=sort_parts(parts.get(id, ()), info)))
    return _sort_ties(found)


def _sort_ties(messages: list[MessageWithParts]) -> list[MessageWithParts]:
    """Sort messages of one time. All others are in order already."""
    times = [message.info.time.created for message in messages]
    if len(set(times)) == len(times):
        return messages
    return sorted(messages, key=lambda message: message_sort_key(message.info))


def _build_parts(session: str, rows: MessageRows, report: ReportDamage) -> dict[str, list[AnyPart]]:
    grown: dict[int, list[tuple[int, bytes]]] = {}
    for number, start, delta in rows.growth:
        grown.setdefault(number, []).append((start, delta))
    parts: dict[str, list[AnyPart]] = {}
    decoded = decode_many([row[3] for row in rows.parts], AnyPart)
    for (message, id, number, _), part in zip(rows.parts, decoded, strict=True):
        if type(part) is DocumentError:
            report("part", f"{session}/{message}/{id}", part)
            continue
        if number in grown and isinstance(part, TextPart | ReasoningPart):
            part = replace(part, text=fold_growth(part.text, grown[number]))  # noqa: PLW2901
        own = parts.get(message)
        if own is None:
            parts[message] = [part]
        else:
            own.append(part)
    return parts
