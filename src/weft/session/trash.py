"""Back from the trash: the sessions that went together with one, as they were."""

from weft.errors import NotFoundError
from weft.journal import Journal
from weft.model.ids import SessionID
from weft.model.session import Session
from weft.store.contract import Store


async def restore(journal: Journal, store: Store, id: SessionID) -> list[Session]:
    """Bring back the bundle that holds this session, the youngest if there are several; gives all that came back."""
    bundles = [
        bundle for bundle in await store.list_trash() if id in (session.id for session in bundle.sessions)
    ]
    if not bundles:
        raise NotFoundError("session in the trash", id, hint="see what is there: weft session trash")
    return list((await journal.restore(bundles[-1].id)).sessions)
