"""Keep shares on other servers up to date in the background."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from msgspec.structs import replace

from weft.bus import Bus
from weft.errors import CursorLostError, NotFoundError, StoreError, WeftError
from weft.host.tasks import open_tasks
from weft.model.catalog import Model
from weft.model.event import Event, SessionRested, SessionUpdated, SessionWarned, session_of
from weft.model.ids import SessionID
from weft.model.message import UserMessage
from weft.model.parcel import Parcel
from weft.share.contract import GoneError, Ground
from weft.share.items import Sent, stamp, to_batches, to_items, to_send
from weft.share.records import Book, Record
from weft.share.redaction import Covering
from weft.share.revoke import TakingBack
from weft.share.view import to_shown
from weft.transfer.intake import pack

EVERY_SECONDS = 1.0
CLOSING_SECONDS = 8.0


class _Line:
    """To one share: what was sent, and which secrets are known."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.covering = Covering(redact=record.redact)
        self.sent: Sent = {}
        self.lock = asyncio.Lock()
        self.warned = False


class Follower:
    """Sends what changed, a second after it did; what could not be sent is sent with the next change, or at the end."""

    def __init__(self, ground: Ground, bus: Bus) -> None:
        self._ground = ground
        self._bus = bus
        self._listening = bus.listen(None)
        self._lines: dict[SessionID, _Line] = {}
        self._behind: set[SessionID] = set()

    async def send(self, record: Record) -> None:
        """All that the other side does not have yet. Raises `SharingError`."""
        line = self._line(record)
        async with line.lock:
            parcel = await pack(self._ground.store, record.session_id)
            shown = to_shown(parcel, attachments=record.attachments)
            covered = await asyncio.to_thread(line.covering.cover, shown)
            items = to_items(covered, self._models(covered))
            for batch in to_batches(to_send(items, line.sent)):
                await self._ground.remote.sync(record, batch.values())
                line.sent.update({name: stamp(item) for name, item in batch.items()})
            line.warned = False

    def forget(self, session: SessionID) -> None:
        self._lines.pop(session, None)
        self._behind.discard(session)

    async def follow(self) -> None:
        await self._look_up()
        while True:
            self._note(await self._take())
            if self._behind:
                await self._ground.clock.sleep(EVERY_SECONDS)
                await self.flush()

    async def flush(self) -> None:
        for session in list(self._behind):
            line = self._lines.get(session)
            self._behind.discard(session)
            if line is not None:
                await self._try(line)

    async def catch_up(self) -> None:
        """What happened and was not sent yet is sent. OpenCode loses it at the end, and with it all of a short run."""
        if self._is_behind():
            await self._look_up()
        if self._is_behind():  # still: meanwhile `follow` may have taken it, and nothing may come after it
            self._note(await self._take())
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await self.flush()
        except TimeoutError:
            return  # whoever shares it next sends it

    def _is_behind(self) -> bool:
        return self._bus.cursor > self._listening.cursor

    async def _take(self) -> list[Event]:
        try:
            told = [each.event for each in await self._listening.take()]
        except CursorLostError:
            self._listening = self._bus.listen(None)
            self._behind |= self._lines.keys()
            return []
        if any(isinstance(event, SessionUpdated | SessionRested) for event in told):
            await self._look_up()  # another process may have shared it meanwhile
        return told

    def _note(self, told: Iterable[Event]) -> None:
        for event in told:
            session = session_of(event)
            if session in self._lines and not isinstance(event, SessionWarned):
                self._behind.add(session)

    async def _look_up(self) -> None:
        now = self._ground.clock.now()
        try:
            book = await Book(self._ground.store).list_all()
        except WeftError:
            return  # a book that cannot be read ends no run; whoever asks for the shares is told
        remote = [record for record in book if record.target == "remote" and not record.is_over(now)]
        shared = {record.session_id: record for record in remote}
        for session in self._lines.keys() - shared.keys():
            self.forget(session)
        for record in shared.values():
            self._line(record)

    def _line(self, record: Record) -> _Line:
        line = self._lines.get(record.session_id)
        if line is None or line.record.id != record.id:
            line = self._lines[record.session_id] = _Line(record)
        return line

    async def _try(self, line: _Line) -> None:
        record = line.record
        try:
            await self.send(record)
        except NotFoundError:
            self.forget(record.session_id)  # the session is gone, and was taken back before
        except WeftError as error:
            if self._lines.get(record.session_id) is line:  # else it was taken back meanwhile
                await self._note_trouble(line, error)

    async def _note_trouble(self, line: _Line, error: WeftError) -> None:
        record = line.record
        if isinstance(error, GoneError):
            with suppress(StoreError):
                await self._lose(record)
            return
        self._behind.add(record.session_id)
        if not line.warned:
            line.warned = True
            await self._warn(record.session_id, f"what is shown at {record.url} is behind: {error}")

    async def _lose(self, record: Record) -> None:
        ground = self._ground
        back = TakingBack(store=ground.store, journal=ground.journal, remote=ground.remote)
        await back.take_back(record, forget=True)
        self.forget(record.session_id)
        await self._warn(record.session_id, f"it is shared no more: {record.url} is gone")

    async def _warn(self, session: SessionID, message: str) -> None:
        await self._ground.journal.commit(SessionWarned(session_id=session, message=message))

    def _models(self, parcel: Parcel) -> list[Model]:
        """What is known of the models that were asked. How they are reached is left out: keys may stand in there."""
        asked = [message.info.model for message in parcel.messages if isinstance(message.info, UserMessage)]
        found = {ref: self._ground.find_model(ref) for ref in dict.fromkeys(asked) if ref is not None}
        return [
            replace(model, api=replace(model.api, url=""), options={}, headers={}, variants=None)
            for model in found.values()
            if model is not None
        ]


@asynccontextmanager
async def open_follower(ground: Ground, bus: Bus) -> AsyncIterator[Follower]:
    follower = Follower(ground, bus)
    async with open_tasks() as tasks:
        following = tasks.create_task(follower.follow())
        try:
            yield follower
        finally:
            following.cancel()
            await asyncio.wait([following])
            await follower.catch_up()
