"""Sessions and their messages: create, read, change, search, export, import, and take over from other servers."""

from collections.abc import AsyncIterator
from typing import Protocol

from weft.model.diff import FileDiff
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.input import SessionInput
from weft.model.message import AnyMessage, MessageWithParts
from weft.model.move import MoveOffer, MovePiece, MoveProgress, MoveResult
from weft.model.part import AnyPart
from weft.model.search import Figures, Hit
from weft.model.session import SessionChange, SessionInfo, SessionTree, Todo, TrashBundle
from weft.model.session_query import ALL_SESSIONS, SessionQuery
from weft.model.spending import Spending
from weft.model.transfer import ImportResult, SessionExport


class Sessions(Protocol):
    """Stored sessions.

    * Every method raises `NotFoundError` if the id does not exist.
    * A session is on disk before `create_session` returns it. A child session is never allowed what the rules of its
      parent deny. `create_next` also takes an id and a directory, and raises `ConflictError` if the id is in use.
    * `list_sessions` returns the newest session first. Children and trees are listed oldest first.
    * `update_session` is atomic. It raises `ConflictError` if the stored session differs from `expected`. A title that
      is set this way is final: no generated title replaces it.
    * `fork_session` copies all messages, or those before `at`, into a new session. The new session is complete or does
      not exist.
    * `remove_session` ends the runs of the session and its descendants, removes all of them in one step, and returns
      them, children first. `restore_session` brings them all back unchanged, unless they were removed with
      `trash=False`.
    """

    async def create_session(self, input: SessionInput) -> SessionInfo: ...

    async def create_next(
        self, input: SessionInput, *, id: SessionID | None = None, directory: str | None = None
    ) -> SessionInfo: ...

    async def get_session(self, id: SessionID) -> SessionInfo: ...

    async def list_sessions(self, query: SessionQuery = ALL_SESSIONS) -> list[SessionInfo]: ...

    async def list_children(self, id: SessionID) -> list[SessionInfo]: ...

    async def get_tree(self, id: SessionID) -> SessionTree: ...

    async def update_session(
        self, id: SessionID, change: SessionChange, *, expected: SessionInfo | None = None
    ) -> SessionInfo: ...

    async def touch_session(self, id: SessionID) -> SessionInfo: ...

    async def rename_session(self, id: SessionID, title: str) -> SessionInfo: ...

    async def archive_session(self, id: SessionID, *, archived: bool = True) -> SessionInfo: ...

    async def pin_session(self, id: SessionID, *, pinned: bool = True) -> SessionInfo: ...

    async def tag_session(self, id: SessionID, *tags: str) -> SessionInfo: ...

    async def untag_session(self, id: SessionID, *tags: str) -> SessionInfo: ...

    async def fork_session(self, id: SessionID, *, at: MessageID | None = None) -> SessionInfo: ...

    async def remove_session(self, id: SessionID, *, trash: bool = True) -> list[SessionInfo]: ...

    async def restore_session(self, id: SessionID) -> list[SessionInfo]: ...

    async def list_trash(self) -> list[TrashBundle]: ...

    async def list_diff(self, session: SessionID, *, message: MessageID | None = None) -> list[FileDiff]: ...

    async def list_todos(self, session: SessionID) -> list[Todo]: ...


class Messages(Protocol):
    """The messages of a session.

    * `list_messages` returns the oldest message first: the last `limit` messages, or the last `limit` of those before
      the message `before`.
    * `stream_messages` yields the newest message first and reads more only when it is asked for more.
    * `update_message` and `update_part` add or replace. A part needs its message, and a message needs its session.
    * If the session is running, its model sees a change with the next step.
    * `remove_message` also removes its parts. It raises `SessionBusyError` while the session is running.
    """

    async def list_messages(
        self, session: SessionID, *, limit: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]: ...

    def stream_messages(self, session: SessionID) -> AsyncIterator[MessageWithParts]: ...

    async def get_message(self, session: SessionID, id: MessageID) -> MessageWithParts: ...

    async def update_message(self, message: AnyMessage) -> AnyMessage: ...

    async def update_part(self, part: AnyPart, *, delta: str | None = None) -> AnyPart: ...

    async def remove_message(self, session: SessionID, id: MessageID) -> None: ...

    async def remove_part(self, session: SessionID, message: MessageID, id: PartID) -> None: ...


class SessionSearch(Protocol):
    """Search in sessions, and statistics about them.

    * `search` looks through titles, prompts, answers and tool calls, in archived sessions too. Every word of the query
      must occur, itself or as the beginning of a word. It returns the best place of each session, best first.
    * Every query is valid: `search` raises no error for odd input.
    * `get_spending` is exact, for the session alone and with its descendants. An answer under way is not counted yet. `priced` is False if a price is unknown.
    * `get_figures` covers the last `days` days (0 is today) or all time, and one project or all projects.
    """

    async def search(self, words: str, *, limit: int = 20, everywhere: bool = False) -> list[Hit]: ...

    async def get_spending(self, session: SessionID) -> Spending: ...

    async def get_figures(self, *, days: int | None = None, project: ProjectID | None = None) -> Figures: ...


class Transfers(Protocol):
    """Move sessions between stores.

    * `export_session` returns the whole session: messages, parts, todos and diff.
    * `import_session` imports the whole session or nothing, and never overwrites newer data: the session is new, adds
      what is missing here, or is kept as a fork under new ids. Importing twice has the effect of importing once.
    * A session whose directory does not exist on this machine is moved to the directory of this `Api`.
    """

    async def export_session(self, id: SessionID) -> SessionExport: ...

    async def import_session(self, export: SessionExport, *, dry_run: bool = False) -> ImportResult: ...


class Moves(Protocol):
    """Sessions that are moved from other machines to the checkout of this `Api`, with their files.

    * `offer` checks everything that can be known before the bundle is sent, changes neither sessions nor files, and returns how much
      of the bundle is here already. It raises `ConflictError` if the checkout is at another commit, has uncommitted changes, or the
      sessions are here already.
    * `add_piece` appends to the bundle. A piece that was received before is ignored.
    * `accept` checks again, then stores the sessions and changes the files, all or nothing. From then on they are here.
    * `cancel` removes what was received, and returns whether there was anything. It raises `ConflictError` if the session has
      arrived, even if that was long ago.

    All four may be called again: the same move has the same id.
    """

    async def offer(self, offer: MoveOffer) -> MoveProgress: ...

    async def add_piece(self, move: str, piece: MovePiece) -> MoveProgress: ...

    async def accept(self, move: str) -> MoveResult: ...

    async def cancel(self, move: str, session: SessionID) -> bool: ...
