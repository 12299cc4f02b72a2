"""What every session is doing right now, seen from what is told of it. In memory: a process knows of its own runs."""

from weft.bus import Bus
from weft.model.event import (
    Event,
    PermissionAsked,
    PermissionReplied,
    QuestionAsked,
    QuestionRejected,
    QuestionReplied,
    StatusChanged,
)
from weft.model.ids import SessionID
from weft.model.status import AnyStatus, Busy, Idle


class Statuses:
    """Hears all that is told on a bus, and tells there when a run begins or ends to wait for a person.

    Those who ask need not know of it: that somebody is waited for follows from what was asked and answered.
    """

    def __init__(self, bus: Bus, *, directory: str) -> None:
        self._bus = bus
        self._directory = directory
        self._now: dict[SessionID, AnyStatus] = {}
        self._asked: dict[SessionID, dict[str, None]] = {}
        bus.watch(self._see)

    def get(self, session: SessionID) -> AnyStatus:
        return self._now.get(session, Idle())

    def list_all(self) -> dict[SessionID, AnyStatus]:
        """Those that are not idle."""
        return dict(self._now)

    def _see(self, event: Event) -> None:
        match event:
            case StatusChanged(session_id=session, status=Idle()):
                self._now.pop(session, None)
                self._asked.pop(session, None)
            case StatusChanged(session_id=session, status=status):
                self._now[session] = status
            case PermissionAsked(request=request) | QuestionAsked(request=request):
                self._asked.setdefault(request.session_id, {})[request.id] = None
                self._tell(request.session_id)
            case PermissionReplied() | QuestionReplied() | QuestionRejected():
                if self._asked.get(event.session_id, {}).pop(event.request_id, event) is None:
                    self._tell(event.session_id)
            case _:
                pass

    def _tell(self, session: SessionID) -> None:
        """Only of a session that runs: what is asked in one at rest keeps nobody waiting."""
        if session in self._now:
            status = Busy(waiting_for=tuple(self._asked.get(session, ())))
            self._bus.publish(StatusChanged(session_id=session, status=status), directory=self._directory)
