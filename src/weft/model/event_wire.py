"""Events as JSON: `{"type", "properties"}`. Events of unknown types are kept unchanged."""

from typing import Any, ClassVar, Final

from weft.errors import DocumentError
from weft.model import event as session_events
from weft.model import workspace_event
from weft.model.event import Event, FileEdited, ProjectUpdated, session_of
from weft.model.wire import encode, from_plain, parse, to_plain
from weft.model.workspace_event import (
    TuiCommandExecuted,
    TuiPromptAppended,
    TuiSessionSelected,
    TuiToastShown,
)

# The type of the event that a client yields for missed events. Events for the differences follow it.
RESYNC: Final = "server.resync"


class UnknownEvent(Event, frozen=True, kw_only=True):
    """An event of an unknown type, from a newer server."""

    type: ClassVar[str] = "$unknown"

    named: str
    properties: dict[str, Any]


KINDS: dict[str, type[Event]] = {
    kind.type: kind
    for module in (session_events, workspace_event)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Event) and hasattr(kind, "type")
}


def event_to_plain(event: Event) -> dict[str, Any]:
    if isinstance(event, UnknownEvent):
        return {"type": event.named, "properties": event.properties}
    return {"type": event.type, "properties": to_plain(getattr(event, event.whole) if event.whole else event)}


def event_from_plain(plain: Any, *, where: str = "event") -> Event:
    """Convert plain values to an event. Raise `DocumentError` if they are not one."""
    if not isinstance(plain, dict) or not isinstance(plain.get("type"), str):
        raise DocumentError(where, "the event has no type")
    name, properties = plain["type"], plain.get("properties") or {}
    if (kind := KINDS.get(name)) is None:
        if not isinstance(properties, dict):
            raise DocumentError(where, "the properties of the event are not an object")
        return UnknownEvent(named=name, properties=properties)
    return from_plain({kind.whole: properties} if kind.whole else properties, kind, where=where)


def event_from_json(raw: bytes) -> Event:
    return event_from_plain(parse(raw, where="event"))


def encode_event(event: Event) -> bytes:
    """Encode an event as `{"type", "properties"}`."""
    if isinstance(event, UnknownEvent):
        return encode({"type": event.named, "properties": event.properties})
    properties = encode(getattr(event, event.whole) if event.whole else event)
    return b'{"type":"' + event.type.encode() + b'","properties":' + properties + b"}"


# Events without a session that listeners on every node want.
_SHARED_EVENTS: Final = (
    ProjectUpdated,
    FileEdited,
    TuiPromptAppended,
    TuiCommandExecuted,
    TuiToastShown,
    TuiSessionSelected,
)


def is_shared(event: Event) -> bool:
    """Return True if listeners on every node want an event: it is about a session, a project or a front end.

    Terminals, language servers, MCP servers and watched files are things of one machine, which each node reports itself.
    """
    return isinstance(event, _SHARED_EVENTS) or session_of(event) is not None
