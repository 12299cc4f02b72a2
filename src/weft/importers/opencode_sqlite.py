"""Read sessions from the SQLite database of OpenCode 1.2 and later."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from weft.errors import DocumentError
from weft.host.files import read_file
from weft.importers.transcript import FoundSession, ImportedSession, ImportTrouble
from weft.model.diff import FileDiff
from weft.model.ids import check_file_name
from weft.model.message import AnyMessage, MessageWithParts
from weft.model.part import AnyPart
from weft.model.project import Project
from weft.model.session import SessionInfo, Todo
from weft.model.transfer import ExportCounts, SessionExport
from weft.model.wire import decode, from_plain, parse
from weft.store.opencode_database import OpenCodeDatabase, Row, to_project, to_session
from weft.transfer.document import check_export

DIFF_LIMIT = 256 << 20


class OpenCodeSqlite:
    """The `SessionSource` of a database. An unreadable row is reported and skipped; the rest of its session is imported."""

    def __init__(self, database: OpenCodeDatabase) -> None:
        self._database = database

    def list_projects(self, troubles: list[ImportTrouble]) -> list[Project]:
        return [project for row in self._database.projects() for project in _read_project(row, troubles)]

    def list_sessions(self) -> list[FoundSession]:
        return [
            FoundSession(name=row["id"], read=partial(self._read, row)) for row in self._database.sessions()
        ]

    def list_troubles(self) -> Iterator[ImportTrouble]:
        yield from ()

    def _read(self, row: Row) -> ImportedSession:
        id = check_file_name("session", row["id"])
        troubles: list[ImportTrouble] = []
        messages = self._read_messages(id, troubles)
        export = SessionExport(
            info=from_plain(to_session(row), SessionInfo, where=id),
            messages=tuple(messages),
            todos=tuple(self._read_todos(id, troubles)),
            diff=self._read_diff(id, troubles),
        )
        held = self._database.count(id)
        counted = ExportCounts(messages=held[0], parts=held[1], todos=held[2], diffs=len(export.diff))
        return ImportedSession(
            export=check_export(export, where=id), counted=counted, troubles=tuple(troubles)
        )

    def _read_todos(self, session: str, troubles: list[ImportTrouble]) -> Iterator[Todo]:
        for row in self._database.todos(session):
            try:
                yield from_plain(row, Todo, where=f"a todo of {session}")
            except DocumentError as error:
                troubles.append(ImportTrouble(where=error.where, reason=error.reason))

    def _read_messages(self, session: str, troubles: list[ImportTrouble]) -> Iterator[MessageWithParts]:
        parts: dict[str, list[AnyPart]] = {}
        for id, message, raw in self._database.parts(session):
            ids = {"id": id, "sessionID": session, "messageID": message}
            parts.setdefault(message, []).extend(_decode(raw, AnyPart, ids, troubles))
        for id, raw in self._database.messages(session):
            for info in _decode(raw, AnyMessage, {"id": id, "sessionID": session}, troubles):
                yield MessageWithParts(info=info, parts=tuple(parts.pop(id, ())))
        for message, orphans in parts.items():
            troubles += [
                ImportTrouble(where=part.id, reason=f"its message {message} cannot be read")
                for part in orphans
            ]

    def _read_diff(self, session: str, troubles: list[ImportTrouble]) -> tuple[FileDiff, ...]:
        """Read the diff from its own file, where the first versions with a database still kept it."""
        path = self._database.diff_path(session)
        try:
            raw, _ = read_file(path, limit=DIFF_LIMIT)
            found: tuple[FileDiff, ...] = decode(raw, tuple[FileDiff, ...], where=path)
        except FileNotFoundError:
            return ()
        except (DocumentError, OSError) as error:
            troubles.append(ImportTrouble(where=path, reason=str(error)))
            return ()
        return found


def _read_project(row: Row, troubles: list[ImportTrouble]) -> list[Project]:
    """Return the project of a row, or none and report it."""
    where = f"project {row['id']}"
    try:
        return [from_plain(to_project(row), Project, where=where)]
    except DocumentError as error:
        troubles.append(ImportTrouble(where=where, reason=error.reason))
        return []


def _decode(raw: bytes, kind: Any, ids: dict[str, str], troubles: list[ImportTrouble]) -> list[Any]:
    """Return one value, or none and report it. Ids are in the columns of a row, not in its JSON."""
    try:
        plain = parse(raw, where=ids["id"])
        if not isinstance(plain, dict):
            raise DocumentError(ids["id"], "not an object")
        return [from_plain({**ids, **plain, **ids}, kind, where=ids["id"])]
    except DocumentError as error:
        troubles.append(ImportTrouble(where=error.where, reason=error.reason))
        return []
