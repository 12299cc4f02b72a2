"""Read and check every document of a store, and count and hash them by session."""

from collections.abc import Collection, Iterator

from msgspec import Struct

from weft.maintenance.migrate import CopyProgress, SessionDigest, digest_session
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.session import SessionInfo
from weft.model.transfer import SessionExport
from weft.store.findings import Fault, FaultKind
from weft.store.maintenance import StoreMaintenance
from weft.store.reader import StoreReader

DAY_MS = 24 * 60 * 60 * 1000

FoundFault = tuple[FaultKind, str, str]


class VerifyResult(Struct, frozen=True, kw_only=True):
    """Digests of the sessions that were read, and everything that is wrong."""

    digests: tuple[SessionDigest, ...]
    faults: tuple[Fault, ...]


def verify_store(
    store: StoreMaintenance, *, now: int, on_progress: CopyProgress = lambda _, __: None
) -> VerifyResult:
    """Read and check everything in a store. Calls block."""
    digests, misplaced, contents = list[SessionDigest](), list[Fault](), list[Fault]()
    ids = store.list_session_ids()
    known = set(ids)
    for number, id in enumerate(ids):
        on_progress(number, len(ids))
        misplaced += store.find_misplaced(id)
        session = store.reader.find_session(id)
        if session is not None:
            export = _read_export(store.reader, session)
            digests.append(digest_session(export))
            contents += find_faults(export, known, now=now)
    faults = (*store.find_damage(), *misplaced, *store.find_orphans(), *contents)
    return VerifyResult(digests=tuple(digests), faults=faults)


def _read_export(reader: StoreReader, session: SessionInfo) -> SessionExport:
    return SessionExport(
        info=session,
        messages=tuple(reader.list_messages(session.id)),
        diff=tuple(reader.list_diff(session.id)),
        todos=tuple(reader.list_todos(session.id)),
    )


def find_faults(export: SessionExport, known: Collection[str], *, now: int) -> list[Fault]:
    """Check the contents of a session. `known` are the ids of all sessions."""
    session = export.info
    found: list[FoundFault] = [
        *_check_session(session, known, now),
        *_check_revert(export),
        *(
            ("content", message.info.id, reason)
            for message in export.messages
            for reason in _check_message(message, export, now)
        ),
    ]
    return [Fault(kind=kind, session=session.id, where=where, reason=reason) for kind, where, reason in found]


def _check_session(session: SessionInfo, known: Collection[str], now: int) -> Iterator[FoundFault]:
    time = session.time
    if session.parent_id is not None and session.parent_id not in known:
        yield "parent", session.id, f"its parent {session.parent_id} is gone"
    if session.parent_id == session.id:
        yield "content", session.id, "it is its own parent"
    if time.created <= 0 or time.updated < time.created:
        yield (
            "content",
            session.id,
            f"created at {time.created} and updated at {time.updated}, which is impossible",
        )
    if max(time.created, time.updated) > now + DAY_MS:
        yield "content", session.id, "its time is in the future"


def _check_revert(export: SessionExport) -> Iterator[FoundFault]:
    revert = export.info.revert
    if revert is not None and revert.message_id not in {message.info.id for message in export.messages}:
        yield "content", export.info.id, f"it was reverted to {revert.message_id}, which is gone"


def _check_message(message: MessageWithParts, export: SessionExport, now: int) -> Iterator[str]:
    info = message.info
    if info.session_id != export.info.id:
        yield f"it names another session, {info.session_id}"
    if info.time.created <= 0 or info.time.created > now + DAY_MS:
        yield f"created at {info.time.created}, which is impossible"
    if isinstance(info, AssistantMessage):
        done = info.time.completed
        if done is not None and done < info.time.created:
            yield "completed before it was created"
        if info.parent_id and all(each.info.id != info.parent_id for each in export.messages):
            yield f"the prompt it answers, {info.parent_id}, is gone"
    for part in message.parts:
        if (part.message_id, part.session_id) != (info.id, export.info.id):
            yield f"its part {part.id} names {part.message_id} of {part.session_id}"
