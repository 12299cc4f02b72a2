"""The proof that somebody may write to a session."""

from typing import NamedTuple

from weft.model.ids import SessionID


class LeaseToken(NamedTuple):
    """Proof that its bearer holds the lease of a session. Each time that the lease is taken, its token has another generation."""

    session: SessionID
    generation: int
