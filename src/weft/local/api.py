"""The `Api` implemented in this process."""

from collections.abc import AsyncIterator

from msgspec import Struct
from msgspec.structs import replace

from weft.api import Sharing
from weft.bus import Bus
from weft.errors import ConflictError, InvalidInputError, NotFoundError, SessionBusyError, UnreadableError
from weft.local.place import recorded_home
from weft.model.agent import Command
from weft.model.diff import FileDiff
from weft.model.event import (
    Durable,
    Event,
    PermissionAsked,
    PermissionReplied,
    QuestionAsked,
    QuestionRejected,
    QuestionReplied,
    StatusChanged,
    Told,
)
from weft.model.ids import (
    GrantID,
    MessageID,
    PartID,
    PermissionID,
    ProjectID,
    QuestionID,
    SessionID,
    check_new,
    checked,
)
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
    Busy,
    Idle,
    Reverted,
    Session,
    SessionChange,
    SessionQuery,
    SessionTree,
    Todo,
    Trashed,
    without_secret,
)
from weft.model.spending import Spending
from weft.outlook import Configuration, Files, Mcp, Surroundings, Terminals, Worktrees
from weft.run.admit import choose
from weft.run.commands import execute, find_command, initialize
from weft.run.kit import Kit
from weft.run.runner import Runner
from weft.search import sessions
from weft.search.library import Library
from weft.session import fork, lifecycle, messages, remove, tree
from weft.transfer.document import sound
from weft.transfer.intake import Intake, Terms, pack
from weft.undo.cleanup import diff_of, pin_all, release_all
from weft.undo.revert import Wish


class AtRest(Struct, frozen=True, kw_only=True):
    """The half of an `Api` that runs nothing. Each method hands on to the module that knows how."""

    kit: Kit
    runner: Runner
    maker: lifecycle.Maker
    revoke: remove.Revoke = remove.nothing_shared
    welcome: lifecycle.Welcome = lifecycle.unnoticed
    library: Library | None = None

    # --- sessions ---

    async def create_session(self, input: SessionInput) -> Session:
        return await self.create_next(input)

    async def create_next(
        self, input: SessionInput, *, id: SessionID | None = None, directory: str | None = None
    ) -> Session:
        parent = None if input.parent_id is None else await self.get_session(input.parent_id)
        if id is not None and await self._is_taken(SessionID(check_new("session", id))):
            raise ConflictError("session", id, "is there already")
        session = await lifecycle.create(self.maker, input, parent=parent, id=id, directory=directory)
        self.welcome(session)
        return session

    async def get_session(self, id: SessionID) -> Session:
        return without_secret(await self.kit.store.get_session(SessionID(checked("session", id))))

    async def list_sessions(self, query: SessionQuery = EVERY) -> list[Session]:
        found = await lifecycle.list_sessions(self.kit.store, self.kit.place.project.id, query)
        return [without_secret(session) for session in found]

    async def list_children(self, id: SessionID) -> list[Session]:
        parent = await self.get_session(id)
        return tree.children_of(await self._list_project(parent.project_id), id)

    async def get_tree(self, id: SessionID) -> SessionTree:
        root = await self.get_session(id)
        return tree.grow_tree(await self._list_project(root.project_id), root)

    async def _list_project(self, project: ProjectID) -> list[Session]:
        return [without_secret(session) for session in await self.kit.store.list_sessions(project)]

    async def update_session(
        self, id: SessionID, change: SessionChange, *, expected: Session | None = None
    ) -> Session:
        now, id = self.kit.clock.now(), SessionID(checked("session", id))
        changed = await lifecycle.edit(
            self.kit.journal, id, lambda it: lifecycle.changed(it, change, now), expected=expected
        )
        return without_secret(changed)

    async def touch_session(self, id: SessionID) -> Session:
        id = SessionID(checked("session", id))
        return without_secret(await lifecycle.touch(self.kit.journal, id, self.kit.clock.now()))

    async def rename_session(self, id: SessionID, title: str) -> Session:
        return await self.update_session(id, SessionChange(title=title))

    async def archive_session(self, id: SessionID, *, archived: bool = True) -> Session:
        return await self.update_session(id, SessionChange(archived=archived))

    async def pin_session(self, id: SessionID, *, pinned: bool = True) -> Session:
        return await self.update_session(id, SessionChange(pinned=pinned))

    async def tag_session(self, id: SessionID, *tags: str) -> Session:
        return await self.update_session(id, SessionChange(tag=tags))

    async def untag_session(self, id: SessionID, *tags: str) -> Session:
        return await self.update_session(id, SessionChange(untag=tags))

    async def fork_session(self, id: SessionID, *, at: MessageID | None = None) -> Session:
        source, pin = await self.get_session(id), self.kit.undoer.snapshots.pin
        return await fork.fork(self.maker, self.kit.store, source, at=at, pin=pin)

    async def remove_session(self, id: SessionID, *, trash: bool = True) -> list[Session]:
        gone = await remove.remove(self._remover(), SessionID(checked("session", id)), trash=trash)
        await self.kit.end_jobs(*(session.id for session in gone))
        await self.kit.gate.forget(*(session.id for session in gone))
        if not trash:
            await release_all(self.kit.undoer, gone)
        return [without_secret(session) for session in gone]

    async def restore_session(self, id: SessionID) -> list[Session]:
        back = await remove.restore(self.kit.journal, self.kit.store, SessionID(checked("session", id)))
        return [without_secret(session) for session in back]

    async def list_trash(self) -> list[Trashed]:
        return [
            replace(each, sessions=tuple(map(without_secret, each.sessions)))
            for each in await self.kit.store.list_trash()
        ]

    async def list_diff(self, session: SessionID, *, message: MessageID | None = None) -> list[FileDiff]:
        await self.get_session(session)
        if message is None:
            return await self.kit.store.list_diff(session)
        return await diff_of(self.kit.undoer, await self.get_message(session, message))

    async def list_todos(self, session: SessionID) -> list[Todo]:
        await self.get_session(session)
        return await self.kit.store.list_todos(session)

    async def _is_taken(self, id: SessionID) -> bool:
        try:
            await self.get_session(id)
        except UnreadableError:
            return True
        except NotFoundError:
            return False
        return True

    def _remover(self) -> remove.Remover:
        kit = self.kit
        return remove.Remover(
            store=kit.store,
            journal=kit.journal,
            clock=kit.clock,
            owner=kit.owner,
            stop=self.runner.abort,
            revoke=self.revoke,
        )

    # --- messages ---

    async def list_messages(
        self, session: SessionID, *, limit: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        await self.get_session(session)
        return await self.kit.store.list_messages(session, last=limit, before=before)

    async def get_message(self, session: SessionID, id: MessageID) -> MessageWithParts:
        return await messages.get_message(self.kit.store, session, id)

    def stream_messages(self, session: SessionID) -> AsyncIterator[MessageWithParts]:
        return messages.newest_first(self.kit.store, SessionID(checked("session", session)))

    async def update_message(self, message: AnyMessage) -> AnyMessage:
        return await messages.put_message(self._door(message.session_id), message)

    async def update_part(self, part: AnyPart, *, delta: str | None = None) -> AnyPart:
        return await messages.put_part(self._door(part.session_id), part, delta=delta)

    async def remove_message(self, session: SessionID, id: MessageID) -> None:
        # A run would go on with it: what is just being answered must not be taken away from under it.
        self.runner.check_resting(session)
        await messages.remove_message(self._door(session), session, id)

    async def remove_part(self, session: SessionID, message: MessageID, id: PartID) -> None:
        await messages.remove_part(self._door(session), session, message, id)

    def _door(self, session: SessionID) -> messages.Door:
        return messages.Door(self.kit.journal, self.kit.store, self.runner.known(session))

    # --- finding ---

    async def search(self, words: str, *, limit: int = 20, everywhere: bool = False) -> list[Hit]:
        project = None if everywhere else self.kit.place.project.id
        return await sessions.search(self.kit.store, self.library, words, limit=limit, project=project)

    async def get_spending(self, session: SessionID) -> Spending:
        return await sessions.get_spending(self.kit.store, await self.get_session(session))

    async def get_figures(self, *, days: int | None = None, project: ProjectID | None = None) -> Figures:
        wanted = sessions.want(self.kit.clock.now(), days=days, project=project)
        return await sessions.get_figures(self.kit.store, self.library, wanted)

    # --- transfers ---

    async def export_session(self, id: SessionID) -> Parcel:
        await self.kit.journal.flush()
        parcel = await pack(self.kit.store, SessionID(checked("session", id)))
        return replace(parcel, info=without_secret(parcel.info))

    async def import_session(self, parcel: Parcel, *, dry_run: bool = False) -> Received:
        store, place = self.kit.store, self.kit.place
        terms = Terms(home=recorded_home(store, place), dry_run=dry_run)
        intake = Intake(store, self.kit.journal, place, terms)
        received = await intake.receive(sound(parcel, where=parcel.info.id))
        if not dry_run:
            await pin_all(self.kit.undoer, await self.get_session(received.id))
        return received


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


class Local(AtRest, frozen=True, kw_only=True):
    """An `Api` over one directory: what is at rest, and what is in motion."""

    bus: Bus
    statuses: Statuses
    surroundings: Surroundings
    configuration: Configuration
    files: Files
    terminals: Terminals
    mcp: Mcp
    sharing: Sharing
    worktrees: Worktrees

    async def current_project(self) -> Project:
        own = self.kit.place.project
        return await self.kit.store.find_project(own.id) or own

    # --- runs ---

    async def check_prompt(self, input: PromptInput) -> None:
        choose(self.kit, input, ())

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        return await self.runner.prompt(SessionID(checked("session", session)), input)

    async def submit(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        return await self.runner.submit(SessionID(checked("session", session)), input)

    async def compact(self, session: SessionID, *, model: ModelRef | None = None) -> MessageWithParts:
        return await self.runner.compact(SessionID(checked("session", session)), model=model)

    async def uncompact(self, session: SessionID) -> bool:
        return await self.runner.uncompact(SessionID(checked("session", session)))

    async def initialize(
        self, session: SessionID, *, model: ModelRef | None = None, message_id: MessageID | None = None
    ) -> MessageWithParts:
        id = SessionID(checked("session", session))
        return await initialize(self.kit, self.runner, id, model=model, message_id=message_id)

    async def list_commands(self) -> list[Command]:
        return list({**self.kit.guests.list_commands(), **self.kit.commands}.values())

    async def get_command(self, name: str) -> Command:
        return await find_command(self.kit, name)

    async def command(self, session: SessionID, input: CommandInput) -> MessageWithParts:
        return await execute(self.kit, self.runner, SessionID(checked("session", session)), input)

    async def shell(self, session: SessionID, input: ShellInput) -> MessageWithParts:
        return await self.runner.shell(SessionID(checked("session", session)), input)

    async def revert(
        self,
        session: SessionID,
        message: MessageID,
        part: PartID | None = None,
        *,
        files: tuple[str, ...] | None = None,
        dry_run: bool = False,
    ) -> Reverted:
        to = MessageID(checked("message", message)), part and PartID(checked("part", part))
        id = SessionID(checked("session", session))
        reverted = await self.runner.revert(id, to, Wish(files=files, dry_run=dry_run))
        return replace(reverted, session=without_secret(reverted.session))

    async def unrevert(
        self, session: SessionID, *, files: tuple[str, ...] | None = None, dry_run: bool = False
    ) -> Reverted:
        id = SessionID(checked("session", session))
        back = await self.runner.unrevert(id, Wish(files=files, dry_run=dry_run))
        return replace(back, session=without_secret(back.session))

    async def abort(self, session: SessionID) -> bool:
        id = SessionID(checked("session", session))
        aborted = await self.runner.abort(id)
        await self.kit.end_jobs(id)
        holder = None if aborted else await self.kit.store.find_holder(id)
        if holder is not None and not self.runner.holds(id):
            raise SessionBusyError(id, holder or "another process")
        return aborted

    async def get_status(self, session: SessionID) -> AnyStatus:
        return self.statuses.get(SessionID(checked("session", session)))

    async def list_status(self) -> dict[SessionID, AnyStatus]:
        return self.statuses.list_all()

    # --- permissions ---

    async def list_permissions(self) -> list[PermissionRequest]:
        pending = [asked.permission for asked in await self.kit.gate.pending()]
        return [each for each in pending if each is not None and await self._is_taken(each.session_id)]

    async def reply_permission(
        self, id: PermissionID, reply: Reply, *, message: str = "", grant: GrantTerms = USUAL_TERMS
    ) -> None:
        asked = PermissionID(checked("permission", id))
        await self.kit.gate.reply(asked, reply, message=message, terms=grant)

    async def list_grants(self) -> list[Grant]:
        return await self.kit.gate.list_grants()

    async def revoke_grant(self, id: GrantID) -> None:
        await self.kit.gate.revoke(GrantID(checked("grant", id)))

    # --- questions ---

    async def list_questions(self) -> list[QuestionRequest]:
        pending = await self.kit.questions.pending()
        return [each for each in pending if await self._is_taken(each.session_id)]

    async def reply_question(self, id: QuestionID, answers: tuple[tuple[str, ...], ...]) -> None:
        await self.kit.questions.reply(QuestionID(checked("question", id)), answers)

    async def reject_question(self, id: QuestionID) -> None:
        await self.kit.questions.reject(QuestionID(checked("question", id)))

    # --- events ---

    def events(self, *, after: int | None = None) -> AsyncIterator[Told]:
        # Made here and now, not at the first `anext`: what happens from this call on is heard.
        return aiter(self.bus.listen(after))

    async def tell(self, event: Event) -> None:
        if isinstance(event, Durable):
            raise InvalidInputError("event", f"{event.type} is stored, and not for others to tell")
        await self.kit.journal.commit(event)
