"""Status: what a session is doing right now."""

from weft.model.wire import Wire


class Status(Wire, frozen=True, kw_only=True, tag_field="type"):
    pass


class Idle(Status, frozen=True, kw_only=True, tag="idle"):
    """Nothing runs."""


class Busy(Status, frozen=True, kw_only=True, tag="busy"):
    """A run is under way."""


class Retry(Status, frozen=True, kw_only=True, tag="retry"):
    """A run waits to try again at `next` (ms)."""

    attempt: int
    message: str
    next: int


AnyStatus = Idle | Busy | Retry
