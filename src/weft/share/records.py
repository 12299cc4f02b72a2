"""Share records: what is shared, where, until when, and the secret that revokes it."""

import secrets
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from weft.model.ids import SessionID
from weft.model.share import Share, ShareTarget
from weft.model.wire import Wire, always, from_plain, to_plain
from weft.store.contract import Store

RECORDS_KEY: Final = ("sharing", "book")
OPENCODE_KEY: Final = "session_share"
ID_BYTES: Final = 20
SECRET_BYTES: Final = 24
HOSTED_KEY: Final = "hosted"  # received shares by their id


def new_share_id() -> str:
    """Return a new id. The address is all that is needed to see a share: 160 bits that nobody can guess."""
    return secrets.token_hex(ID_BYTES)


class ShareRecord(Wire, frozen=True, kw_only=True):
    """A share with what only we know: its secret, and the `server` where it was made, with credentials.

    `listed` means that OpenCode has a record of it, too: it is on the server that OpenCode would use.
    """

    id: str
    session_id: SessionID
    url: str
    secret: str
    target: ShareTarget
    server: str = ""
    created: int = always(0)
    expires: int | None = None
    redact: bool = always(True)
    attachments: bool = always(True)
    listed: bool = False

    def is_expired(self, now: int) -> bool:
        return self.expires is not None and self.expires <= now


class ShareList(Wire, frozen=True, kw_only=True):
    shares: tuple[ShareRecord, ...] = always(())


class ShareRecords:
    """All shares of a store, over all processes that use it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_all(self) -> tuple[ShareRecord, ...]:
        """Return all shares in the order in which they were made."""
        return _parse_list(await self._store.find_value(RECORDS_KEY)).shares

    async def find(self, id: str) -> ShareRecord | None:
        return next((record for record in await self.list_all() if record.id == id), None)

    async def find_for_session(self, session: SessionID) -> ShareRecord | None:
        """Return the share of a local session, made by weft or by OpenCode."""
        ours = (each for each in await self.list_all() if each.session_id == session)
        return next(
            (each for each in ours if each.target != "received"), None
        ) or await self._find_opencode_share(session)

    async def add(self, record: ShareRecord) -> None:
        if record.listed:
            # Only for the server that OpenCode itself would use: as soon as this record exists, OpenCode sends the
            # session to its configured server, or to a public one.
            opencode_record = {"id": record.id, "url": record.url, "secret": record.secret}
            await self._store.put_value((OPENCODE_KEY, record.session_id), opencode_record)
        await self._update(lambda shares: (*(each for each in shares if each.id != record.id), record))

    async def drop(self, record: ShareRecord) -> None:
        if record.listed:
            await self._store.put_value((OPENCODE_KEY, record.session_id), None)
        await self._update(lambda shares: tuple(each for each in shares if each.id != record.id))

    async def _update(self, edit: Callable[[tuple[ShareRecord, ...]], tuple[ShareRecord, ...]]) -> None:
        def change(stored: object) -> object:
            records = _parse_list(stored)
            return to_plain(replace(records, shares=edit(records.shares)))

        await self._store.update_value(RECORDS_KEY, change)

    async def _find_opencode_share(self, session: SessionID) -> ShareRecord | None:
        match await self._store.find_value((OPENCODE_KEY, session)):
            case {"id": str(id), "url": str(url), "secret": str(secret)} if id and url:
                return ShareRecord(
                    id=id, session_id=session, url=url, secret=secret, target="remote", listed=True
                )
            case _:
                return None


async def copy_shares(source: Store, target: Store) -> None:
    """Copy every share of one store to another, so that it can be revoked from there, too."""
    present = {record.id for record in await ShareRecords(target).list_all()}
    for record in await ShareRecords(source).list_all():
        if record.id not in present:
            await target.put_value((HOSTED_KEY, record.id), await source.find_value((HOSTED_KEY, record.id)))
            await ShareRecords(target).add(record)


def to_share(record: ShareRecord, *, known: bool = True) -> Share:
    """Return what a person may see of a record."""
    return Share(
        id=record.id,
        session_id=record.session_id,
        url=record.url,
        target=record.target,
        created=record.created,
        expires=record.expires,
        redact=record.redact,
        attachments=record.attachments,
        known=known,
    )


def _parse_list(stored: object) -> ShareList:
    if stored is None:
        return ShareList()
    # Never treat one that cannot be read as empty: the shares in it could not be revoked any more.
    return from_plain(stored, ShareList, where=f"the list of shares ({'/'.join(RECORDS_KEY)})")
