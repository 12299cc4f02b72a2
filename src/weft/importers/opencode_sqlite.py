"""Sessions out of the SQLite file of OpenCode 1.2 and later."""

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from weft.errors import DocumentError
from weft.host.files import read_file
from weft.importers.transcript import Found, Read, Trouble
from weft.model.diff import FileDiff
from weft.model.ids import file_name
from weft.model.message import AnyMessage, MessageWithParts
from weft.model.parcel import Counts, Parcel
from weft.model.part import AnyPart
from weft.model.project import Project
from weft.model.session import Session, Todo
from weft.model.wire import decode, from_plain, parse
from weft.store.files.documents import LIMIT
from weft.store.opencode_database import OpenCodeDatabase, Row, to_session
from weft.transfer.document import sound


class OpenCodeSqlite:
    """A row that cannot be read is named and left out; the rest of its session is not."""

    def __init__(self, database: OpenCodeDatabase) -> None:
        self._database = database

    def projects(self) -> list[Project]:
        return [from_plain(row, Project, where=f"project {row['id']}") for row in self._database.projects()]

    def found(self) -> list[Found]:
        return [Found(name=row["id"], read=partial(self._read, row)) for row in self._database.sessions()]

    def troubles(self) -> Iterator[Trouble]:
        yield from ()

    def _read(self, row: Row) -> Read:
        id = file_name("session", row["id"])
        troubles: list[Trouble] = []
        messages = self._messages(id, troubles)
        parcel = Parcel(
            info=self._info(row),
            messages=tuple(messages),
            todos=from_plain(self._database.todos(id), tuple[Todo, ...], where=f"todos of {id}"),
            diff=self._diff(id, troubles),
        )
        held = self._database.count(id)
        counted = Counts(messages=held[0], parts=held[1], todos=held[2], diffs=len(parcel.diff))
        return Read(parcel=sound(parcel, where=id), counted=counted, troubles=tuple(troubles))

    def _info(self, row: Row) -> Session:
        try:
            return from_plain(to_session(row), Session, where=row["id"])
        except ValueError as error:
            raise DocumentError(row["id"], f"a column of its row is not JSON: {error}") from error

    def _messages(self, session: str, troubles: list[Trouble]) -> Iterator[MessageWithParts]:
        parts: dict[str, list[AnyPart]] = {}
        for id, message, raw in self._database.parts(session):
            ids = {"id": id, "sessionID": session, "messageID": message}
            parts.setdefault(message, []).extend(_decoded(raw, AnyPart, ids, troubles))
        for id, raw in self._database.messages(session):
            for info in _decoded(raw, AnyMessage, {"id": id, "sessionID": session}, troubles):
                yield MessageWithParts(info=info, parts=tuple(parts.pop(id, ())))
        for message, orphans in parts.items():
            troubles += [
                Trouble(where=part.id, reason=f"its message {message} cannot be read") for part in orphans
            ]

    def _diff(self, session: str, troubles: list[Trouble]) -> tuple[FileDiff, ...]:
        """The first versions that had a database went on keeping what became of files in a file of its own."""
        path = os.path.join(
            os.path.dirname(self._database.path), "storage", "session_diff", f"{session}.json"
        )
        try:
            found: tuple[FileDiff, ...] = decode(
                read_file(path, limit=LIMIT)[0], tuple[FileDiff, ...], where=path
            )
        except FileNotFoundError:
            return ()
        except (DocumentError, OSError) as error:
            troubles.append(Trouble(where=path, reason=str(error)))
            return ()
        return found


def _decoded(raw: bytes, kind: Any, ids: dict[str, str], troubles: list[Trouble]) -> list[Any]:
    """One value, or none and a trouble. The columns hold a row's ids, its JSON does not."""
    try:
        plain = parse(raw, where=ids["id"])
        if not isinstance(plain, dict):
            raise DocumentError(ids["id"], "not an object")
        return [from_plain({**ids, **plain, **ids}, kind, where=ids["id"])]
    except DocumentError as error:
        troubles.append(Trouble(where=error.where, reason=error.reason))
        return []
