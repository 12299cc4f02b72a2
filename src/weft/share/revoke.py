"""Revoke a share, first where it is shown and then here. This needs no configuration."""

from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import NotFoundError, SharingError
from weft.journal import Journal
from weft.model.ids import SessionID
from weft.model.session import SessionInfo
from weft.share.contract import ShareClient
from weft.share.records import HOSTED_KEY, ShareRecord, ShareRecords
from weft.store.contract import Store


class ShareRevoker(Struct, frozen=True, kw_only=True):
    """Revokes shares of a store."""

    store: Store
    journal: Journal
    remote: ShareClient

    async def revoke(self, record: ShareRecord, *, forget: bool = False) -> None:
        """Revoke a share. It is no longer shown when this returns. With `forget`, do not ask the share server."""
        if record.target == "remote" and not forget:
            await self._remove(record)
        await ShareRecords(self.store).drop(record)
        if record.target == "received":
            await self.store.put_value((HOSTED_KEY, record.id), None)
        else:
            await self._unmark(record)

    async def revoke_session(self, session: SessionInfo) -> None:
        """Revoke the share of a session that is about to be removed.

        If this raises `SharingError`, keep the session: its removal would lose the secret that revokes the share.
        """
        record = await ShareRecords(self.store).find_for_session(session.id)
        if record is not None:
            await self.revoke(record)

    async def revoke_expired(self, now: int) -> None:
        """Revoke expired shares. One that cannot be revoked now is tried again the next time."""
        for record in await ShareRecords(self.store).list_all():
            if record.is_expired(now):
                with suppress(SharingError):
                    await self.revoke(record)

    async def _remove(self, record: ShareRecord) -> None:
        try:
            await self.remote.remove(record)
        except SharingError as error:
            raise SharingError(
                f"session {record.session_id} is still shown at {record.url}: {error}",
                hint=f"try again; weft unshare {record.session_id} --forget gives up on it",
            ) from error

    async def _unmark(self, record: ShareRecord) -> None:
        try:
            await unmark_session(self.journal, record.session_id)
        except NotFoundError:
            return  # the session was removed, and now its share, too


async def unmark_session(journal: Journal, session: SessionID) -> SessionInfo:
    """Mark a session as not shared, without changing its time of update."""
    return await journal.edit(session, lambda it: replace(it, share=None))
