"""Take over sessions from other servers."""

from typing import Protocol

from weft.model.ids import SessionID
from weft.model.move import MoveOffer, MovePiece, MoveProgress, MoveResult


class Moves(Protocol):
    """Sessions that other machines hand over to the checkout of this `Api`, with their files.

    * `offer` checks everything that can be known before the bundle is sent, changes neither sessions nor files, and returns how much
      of the bundle is here already. It raises `ConflictError` if the checkout is at another commit, has uncommitted changes, or the
      sessions are here already.
    * `add_piece` appends to the bundle. A piece that was received before is ignored.
    * `accept` checks again, then stores the sessions and changes the files, all or nothing. From then on they are here.
    * `cancel` removes what was received, and returns whether there was anything. It raises `ConflictError` if the session has
      arrived, even if that was long ago.

    All four may be called again: the same move has the same id.
    """

    async def offer(self, offer: MoveOffer) -> MoveProgress: ...

    async def add_piece(self, move: str, piece: MovePiece) -> MoveProgress: ...

    async def accept(self, move: str) -> MoveResult: ...

    async def cancel(self, move: str, session: SessionID) -> bool: ...
