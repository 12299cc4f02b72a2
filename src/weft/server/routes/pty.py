"""HTTP routes for terminals, and the socket to see and type into one."""

import asyncio
import codecs
from typing import Final

from msgspec import field
from starlette.websockets import WebSocket, WebSocketDisconnect

from weft.api import Api
from weft.api.workspace import Screen
from weft.errors import NotFoundError, WeftError
from weft.model.ids import PtyID
from weft.model.wire import Wire
from weft.model.workspace import Pty, PtyChange, PtyInput
from weft.server.http_server import HttpServer
from weft.server.response import Receive, Scope, Send, make_error_response
from weft.server.route import DirectoryCall, ServerCall, route
from weft.server.state import TICKET_SECONDS

PTY: Final = "/pty/{ptyID}"
NORMAL_CLOSURE: Final = 1000
ERROR_CLOSURE: Final = 4000  # plus the last digits of the HTTP status
MAX_INPUT_BYTES: Final = 1 << 20


class Ticket(Wire, frozen=True, kw_only=True):
    ticket: str
    expires_in: int = field(name="expires_in")


def read_pty_id(call: DirectoryCall) -> PtyID:
    return PtyID(call.path_params["ptyID"])


async def list_ptys(call: DirectoryCall) -> list[Pty]:
    """List the open terminals."""
    return await call.api.terminals.list_ptys()


async def create_pty(call: DirectoryCall) -> Pty:
    """Open a terminal."""
    return await call.api.terminals.create_pty(call.body or PtyInput())


async def get_pty(call: DirectoryCall) -> Pty:
    """Return one terminal."""
    return await call.api.terminals.get_pty(read_pty_id(call))


async def update_pty(call: DirectoryCall) -> Pty:
    """Change the title or size of a terminal."""
    return await call.api.terminals.update_pty(read_pty_id(call), call.body)


async def remove_pty(call: DirectoryCall) -> bool:
    """Close a terminal and end everything that runs in it."""
    await call.api.terminals.remove_pty(read_pty_id(call))
    return True


async def create_ticket(call: DirectoryCall) -> Ticket:
    """Create a ticket for the socket of a terminal, to be passed once as `?ticket=`; browsers cannot send a password."""
    await call.api.terminals.get_pty(read_pty_id(call))
    address = call.path.removesuffix("-token")
    # The socket ends with the token that asked for it.
    ticket = call.server.tickets.issue(address, authorization=call.headers.get("authorization", ""))
    return Ticket(ticket=ticket, expires_in=TICKET_SECONDS)


async def connect_pty(call: ServerCall) -> bool:
    """Connect to a terminal by websocket: text both ways, output and input."""
    raise NotFoundError("socket", call.path_params["ptyID"][:80], hint="connect to it as a websocket")


class PtySocket:
    """Serves the socket of a terminal until the program ends or the client leaves."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)  # type: ignore[arg-type]  # our types are plain dicts
        await socket.accept()
        try:
            opened = await self._server.get_directory(self._server.resolve_directory(scope))
            with opened.use():
                await self._serve(socket, opened.api)
        except WeftError as error:
            response = make_error_response(error)
            await socket.close(ERROR_CLOSURE + response.status % 1000, response.name)
        except WebSocketDisconnect:
            pass

    async def _serve(self, socket: WebSocket, api: Api) -> None:
        id = PtyID(socket.path_params["ptyID"])
        async with api.terminals.open_screen(id) as screen:
            input_task = asyncio.ensure_future(_receive_input(socket, screen))
            output_task = asyncio.ensure_future(_send_output(socket, screen))
            try:
                await asyncio.wait((input_task, output_task), return_when=asyncio.FIRST_COMPLETED)
            finally:
                input_task.cancel()
                output_task.cancel()
                await asyncio.gather(input_task, output_task, return_exceptions=True)
        if output_task.done() and not output_task.cancelled() and output_task.exception() is None:
            await socket.close(NORMAL_CLOSURE)


async def _send_output(socket: WebSocket, screen: Screen) -> None:
    """Send the output as text. A character that arrives in two pieces is sent whole."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while output := await screen.read():
        if text := decoder.decode(output):
            await socket.send_text(text)


async def _receive_input(socket: WebSocket, screen: Screen) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        data = message.get("bytes") or (message.get("text") or "").encode(errors="replace")
        if len(data) > MAX_INPUT_BYTES:
            return
        await screen.write(data)


ROUTES = (
    route("GET", "/pty", "pty.list", list_ptys),
    route("POST", "/pty", "pty.create", create_pty, takes=PtyInput, optional=True),
    route("GET", PTY, "pty.get", get_pty),
    route("PUT", PTY, "pty.update", update_pty, takes=PtyChange),
    route("DELETE", PTY, "pty.remove", remove_pty),
    route("POST", f"{PTY}/connect-token", "pty.connectToken", create_ticket),
    route("GET", f"{PTY}/connect", "pty.connect", connect_pty),
)
