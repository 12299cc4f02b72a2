"""Sharing, until it is built: every request is refused, and says so."""

from typing import NoReturn

from weft.errors import UnsupportedError
from weft.model.ids import SessionID
from weft.store.contract import Store


class Unshared:
    """`Sharing` that shares nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def share(self, session: SessionID) -> NoReturn:
        await self._refuse(session)

    async def unshare(self, session: SessionID) -> NoReturn:
        await self._refuse(session)

    async def _refuse(self, session: SessionID) -> NoReturn:
        await self._store.get_session(session)
        raise UnsupportedError("sharing sessions", hint="weft export writes one to a file")
