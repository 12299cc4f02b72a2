"""HTTP routes about the server itself: health, readiness, metrics, OpenAPI document, log, closing directories, event streams."""

from typing import Any, Literal

from weft.errors import InvalidInputError, WeftError
from weft.model.wire import Wire, always
from weft.server.route import HttpOperation, RouteResult, ServerCall, route
from weft.version import VERSION

MAX_LOG_LENGTH = 10_000


class HealthInfo(Wire, frozen=True, kw_only=True):
    """`weft` tells our clients that this server has our own routes, too."""

    healthy: bool
    version: str
    weft: bool


class LogInput(Wire, frozen=True, kw_only=True):
    service: str
    level: Literal["debug", "info", "error", "warn"]
    message: str
    extra: dict[str, Any] | None = None


async def get_health(call: ServerCall) -> HealthInfo:
    """Return that the server answers, and its version."""
    del call
    return HealthInfo(healthy=True, version=VERSION, weft=True)


async def get_document(call: ServerCall) -> dict[str, Any]:
    """Return this document."""
    return call.server.document


async def dispose(call: ServerCall) -> bool:
    """Close this directory: its runs end, and the next request opens it again."""
    await call.server.dispose(call.directory)
    return True


async def dispose_all(call: ServerCall) -> bool:
    """Close every directory."""
    await call.server.dispose_all()
    return True


async def write_log(call: ServerCall) -> bool:
    """Write a line into the server's log."""
    entry: LogInput = call.body
    if len(entry.message) > MAX_LOG_LENGTH or len(entry.service) > MAX_LOG_LENGTH:
        raise InvalidInputError("message", f"longer than {MAX_LOG_LENGTH} characters")
    # As one escaped line, so that a caller cannot forge log lines.
    call.server.note(f"{entry.level} {entry.service!r}: {entry.message!r}")
    return True


ROUTES = (
    route("GET", "/global/health", "global.health", get_health),
    route("POST", "/global/dispose", "global.dispose", dispose_all),
    route("POST", "/instance/dispose", "instance.dispose", dispose),
    route("POST", "/log", "app.log", write_log, takes=LogInput),
    route("GET", "/doc", "doc.get", get_document),
    HttpOperation(
        method="GET",
        path="/event",
        name="event.subscribe",
        about="Stream the events of this directory",
        returns=dict[str, Any],
        media="text/event-stream",
    ),
    HttpOperation(
        method="GET",
        path="/global/event",
        name="global.event",
        about="Stream the events of every open directory",
        returns=dict[str, Any],
        media="text/event-stream",
    ),
)


NOT_READY = 503


class Ready(Wire, frozen=True, kw_only=True):
    """Whether the server accepts work, and the reasons if it does not."""

    ready: bool
    reasons: tuple[str, ...] = always(())


async def get_ready(call: ServerCall) -> RouteResult:
    """Return whether the server accepts work: its store is writable and it is not shutting down."""
    reasons: list[str] = []
    if call.server.shutting_down:
        reasons.append("the server is ending")
    else:
        try:
            if call.server.cluster is not None:
                await call.server.cluster.check()  # its heartbeats write to the store
            else:
                await (await call.server.get_api(call.server.default_directory)).workspace.check_store()
        except WeftError as error:
            reasons.append(f"{type(error).__name__}: nothing can be stored")
            call.server.note(f"not ready: {type(error).__name__}: {error}")
    return RouteResult(
        value=Ready(ready=not reasons, reasons=tuple(reasons)), status=NOT_READY if reasons else 200
    )


HEALTH_ROUTES = (
    route("GET", "/weft/ready", "weft.ready", get_ready, returns=Ready),
    HttpOperation(
        method="GET",
        path="/weft/metrics",
        name="weft.metrics",
        about="Return metrics in the text format of Prometheus",
        returns=str,
        media="text/plain",
    ),
)
