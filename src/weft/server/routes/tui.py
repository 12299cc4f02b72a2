"""HTTP for whoever controls a screen from outside: an editor's extension, a script. Screens hear of it as events."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from weft.errors import InvalidInputError
from weft.model.event import Event
from weft.model.event_wire import event_from_plain
from weft.model.ids import SessionID, checked
from weft.model.wire import Wire, to_plain
from weft.model.workspace_event import (
    TuiCommandExecuted,
    TuiPromptAppended,
    TuiSessionSelected,
    TuiToastShown,
)
from weft.server.control import Asked
from weft.server.route import Answer, Call, Route, Wide, route

LONGEST: Final = 1 << 20
SCREEN_EVENTS: Final = (TuiPromptAppended, TuiCommandExecuted, TuiToastShown, TuiSessionSelected)

# What clients of the first generation call commands.
COMMANDS: Final = {
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
    """An event for screens."""

    type: str
    properties: dict[str, Any]


async def append_prompt(call: Call) -> bool:
    """Put words into the prompt that is being typed."""
    event: TuiPromptAppended = call.body
    if len(event.text) > LONGEST:
        raise InvalidInputError("text", f"longer than {LONGEST} characters")
    return await _tell(call, event)


async def show_toast(call: Call) -> bool:
    """Show a few words for a while."""
    return await _tell(call, call.body)


async def select_session(call: Call) -> bool:
    """Show a session."""
    event: TuiSessionSelected = call.body
    await call.api.get_session(SessionID(checked("session", event.session_id)))
    return await _tell(call, event)


async def execute_command(call: Call) -> bool:
    """Have a screen carry out one of its commands."""
    asked: CommandName = call.body
    return await _tell(call, TuiCommandExecuted(command=COMMANDS.get(asked.command, asked.command)))


async def publish(call: Call) -> bool:
    """Tell screens any event that is for them."""
    asked: Published = call.body
    event = event_from_plain({"type": asked.type, "properties": asked.properties}, where="body")
    if not isinstance(event, SCREEN_EVENTS):
        raise InvalidInputError("type", "it is not an event for screens")
    return await _tell(call, event)


async def next_request(call: Wide) -> Answer:
    """The next request to a screen, for one that does not listen to events; nothing if none comes for a while."""
    asked = await call.premises.control.next(call.directory)
    return Answer(value=asked, status=200 if asked is not None else 204)


async def answer_request(call: Wide) -> bool:
    """What a screen says to a request."""
    del call
    return True


async def _tell(call: Call, event: Event) -> bool:
    call.premises.control.put(call.directory, Asked(path=call.path, body=to_plain(event)))
    await call.api.tell(event)
    return True


def _pressing(about: str, command: str) -> Callable[[Call], Awaitable[bool]]:
    async def press(call: Call) -> bool:
        return await _tell(call, TuiCommandExecuted(command=command))

    press.__doc__ = about
    return press


def _key(path: str, name: str, about: str, command: str) -> Route:
    return route("POST", f"/tui/{path}", f"tui.{name}", _pressing(about, command))


ROUTES = (
    route("POST", "/tui/append-prompt", "tui.appendPrompt", append_prompt, takes=TuiPromptAppended),
    _key("open-help", "openHelp", "Show the help", "help.show"),
    _key("open-sessions", "openSessions", "Show the list of sessions", "session.list"),
    # OpenCode shows the list of sessions here.
    _key("open-themes", "openThemes", "Show the list of themes", "theme.switch"),
    _key("open-models", "openModels", "Show the list of models", "model.list"),
    _key("submit-prompt", "submitPrompt", "Send what has been typed", "prompt.submit"),
    _key("clear-prompt", "clearPrompt", "Throw away what has been typed", "prompt.clear"),
    route("POST", "/tui/execute-command", "tui.executeCommand", execute_command, takes=CommandName),
    route("POST", "/tui/show-toast", "tui.showToast", show_toast, takes=TuiToastShown),
    route("POST", "/tui/publish", "tui.publish", publish, takes=Published),
    route("POST", "/tui/select-session", "tui.selectSession", select_session, takes=TuiSessionSelected),
    route("GET", "/tui/control/next", "tui.control.next", next_request, gives=Asked),
    route("POST", "/tui/control/response", "tui.control.response", answer_request, takes=Any, optional=True),
)
