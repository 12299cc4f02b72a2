"""The todo list of a session."""

from collections.abc import Sequence

from weft.journal import Journal
from weft.model.event import TodoUpdated
from weft.model.ids import SessionID
from weft.model.todo import Todo
from weft.store.contract import Store


class SessionTodos:
    """The list as a tool sees it."""

    def __init__(self, store: Store, journal: Journal, session: SessionID) -> None:
        self._store = store
        self._journal = journal
        self._session = session

    async def read(self) -> Sequence[Todo]:
        return await self._store.list_todos(self._session)

    async def write(self, todos: Sequence[Todo]) -> None:
        await self._journal.commit(TodoUpdated(session_id=self._session, todos=tuple(todos)))
