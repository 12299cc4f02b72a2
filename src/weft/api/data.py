"""Sessions as data: queries, trajectories, and who wrote which line of a file."""

from typing import Protocol

from weft.model.data import ContextReport, FileBlame, FileLog, QueryInput, QueryResult
from weft.model.ids import SessionID
from weft.model.proof import SessionProof


class Data(Protocol):
    """Queries about sessions and the files that they changed. No query changes anything.

    * `query` runs one SQL statement that only reads. It raises `InvalidInputError` for any other, and `DeadlineError` if it takes
      longer than it may.
    * `blame` returns the lines of a file, or those from the first to the last of `lines`, with their authors. Paths are relative
      to the working directory. A path that leaves the project raises `OutsideError`.
    * `get_file_log` returns the changes of a file by sessions, newest first.
    * `verify` compares a session with the chain of what was written to it (see `weft storage verify`).
    * `get_context` says what the next request of a session would send, and how many tokens each part takes. Nothing is sent
      or stored.
    * `get_trajectory` returns a session and its child sessions in the format ATIF, without what was undone.
    """

    async def query(self, query: QueryInput) -> QueryResult: ...

    async def blame(self, path: str, *, lines: tuple[int, int] | None = None) -> FileBlame: ...

    async def get_file_log(self, path: str) -> FileLog: ...

    async def verify(self, session: SessionID) -> SessionProof: ...

    async def get_trajectory(self, session: SessionID) -> dict[str, object]: ...

    async def get_context(self, session: SessionID) -> ContextReport: ...
