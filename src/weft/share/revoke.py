"""Revoke a share, first where it is shown and then here; needs no configuration."""

from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import NotFoundError, SharingError
from weft.journal import Journal
from weft.model.ids import SessionID
from weft.model.session import Session
from weft.share.contract import Remote
from weft.share.records import HOSTED, Book, Record
from weft.store.contract import Store


class TakingBack(Struct, frozen=True, kw_only=True):
    store: Store
    journal: Journal
    remote: Remote

    async def take_back(self, record: Record, *, forget: bool = False) -> None:
        """Where it is shown, it is gone when this returns; to `forget` it is not to ask there."""
        if record.target == "remote" and not forget:
            await self._remove(record)
        await Book(self.store).drop(record)
        if record.target == "received":
            await self.store.keep((HOSTED, record.id), None)
        else:
            await self._unmark(record)

    async def revoke(self, session: Session) -> None:
        """Before a session goes. If it cannot be taken back the session stays: the secret would go with it."""
        record = await Book(self.store).find_of(session.id)
        if record is not None:
            await self.take_back(record)

    async def sweep(self, now: int) -> None:
        """Take back what is over. What cannot be taken back now is tried again the next time."""
        for record in await Book(self.store).list_all():
            if record.is_over(now):
                with suppress(SharingError):
                    await self.take_back(record)

    async def _remove(self, record: Record) -> None:
        try:
            await self.remote.remove(record)
        except SharingError as error:
            raise SharingError(
                f"session {record.session_id} is still shown at {record.url}: {error}",
                hint=f"try again; weft unshare {record.session_id} --forget gives up on it",
            ) from error

    async def _unmark(self, record: Record) -> None:
        try:
            await unmark(self.journal, record.session_id)
        except NotFoundError:
            return  # it is gone, and what was shown of it now is, too


async def unmark(journal: Journal, session: SessionID) -> Session:
    """The session says no more that it is shared. That nobody worked on it shows in its time."""
    return await journal.edit(session, lambda it: replace(it, share=None))
