"""HTTP for the server itself: is it well, what does it offer, begin anew; and the streams of what happens."""

from typing import Any, Literal

from weft.errors import InvalidInputError
from weft.model.wire import Wire
from weft.server.route import Wide, route
from weft.version import VERSION

LONGEST = 10_000


class Health(Wire, frozen=True, kw_only=True):
    """`weft` tells our clients that there are routes of our own, too."""

    healthy: bool
    version: str
    weft: bool


class LogInput(Wire, frozen=True, kw_only=True):
    service: str
    level: Literal["debug", "info", "error", "warn"]
    message: str
    extra: dict[str, Any] | None = None


async def get_health(call: Wide) -> Health:
    """Whether the server answers."""
    del call
    return Health(healthy=True, version=VERSION, weft=True)


async def get_document(call: Wide) -> dict[str, Any]:
    """This document."""
    return call.premises.document()


async def dispose(call: Wide) -> bool:
    """Close this directory: its runs are ended, and the next request opens it anew."""
    await call.premises.dispose(call.directory)
    return True


async def dispose_all(call: Wide) -> bool:
    """Close every directory."""
    await call.premises.dispose_all()
    return True


async def write_log(call: Wide) -> bool:
    """Write a line into the server's log."""
    entry: LogInput = call.body
    if len(entry.message) > LONGEST or len(entry.service) > LONGEST:
        raise InvalidInputError("message", f"longer than {LONGEST} characters")
    # One line, whatever is in it: nobody is to write lines of others'.
    call.premises.note(f"{entry.level} {entry.service!r}: {entry.message!r}")
    return True


async def listen(call: Wide) -> dict[str, Any]:
    """What happens in this directory, as it happens."""
    raise NotImplementedError(call.path)


async def listen_everywhere(call: Wide) -> dict[str, Any]:
    """What happens in every directory that is open, as it happens."""
    raise NotImplementedError(call.path)


ROUTES = (
    route("GET", "/global/health", "global.health", get_health),
    route("POST", "/global/dispose", "global.dispose", dispose_all),
    route("POST", "/instance/dispose", "instance.dispose", dispose),
    route("POST", "/log", "app.log", write_log, takes=LogInput),
    route("GET", "/doc", "doc.get", get_document),
    route("GET", "/event", "event.subscribe", listen, media="text/event-stream"),
    route("GET", "/global/event", "global.event", listen_everywhere, media="text/event-stream"),
)
