"""What was refused because nobody was there to ask, and how to allow it."""

from collections.abc import Iterator

from weft.cli.paint import Paint, plain
from weft.model.event import Event, PermissionAsked
from weft.model.ids import PermissionID
from weft.model.permission import PermissionRequest


class Absent:
    """Takes note of what is asked in a run that nobody watches."""

    def __init__(self) -> None:
        self._asked: dict[PermissionID, PermissionRequest] = {}

    def feed(self, event: Event) -> None:
        match event:
            case PermissionAsked(request=request):
                self._asked[request.id] = request
            case _:
                pass

    def to_lines(self, paint: Paint) -> Iterator[str]:
        for request in self._asked.values():
            wanted = f"{request.permission} {', '.join(request.patterns)}"
            yield f"{paint.yellow('refused:')} nobody was there to allow {plain(wanted)}"
            yield f"         weft permission reply {request.id} once   (or always), then go on with weft run -c"
