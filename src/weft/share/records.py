"""Share records: what is shared, where, until when, and the secret that revokes it."""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from weft.errors import DocumentError
from weft.model.ids import SessionID
from weft.model.share import Share, Target
from weft.model.wire import Wire, always, from_plain, to_plain
from weft.store.contract import Store

BOOK: Final = ("sharing", "book")
OPENCODE: Final = "session_share"
HOSTED: Final = "hosted"  # what was received, by the id of its share


class Record(Wire, frozen=True, kw_only=True):
    """A share with what is nobody else's. `server` is the address it was made at, with what it takes to get in there.

    `listed` says that OpenCode's record of it is there, too: it is one of the server that OpenCode would use.
    """

    id: str
    session_id: SessionID
    url: str
    secret: str
    target: Target
    server: str = ""
    created: int = always(0)
    expires: int | None = None
    redact: bool = always(True)
    attachments: bool = always(True)
    listed: bool = False

    def is_over(self, now: int) -> bool:
        return self.expires is not None and self.expires <= now


class Shares(Wire, frozen=True, kw_only=True):
    shares: tuple[Record, ...] = always(())


class Book:
    """All shares of a store, over all processes that use it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_all(self) -> tuple[Record, ...]:
        """In the order they were made."""
        return _read(await self._store.kept(BOOK)).shares

    async def find(self, id: str) -> Record | None:
        return next((each for each in await self.list_all() if each.id == id), None)

    async def find_of(self, session: SessionID) -> Record | None:
        """The share of a session here, by whichever program."""
        ours = (each for each in await self.list_all() if each.session_id == session)
        return next((each for each in ours if each.target != "received"), None) or await self._theirs(session)

    async def add(self, record: Record) -> None:
        if record.listed:
            # Only of the server that OpenCode itself would use: it sends the session to the one it is configured
            # for, or to a public one, as soon as there is such a record.
            theirs = {"id": record.id, "url": record.url, "secret": record.secret}
            await self._store.keep((OPENCODE, record.session_id), theirs)
        await self._change(lambda shares: (*(each for each in shares if each.id != record.id), record))

    async def drop(self, record: Record) -> None:
        if record.listed:
            await self._store.keep((OPENCODE, record.session_id), None)
        await self._change(lambda shares: tuple(each for each in shares if each.id != record.id))

    async def _change(self, turn: Callable[[tuple[Record, ...]], tuple[Record, ...]]) -> None:
        def rework(kept: object) -> object:
            book = _read(kept)
            return to_plain(replace(book, shares=turn(book.shares)))

        await self._store.rework(BOOK, rework)

    async def _theirs(self, session: SessionID) -> Record | None:
        match await self._store.kept((OPENCODE, session)):
            case {"id": str(id), "url": str(url), "secret": str(secret)} if id and url:
                return Record(id=id, session_id=session, url=url, secret=secret, target="remote", listed=True)
            case _:
                return None


async def carry_over(source: Store, target: Store) -> None:
    """Every share of one store into another's book, so that it can be taken back from there, too."""
    known = {record.id for record in await Book(target).list_all()}
    for record in await Book(source).list_all():
        if record.id not in known:
            await target.keep((HOSTED, record.id), await source.kept((HOSTED, record.id)))
            await Book(target).add(record)


def to_share(record: Record, *, known: bool = True) -> Share:
    """What a person may be told of it."""
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


def _read(kept: object) -> Shares:
    if kept is None:
        return Shares()
    try:
        return from_plain(kept, Shares, where="the book of shares")
    except DocumentError as error:
        # Never quietly as an empty book: what it lists could then not be taken back any more.
        raise DocumentError(".weft/kept/sharing/book.json", error.reason) from error
