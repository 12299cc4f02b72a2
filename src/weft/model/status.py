"""Status: what a session is doing right now."""

from weft.model.wire import Wire


class Status(Wire, frozen=True, kw_only=True, tag_field="type"):
    pass


class Idle(Status, frozen=True, kw_only=True, tag="idle"):
    """Nothing runs."""


class Busy(Status, frozen=True, kw_only=True, tag="busy"):
    """A run is under way. It stands still while a person has yet to answer what it is `waiting_for`: the ids of
    permission requests and questions.

    OpenCode knows no such state. A field more on `busy` is passed over by its clients; a fourth type would not be.
    """

    waiting_for: tuple[str, ...] = ()


class Retry(Status, frozen=True, kw_only=True, tag="retry"):
    """A run waits to try again at `next` (ms)."""

    attempt: int
    message: str
    next: int


AnyStatus = Idle | Busy | Retry
