"""Remove a session with everything below it, and restore it from the trash."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from msgspec import Struct

from weft.errors import NotFoundError
from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.event import SessionDeleted
from weft.model.ids import SessionID
from weft.model.session import Session
from weft.session.tree import below
from weft.store.contract import Store

Revoke = Callable[[Session], Awaitable[None]]


async def nothing_shared(_: Session) -> None:
    """For where nothing can have been shared."""


class Remover(Struct, frozen=True, kw_only=True):
    """What it takes to remove a session. `stop` ends its run if it has one, `revoke` takes back what was shared of it."""

    store: Store
    journal: Journal
    clock: Clock
    owner: str
    stop: Callable[[SessionID], Awaitable[object]]
    revoke: Revoke = nothing_shared


async def remove(remover: Remover, id: SessionID, *, trash: bool = True) -> list[Session]:
    """All that is gone, children before their parents. Their runs end first; one that runs elsewhere is a refusal.

    What was shared is taken back before anything goes: the secret it takes to do so goes with the session. If that
    fails, nothing goes. OpenCode ignores it, and leaves diffs, todos and running work behind.
    """
    root = await remover.store.get_session(id)
    async with AsyncExitStack() as held:
        kin = await _hold(remover, root, held)
        for session in reversed(kin):
            await remover.revoke(session)
        if trash:
            await remover.journal.discard([session.id for session in kin], at=remover.clock.now())
        else:
            await remover.journal.commit(*(SessionDeleted(info=session) for session in reversed(kin)))
    return kin[::-1]


async def _hold(remover: Remover, root: Session, held: AsyncExitStack) -> list[Session]:
    """The session and all below it, parents first, with nothing running in any of them, nor able to start."""
    known: dict[SessionID, None] = {}
    while True:
        sessions = await remover.store.list_sessions(root.project_id)
        kin = [root, *below(sessions, root.id)]
        new = [session.id for session in kin if session.id not in known]
        if not new:
            return kin
        for session in new:  # while its run was ending, it may have had another child
            await remover.stop(session)
            await held.enter_async_context(remover.store.lease(session, remover.owner))
            known[session] = None


async def restore(journal: Journal, store: Store, id: SessionID) -> list[Session]:
    """Bring back the bundle that holds this session, the youngest if there are several; gives all that came back."""
    bundles = [
        bundle for bundle in await store.list_trash() if id in (session.id for session in bundle.sessions)
    ]
    if not bundles:
        raise NotFoundError("session in the trash", id, hint="see what is there: weft session trash")
    return list((await journal.restore(bundles[-1].id)).sessions)
