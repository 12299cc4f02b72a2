"""Jobs: commands that go on in the background, as tools see them."""

from typing import Protocol

from weft.errors import NotFoundError, ToolError
from weft.host.process import Command
from weft.model.ids import SessionID
from weft.model.wire import Wire


class Job(Wire, frozen=True, kw_only=True):
    """A command that goes on by itself: whose it is, what it does, where its output goes, and how it ended."""

    id: str
    session_id: SessionID
    command: str
    description: str
    output: str
    started: int
    ended: int | None = None
    code: int | None = None


class Jobs(Protocol):
    """Whatever a job started ends with it; it ends with its session at the latest."""

    async def start(self, job: Job, command: Command) -> None:
        """Raises `ToolError` when it cannot be started."""

    def list(self, session: SessionID) -> list[Job]:
        """The jobs of a session, oldest first, those that have ended too."""

    async def stop(self, session: SessionID, id: str) -> Job:
        """End a job if it has not ended yet. Raises `NotFoundError`."""


class NoJobs:
    """For where nobody sees to them."""

    async def start(self, job: Job, command: Command) -> None:
        del job, command
        raise ToolError("Commands cannot be run in the background here.")

    def list(self, session: SessionID) -> list[Job]:
        del session
        return []

    async def stop(self, session: SessionID, id: str) -> Job:
        del session
        raise NotFoundError("job", id)
