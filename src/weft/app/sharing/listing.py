"""Which shares there are: those of ours, and those that OpenCode made in the same store."""

from weft.errors import NotFoundError
from weft.model.around.share import Share
from weft.session.sharing.book import Book, Record, to_share
from weft.store.contract import Store


async def list_shares(store: Store) -> list[Share]:
    """In the order they were made; what OpenCode shared comes last, for nobody knows when that was."""
    ours = await Book(store).list_all()
    theirs = await _list_theirs(store)
    known = {record.session_id for record in ours if record.target != "received"}
    return [
        *(to_share(record) for record in ours),
        *(to_share(record, known=False) for record in theirs if record.session_id not in known),
    ]


async def get_record(store: Store, id: str) -> Record:
    """By the share's own id."""
    found = await Book(store).find(id)
    theirs = [] if found else [record for record in await _list_theirs(store) if record.id == id]
    if found is None and not theirs:
        raise NotFoundError("share", id[:80], hint="see which there are: weft share list")
    return found or theirs[0]


async def _list_theirs(store: Store) -> list[Record]:
    """Its sessions say that they are shared, and it keeps the record."""
    book, found = Book(store), []
    for session in await store.list_sessions():
        if session.share is not None:
            record = await book.find_of(session.id)
            if record is not None and record.listed and not record.server:
                found.append(record)
    return found
