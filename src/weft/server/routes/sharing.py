"""HTTP for sharing: our own routes, those of a share server, and the pages."""

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from weft.model.ids import SessionID
from weft.model.session import Session
from weft.model.share import Share, ShareItem, SharePreview, ShareTerms, ShareTicket
from weft.model.wire import Wire
from weft.server.pages import SHARE
from weft.server.route import Call, Media, Wide, route
from weft.server.routes.sessions import session_in

OWN = "/weft/share"
RECEIVED = "/api/share"
LONGEST = 4096
MOST_ITEMS = 5000
JSON: Final[Media] = "application/json; charset=utf-8"

Address = Annotated[str, Meta(max_length=LONGEST)]
Time = Annotated[int, Meta(ge=0)]


class ShareInput(Wire, frozen=True, kw_only=True):
    """On what terms; `to` is `server` for pages here, or a share server's address."""

    to: Address = ""
    expires: Time | None = None
    redact: bool = True
    attachments: bool = True


class RevokeQuery(Struct, frozen=True, kw_only=True):
    """To `forget` a share is not to ask the server that shows it."""

    forget: bool = False


class ReceiveInput(Wire, frozen=True, kw_only=True):
    session_id: SessionID
    expires: Time | None = None


class SyncInput(Wire, frozen=True, kw_only=True):
    secret: Address
    data: Annotated[tuple[ShareItem, ...], Meta(max_length=MOST_ITEMS)]


class DropInput(Wire, frozen=True, kw_only=True):
    secret: Address


def _terms(call: Call) -> ShareTerms:
    asked: ShareInput = call.body or ShareInput()
    return ShareTerms(to=asked.to, expires=asked.expires, redact=asked.redact, attachments=asked.attachments)


async def share_session(call: Call) -> Session:
    """Show a session to others, on terms."""
    return await call.api.sharing.share(session_in(call), _terms(call))


async def preview_share(call: Call) -> SharePreview:
    """What a share would show and cover. Nothing leaves by this."""
    return await call.api.sharing.preview_share(session_in(call), _terms(call))


async def unshare_session(call: Call) -> Session:
    """Show a session to others no more; to `forget` is not to ask there."""
    asked: RevokeQuery = call.query
    return await call.api.sharing.unshare(session_in(call), forget=asked.forget)


async def list_shares(call: Call) -> list[Share]:
    """Every share there is, with those that were received. No secrets."""
    return await call.api.sharing.list_shares()


async def catch_up(call: Call) -> bool:
    """Bring what is shown elsewhere up to date, as far as its server lets us."""
    await call.api.sharing.catch_up()
    return True


async def revoke_share(call: Call) -> bool:
    """Take a share back, by its own id."""
    asked: RevokeQuery = call.query
    await call.api.sharing.revoke_share(call.names["shareID"], forget=asked.forget)
    return True


async def receive_share(call: Call) -> ShareTicket:
    """Make room for a session from elsewhere. The secret is given out once."""
    asked: ReceiveInput = call.body
    return await call.api.sharing.showing.receive(asked.session_id, expires=asked.expires)


async def sync_share(call: Call) -> dict[str, Any]:
    """Take in what is new of a session from elsewhere."""
    asked: SyncInput = call.body
    await call.api.sharing.showing.take_in(call.names["shareID"], asked.secret, asked.data)
    return {}


async def drop_share(call: Call) -> dict[str, Any]:
    """Take back what was received, for whom it came from."""
    asked: DropInput = call.body
    await call.api.sharing.showing.drop(call.names["shareID"], asked.secret)
    return {}


async def show_page(call: Wide) -> str:
    """A shared session as a page. No password: the address is all it takes."""
    raise NotImplementedError(call.path)


async def show_data(call: Wide) -> dict[str, Any]:
    """A shared session as it is exported. No password."""
    raise NotImplementedError(call.path)


async def show_changes(call: Wide) -> str:
    """Says when there is more to see of a share, and when there is nothing any more. No password."""
    raise NotImplementedError(call.path)


ROUTES = (
    route("GET", OWN, "weft.share.list", list_shares),
    route("POST", f"{OWN}/catch-up", "weft.share.catchUp", catch_up),
    route("DELETE", f"{OWN}/{{shareID}}", "weft.share.revoke", revoke_share, query=RevokeQuery),
    route(
        "POST",
        "/weft/session/{sessionID}/share",
        "weft.share.create",
        share_session,
        takes=ShareInput,
        optional=True,
        home="needs",
    ),
    route(
        "DELETE",
        "/weft/session/{sessionID}/share",
        "weft.share.remove",
        unshare_session,
        query=RevokeQuery,
    ),
    route(
        "POST",
        "/weft/session/{sessionID}/share/preview",
        "weft.share.preview",
        preview_share,
        takes=ShareInput,
        optional=True,
        home="wants",
    ),
)
SHARE_ROUTES = (
    route("POST", RECEIVED, "share.create", receive_share, takes=ReceiveInput),
    route("POST", f"{RECEIVED}/{{shareID}}/sync", "share.sync", sync_share, takes=SyncInput),
    route("DELETE", f"{RECEIVED}/{{shareID}}", "share.remove", drop_share, takes=DropInput),
    route("GET", SHARE, "share.page", show_page, media="text/html"),
    route("GET", f"{SHARE}/data", "share.data", show_data, media=JSON),
    route("GET", f"{SHARE}/live", "share.live", show_changes, media="text/event-stream"),
)
