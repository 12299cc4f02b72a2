"""Deliver our page to browsers: its files, which are the same for everybody, and the files attached to messages."""

import asyncio
import base64
import binascii
import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from weft.errors import NotFoundError, WeftError
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.part import CompletedState, FilePart, ToolPart
from weft.model.share import SharedSession
from weft.page.view import PICTURE_TYPES
from weft.server.http_server import HttpServer
from weft.server.response import (
    ErrorResponse,
    Receive,
    Scope,
    Send,
    make_error_response,
    read_headers,
    send_error,
)
from weft.web.files import ASSETS, PAGE_POLICY, WebFile, find_file, get_index, get_version

VERSION: Final = re.compile("[0-9a-f]{16}")
# The browser asks each time, and gets no content while the file is the same. So it sees a new version at once.
ASK_AGAIN: Final = "no-cache"
FOR_EVER: Final = "public, max-age=31536000, immutable"
NO_FILE: Final = ErrorResponse(status=404, name="NotFoundError", message="there is no such file")
COMMON_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "vary": "accept-encoding",
}
FILE_POLICY: Final = "default-src 'none'; sandbox; frame-ancestors 'none'"


class PageEndpoint:
    """Serves `/` and everything below `/web/`: assets by their names, and the page itself at every other path."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        path = scope["path"]
        if not path.startswith(ASSETS):
            await _send_file(scope, send, get_index(), caching=ASK_AGAIN)
            return
        version, _, rest = path.removeprefix(ASSETS).partition("/")
        is_versioned = VERSION.fullmatch(version) is not None
        file = find_file(rest if is_versioned else path.removeprefix(ASSETS))
        if file is None:
            await send_error(send, NO_FILE)
            return
        # A page that was opened before an upgrade names an old version, and gets what there is now.
        await _send_file(scope, send, file, caching=FOR_EVER if version == get_version() else ASK_AGAIN)


async def _send_file(scope: Scope, send: Send, file: WebFile, *, caching: str) -> None:
    """Send a file, compressed if the browser accepts that. If the browser has it already, send only the status."""
    headers = read_headers(scope)
    packed = "gzip" in headers.get("accept-encoding", "")
    tag = f'"{file.digest}{"-gzip" if packed else ""}"'
    about = COMMON_HEADERS | {
        "content-type": file.media,
        "content-security-policy": PAGE_POLICY,
        "cache-control": caching,
        "etag": tag,
    }
    if tag in [each.strip().removeprefix("W/") for each in headers.get("if-none-match", "").split(",")]:
        await _send(send, 304, b"", about)
        return
    body = file.packed if packed else file.content
    about |= {"content-length": str(len(body))} | ({"content-encoding": "gzip"} if packed else {})
    await _send(send, 200, b"" if scope["method"] == "HEAD" else body, about)


class SessionPageEndpoint:
    """A session as one HTML file, to be saved. It is the person's own copy, so nothing in it is redacted."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        try:
            opened = await self._server.get_directory(self._server.resolve_directory(scope))
            export = await opened.api.export_session(SessionID(scope["path_params"]["sessionID"]))
        except WeftError as error:
            await send_error(send, make_error_response(error))
            return
        from weft.page.document import render_page  # noqa: PLC0415  few requests ask for it

        session = SharedSession(id=export.info.id, export=export)
        page = await asyncio.to_thread(render_page, session, kind="file")
        headers = COMMON_HEADERS | {
            "content-type": "text/html; charset=utf-8",
            "content-disposition": "attachment",
            "content-security-policy": FILE_POLICY,
            "cache-control": "no-store",
            "content-length": str(len(page)),
        }
        await _send(send, 200, page, headers)


class PartFileEndpoint:
    """A file that is attached to a message. Pictures are shown; any other file is saved, never opened by the browser."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        params = scope["path_params"]
        try:
            opened = await self._server.get_directory(self._server.resolve_directory(scope))
            message = await opened.api.get_message(
                SessionID(params["sessionID"]), MessageID(params["messageID"])
            )
            file = _find_file_part(message.parts, PartID(params["partID"]))
            mime, content = read_data_url(file.url)
        except WeftError as error:
            await send_error(send, make_error_response(error))
            return
        shown = mime if mime in PICTURE_TYPES else "application/octet-stream"
        kind = "inline" if mime in PICTURE_TYPES else "attachment"
        name = quote((file.filename or "file").rpartition("/")[2][:200], safe="", errors="replace")
        headers = COMMON_HEADERS | {
            "content-type": shown,
            "content-disposition": f"{kind}; filename*=UTF-8''{name}",
            "content-security-policy": FILE_POLICY,
            "cache-control": "private, max-age=3600",
            "content-length": str(len(content)),
        }
        await _send(send, 200, content, headers)


def _find_file_part(parts: object, id: PartID) -> FilePart:
    """Return a file of a message, also one that a call returned. Raise `NotFoundError` if there is none."""
    for part in parts if isinstance(parts, tuple) else ():
        if isinstance(part, FilePart) and part.id == id:
            return part
        if isinstance(part, ToolPart) and isinstance(part.state, CompletedState):
            for attached in part.state.attachments or ():
                if attached.id == id:
                    return attached
    raise NotFoundError("file", id)


def read_data_url(url: str) -> tuple[str, bytes]:
    """Return the type and the content of a `data:` URL. Raise `NotFoundError` for any other URL: we do not have its content."""
    head, comma, data = url.partition(",")
    if not head.startswith("data:") or not comma:
        raise NotFoundError("content", "of this file")
    mime, *options = head.removeprefix("data:").split(";")
    try:
        content = base64.b64decode(data) if "base64" in options else unquote_to_bytes(data)
    except (binascii.Error, ValueError):
        raise NotFoundError("content", "of this file") from None
    return mime.strip().lower(), content


async def _send(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
