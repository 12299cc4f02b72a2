"""What verifying a session against its chain finds."""

from typing import Literal

from weft.model.ids import SessionID
from weft.model.wire import Wire, always

ProofKind = Literal[
    # faults: somebody changed what weft had written, or it was damaged
    "chain",  # the chain itself is damaged, cut or belongs to another session
    "changed",  # a document is not what weft wrote
    "removed",  # a document that weft wrote is gone
    "added",  # a document that weft did not write
    "cost",  # costs that do not add up
    "anchor",  # the chain does not contain an entry that was anchored
    # notes: nothing that proves a fault
    "outside",  # changed outside weft, as OpenCode does
    "uncovered",  # older than the chain, so nothing is known
    "growing",  # text that is not complete yet, so it is not chained
    "unfinished",  # a write that whoever next opens the store or the session finishes or rolls back
]
FAULT_KINDS: frozenset[ProofKind] = frozenset(["chain", "changed", "removed", "added", "cost", "anchor"])


class ProofFinding(Wire, frozen=True, kw_only=True):
    """One finding: the document that it is about ("session", "message/…", "part/…", "diff", "todo" or "chain") and what is wrong.

    `at` is when it was changed outside weft (ms), if that is known.
    """

    kind: ProofKind
    where: str
    reason: str
    at: int | None = None

    @property
    def is_fault(self) -> bool:
        return self.kind in FAULT_KINDS


class SessionProof(Wire, frozen=True, kw_only=True):
    """The result of verifying a session: the number of entries of its chain, the hash of the last one, and the findings.

    * `intact`: everything is as weft wrote it. `outside`: others changed it too, in the way OpenCode does.
    * `faulty`: something was changed, removed, added or damaged. `unproven`: there is no chain, or it does not cover everything.
    """

    session: SessionID
    verdict: Literal["intact", "outside", "faulty", "unproven"]
    entries: int = always(0)
    head: str = ""
    findings: tuple[ProofFinding, ...] = always(())


class AnchoredHead(Wire, frozen=True, kw_only=True):
    """The head of a session's chain at some time: how many entries it had, and the hash of the last one."""

    session: SessionID
    entries: int
    head: str
