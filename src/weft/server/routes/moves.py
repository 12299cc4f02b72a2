"""weft's own HTTP routes to take over sessions from other servers."""

from msgspec import Struct

from weft.model.ids import SessionID
from weft.model.move import MoveOffer, MovePiece, MoveProgress, MoveResult
from weft.server.route import DirectoryCall, route

MOVE = "/weft/move"
ONE_MOVE = f"{MOVE}/{{moveID}}"


class CancelQuery(Struct, frozen=True, kw_only=True):
    """The session that was to be moved."""

    session: SessionID


async def offer(call: DirectoryCall) -> MoveProgress:
    """Offer a session of another server; return how much of its bundle was received already."""
    return await call.api.moves.offer(call.body)


async def add_piece(call: DirectoryCall) -> MoveProgress:
    """Send a piece of the bundle, in order."""
    return await call.api.moves.add_piece(call.path_params["moveID"], call.body)


async def accept(call: DirectoryCall) -> MoveResult:
    """Store the sessions of the bundle and change the files of the checkout, all or nothing."""
    return await call.api.moves.accept(call.path_params["moveID"])


async def cancel(call: DirectoryCall) -> bool:
    """Remove what was received; return whether there was anything."""
    query: CancelQuery = call.query
    return await call.api.moves.cancel(call.path_params["moveID"], query.session)


ROUTES = (
    route("POST", MOVE, "weft.move.offer", offer, takes=MoveOffer),
    route("PUT", f"{ONE_MOVE}/piece", "weft.move.piece", add_piece, takes=MovePiece),
    route("POST", f"{ONE_MOVE}/accept", "weft.move.accept", accept),
    route("DELETE", ONE_MOVE, "weft.move.cancel", cancel, query=CancelQuery),
)
