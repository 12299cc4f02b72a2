"""Serve shares as pages of our own: sessions of this store, and those that others send here."""

import asyncio
import hmac
import re
import secrets
from collections import OrderedDict
from hashlib import sha256
from typing import Any, Final

from weft.errors import ConflictError, InvalidInputError, NotFoundError
from weft.model.ids import SessionID, check_new
from weft.model.parcel import Parcel
from weft.model.share import ShareItem, ShareTicket, Shown
from weft.model.wire import encode, from_plain, to_plain
from weft.share.contract import Ground
from weft.share.items import from_items, name_of
from weft.share.records import HOSTED, Book, Record
from weft.share.redaction import Covering
from weft.share.revoke import TakingBack
from weft.share.view import is_busy, to_shown
from weft.transfer.intake import pack

ID: Final = re.compile(r"[0-9a-f]{40}")
ID_BYTES: Final = 20
SECRET_BYTES: Final = 24
MOST_RECEIVED: Final = 1000
MOST_ITEMS: Final = 20_000
MOST_BYTES: Final = 16 * 1024 * 1024
REMEMBERED: Final = 32


def new_id() -> str:
    """The address of a share is all it takes to see it: 160 bits that nobody guesses."""
    return secrets.token_hex(ID_BYTES)


class Pages:
    """`Showing` for a server that shows. For anybody else there is nothing to be seen."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._book = Book(ground.store)
        self._coverings: OrderedDict[str, tuple[Covering, asyncio.Lock]] = OrderedDict()

    async def get_shown(self, id: str) -> Shown:
        record = await self._get(id)
        parcel = await self._parcel(record)
        covering, lock = self._covering(record)
        async with lock:
            shown = to_shown(parcel, attachments=record.attachments)
            covered = await asyncio.to_thread(covering.cover, shown)
        return Shown(id=id, parcel=covered, busy=is_busy(parcel), expires=record.expires)

    async def feel_pulse(self, id: str) -> str:
        """What is new in a session is at its end, or in its own record: the rest need not be read."""
        record = await self._get(id)
        if record.target == "received":
            return str((await self._hosted(record))["version"])
        store = self._ground.store
        seen = sha256(encode(await store.get_session(record.session_id)))
        for message in await store.list_messages(record.session_id, last=2):
            seen.update(encode(message))
        return seen.hexdigest()

    async def receive(self, session: SessionID, *, expires: int | None = None) -> ShareTicket:
        settings, now = self._ground.settings, self._ground.clock.now()
        if not settings.host:
            raise NotFoundError("share server", "", hint="weft serve --share is one")
        check_new("session", session)
        if expires is not None and expires <= now:
            raise InvalidInputError("expires", "that is over already")
        received = [each for each in await self._book.list_all() if each.target == "received"]
        await self._sweep(received, now)
        if len(received) >= MOST_RECEIVED:
            raise ConflictError("share", "", f"cannot be made: {MOST_RECEIVED} are here")
        id, secret = new_id(), secrets.token_hex(SECRET_BYTES)
        url = f"{settings.host}/s/{id}"
        record = Record(
            id=id,
            session_id=session,
            url=url,
            secret=_digest(secret),
            target="received",
            created=now,
            expires=expires,
        )
        await self._ground.store.keep((HOSTED, id), {"version": 0, "items": {}})
        await self._book.add(record)
        return ShareTicket(id=id, url=url, secret=secret)

    async def take_in(self, id: str, secret: str, items: tuple[ShareItem, ...]) -> None:
        record = await self._opened(id, secret)
        fresh = {name_of(item): to_plain(item) for item in items}

        def rework(kept: Any) -> Any:
            if kept is None:
                raise NotFoundError("share", id)
            merged = {**kept["items"], **fresh}
            if len(merged) > MOST_ITEMS or len(encode(merged)) > MOST_BYTES:
                raise InvalidInputError(
                    "data", f"a share is at most {MOST_BYTES >> 20} MB and {MOST_ITEMS} items"
                )
            return {"version": kept["version"] + 1, "items": merged}

        await self._ground.store.rework((HOSTED, record.id), rework)

    async def drop(self, id: str, secret: str) -> None:
        await self._back().take_back(await self._opened(id, secret))
        self._coverings.pop(id, None)

    async def _get(self, id: str) -> Record:
        """A share that is to be seen here. What is over, taken back or shown elsewhere is as if it had never been."""
        if self._ground.settings.host and ID.fullmatch(id):
            for record in await self._book.list_all():
                # Of the same length whoever asks, so that nobody learns by waiting how far a guess was right.
                same = hmac.compare_digest(record.id.encode(), id.encode())
                if same and record.target != "remote" and not record.is_over(self._ground.clock.now()):
                    return record
        raise NotFoundError("share", id[:80])

    async def _opened(self, id: str, secret: str) -> Record:
        record = await self._get(id)
        if record.target != "received" or not hmac.compare_digest(record.secret, _digest(secret)):
            raise NotFoundError("share", id[:80])
        return record

    async def _parcel(self, record: Record) -> Parcel:
        if record.target != "received":
            return await pack(self._ground.store, record.session_id)
        kept = await self._hosted(record)
        items = {name: from_plain(item, ShareItem) for name, item in kept["items"].items()}
        parcel = from_items(items)
        if parcel is None:
            raise NotFoundError("share", record.id)
        return parcel

    async def _hosted(self, record: Record) -> Any:
        kept = await self._ground.store.kept((HOSTED, record.id))
        if kept is None:
            raise NotFoundError("share", record.id)
        return kept

    def _covering(self, record: Record) -> tuple[Covering, asyncio.Lock]:
        found = self._coverings.pop(record.id, None) or (Covering(redact=record.redact), asyncio.Lock())
        self._coverings[record.id] = found
        while len(self._coverings) > REMEMBERED:
            self._coverings.popitem(last=False)
        return found

    async def _sweep(self, received: list[Record], now: int) -> None:
        for record in [each for each in received if each.is_over(now)]:
            await self._back().take_back(record)
            received.remove(record)

    def _back(self) -> TakingBack:
        ground = self._ground
        return TakingBack(store=ground.store, journal=ground.journal, remote=ground.remote)


def _digest(secret: str) -> str:
    """What is kept of a secret that we only have to know again."""
    return sha256(secret.encode("utf-8", "replace")).hexdigest()
