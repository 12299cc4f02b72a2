"""The promise: every operation a front end may ask for. Kept in process by `weft.app`, over HTTP by `weft.client`."""

from collections.abc import AsyncIterator
from typing import Protocol

from weft.model.diff import FileDiff
from weft.model.event import Told
from weft.model.finding import Figures, Hit
from weft.model.ids import MessageID, PartID, PermissionID, ProjectID, SessionID
from weft.model.input import PromptInput, SessionInput
from weft.model.message import AnyMessage, MessageWithParts
from weft.model.parcel import Parcel, Received
from weft.model.part import AnyPart, ModelRef
from weft.model.permission import PermissionRequest, Reply
from weft.model.project import Project
from weft.model.session import EVERY, Session, SessionChange, SessionQuery, SessionTree, Trashed
from weft.model.spent import Spending
from weft.model.todo import Todo


class Sessions(Protocol):
    """Conversations at rest.

    * a session exists on disk before `create_session` returns it; a child is never allowed what its parent's own
      rules withhold; `create_next` takes the id and the directory, and raises `ConflictError` for an id that is taken;
    * whatever is asked of an id there is none of raises `NotFoundError`;
    * `list_sessions` gives the newest first, children and trees the oldest first;
    * `update_session` is one step, and raises `ConflictError` if the session is no longer as `expected`. A title
      given so is final: none is made up in its place;
    * `fork_session` copies the messages before one, or all, into a new session, which is whole or not there;
    * `remove_session` takes all below it too, in one step, ends their runs first and gives what is gone, children
      first. `restore_session` brings back what went together, as it was, unless it went past the trash.
    """

    async def create_session(self, input: SessionInput) -> Session: ...

    async def create_next(
        self, input: SessionInput, *, id: SessionID | None = None, directory: str | None = None
    ) -> Session: ...

    async def get_session(self, id: SessionID) -> Session: ...

    async def list_sessions(self, query: SessionQuery = EVERY) -> list[Session]: ...

    async def list_children(self, id: SessionID) -> list[Session]: ...

    async def get_tree(self, id: SessionID) -> SessionTree: ...

    async def update_session(
        self, id: SessionID, change: SessionChange, *, expected: Session | None = None
    ) -> Session: ...

    async def touch_session(self, id: SessionID) -> Session: ...

    async def rename_session(self, id: SessionID, title: str) -> Session: ...

    async def archive_session(self, id: SessionID, *, archived: bool = True) -> Session: ...

    async def pin_session(self, id: SessionID, *, pinned: bool = True) -> Session: ...

    async def tag_session(self, id: SessionID, *tags: str) -> Session: ...

    async def untag_session(self, id: SessionID, *tags: str) -> Session: ...

    async def fork_session(self, id: SessionID, *, at: MessageID | None = None) -> Session: ...

    async def remove_session(self, id: SessionID, *, trash: bool = True) -> list[Session]: ...

    async def restore_session(self, id: SessionID) -> list[Session]: ...

    async def list_trash(self) -> list[Trashed]: ...

    async def list_diff(self, session: SessionID) -> list[FileDiff]: ...

    async def list_todos(self, session: SessionID) -> list[Todo]: ...


class Messages(Protocol):
    """What was said in a conversation.

    * `list_messages` gives the oldest first: the last so many, of those `before` a message if one is named;
    * `stream_messages` gives the newest first, and reads on as it is asked to;
    * `update_message` and `update_part` add or replace; a part needs its message, a message its session;
    * `remove_message` takes its parts along.
    """

    async def list_messages(
        self, session: SessionID, *, limit: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]: ...

    def stream_messages(self, session: SessionID) -> AsyncIterator[MessageWithParts]: ...

    async def update_message(self, message: AnyMessage) -> AnyMessage: ...

    async def update_part(self, part: AnyPart, *, delta: str | None = None) -> AnyPart: ...

    async def remove_message(self, session: SessionID, id: MessageID) -> None: ...

    async def remove_part(self, session: SessionID, message: MessageID, id: PartID) -> None: ...


class Finding(Protocol):
    """Conversations found again, and counted.

    * `search` looks through titles, prompts, answers and what tools did, archived sessions too; every word must be
      there, itself or as the beginning of one; it gives the best place of each session, best first;
    * whatever is typed is a search: none is an error;
    * what a session spent is exact, itself and with all below it; `priced` says whether every price was known;
    * figures are of the last `days` (0 is today), else of all time; of one project, else of all.
    """

    async def search(self, words: str, *, limit: int = 20, everywhere: bool = False) -> list[Hit]: ...

    async def get_spending(self, session: SessionID) -> Spending: ...

    async def get_figures(self, *, days: int | None = None, project: ProjectID | None = None) -> Figures: ...


class Transfers(Protocol):
    """Conversations on the move between stores.

    * `export_session` gives a session whole: messages, parts, todos, diff;
    * `import_session` takes one in whole or not at all, and never at the cost of what is here: it is new, or adds what
      it has more, or is kept beside the one here under other ids; done twice, it is done once;
    * what lived in a directory that is not on this machine comes to live in this one's.
    """

    async def export_session(self, id: SessionID) -> Parcel: ...

    async def import_session(self, parcel: Parcel, *, dry_run: bool = False) -> Received: ...


class Runs(Protocol):
    """Conversations in motion.

    * a prompt is on disk before anything runs, and is answered, or the reason why not is stored and told;
    * `prompt` gives the last message of the run; sent while one is under way, it joins it;
    * the same `message_id` sent twice is one prompt;
    * `check_prompt` raises what `prompt` would raise about agent and model, and does nothing else;
    * `compact` sums a conversation up now; nothing stored is changed by it;
    * `initialize` has an agent write an `AGENTS.md`, and the project remembers when;
    * `abort` ends the run of a session and gives whether there was one; no part stays open behind it.
    """

    async def check_prompt(self, input: PromptInput) -> None: ...

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts: ...

    async def compact(self, session: SessionID) -> MessageWithParts: ...

    async def initialize(
        self, session: SessionID, *, model: ModelRef | None = None, message_id: MessageID | None = None
    ) -> MessageWithParts: ...

    async def abort(self, session: SessionID) -> bool: ...


class Permissions(Protocol):
    """Questions of an agent about what it may do.

    * an answer to a question that is not open raises `NotFoundError`;
    * `reject` also answers every other open question of that session; a `message` tells the agent what to do instead.
    """

    async def list_permissions(self) -> list[PermissionRequest]: ...

    async def reply_permission(self, id: PermissionID, reply: Reply, *, message: str = "") -> None: ...


class Events(Protocol):
    """What happens, as it happens.

    * events come in the order they happened, each with a cursor to resume after;
    * a cursor that is no longer held raises `CursorLostError`.
    """

    def events(self, *, after: int | None = None) -> AsyncIterator[Told]: ...


class Api(Sessions, Messages, Finding, Transfers, Runs, Permissions, Events, Protocol):
    """All of it, for one directory of one project."""

    async def current_project(self) -> Project: ...
