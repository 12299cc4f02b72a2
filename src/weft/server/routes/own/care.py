"""HTTP of our own for whoever looks after the server: is it ready, and its numbers."""

from weft.errors import WeftError
from weft.model.wire import Wire, always
from weft.server.route import Answer, Wide, route

NOT_READY = 503


class Ready(Wire, frozen=True, kw_only=True):
    """Whether work may be sent here; if not, why not."""

    ready: bool
    reasons: tuple[str, ...] = always(())


async def get_ready(call: Wide) -> Answer:
    """Whether the server takes work: its store can be written to, and it is not about to end."""
    reasons: list[str] = []
    if call.premises.ending:
        reasons.append("the server is ending")
    else:
        try:
            await (await call.premises.open(call.premises.here)).surroundings.check_store()
        except WeftError as error:
            reasons.append(f"{type(error).__name__}: nothing can be stored")
            call.premises.note(f"not ready: {type(error).__name__}: {error}")
    return Answer(
        value=Ready(ready=not reasons, reasons=tuple(reasons)), status=NOT_READY if reasons else 200
    )


async def get_metrics(call: Wide) -> str:
    """Numbers of the server, in the text format of Prometheus."""
    raise NotImplementedError(call.path)


ROUTES = (
    route("GET", "/weft/ready", "weft.ready", get_ready, gives=Ready),
    route("GET", "/weft/metrics", "weft.metrics", get_metrics, media="text/plain"),
)
