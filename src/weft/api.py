"""The promise: every operation a front end may ask for. Kept in process by `weft.local`, over HTTP by `weft.client`."""

from collections.abc import AsyncIterator
from typing import Protocol

from weft.model.agent import Command
from weft.model.diff import FileDiff
from weft.model.event import Event, Told
from weft.model.ids import GrantID, MessageID, PartID, PermissionID, ProjectID, QuestionID, SessionID
from weft.model.input import CommandInput, PromptInput, SessionInput, ShellInput
from weft.model.message import AnyMessage, MessageWithParts
from weft.model.parcel import Parcel, Received
from weft.model.part import AnyPart, ModelRef
from weft.model.permission import USUAL_TERMS, Grant, GrantTerms, PermissionRequest, QuestionRequest, Reply
from weft.model.project import Project
from weft.model.search import Figures, Hit
from weft.model.session import (
    EVERY,
    AnyStatus,
    Reverted,
    Session,
    SessionChange,
    SessionQuery,
    SessionTree,
    Todo,
    Trashed,
)
from weft.model.share import USUAL_SHARE, Share, ShareItem, SharePreview, ShareTerms, ShareTicket, Shown
from weft.model.spending import Spending
from weft.outlook import Configuration, Files, Mcp, Surroundings, Terminals, Worktrees


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

    async def list_diff(self, session: SessionID, *, message: MessageID | None = None) -> list[FileDiff]: ...

    async def list_todos(self, session: SessionID) -> list[Todo]: ...


class Messages(Protocol):
    """What was said in a conversation.

    * `list_messages` gives the oldest first: the last so many, of those `before` a message if one is named;
    * `stream_messages` gives the newest first, and reads on as it is asked to;
    * `update_message` and `update_part` add or replace; a part needs its message, a message its session;
    * what is changed in a session that is being run, is what its model is shown with the next step;
    * `remove_message` takes its parts along; a session that is being run is busy.
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
    * `submit` does the same and does not wait for the answer: it gives the prompt, which is on disk by then;
    * `compact` sums a conversation up now, by the `model` if one is named; nothing stored is changed by it;
    * `uncompact` shows the model again what the last summary cut off, and gives whether there was one;
    * `initialize` has an agent write an `AGENTS.md`, and the project remembers when;
    * `abort` ends the run of a session and gives whether there was one; no part stays open behind it, nor in the
      children it had sent out: no session is idle while one that works for it is not. A session that another process
      runs stays as it is, and `SessionBusyError` says who runs it;
    * a session is idle unless it is being run here; `list_status` gives those that are not. A run that waits for a
      person is busy, and says what it is waiting for.
    """

    async def check_prompt(self, input: PromptInput) -> None: ...

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts: ...

    async def submit(self, session: SessionID, input: PromptInput) -> MessageWithParts: ...

    async def compact(self, session: SessionID, *, model: ModelRef | None = None) -> MessageWithParts: ...

    async def uncompact(self, session: SessionID) -> bool: ...

    async def initialize(
        self, session: SessionID, *, model: ModelRef | None = None, message_id: MessageID | None = None
    ) -> MessageWithParts: ...

    async def abort(self, session: SessionID) -> bool: ...

    async def get_status(self, session: SessionID) -> AnyStatus: ...

    async def list_status(self) -> dict[SessionID, AnyStatus]: ...


class Undoing(Protocol):
    """Conversations taken back, and what they did to files with them.

    * `revert` takes a session back to before a message; an answer goes with its prompt; with `part`, what stands before
      it in the message stays. Nothing is removed before the session goes on: until then `unrevert` brings all of it back;
    * per file: what is as the agent left it is restored, what the person changed since is kept, and said to be; what
      cannot be read any more is a refusal (`SnapshotMissingError`), and then nothing is changed at all;
    * with `files` (absolute paths) only those are touched, with none of them no file is; `dry_run` changes nothing, and
      says what would become of each;
    * a session that is being run is busy; taken back once more, it goes further back, or forward again.
    """

    async def revert(
        self,
        session: SessionID,
        message: MessageID,
        part: PartID | None = None,
        *,
        files: tuple[str, ...] | None = None,
        dry_run: bool = False,
    ) -> Reverted: ...

    async def unrevert(
        self, session: SessionID, *, files: tuple[str, ...] | None = None, dry_run: bool = False
    ) -> Reverted: ...


class Commands(Protocol):
    """Prompts that have a name, and commands of the person's own.

    * `list_commands` gives the built-in ones first; a name there is none of raises `NotFoundError` with those near it;
    * `command` fills in a template and prompts with it; gives the last message, and tells `command.executed`. What it
      names (agent, model) is checked, and its shell commands are permitted, before anything is stored;
    * what is typed behind a command is put in as it is: nothing of it is ever run;
    * `shell` runs a command as the person would, asking nobody and no model; gives the message it stands in, complete.
      A session that is being run is busy; a prompt that comes in meanwhile is answered after it.
    """

    async def list_commands(self) -> list[Command]: ...

    async def get_command(self, name: str) -> Command: ...

    async def command(self, session: SessionID, input: CommandInput) -> MessageWithParts: ...

    async def shell(self, session: SessionID, input: ShellInput) -> MessageWithParts: ...


class Permissions(Protocol):
    """Questions of an agent about what it may do.

    * an answer to a question that is not open raises `NotFoundError`;
    * `reject` also answers every other open question of that session; a `message` tells the agent what to do instead;
    * `always` is a grant, of the reach and for the time that `grant` says; it answers what would be asked, and never
      allows what is denied;
    * a question outlives the process that asked it: it stays listed, and its answer is used by the next run that asks
      for the same; one whose run is aborted is withdrawn, and that is told as a `reject`;
    * a grant that is revoked is not used again.
    """

    async def list_permissions(self) -> list[PermissionRequest]: ...

    async def reply_permission(
        self, id: PermissionID, reply: Reply, *, message: str = "", grant: GrantTerms = USUAL_TERMS
    ) -> None: ...

    async def list_grants(self) -> list[Grant]: ...

    async def revoke_grant(self, id: GrantID) -> None: ...


class Questions(Protocol):
    """Questions of an agent about what the person wants.

    * `reply_question` takes one list of answers for each question, none or several in it;
    * a question that is rejected ends the run; one that is not open raises `NotFoundError`.
    """

    async def list_questions(self) -> list[QuestionRequest]: ...

    async def reply_question(self, id: QuestionID, answers: tuple[tuple[str, ...], ...]) -> None: ...

    async def reject_question(self, id: QuestionID) -> None: ...


class Sharing(Protocol):
    """Conversations shown to others. Nothing leaves this machine unless somebody asks for it.

    * `share` gives the session with its address; one that is shared is not shared again. Where nothing is switched on
      and no place is named it is refused, and says the way out; what is switched off is `SharingDisabledError`;
    * secrets are covered unless the terms say otherwise; `preview_share` says which, and nothing leaves by it;
    * what it takes to change a share is in no session, no event and no export;
    * `unshare` takes it back where it is shown first: if that fails it is still listed (`SharingError`), unless it is
      to be forgotten; a session that is not shared raises `NotFoundError`;
    * `revoke_share` does the same by the share's own id, also for one that was received;
    * what is over, or taken back, is not there: `NotFoundError`, whoever asks;
    * after `catch_up` what is shown elsewhere is up to date, or its server takes too long.
    """

    async def share(self, session: SessionID, terms: ShareTerms = USUAL_SHARE) -> Session: ...

    async def preview_share(self, session: SessionID, terms: ShareTerms = USUAL_SHARE) -> SharePreview: ...

    async def unshare(self, session: SessionID, *, forget: bool = False) -> Session: ...

    async def list_shares(self) -> list[Share]: ...

    async def revoke_share(self, id: str, *, forget: bool = False) -> None: ...

    async def catch_up(self) -> None: ...

    @property
    def showing(self) -> "Showing": ...


class Showing(Protocol):
    """Shares in pages of our own, of this store's sessions and of those that others send here.

    * `get_shown` gives a share as others see it, `feel_pulse` a word that changes when it does;
    * `receive` makes room for a session from elsewhere; `take_in` and `drop` want the secret it gave out.
    """

    async def get_shown(self, id: str) -> Shown: ...

    async def feel_pulse(self, id: str) -> str: ...

    async def receive(self, session: SessionID, *, expires: int | None = None) -> ShareTicket: ...

    async def take_in(self, id: str, secret: str, items: tuple[ShareItem, ...]) -> None: ...

    async def drop(self, id: str, secret: str) -> None: ...


class Events(Protocol):
    """What happens, as it happens.

    * events come in the order they happened, each with a cursor to resume after;
    * a cursor that is no longer held raises `CursorLostError`;
    * `tell` is for what a front end wants others to hear: nothing that is stored.
    """

    def events(self, *, after: int | None = None) -> AsyncIterator[Told]: ...

    async def tell(self, event: Event) -> None: ...


class Api(
    Sessions,
    Messages,
    Finding,
    Transfers,
    Runs,
    Undoing,
    Commands,
    Permissions,
    Questions,
    Events,
    Protocol,
):
    """All of it, for one directory of one project."""

    @property
    def surroundings(self) -> Surroundings: ...

    @property
    def configuration(self) -> Configuration: ...

    @property
    def files(self) -> Files: ...

    @property
    def terminals(self) -> Terminals: ...

    @property
    def mcp(self) -> Mcp: ...

    @property
    def sharing(self) -> Sharing: ...

    @property
    def worktrees(self) -> Worktrees: ...

    async def current_project(self) -> Project: ...
