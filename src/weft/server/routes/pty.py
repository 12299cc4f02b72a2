"""HTTP for terminals: opened, looked at and typed into over a socket."""

import asyncio
import codecs
from typing import Final

from msgspec import field
from starlette.websockets import WebSocket, WebSocketDisconnect

from weft.api import Api
from weft.errors import NotFoundError, WeftError
from weft.model.ids import PtyID
from weft.model.wire import Wire
from weft.model.workspace import Pty, PtyChange, PtyInput
from weft.outlook import Screen
from weft.server.asgi import Server
from weft.server.response import Receive, Scope, Send, to_refusal
from weft.server.route import SECONDS, Call, Wide, route

PTY: Final = "/pty/{ptyID}"
ENDED: Final = 1000
REFUSED: Final = 4000
LONGEST_TYPED: Final = 1 << 20


class Ticket(Wire, frozen=True, kw_only=True):
    ticket: str
    expires_in: int = field(name="expires_in")


def pty_in(call: Call) -> PtyID:
    return PtyID(call.names["ptyID"])


async def list_ptys(call: Call) -> list[Pty]:
    """The terminals that are open."""
    return await call.api.terminals.list_ptys()


async def create_pty(call: Call) -> Pty:
    """Open a terminal."""
    return await call.api.terminals.create_pty(call.body or PtyInput())


async def get_pty(call: Call) -> Pty:
    """One terminal."""
    return await call.api.terminals.get_pty(pty_in(call))


async def update_pty(call: Call) -> Pty:
    """Give a terminal another title or size."""
    return await call.api.terminals.update_pty(pty_in(call), call.body)


async def remove_pty(call: Call) -> bool:
    """Close a terminal, and end all that runs in it."""
    await call.api.terminals.remove_pty(pty_in(call))
    return True


async def give_ticket(call: Call) -> Ticket:
    """A way in to a terminal's socket for a browser, which cannot send a password there: `?ticket=`, once."""
    await call.api.terminals.get_pty(pty_in(call))
    address = call.path.removesuffix("-token")
    return Ticket(ticket=call.premises.tickets.give(address), expires_in=SECONDS)


async def connect_pty(call: Wide) -> bool:
    """A terminal's socket: text both ways, as it stands on the screen and as it is typed."""
    raise NotFoundError("socket", call.names["ptyID"][:80], hint="ask for it as a websocket")


class PtySocket:
    """Serves one look at a terminal. Ends when the program has, or when the client goes."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)  # type: ignore[arg-type]  # a dict is what is sent
        await socket.accept()
        try:
            opened = await self._server.find(self._server.directory_of(scope))
            with opened.used():
                await self._serve(socket, opened.api)
        except WeftError as error:
            refusal = to_refusal(error)
            await socket.close(REFUSED + refusal.status % 1000, refusal.name)
        except WebSocketDisconnect:
            pass

    async def _serve(self, socket: WebSocket, api: Api) -> None:
        id = PtyID(socket.path_params["ptyID"])
        async with api.terminals.open_screen(id) as screen:
            typing = asyncio.ensure_future(_type(socket, screen))
            showing = asyncio.ensure_future(_show(socket, screen))
            try:
                await asyncio.wait((typing, showing), return_when=asyncio.FIRST_COMPLETED)
            finally:
                typing.cancel()
                showing.cancel()
                await asyncio.gather(typing, showing, return_exceptions=True)
        if showing.done() and not showing.cancelled() and showing.exception() is None:
            await socket.close(ENDED)


async def _show(socket: WebSocket, screen: Screen) -> None:
    """What is said goes out as text; a character that comes in two pieces goes out whole."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while said := await screen.read():
        if text := decoder.decode(said):
            await socket.send_text(text)


async def _type(socket: WebSocket, screen: Screen) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        typed = message.get("bytes") or (message.get("text") or "").encode(errors="replace")
        if len(typed) > LONGEST_TYPED:
            return
        await screen.write(typed)


ROUTES = (
    route("GET", "/pty", "pty.list", list_ptys),
    route("POST", "/pty", "pty.create", create_pty, takes=PtyInput, optional=True),
    route("GET", PTY, "pty.get", get_pty),
    route("PUT", PTY, "pty.update", update_pty, takes=PtyChange),
    route("DELETE", PTY, "pty.remove", remove_pty),
    route("POST", f"{PTY}/connect-token", "pty.connectToken", give_ticket),
    route("GET", f"{PTY}/connect", "pty.connect", connect_pty),
)
