"""Remove a session with everything below it, and restore it from the trash."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from msgspec import Struct

from weft.errors import NotFoundError
from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.event import SessionDeleted
from weft.model.ids import SessionID
from weft.model.session import SessionInfo
from weft.session.lifecycle import briefing_key, list_descendants
from weft.store.contract import Store

RevokeShare = Callable[[SessionInfo], Awaitable[None]]
WithdrawWaiting = Callable[[SessionID], Awaitable[object]]


async def revoke_nothing(_: SessionInfo) -> None:
    """Do nothing: nothing can have been shared."""


async def withdraw_nothing(_: SessionID) -> None:
    """Do nothing: without other nodes nothing waits for one."""


class Remover(Struct, frozen=True, kw_only=True):
    """What removing a session needs. `stop` ends its run, `withdraw` withdraws what waits for a node, `revoke` ends its share."""

    store: Store
    journal: Journal
    clock: Clock
    owner: str
    stop: Callable[[SessionID], Awaitable[object]]
    revoke: RevokeShare = revoke_nothing
    withdraw: WithdrawWaiting = withdraw_nothing


async def remove(remover: Remover, id: SessionID, *, trash: bool = True) -> list[SessionInfo]:
    """Remove a session and all below it, and return them, children before parents. Raise `SessionBusyError` if one runs elsewhere.

    Runs end first, then shares: the secret that ending a share needs is removed with the session. If that fails, nothing is
    removed. OpenCode ignores the failure, and leaves diffs, todos and runs behind.
    """
    root = await remover.store.get_session(id)
    async with AsyncExitStack() as leases:
        family = await hold_leases(remover, root, leases)
        for session in reversed(family):
            await remover.revoke(session)
            await remover.withdraw(session.id)
        if trash:
            await remover.journal.discard([session.id for session in family], at=remover.clock.now())
        else:
            await remover.journal.commit(*(SessionDeleted(info=session) for session in reversed(family)))
            for session in family:
                await remover.store.put_value(briefing_key(session.id), None)
    return family[::-1]


async def hold_leases(remover: Remover, root: SessionInfo, leases: AsyncExitStack) -> list[SessionInfo]:
    """Return the session and all below it, parents first. Their runs have ended, and we hold their leases."""
    held: dict[SessionID, None] = {}
    while True:
        family = [root, *await list_descendants(remover.store, root.id)]
        new = [session.id for session in family if session.id not in held]
        if not new:
            return family
        for session in new:  # a run that was ending may have started another child
            await remover.stop(session)
            await leases.enter_async_context(remover.journal.lease(session, remover.owner))
            held[session] = None


async def restore(journal: Journal, store: Store, id: SessionID) -> list[SessionInfo]:
    """Restore the newest bundle in the trash that contains this session. Return all sessions that were restored."""
    bundles = [
        bundle for bundle in await store.list_trash() if id in (session.id for session in bundle.sessions)
    ]
    if not bundles:
        raise NotFoundError("session in the trash", id, hint="list the trash: weft session trash")
    return list((await journal.restore(bundles[-1].id)).sessions)
