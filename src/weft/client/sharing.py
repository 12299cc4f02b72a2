"""Sharing over HTTP: on the server's terms, by the server's own pages or elsewhere."""

from weft.api import Showing
from weft.client.asked import delete, get, post, quoted
from weft.client.http import Line
from weft.client.paths import need_weft, own, session_at
from weft.errors import UnsupportedError
from weft.model.around.share import (
    USUAL_SHARE,
    Share,
    ShareItem,
    SharePreview,
    ShareTerms,
    ShareTicket,
    Shown,
)
from weft.model.ids import SessionID
from weft.model.session import Session

FOR_BROWSERS = "a share is for those who have no password: open its address"


class RemoteSharing:
    showing: Showing

    def __init__(self, line: Line) -> None:
        self._line = line
        self.showing = RemoteShowing(line)

    async def share(self, session: SessionID, terms: ShareTerms = USUAL_SHARE) -> Session:
        if self._line.ours:
            return await self._line.ask(post(own(session_at(session, "share")), terms), Session)
        if terms != USUAL_SHARE:
            need_weft(self._line, "sharing on terms")
        return await self._line.ask(post(session_at(session, "share")), Session)

    async def preview_share(self, session: SessionID, terms: ShareTerms = USUAL_SHARE) -> SharePreview:
        path = session_at(session, "share", "preview")
        need_weft(self._line, "saying what a share would show")
        return await self._line.ask(post(own(path), terms), SharePreview)

    async def unshare(self, session: SessionID, *, forget: bool = False) -> Session:
        if self._line.ours:
            return await self._line.ask(delete(own(session_at(session, "share")), forget=forget), Session)
        if forget:
            need_weft(self._line, "forgetting a share")
        return await self._line.ask(delete(session_at(session, "share")), Session)

    async def list_shares(self) -> list[Share]:
        need_weft(self._line, "listing shares")
        return await self._line.ask(get(own("/share")), list[Share])

    async def revoke_share(self, id: str, *, forget: bool = False) -> None:
        need_weft(self._line, "taking a share back by its id")
        await self._line.ask(delete(own(f"/share/{quoted(id)}"), forget=forget), bool)

    async def catch_up(self) -> None:
        """Nothing is to be done here: the server itself keeps up to date what is shown elsewhere."""


class RemoteShowing:
    """What others send to a server to be shown. What is shown is looked at with a browser."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def get_shown(self, id: str) -> Shown:
        raise UnsupportedError(f"reading the share {id[:80]!r} over HTTP", hint=FOR_BROWSERS)

    async def feel_pulse(self, id: str) -> str:
        raise UnsupportedError(f"watching the share {id[:80]!r} over HTTP", hint=FOR_BROWSERS)

    async def receive(self, session: SessionID, *, expires: int | None = None) -> ShareTicket:
        need_weft(self._line, "receiving a share")
        body = {"sessionID": session} | ({} if expires is None else {"expires": expires})
        return await self._line.ask(post("/api/share", body), ShareTicket)

    async def take_in(self, id: str, secret: str, items: tuple[ShareItem, ...]) -> None:
        need_weft(self._line, "receiving a share")
        body = {"secret": secret, "data": items}
        await self._line.ask(post(f"/api/share/{quoted(id)}/sync", body, twice=True), None)

    async def drop(self, id: str, secret: str) -> None:
        need_weft(self._line, "receiving a share")
        await self._line.ask(delete(f"/api/share/{quoted(id)}", body={"secret": secret}), None)
