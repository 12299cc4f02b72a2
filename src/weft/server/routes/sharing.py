"""HTTP routes for sharing: our own, those of a share server, and the pages."""

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from weft.model.ids import SessionID
from weft.model.session import SessionInfo
from weft.model.share import Share, ShareItem, SharePreview, ShareTerms, ShareTicket
from weft.model.wire import Wire
from weft.server.route import DirectoryCall, HttpOperation, Media, route
from weft.server.routes.sessions import read_session_id

SHARE_ROOT = "/s/"
SHARE_PATH = "/s/{shareID}"

OWN = "/weft/share"
RECEIVED = "/api/share"
MAX_TEXT_LENGTH = 4096
MAX_ITEMS = 5000
JSON: Final[Media] = "application/json; charset=utf-8"

ShortText = Annotated[str, Meta(max_length=MAX_TEXT_LENGTH)]
Time = Annotated[int, Meta(ge=0)]


class ShareInput(Wire, frozen=True, kw_only=True):
    """The terms of a share. `to` is `server` for pages of this server, or the address of a share server."""

    to: ShortText = ""
    expires: Time | None = None
    redact: bool = True
    attachments: bool = True


class RevokeQuery(Struct, frozen=True, kw_only=True):
    """With `forget`, the server that shows the share is not asked to remove it."""

    forget: bool = False


class ReceiveInput(Wire, frozen=True, kw_only=True):
    session_id: SessionID
    expires: Time | None = None


class SyncInput(Wire, frozen=True, kw_only=True):
    secret: ShortText
    data: Annotated[tuple[ShareItem, ...], Meta(max_length=MAX_ITEMS)]


class DropInput(Wire, frozen=True, kw_only=True):
    secret: ShortText


def _read_terms(call: DirectoryCall) -> ShareTerms:
    input: ShareInput = call.body or ShareInput()
    return ShareTerms(to=input.to, expires=input.expires, redact=input.redact, attachments=input.attachments)


async def share_session(call: DirectoryCall) -> SessionInfo:
    """Share a session on given terms."""
    return await call.api.sharing.share(read_session_id(call), _read_terms(call))


async def preview_share(call: DirectoryCall) -> SharePreview:
    """Return what a share would show and redact. Nothing is sent."""
    return await call.api.sharing.preview_share(read_session_id(call), _read_terms(call))


async def unshare_session(call: DirectoryCall) -> SessionInfo:
    """Stop sharing a session; with `forget`, without asking the share server."""
    query: RevokeQuery = call.query
    return await call.api.sharing.unshare(read_session_id(call), forget=query.forget)


async def list_shares(call: DirectoryCall) -> list[Share]:
    """List all shares, also those received from others. Secrets are left out."""
    return await call.api.sharing.list_shares()


async def catch_up(call: DirectoryCall) -> bool:
    """Bring shares on other servers up to date, as far as they answer."""
    await call.api.sharing.catch_up()
    return True


async def revoke_share(call: DirectoryCall) -> bool:
    """Revoke a share by its id."""
    query: RevokeQuery = call.query
    await call.api.sharing.revoke_share(call.path_params["shareID"], forget=query.forget)
    return True


async def receive_share(call: DirectoryCall) -> ShareTicket:
    """Accept a session from elsewhere. The secret is returned once."""
    input: ReceiveInput = call.body
    return await call.api.sharing.pages.receive(input.session_id, expires=input.expires)


async def sync_share(call: DirectoryCall) -> dict[str, Any]:
    """Receive changes of a session from elsewhere."""
    input: SyncInput = call.body
    await call.api.sharing.pages.add_items(call.path_params["shareID"], input.secret, input.data)
    return {}


async def drop_share(call: DirectoryCall) -> dict[str, Any]:
    """Remove a received share, for its sender."""
    input: DropInput = call.body
    await call.api.sharing.pages.remove(call.path_params["shareID"], input.secret)
    return {}


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
        session_directory="required",
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
        session_directory="preferred",
    ),
)
SHARE_ROUTES = (
    route("POST", RECEIVED, "share.create", receive_share, takes=ReceiveInput),
    route("POST", f"{RECEIVED}/{{shareID}}/sync", "share.sync", sync_share, takes=SyncInput),
    route("DELETE", f"{RECEIVED}/{{shareID}}", "share.remove", drop_share, takes=DropInput),
    HttpOperation(
        method="GET",
        path=SHARE_PATH,
        name="share.page",
        about="Show a shared session as a page. The address is enough; no password",
        returns=str,
        media="text/html",
    ),
    HttpOperation(
        method="GET",
        path=f"{SHARE_PATH}/data",
        name="share.data",
        about="Return a shared session in the export format. No password",
        returns=dict[str, Any],
        media=JSON,
    ),
    HttpOperation(
        method="GET",
        path=f"{SHARE_PATH}/live",
        name="share.live",
        about="Stream a notice when a share changes and when it ends. No password",
        returns=str,
        media="text/event-stream",
    ),
)
