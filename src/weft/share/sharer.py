"""Share a session with others on request, for as long as the person wants."""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weft.bus import Bus
from weft.errors import ConflictError, InvalidInputError, NotFoundError, WeftError
from weft.host.tasks import open_tasks
from weft.model.event import SessionWarned
from weft.model.ids import SessionID, check_id
from weft.model.session import SessionInfo, SessionShare
from weft.model.share import DEFAULT_SHARE_TERMS, Share, SharePreview, ShareTerms
from weft.share.contract import NO_TARGET_HINT, ShareContext, check_address, get_record, list_shares
from weft.share.records import SECRET_BYTES, ShareRecord, ShareRecords, new_share_id
from weft.share.revoke import ShareRevoker, unmark_session
from weft.share.sync import CLOSE_TIMEOUT_SECONDS, ShareSync, open_share_sync

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.share.host import ShareHost


class Sharer:
    """Implements `Sharing` for one directory. Use `open_sharer`, so that nothing stays unsent."""

    def __init__(self, context: ShareContext, sync: ShareSync, tasks: asyncio.TaskGroup) -> None:
        self._context = context
        self._sync = sync
        self._tasks = tasks
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._records = ShareRecords(context.store)
        self._locks: defaultdict[SessionID, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._revoker = ShareRevoker(store=context.store, journal=context.journal, remote=context.remote)

    @cached_property
    def pages(self) -> ShareHost:
        from weft.share.host import ShareHost  # noqa: PLC0415  only a server shows pages

        return ShareHost(self._context)

    async def share(self, session: SessionID, terms: ShareTerms = DEFAULT_SHARE_TERMS) -> SessionInfo:
        """Share a session. If it is shared on the same terms, return it; on others, raise `ConflictError`."""
        id = SessionID(check_id("session", session))
        info = await self._context.store.get_session(id)
        self._context.settings.check()
        async with self._locks[id]:
            record = await self._records.find_for_session(id)
            if record is not None and record.is_expired(self._context.clock.now()):
                await self._revoker.revoke(record)
                record = None
            if record is not None:
                _check_terms(record, terms)
                return await self._mark_shared(record)
            return await self._mark_shared(await self._create(info, terms))

    async def check_share(self, session: SessionID, terms: ShareTerms) -> None:
        """Raise what `share` would raise before it sends anything."""
        id = SessionID(check_id("session", session))
        await self._context.store.get_session(id)
        self._context.settings.check()
        record = await self._records.find_for_session(id)
        if record is None or record.is_expired(self._context.clock.now()):
            self._choose_server(terms)
        else:
            _check_terms(record, terms)

    async def preview_share(
        self, session: SessionID, terms: ShareTerms = DEFAULT_SHARE_TERMS
    ) -> SharePreview:
        """Return what a share would show and redact, without sending anything."""
        from weft.share.view import to_preview  # noqa: PLC0415  few sessions are shared
        from weft.transfer.session_import import pack_session  # noqa: PLC0415  few sessions are shared

        id = SessionID(check_id("session", session))
        export = await pack_session(self._context.store, id)
        return await asyncio.to_thread(to_preview, export, terms)

    async def unshare(self, session: SessionID, *, forget: bool = False) -> SessionInfo:
        """Revoke the share of a session. Raise `NotFoundError` if it is not shared."""
        id = SessionID(check_id("session", session))
        info = await self._context.store.get_session(id)
        async with self._locks[id]:
            record = await self._records.find_for_session(id)
            if record is not None:
                self._sync.forget(id)
                await self._revoker.revoke(record, forget=forget)
                return await self._context.store.get_session(id)
            if info.share is not None:
                return await unmark_session(self._context.journal, id)  # there is no record to revoke it with
        raise NotFoundError("share of session", id)

    async def list_shares(self) -> list[Share]:
        """Return all shares, after revoking expired ones as far as possible."""
        await self.revoke_expired()
        return await list_shares(self._context.store)

    async def revoke_share(self, id: str, *, forget: bool = False) -> None:
        """Revoke a share by its id. Raise `NotFoundError` if it does not exist."""
        record = await get_record(self._context.store, id)
        if record.target == "received":
            await self._revoker.revoke(record)
            return
        async with self._locks[record.session_id]:
            self._sync.forget(record.session_id)
            await self._revoker.revoke(record, forget=forget)

    async def revoke(self, session: SessionInfo) -> None:
        """Revoke the share of a session that is about to be removed."""
        self._sync.forget(session.id)
        await self._revoker.revoke_session(session)

    async def revoke_expired(self) -> None:
        """Revoke expired shares."""
        await self._revoker.revoke_expired(self._context.clock.now())

    async def try_revoke_expired(self) -> None:
        """Revoke expired shares, and ignore failures."""
        with suppress(WeftError):  # reported when somebody lists the shares
            await self.revoke_expired()

    def on_created(self, session: SessionInfo) -> None:
        """Share a new session in the background if the mode is `auto`. Creating it does not wait for that."""
        if self._context.settings.mode == "auto" and session.parent_id is None:
            self.start_background(self._share_or_warn(session.id))

    def start_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background; `close` waits for it for a while."""
        self._background_tasks.add(task := self._tasks.create_task(work))
        task.add_done_callback(self._background_tasks.discard)

    async def catch_up(self) -> None:
        """Wait for background tasks, and send what other servers do not have yet."""
        if self._background_tasks:
            await asyncio.wait(self._background_tasks, timeout=CLOSE_TIMEOUT_SECONDS)
        await self._sync.catch_up()

    async def close(self) -> None:
        await self.catch_up()
        for task in self._background_tasks:
            task.cancel()

    async def _share_or_warn(self, session: SessionID) -> None:
        try:
            await self.share(session)
        except NotFoundError:
            return  # it was removed meanwhile
        except WeftError as error:
            hint = f" ({error.hint})" if error.hint else ""
            warning = SessionWarned(session_id=session, message=f"it is not shared: {error}{hint}")
            await self._context.journal.commit(warning)

    async def _create(self, info: SessionInfo, terms: ShareTerms) -> ShareRecord:
        server = self._choose_server(terms)
        record = ShareRecord(
            id=new_share_id(),
            session_id=info.id,
            url="",
            secret=secrets.token_hex(SECRET_BYTES),
            target="server",
            created=self._context.clock.now(),
            expires=terms.expires,
            redact=terms.redact,
            attachments=terms.attachments,
        )
        if server is not None:
            return await self._create_remote(record, server)
        record = replace(record, url=f"{self._context.settings.host}/s/{record.id}")
        await self._records.add(record)
        return record

    def _choose_server(self, terms: ShareTerms) -> str | None:
        """Return the address of the share server, None for our own pages.

        Raise `InvalidInputError` if there is no place to share to, or no time left.
        """
        settings = self._context.settings
        if terms.expires is not None and terms.expires <= self._context.clock.now():
            raise InvalidInputError("expires", "that time is over")
        if terms.to == "server" or (not terms.to and settings.host):
            if not settings.host:
                raise InvalidInputError(
                    "to", "no server of ours shows pages", hint="start one: weft serve --share"
                )
            return None
        if not (terms.to or settings.server):
            raise InvalidInputError(
                "to", "there is no place to share to, and nothing was sent", hint=NO_TARGET_HINT
            )
        return check_address(terms.to, "to") if terms.to else check_address(settings.server, "enterprise.url")

    async def _create_remote(self, record: ShareRecord, server: str) -> ShareRecord:
        """Create a share on another server. When this returns it is complete there; on failure it does not exist."""
        context = self._context
        ticket = await context.remote.create(server, record.session_id, expires=record.expires)
        record = replace(
            record,
            id=ticket.id,
            url=ticket.url,
            secret=ticket.secret,
            target="remote",
            server=server,
            listed=server == context.settings.server,
        )
        try:
            await self._records.add(record)
            await self._sync.send(record)
        except WeftError:  # of the other server or of the store, or of a session that cannot be read
            self._sync.forget(record.session_id)
            with suppress(WeftError):
                await self._revoker.revoke(record)
            raise
        return record

    async def _mark_shared(self, record: ShareRecord) -> SessionInfo:
        info = await self._context.store.get_session(record.session_id)
        if info.share is not None and info.share.url == record.url:
            return info
        share = SessionShare(url=record.url)
        return await self._context.journal.edit(record.session_id, lambda it: replace(it, share=share))


def _check_terms(record: ShareRecord, terms: ShareTerms) -> None:
    """Raise `ConflictError` if the session is already shared on other terms than requested."""
    current_target = record.target if record.target == "server" else record.server
    differences = [
        description
        for description, differs in (
            ("elsewhere", bool(terms.to) and terms.to.rstrip("/") != current_target),
            ("until another time", terms.expires is not None and terms.expires != record.expires),
            ("with secrets in clear text", terms.redact and not record.redact),
            ("with secrets redacted", record.redact and not terms.redact),
            ("with attached files", record.attachments and not terms.attachments),
        )
        if differs
    ]
    if differences:
        raise ConflictError(
            "session",
            record.session_id,
            f"is shared already, {' and '.join(differences)}: {record.url}",
            hint=f"weft unshare {record.session_id} takes it back",
        )


@asynccontextmanager
async def open_sharer(context: ShareContext, bus: Bus) -> AsyncIterator[Sharer]:
    """Open a `Sharer` that keeps its shares up to date in the background."""
    async with open_share_sync(context, bus) as sync, open_tasks() as tasks:
        sharer = Sharer(context, sync, tasks)
        sharer.start_background(sharer.try_revoke_expired())
        try:
            yield sharer
        finally:
            await sharer.close()
