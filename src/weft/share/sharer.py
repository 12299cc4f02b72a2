"""Sharing: a session is shown to others when somebody asks for it, and no longer than they want."""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec.structs import replace

from weft.bus import Bus
from weft.errors import ConflictError, InvalidInputError, NotFoundError, SharingError, WeftError
from weft.host.tasks import open_tasks
from weft.model.event import SessionWarned
from weft.model.ids import SessionID, checked
from weft.model.session import Session, SessionShare
from weft.model.share import USUAL_SHARE, Share, SharePreview, ShareTerms
from weft.share.contract import NOWHERE, Ground, get_record, list_shares, to_address
from weft.share.host import SECRET_BYTES, Pages, new_id
from weft.share.records import Book, Record
from weft.share.redaction import to_preview
from weft.share.revoke import TakingBack, unmark
from weft.share.sync import CLOSING_SECONDS, Follower, open_follower
from weft.transfer.intake import pack


class Sharer:
    """`Sharing` for one directory. Open one with `open_sharer`, so that nothing stays unsent."""

    def __init__(self, ground: Ground, follower: Follower, tasks: asyncio.TaskGroup) -> None:
        self._ground = ground
        self._follower = follower
        self._tasks = tasks
        self._under_way: set[asyncio.Task[None]] = set()
        self._book = Book(ground.store)
        self._doors: defaultdict[SessionID, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._back = TakingBack(store=ground.store, journal=ground.journal, remote=ground.remote)
        self.showing = Pages(ground)

    async def share(self, session: SessionID, terms: ShareTerms = USUAL_SHARE) -> Session:
        id = SessionID(checked("session", session))
        info = await self._ground.store.get_session(id)
        self._ground.settings.check()
        async with self._doors[id]:
            found = await self._book.find_of(id)
            if found is not None and found.is_over(self._ground.clock.now()):
                await self._back.take_back(found)
                found = None
            if found is not None:
                _check_same(found, terms)
                return await self._mark(found)
            return await self._mark(await self._make(info, terms))

    async def preview_share(self, session: SessionID, terms: ShareTerms = USUAL_SHARE) -> SharePreview:
        id = SessionID(checked("session", session))
        parcel = await pack(self._ground.store, id)
        return await asyncio.to_thread(to_preview, parcel, terms)

    async def unshare(self, session: SessionID, *, forget: bool = False) -> Session:
        id = SessionID(checked("session", session))
        info = await self._ground.store.get_session(id)
        async with self._doors[id]:
            found = await self._book.find_of(id)
            if found is not None:
                self._follower.forget(id)
                await self._back.take_back(found, forget=forget)
                return await self._ground.store.get_session(id)
            if info.share is not None:
                return await unmark(self._ground.journal, id)  # nothing is left to take it back with
        raise NotFoundError("share of session", id)

    async def list_shares(self) -> list[Share]:
        """What is over is taken back on the way, as far as that goes."""
        await self.sweep()
        return await list_shares(self._ground.store)

    async def revoke_share(self, id: str, *, forget: bool = False) -> None:
        record = await get_record(self._ground.store, id)
        if record.target == "received":
            await self._back.take_back(record)
            return
        async with self._doors[record.session_id]:
            self._follower.forget(record.session_id)
            await self._back.take_back(record, forget=forget)

    async def revoke(self, session: Session) -> None:
        """Before the session goes."""
        self._follower.forget(session.id)
        await self._back.revoke(session)

    async def sweep(self) -> None:
        await self._back.sweep(self._ground.clock.now())

    async def sweep_quietly(self) -> None:
        with suppress(WeftError):  # whoever asks for the shares is told what is wrong with them
            await self.sweep()

    def welcome(self, session: Session) -> None:
        """A session was made. With `share: auto` it is shared, in the background: making it does not wait for that."""
        if self._ground.settings.mode == "auto" and session.parent_id is None:
            self.begin(self._share_quietly(session.id))

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this in the background; closing waits for it, and not for long."""
        self._under_way.add(task := self._tasks.create_task(work))
        task.add_done_callback(self._under_way.discard)

    async def catch_up(self) -> None:
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=CLOSING_SECONDS)
        await self._follower.catch_up()

    async def close(self) -> None:
        await self.catch_up()
        for task in self._under_way:
            task.cancel()

    async def _share_quietly(self, session: SessionID) -> None:
        try:
            await self.share(session)
        except NotFoundError:
            return  # it is gone already
        except WeftError as error:
            hint = f" ({error.hint})" if error.hint else ""
            warning = SessionWarned(session_id=session, message=f"it is not shared: {error}{hint}")
            await self._ground.journal.commit(warning)

    async def _make(self, info: Session, terms: ShareTerms) -> Record:
        settings, now = self._ground.settings, self._ground.clock.now()
        if terms.expires is not None and terms.expires <= now:
            raise InvalidInputError("expires", "that is over already")
        record = Record(
            id=new_id(),
            session_id=info.id,
            url="",
            secret=secrets.token_hex(SECRET_BYTES),
            target="server",
            created=now,
            expires=terms.expires,
            redact=terms.redact,
            attachments=terms.attachments,
        )
        if terms.to == "server" or (not terms.to and settings.host):
            if not settings.host:
                raise InvalidInputError(
                    "to", "no server of ours shows pages", hint="start one: weft serve --share"
                )
            record = replace(record, url=f"{settings.host}/s/{record.id}")
            await self._book.add(record)
            return record
        if not (terms.to or settings.server):
            raise InvalidInputError("to", "there is no place to share to, and nothing has left", hint=NOWHERE)
        named = to_address(terms.to, "to") if terms.to else to_address(settings.server, "enterprise.url")
        return await self._send_off(record, named)

    async def _send_off(self, record: Record, server: str) -> Record:
        """At another server: there it is whole when this returns, or it is not there."""
        ground = self._ground
        ticket = await ground.remote.create(server, record.session_id, expires=record.expires)
        record = replace(
            record,
            id=ticket.id,
            url=ticket.url,
            secret=ticket.secret,
            target="remote",
            server=server,
            listed=server == ground.settings.server,
        )
        await self._book.add(record)
        try:
            await self._follower.send(record)
        except SharingError:
            self._follower.forget(record.session_id)
            with suppress(SharingError):
                await self._back.take_back(record)
            raise
        return record

    async def _mark(self, record: Record) -> Session:
        info = await self._ground.store.get_session(record.session_id)
        if info.share is not None and info.share.url == record.url:
            return info
        share = SessionShare(url=record.url)
        return await self._ground.journal.edit(record.session_id, lambda it: replace(it, share=share))


def _check_same(record: Record, terms: ShareTerms) -> None:
    """What is shared already is not quietly shown on other terms than were asked for."""
    there = record.target if record.target == "server" else record.server
    other = [
        word
        for word, differs in (
            ("elsewhere", bool(terms.to) and terms.to.rstrip("/") != there),
            ("for another time", terms.expires is not None and terms.expires != record.expires),
            ("with secrets as they stand", terms.redact and not record.redact),
            ("with secrets covered", record.redact and not terms.redact),
            ("with attached files", record.attachments and not terms.attachments),
        )
        if differs
    ]
    if other:
        raise ConflictError(
            "session",
            record.session_id,
            f"is shared already, {' and '.join(other)}: {record.url}",
            hint=f"weft unshare {record.session_id} takes it back",
        )


@asynccontextmanager
async def open_sharer(ground: Ground, bus: Bus) -> AsyncIterator[Sharer]:
    async with open_follower(ground, bus) as follower, open_tasks() as tasks:
        sharer = Sharer(ground, follower, tasks)
        sharer.begin(sharer.sweep_quietly())
        try:
            yield sharer
        finally:
            await sharer.close()
