"""Send a shared session to another server: only what that server does not have yet, and redacted."""

import asyncio

from msgspec.structs import replace

from weft.model.catalog import Model
from weft.model.message import UserMessage
from weft.model.session import SessionInfo
from weft.model.transfer import SessionExport
from weft.share.contract import ShareContext
from weft.share.items import SentHashes, hash_item, select_unsent, to_batches, to_items
from weft.share.records import ShareRecord
from weft.share.view import SessionRedactor, to_shared_view
from weft.transfer.session_import import pack_session


class ShareSender:
    """Sends one shared session to its server. Remembers what was sent and which secrets were found; `warned` says that a failure was reported."""

    def __init__(self, context: ShareContext, record: ShareRecord) -> None:
        self.record = record
        self.warned = False
        self._context = context
        self._redactor = SessionRedactor(redact=record.redact)
        self._sent: SentHashes = {}
        self._lock = asyncio.Lock()

    async def send(self) -> None:
        """Send everything that the other server does not have yet. Raise `SharingError` on failure."""
        async with self._lock:
            # Another process may have changed the session and sent that before what we read earlier arrived, which replaced it.
            while await self._send_once() != await self._context.store.get_session(self.record.session_id):
                pass
            self.warned = False

    async def _send_once(self) -> SessionInfo:
        """Send what is new in the session, and return its information as it was sent."""
        export = await pack_session(self._context.store, self.record.session_id)
        view = to_shared_view(export, attachments=self.record.attachments)
        redacted = await asyncio.to_thread(self._redactor.redact, view)
        items = to_items(redacted, self._list_models(redacted))
        for batch in to_batches(select_unsent(items, self._sent)):
            await self._context.remote.sync(self.record, batch.values())
            self._sent.update({name: hash_item(item) for name, item in batch.items()})
        return export.info

    def _list_models(self, export: SessionExport) -> list[Model]:
        """Return what is known of the models in a session, without how to reach them, which may contain keys."""
        refs = [message.info.model for message in export.messages if isinstance(message.info, UserMessage)]
        found = {ref: self._context.find_model(ref) for ref in dict.fromkeys(refs) if ref is not None}
        return [
            replace(model, api=replace(model.api, url=""), options={}, headers={}, variants=None)
            for model in found.values()
            if model is not None
        ]
