"""Whose events a run is about: its session's, and those of the children it sends out on the way."""

from typing import Literal

from weft.model.event import Event, SessionCreated, SessionUpdated, session_of
from weft.model.ids import SessionID


class Family:
    """A session and those below it, as far as has been told of them."""

    def __init__(self, session: SessionID) -> None:
        self._session = session
        self._below: set[SessionID] = set()

    def place(self, event: Event) -> Literal["own", "below"] | None:
        """Whether an event is about the session itself, or about one below it."""
        match event:
            # Before a child runs it is made, or touched: either way it is told whose child it is.
            case SessionCreated(info=info) | SessionUpdated(info=info):
                if info.parent_id == self._session or info.parent_id in self._below:
                    self._below.add(info.id)
            case _:
                pass
        about = session_of(event)
        if about == self._session:
            return "own"
        return "below" if about in self._below else None
