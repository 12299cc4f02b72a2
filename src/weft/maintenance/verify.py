"""Read and check every document of a store, and count and hash them by session."""

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from weft.host.files import wait_briefly
from weft.maintenance.migrate import CopyProgress, SessionDigest, digest_session
from weft.maintenance.proof import check_session
from weft.model.ids import SessionID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.proof import AnchoredHead, SessionProof
from weft.model.session import SessionInfo
from weft.model.transfer import SessionExport
from weft.store.findings import DocumentFault, DocumentFaultKind
from weft.store.maintenance import StoreMaintenance
from weft.store.reader import StoreReader

ATTEMPTS = 5
DAY_MS = 24 * 60 * 60 * 1000

FoundFault = tuple[DocumentFaultKind, str, str]


class VerifyResult(Struct, frozen=True, kw_only=True):
    """Digests of the sessions that were read, what their chains prove, and everything that is wrong."""

    digests: tuple[SessionDigest, ...]
    proofs: tuple[SessionProof, ...]
    faults: tuple[DocumentFault, ...]

    @property
    def is_sound(self) -> bool:
        return not self.faults and all(proof.verdict != "faulty" for proof in self.proofs)


def verify_store(
    store: StoreMaintenance,
    *,
    now: int,
    only: SessionID | None = None,
    anchored: Sequence[AnchoredHead] = (),
    strict: bool = False,
    on_progress: CopyProgress = lambda _, __: None,
) -> VerifyResult:
    """Read and check everything in a store, or one session `only`. It blocks.

    `anchored` are heads of chains that were kept elsewhere. With `strict`, changes by other programs are faults, too.
    """
    digests, proofs = list[SessionDigest](), list[SessionProof]()
    misplaced, contents = list[DocumentFault](), list[DocumentFault]()
    known = set(store.list_session_ids())
    # Sessions in the trash have their chains there.
    trashed = {session.id for bundle in store.reader.list_trash() for session in bundle.sessions} - known
    chained = {*store.list_chains(), *(anchor.session for anchor in anchored)} - trashed
    ids = sorted(known | chained) if only is None else [only]
    for number, id in enumerate(ids):
        on_progress(number, len(ids))
        misplaced += store.find_misplaced(id) if id in known else []
        session = store.reader.find_session(id)
        export = None if session is None else _read_export(store.reader, session)
        if export is not None:
            digests.append(digest_session(export))
            contents += find_faults(export, known, now=now)
        proof = check_session(id, store.read_chain(id), export, anchored=anchored, strict=strict)
        proofs.append(_prove_again(store, proof, anchored, strict=strict))
    faults = (*misplaced, *contents)
    if only is None:
        faults = (*store.find_damage(), *misplaced, *store.find_orphans(), *contents)
    return VerifyResult(digests=tuple(digests), proofs=tuple(proofs), faults=faults)


def _prove_again(
    store: StoreMaintenance, proof: SessionProof, anchored: Sequence[AnchoredHead], *, strict: bool
) -> SessionProof:
    """Check a session that looks faulty again, until the result stays the same: it may have been read between two writes."""
    for _ in range(ATTEMPTS):
        if proof.verdict != "faulty":
            break
        wait_briefly()
        session = store.reader.find_session(proof.session)
        export = None if session is None else _read_export(store.reader, session)
        again = check_session(
            proof.session, store.read_chain(proof.session), export, anchored=anchored, strict=strict
        )
        if again == proof:
            break
        proof = again
    return proof


def _read_export(reader: StoreReader, session: SessionInfo) -> SessionExport:
    return SessionExport(
        info=session,
        messages=tuple(reader.list_messages(session.id)),
        diff=tuple(reader.list_diff(session.id)),
        todos=tuple(reader.list_todos(session.id)),
    )


def find_faults(export: SessionExport, known: Collection[str], *, now: int) -> list[DocumentFault]:
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
    return [
        DocumentFault(kind=kind, session=session.id, where=where, reason=reason)
        for kind, where, reason in found
    ]


def _check_session(session: SessionInfo, known: Collection[str], now: int) -> Iterator[FoundFault]:
    time = session.time
    if session.parent_id and session.parent_id not in known:  # an empty one is none, as in OpenCode
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
