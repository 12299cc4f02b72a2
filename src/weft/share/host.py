"""Serve shares on our own pages: sessions of this store, and those that others send here."""

import asyncio
import hmac
import re
import secrets
from collections import OrderedDict
from hashlib import sha256
from typing import Any, Final

from weft.errors import ConflictError, InvalidInputError, NotFoundError
from weft.model.ids import SessionID, check_new_id
from weft.model.share import SharedSession, ShareItem, ShareTicket
from weft.model.transfer import SessionExport
from weft.model.wire import encode, from_plain, to_plain
from weft.share.contract import ShareContext
from weft.share.items import from_items, name_item
from weft.share.records import HOSTED_KEY, SECRET_BYTES, ShareRecord, ShareRecords, new_share_id
from weft.share.revoke import ShareRevoker
from weft.share.view import SessionRedactor, is_busy, to_shared_view
from weft.transfer.session_import import pack_session

SHARE_ID: Final = re.compile(r"[0-9a-f]{40}")
MAX_RECEIVED_SHARES: Final = 1000
MAX_SHARE_ITEMS: Final = 20_000
MAX_SHARE_BYTES: Final = 16 * 1024 * 1024
MAX_REDACTORS: Final = 32


class ShareHost:
    """Implements `SharePages`. On a server without share pages every lookup raises `NotFoundError`."""

    def __init__(self, context: ShareContext) -> None:
        self._context = context
        self._records = ShareRecords(context.store)
        self._redactors: OrderedDict[str, tuple[SessionRedactor, asyncio.Lock]] = OrderedDict()

    async def get_share(self, id: str) -> SharedSession:
        """Return a shared session, redacted. Raise `NotFoundError` if there is none."""
        record = await self._get_record(id)
        export = await self._load_export(record)
        redactor, lock = self._get_redactor(record)
        async with lock:
            view = to_shared_view(export, attachments=record.attachments)
            redacted = await asyncio.to_thread(redactor.redact, view)
        return SharedSession(id=id, export=redacted, busy=is_busy(export), expires=record.expires)

    async def get_revision(self, id: str) -> str:
        """Return a text that changes with the session. Only the session and its last messages can change."""
        record = await self._get_record(id)
        if record.target == "received":
            return str((await self._get_hosted(record))["version"])
        store = self._context.store
        digest = sha256(encode(await store.get_session(record.session_id)))
        for message in await store.list_messages(record.session_id, last=2):
            digest.update(encode(message))
        return digest.hexdigest()

    async def receive(self, session: SessionID, *, expires: int | None = None) -> ShareTicket:
        """Create a share for a session from elsewhere. The secret is returned once."""
        settings, now = self._context.settings, self._context.clock.now()
        if not settings.host:
            raise NotFoundError("share server", "", hint="weft serve --share is one")
        check_new_id("session", session)
        if expires is not None and expires <= now:
            raise InvalidInputError("expires", "that time has passed")
        received = [each for each in await self._records.list_all() if each.target == "received"]
        await self._revoke_expired(received, now)
        if len(received) >= MAX_RECEIVED_SHARES:
            raise ConflictError("share", "", f"cannot be made: {MAX_RECEIVED_SHARES} are here")
        id, secret = new_share_id(), secrets.token_hex(SECRET_BYTES)
        url = f"{settings.host}/s/{id}"
        record = ShareRecord(
            id=id,
            session_id=session,
            url=url,
            secret=_hash_secret(secret),
            target="received",
            created=now,
            expires=expires,
        )
        await self._context.store.put_value((HOSTED_KEY, id), {"version": 0, "items": {}})
        await self._records.add(record)
        return ShareTicket(id=id, url=url, secret=secret)

    async def add_items(self, id: str, secret: str, items: tuple[ShareItem, ...]) -> None:
        """Store items of a received share. Raise `NotFoundError` for a wrong secret."""
        record = await self._check_secret(id, secret)
        received = {name_item(item): to_plain(item) for item in items}

        def change(stored: Any) -> Any:
            if stored is None:
                raise NotFoundError("share", id)
            merged = {**stored["items"], **received}
            if len(merged) > MAX_SHARE_ITEMS or len(encode(merged)) > MAX_SHARE_BYTES:
                raise InvalidInputError(
                    "data", f"a share is at most {MAX_SHARE_BYTES >> 20} MB and {MAX_SHARE_ITEMS} items"
                )
            return {"version": stored["version"] + 1, "items": merged}

        await self._context.store.update_value((HOSTED_KEY, record.id), change)

    async def remove(self, id: str, secret: str) -> None:
        """Remove a received share. Raise `NotFoundError` for a wrong secret."""
        await self._get_revoker().revoke(await self._check_secret(id, secret))
        self._redactors.pop(id, None)

    async def _get_record(self, id: str) -> ShareRecord:
        """Return the record of a share that is shown here. Raise `NotFoundError` if it is unknown, expired or remote."""
        if self._context.settings.host and SHARE_ID.fullmatch(id):
            for record in await self._records.list_all():
                # Compared in constant time, so that the response time does not tell how much of a guess was right.
                is_match = hmac.compare_digest(record.id.encode(), id.encode())
                if (
                    is_match
                    and record.target != "remote"
                    and not record.is_expired(self._context.clock.now())
                ):
                    return record
        raise NotFoundError("share", id[:80])

    async def _check_secret(self, id: str, secret: str) -> ShareRecord:
        record = await self._get_record(id)
        if record.target != "received" or not hmac.compare_digest(record.secret, _hash_secret(secret)):
            raise NotFoundError("share", id[:80])
        return record

    async def _load_export(self, record: ShareRecord) -> SessionExport:
        if record.target != "received":
            return await pack_session(self._context.store, record.session_id)
        stored = await self._get_hosted(record)
        items = {name: from_plain(item, ShareItem) for name, item in stored["items"].items()}
        export = from_items(items)
        if export is None:
            raise NotFoundError("share", record.id)
        return export

    async def _get_hosted(self, record: ShareRecord) -> Any:
        stored = await self._context.store.find_value((HOSTED_KEY, record.id))
        if stored is None:
            raise NotFoundError("share", record.id)
        return stored

    def _get_redactor(self, record: ShareRecord) -> tuple[SessionRedactor, asyncio.Lock]:
        redactor = self._redactors.pop(record.id, None) or (
            SessionRedactor(redact=record.redact),
            asyncio.Lock(),
        )
        self._redactors[record.id] = redactor
        while len(self._redactors) > MAX_REDACTORS:
            self._redactors.popitem(last=False)
        return redactor

    async def _revoke_expired(self, received: list[ShareRecord], now: int) -> None:
        for record in [each for each in received if each.is_expired(now)]:
            await self._get_revoker().revoke(record)
            received.remove(record)

    def _get_revoker(self) -> ShareRevoker:
        context = self._context
        return ShareRevoker(store=context.store, journal=context.journal, remote=context.remote)


def _hash_secret(secret: str) -> str:
    """Return the hash of a secret. The secret itself is not stored, because we only compare it."""
    return sha256(secret.encode("utf-8", "replace")).hexdigest()
