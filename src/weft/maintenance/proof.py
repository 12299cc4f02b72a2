"""Compare a session with its chain, and decide what the differences mean (pure)."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from weft.model.ids import SessionID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import CompletedState, ErrorState, ReasoningPart, StepFinishPart, TextPart, ToolPart
from weft.model.proof import AnchoredHead, ProofFinding, SessionProof
from weft.model.session import SessionInfo, get_weft_data, with_owner
from weft.model.transfer import SessionExport
from weft.store.chain import (
    DIFF_KEY,
    SESSION_KEY,
    TODO_KEY,
    Chain,
    ChainedDocument,
    ChainLines,
    digest_document,
    message_key,
    part_key,
    read_chain,
)

# Costs are sums of fractions of a cent. OpenCode adds them up as floats.
TOLERANCE: Final = Decimal("0.000001")


class _Document(NamedTuple):
    """A stored document, when it says that it was created (ms), and whether it names the place where it is."""

    value: Any
    created: int
    fits: bool = True


def check_session(
    session: SessionID,
    stored: ChainLines,
    export: SessionExport | None,
    *,
    anchored: Iterable[AnchoredHead] = (),
    strict: bool = False,
) -> SessionProof:
    """Verify a session. `export` is None if its document is gone. With `strict` nobody but weft may have changed anything."""
    chain = read_chain(session, stored.lines)
    findings = [
        *_check_links(chain, stored),
        *(each for anchor in anchored if anchor.session == session for each in _check_anchor(chain, anchor)),
    ]
    if stored.unfinished:
        findings.append(
            ProofFinding(kind="unfinished", where=SESSION_KEY, reason="a process ended while it wrote to it")
        )
    elif chain.hashes:
        if export is not None and stored.owner:
            export = replace(export, info=with_owner(export.info, stored.owner))
        findings += _Comparison(chain, export, shared=stored.shared and not strict).find()
    if export is not None:
        findings += _check_costs(export, chain)
    return SessionProof(
        session=session,
        verdict=_decide(chain, findings),
        entries=len(chain.hashes),
        head=chain.head,
        findings=tuple(findings),
    )


def _decide(chain: Chain, findings: list[ProofFinding]) -> Any:
    kinds = {finding.kind for finding in findings}
    if any(finding.is_fault for finding in findings):
        return "faulty"
    if "outside" in kinds:
        return "outside"
    return "unproven" if not chain.hashes or kinds & {"uncovered", "unfinished"} else "intact"


def _check_links(chain: Chain, stored: ChainLines) -> Iterator[ProofFinding]:
    for reason in chain.breaks:
        yield ProofFinding(kind="chain", where="chain", reason=reason)
    if stored.head is None:
        return
    count, hash = stored.head
    known = len(chain.hashes)
    # The head may be behind: it is written with what must reach the disk.
    if count > known:
        yield ProofFinding(
            kind="chain", where="chain", reason=f"its end is cut off: it had {count} entries, and has {known}"
        )
    elif count < 1 or chain.hashes[count - 1] != hash:
        yield ProofFinding(kind="chain", where="chain", reason="its head does not belong to it")


def _check_anchor(chain: Chain, anchor: AnchoredHead) -> Iterator[ProofFinding]:
    number, known = anchor.entries, len(chain.hashes)
    if number > known:
        yield ProofFinding(
            kind="anchor",
            where="chain",
            reason=f"it had {number} entries when it was anchored, and has {known}: it was cut, or the session was deleted",
        )
    elif number > 0 and chain.hashes[number - 1] != anchor.head:
        yield ProofFinding(
            kind="anchor",
            where="chain",
            reason=f"its first {number} entries are not the ones that were anchored",
        )


class _Comparison:
    """Compares the documents of a session with what its chain says about them."""

    def __init__(self, chain: Chain, export: SessionExport | None, *, shared: bool) -> None:
        self._chain = chain
        self._export = export
        self._shared = shared
        self._twice: list[str] = []
        self._documents = {} if export is None else self._list_documents(export)
        # When another program last wrote the session's document (ms), None if none did.
        self._touched = self._find_touch()

    def _list_documents(self, export: SessionExport) -> Mapping[str, _Document]:
        id = export.info.id
        found = {SESSION_KEY: _Document(export.info, export.info.time.created)}
        if export.diff:
            found[DIFF_KEY] = _Document(export.diff, 0)
        if export.todos:
            found[TODO_KEY] = _Document(export.todos, 0)
        for message in export.messages:
            info = message.info
            self._put(found, message_key(info.id), _Document(info, info.time.created, info.session_id == id))
            for part in message.parts:
                fits = (part.message_id, part.session_id) == (info.id, id)
                self._put(found, part_key(info.id, part.id), _Document(part, info.time.created, fits))
        return found

    def _put(self, found: dict[str, _Document], key: str, document: _Document) -> None:
        if key in found:
            self._twice.append(key)
        found[key] = document

    def _find_touch(self) -> int | None:
        """Return when another program last changed the session's document, or None if its content is what weft wrote."""
        covered = self._chain.covered.get(SESSION_KEY)
        document = self._documents.get(SESSION_KEY)
        if not self._shared or covered is None or document is None:
            return None
        updated: int = document.value.time.updated
        is_changed = covered.digest != digest_document(document.value)
        # OpenCode sets the time of each change. Whoever forges a document in an editor usually does not.
        return updated if is_changed and updated > covered.time else None

    def find(self) -> list[ProofFinding]:
        if self._export is None:
            if SESSION_KEY not in self._chain.covered:
                return []  # there never was one: events of a session may come before it
            return [self._make_finding("removed", SESSION_KEY, "the session is gone", outside=self._shared)]
        found = [
            ProofFinding(kind="added", where=key, reason="it is stored twice")
            for key in dict.fromkeys(self._twice)
        ]
        for key, covered in self._chain.covered.items():
            found += self._check(key, covered, self._documents.get(key))
        for key, document in self._documents.items():
            if key not in self._chain.covered:
                found.append(self._check_unknown(key, document))
        return _merge_uncovered(found)

    def _check(
        self, key: str, covered: ChainedDocument, document: _Document | None
    ) -> Iterator[ProofFinding]:
        if document is None:
            is_empty = key in (DIFF_KEY, TODO_KEY) and covered.digest == digest_document(())
            if covered.digest is not None and not is_empty:
                message = key.split("/")[1] if key.startswith("part/") else ""
                if message and self._is_missing(message):
                    return  # it went with its message, which is reported
                at = self._find_outside(covered)
                yield self._make_finding(
                    "removed", key, "it is gone, or cannot be read", outside=at is not None, at=at
                )
            return
        if covered.digest is None:
            yield self._make_finding("added", key, "weft removed it, and it is there again", outside=False)
            return
        value = document.value
        if digest_document(value) == covered.digest:
            return
        if isinstance(value, TextPart | ReasoningPart) and _is_growing(value, covered):
            grown = len(value.text) - (covered.length or 0)
            yield ProofFinding(
                kind="growing", where=key, reason=f"its last {grown} characters are not chained yet"
            )
            return
        at = self._find_change_outside(key, covered, value)
        yield self._make_finding("changed", key, _describe(value), outside=at is not None, at=at)

    def _is_missing(self, message: str) -> bool:
        covered = self._chain.covered.get(f"message/{message}")
        return (
            covered is not None and covered.digest is not None and f"message/{message}" not in self._documents
        )

    def _find_outside(self, covered: ChainedDocument) -> int | None:
        """Return when somebody else wrote to the session after an entry."""
        if not self._shared:
            return None
        later = [at for entry, at in self._chain.outside.items() if entry > covered.entry]
        return max(later) if later else self._touched

    def _find_change_outside(self, key: str, covered: ChainedDocument, value: Any) -> int | None:
        """Return when a document was changed, if OpenCode changes documents of others in this way; otherwise None."""
        if not self._shared:
            return None
        if key == SESSION_KEY:
            return self._touched
        if key in (DIFF_KEY, TODO_KEY):
            return self._find_outside(covered)
        if isinstance(value, ToolPart) and isinstance(value.state, CompletedState | ErrorState):
            at = value.state.time.compacted
            before = replace(
                value, state=replace(value.state, time=replace(value.state.time, compacted=None))
            )
            return at if at is not None and digest_document(before) == covered.digest else None
        return None

    def _check_unknown(self, key: str, document: _Document) -> ProofFinding:
        if not document.fits:
            return ProofFinding(kind="added", where=key, reason="it belongs to another session or message")
        if not self._chain.is_complete and document.created <= self._chain.began:
            return ProofFinding(kind="uncovered", where=key, reason="it is older than the chain")
        at = document.created or self._touched
        return self._make_finding("added", key, "weft did not write it", outside=self._shared, at=at)

    def _make_finding(
        self, kind: Any, where: str, reason: str, *, outside: bool, at: int | None = None
    ) -> ProofFinding:
        if outside:
            return ProofFinding(kind="outside", where=where, reason=f"{kind} outside weft", at=at)
        return ProofFinding(kind=kind, where=where, reason=reason)


def _is_growing(part: TextPart | ReasoningPart, covered: ChainedDocument) -> bool:
    """Return True if a part is not complete, and begins with what was chained."""
    length = covered.length
    if part.time is None or part.time.end is not None or length is None or len(part.text) <= length:
        return False
    return digest_document(replace(part, text=part.text[:length])) == covered.digest


def _describe(value: Any) -> str:
    match value:
        case SessionInfo():
            return "it is not what weft wrote (title, totals or another field)"
        case AssistantMessage():
            return "it is not what weft wrote (cost, tokens, model, times or another field)"
        case _:
            return "it is not what weft wrote"


def _merge_uncovered(findings: list[ProofFinding]) -> list[ProofFinding]:
    """Report all documents that are older than the chain in one finding, because a long session has thousands."""
    older = [finding for finding in findings if finding.kind == "uncovered"]
    rest = [finding for finding in findings if finding.kind != "uncovered"]
    if not older:
        return rest
    reason = f"{len(older)} documents are older than the chain"
    return [*rest, ProofFinding(kind="uncovered", where="chain", reason=reason)]


def _check_costs(export: SessionExport, chain: Chain) -> Iterator[ProofFinding]:
    """Add costs up again. A message must cost at least as much as its steps, and a session as much as its messages."""
    counted = Decimal(0)
    ledger, copied_until = get_weft_data(export.info).spent, _find_end_of_copies(export.info, chain)
    for message in export.messages:
        info = message.info
        if not isinstance(info, AssistantMessage):
            continue
        steps = _add_steps(message)
        if info.time.completed is not None and steps > info.cost + TOLERANCE:
            reason = f"it costs ${info.cost:f}, and its steps ${steps:f}"
            yield ProofFinding(kind="cost", where=message_key(info.id), reason=reason)
        is_known = message_key(info.id) in chain.covered
        if ledger is not None and is_known and copied_until < info.time.created <= ledger.until:
            counted += info.cost
    if ledger is not None and counted > ledger.own.cost + TOLERANCE:
        reason = f"it records ${ledger.own.cost:f}, and its messages cost ${counted:f}"
        yield ProofFinding(kind="cost", where=SESSION_KEY, reason=reason)


def _find_end_of_copies(session: SessionInfo, chain: Chain) -> int:
    """Return the time (ms) up to which answers may be copies, which the session's ledger does not count.

    A fork may copy an answer from the very millisecond in which it is made. A session that was imported beside its original is a
    fork, too, but keeps the time of the original: its copies are older than its chain.
    """
    created, is_fork = session.time.created, get_weft_data(session).forked_from is not None
    return max(created, chain.began) if is_fork else created - 1


def _add_steps(message: MessageWithParts) -> Decimal:
    return sum((part.cost for part in message.parts if isinstance(part, StepFinishPart)), Decimal(0))
