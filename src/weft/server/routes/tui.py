"""HTTP routes to control a terminal client from outside, such as from an editor extension. Clients receive events."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from weft.errors import InvalidInputError
from weft.model.event import Event
from weft.model.event_wire import event_from_plain
from weft.model.ids import SessionID, check_id
from weft.model.wire import Wire, to_plain
from weft.model.workspace_event import (
    TuiCommandExecuted,
    TuiPromptAppended,
    TuiSessionSelected,
    TuiToastShown,
)
from weft.server.route import DirectoryCall, Route, RouteResult, ServerCall, route
from weft.server.state import TuiRequest

MAX_TEXT_LENGTH: Final = 1 << 20
SCREEN_EVENTS: Final = (TuiPromptAppended, TuiCommandExecuted, TuiToastShown, TuiSessionSelected)

# The names of commands in clients of the first generation.
LEGACY_COMMANDS: Final = {
    "session_new": "session.new",
    "session_share": "session.share",
    "session_interrupt": "session.interrupt",
    "session_compact": "session.compact",
    "messages_page_up": "session.page.up",
    "messages_page_down": "session.page.down",
    "messages_half_page_up": "session.half.page.up",
    "messages_half_page_down": "session.half.page.down",
    "messages_first": "session.first",
    "messages_last": "session.last",
    "agent_cycle": "agent.cycle",
}


class CommandName(Wire, frozen=True, kw_only=True):
    command: str


class Published(Wire, frozen=True, kw_only=True):
    """An event for terminal clients."""

    type: str
    properties: dict[str, Any]


async def append_prompt(call: DirectoryCall) -> bool:
    """Append text to the prompt that is being typed."""
    event: TuiPromptAppended = call.body
    if len(event.text) > MAX_TEXT_LENGTH:
        raise InvalidInputError("text", f"longer than {MAX_TEXT_LENGTH} characters")
    return await _publish(call, event)


async def show_toast(call: DirectoryCall) -> bool:
    """Show a short message."""
    return await _publish(call, call.body)


async def select_session(call: DirectoryCall) -> bool:
    """Show a session."""
    event: TuiSessionSelected = call.body
    await call.api.get_session(SessionID(check_id("session", event.session_id)))
    return await _publish(call, event)


async def execute_command(call: DirectoryCall) -> bool:
    """Let a terminal client run one of its commands."""
    input: CommandName = call.body
    return await _publish(call, TuiCommandExecuted(command=LEGACY_COMMANDS.get(input.command, input.command)))


async def publish(call: DirectoryCall) -> bool:
    """Send an event to terminal clients."""
    input: Published = call.body
    event = event_from_plain({"type": input.type, "properties": input.properties}, where="body")
    if not isinstance(event, SCREEN_EVENTS):
        raise InvalidInputError("type", "it is not an event for screens")
    return await _publish(call, event)


async def next_request(call: ServerCall) -> RouteResult:
    """Return the next request, for a client that polls instead of listening; nothing if none arrives in time."""
    request = await call.server.control.next(call.directory)
    return RouteResult(value=request, status=200 if request is not None else 204)


async def answer_request(call: ServerCall) -> bool:
    """Accept the answer of a terminal client to a request."""
    del call
    return True


async def _publish(call: DirectoryCall, event: Event) -> bool:
    call.server.control.put(call.directory, TuiRequest(path=call.path, body=to_plain(event)))
    await call.api.publish(event)
    return True


def _to_command_sender(about: str, command: str) -> Callable[[DirectoryCall], Awaitable[bool]]:
    async def send(call: DirectoryCall) -> bool:
        return await _publish(call, TuiCommandExecuted(command=command))

    send.__doc__ = about
    return send


def _command_route(path: str, name: str, about: str, command: str) -> Route:
    return route("POST", f"/tui/{path}", f"tui.{name}", _to_command_sender(about, command))


ROUTES = (
    route("POST", "/tui/append-prompt", "tui.appendPrompt", append_prompt, takes=TuiPromptAppended),
    _command_route("open-help", "openHelp", "Show the help", "help.show"),
    _command_route("open-sessions", "openSessions", "Show the list of sessions", "session.list"),
    # OpenCode shows the list of sessions here.
    _command_route("open-themes", "openThemes", "Show the list of themes", "theme.switch"),
    _command_route("open-models", "openModels", "Show the list of models", "model.list"),
    _command_route("submit-prompt", "submitPrompt", "Send what has been typed", "prompt.submit"),
    _command_route("clear-prompt", "clearPrompt", "Clear what has been typed", "prompt.clear"),
    route("POST", "/tui/execute-command", "tui.executeCommand", execute_command, takes=CommandName),
    route("POST", "/tui/show-toast", "tui.showToast", show_toast, takes=TuiToastShown),
    route("POST", "/tui/publish", "tui.publish", publish, takes=Published),
    route("POST", "/tui/select-session", "tui.selectSession", select_session, takes=TuiSessionSelected),
    route("GET", "/tui/control/next", "tui.control.next", next_request, returns=TuiRequest),
    route("POST", "/tui/control/response", "tui.control.response", answer_request, takes=Any, optional=True),
)
