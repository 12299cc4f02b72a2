"""HTTP for taking a session back, and bringing it forward again."""

from weft.model.ids import MessageID, PartID
from weft.model.session import Session
from weft.model.wire import Wire
from weft.server.route import Call, route
from weft.server.routes.sessions import SESSION, session_in


class RevertInput(Wire, frozen=True, kw_only=True):
    message_id: MessageID
    part_id: PartID | None = None


async def revert(call: Call) -> Session:
    """Take a session back to before a message, and the files it changed with it."""
    asked: RevertInput = call.body
    return (await call.api.revert(session_in(call), asked.message_id, asked.part_id)).session


async def unrevert(call: Call) -> Session:
    """Bring back what was taken back."""
    return (await call.api.unrevert(session_in(call))).session


ROUTES = (
    route("POST", f"{SESSION}/revert", "session.revert", revert, takes=RevertInput, home="needs"),
    route("POST", f"{SESSION}/unrevert", "session.unrevert", unrevert, home="needs"),
)
