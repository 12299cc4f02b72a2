"""Read what a listener missed if no feed holds it any more, as after a restart.

Changes come from the store's change log. What is going on now and is not stored, such as open requests, comes from the `Api`.
"""

import os
from collections.abc import Callable, Iterable, Sequence

from weft.api import Api
from weft.api.change_log import ChangeLog, MissedEvent
from weft.errors import CursorLostError
from weft.model.event import (
    Event,
    PartUpdated,
    PermissionAsked,
    QuestionAsked,
    StatusChanged,
    ToolRequested,
)
from weft.model.ids import GLOBAL_PROJECT
from weft.server.directories import OpenDirectory
from weft.server.feed import COUNT_BITS, EventFeed, parse_number

# Returns True if a listener is to get an event. Raises `CursorLostError` if it cannot be known whether the listener follows that session.
EventFilter = Callable[[MissedEvent], bool]


def want_everything(_: MissedEvent) -> bool:
    return True


def make_directory_filter(feed: EventFeed, *, hears_relayed: bool) -> EventFilter:
    """Return the filter for a listener to one directory. It also gets what happened elsewhere in the project of the directory.

    With `hears_relayed` sessions of other directories may have been relayed to it, and a restart forgets which.
    """

    def is_wanted(missed: MissedEvent) -> bool:
        if os.path.realpath(missed.directory) == feed.directory:
            return True
        if missed.project == feed.project != GLOBAL_PROJECT:
            return True
        if hears_relayed:
            raise CursorLostError(0, 0)
        return False

    return is_wanted


class MissedEventReader:
    """Reads what one listener missed. `list_open` returns the directories that it listens to, of those that are open."""

    def __init__(
        self, log: ChangeLog, list_open: Callable[[], Iterable[OpenDirectory]], is_wanted: EventFilter
    ) -> None:
        self._log = log
        self._list_open = list_open
        self._is_wanted = is_wanted

    async def read(self, after: str, feeds: Iterable[EventFeed]) -> Sequence[MissedEvent]:
        """Return what a listener missed since an id. Raise `CursorLostError` if that is not known.

        It begins to listen to `feeds` now. Text that is growing there may not be stored yet, so it is taken from them, before
        anything is awaited.
        """
        growing = {
            part.id: MissedEvent(directory=feed.directory, project=feed.project, event=PartUpdated(part=part))
            for feed in feeds
            for part in feed.list_growing()
        }
        server, number = parse_number(after)
        missed = [
            each
            for each in await self._log.read(server, number >> COUNT_BITS)
            if self._is_wanted(each)
            and not (isinstance(each.event, PartUpdated) and each.event.part.id in growing)
        ]
        current = [
            MissedEvent(directory=opened.directory, project=opened.feed.project, event=event)
            for opened in self._list_open()
            for event in await list_current(opened.api)
        ]
        return [*missed, *growing.values(), *current]


async def list_current(api: Api) -> list[Event]:
    """Return events for what is going on in a directory and is not stored: running sessions and open requests."""
    statuses = await api.list_status()
    return [
        *(StatusChanged(session_id=id, status=status) for id, status in statuses.items()),
        *(PermissionAsked(request=request) for request in await api.list_permissions()),
        *(QuestionAsked(request=request) for request in await api.list_questions()),
        *(ToolRequested(request=request) for request in await api.list_tool_requests()),
    ]
