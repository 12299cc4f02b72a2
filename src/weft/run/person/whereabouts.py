"""Where a call stands: the session at the top of its tree, and the prompt it helps to answer."""

from weft.errors import NotFoundError
from weft.model.ids import MessageID, SessionID
from weft.model.message import AssistantMessage
from weft.model.permission import CallRef
from weft.model.session import Session
from weft.permission.gate import Whereabouts
from weft.run.kit import Kit
from weft.store.contract import Store

DEEPEST = 100


async def find_whereabouts(kit: Kit, session: Session, call: CallRef) -> Whereabouts:
    return Whereabouts(
        root_id=await find_root(kit.store, session), turn_id=await _find_turn(kit.store, session.id, call)
    )


async def find_root(store: Store, session: Session) -> SessionID:
    """The topmost session there is above this one. Documents that were tampered with may go round in a circle."""
    for _ in range(DEEPEST):
        if session.parent_id is None:
            break
        try:
            session = await store.get_session(session.parent_id)
        except NotFoundError:
            break
    return session.id


async def _find_turn(store: Store, session: SessionID, call: CallRef) -> MessageID | None:
    found = await store.find_message(session, call.message_id)
    info = found.info if found else None
    return info.parent_id if isinstance(info, AssistantMessage) else None
