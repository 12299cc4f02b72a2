"""The `Api` implemented in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from weft.bus import Bus
from weft.errors import ConflictError, InvalidInputError, NotFoundError, SessionBusyError
from weft.local.api_parts import ApiParts
from weft.local.permissions import permission_project
from weft.local.place import make_stored_lookup
from weft.model.agent import Command
from weft.model.client_tool import (
    ClientTool,
    ClientToolAsk,
    ClientToolReport,
    ClientToolRequest,
    ClientToolResult,
)
from weft.model.diff import FileDiff
from weft.model.event import (
    Durable,
    Event,
    PermissionAsked,
    PermissionReplied,
    PublishedEvent,
    QuestionAsked,
    QuestionRejected,
    QuestionReplied,
    StatusChanged,
)
from weft.model.ids import (
    GrantID,
    MessageID,
    PartID,
    PermissionID,
    ProjectID,
    QuestionID,
    SessionID,
    ToolRequestID,
    check_id,
    check_new_id,
)
from weft.model.input import CommandInput, PromptInput, SessionInput, ShellInput
from weft.model.message import AnyMessage, MessageWithParts
from weft.model.part import AnyPart, ModelRef
from weft.model.permission import (
    DEFAULT_GRANT_TERMS,
    Grant,
    GrantTerms,
    PermissionDecision,
    PermissionRequest,
    QuestionRequest,
    Reply,
)
from weft.model.project import Project
from weft.model.search import Figures, Hit
from weft.model.session import (
    AnyStatus,
    Busy,
    Idle,
    RevertResult,
    SessionChange,
    SessionInfo,
    SessionTree,
    Todo,
    TrashBundle,
    hide_share_secret,
)
from weft.model.session_query import ALL_SESSIONS, SessionQuery
from weft.model.spending import Spending
from weft.model.transfer import ImportResult, SessionExport
from weft.permission.audit import read_decisions
from weft.run.admit import choose_models
from weft.run.runner import Runner
from weft.run.runtime import Runtime
from weft.session import lifecycle, messages, selection
from weft.session.revert_point import RevertScope
from weft.session.totals import get_spending
from weft.store.statistics import to_statistics_query

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api.configuration import Configuration, Mcp
    from weft.api.data import Data
    from weft.api.sessions import Moves
    from weft.api.trials import Trials
    from weft.api.workspace import Files, Terminals, Workspace, Worktrees
    from weft.session.remove import Remover
    from weft.share.sharer import Sharer


class SessionStatuses:
    """The status of every session that runs, kept up to date from the events on the bus.

    It also publishes when a run starts or stops waiting for a person. It derives this from the requests and replies on the
    bus, so the code that asks does not have to report it.
    """

    def __init__(self, bus: Bus, announce: Callable[[Event], None]) -> None:
        self._announce = announce
        self._statuses: dict[SessionID, AnyStatus] = {}
        self._open_requests: dict[SessionID, dict[str, None]] = {}
        bus.watch(
            self._handle,
            StatusChanged,
            PermissionAsked,
            PermissionReplied,
            QuestionAsked,
            QuestionReplied,
            QuestionRejected,
        )

    def get(self, session: SessionID) -> AnyStatus:
        return self._statuses.get(session, Idle())

    def list_all(self) -> dict[SessionID, AnyStatus]:
        """Return the sessions that are not idle."""
        return dict(self._statuses)

    def _handle(self, event: Event) -> None:
        match event:
            case StatusChanged(session_id=session, status=Idle()):
                self._statuses.pop(session, None)
                self._open_requests.pop(session, None)
            case StatusChanged(session_id=session, status=status):
                self._statuses[session] = status
            case PermissionAsked(request=request) | QuestionAsked(request=request):
                self._open_requests.setdefault(request.session_id, {})[request.id] = None
                self._publish(request.session_id)
            case PermissionReplied() | QuestionReplied() | QuestionRejected():
                if self._open_requests.get(event.session_id, {}).pop(event.request_id, event) is None:
                    self._publish(event.session_id)
            case _:
                pass

    def _publish(self, session: SessionID) -> None:
        # A request in an idle session keeps no run waiting.
        if session in self._statuses:
            status = Busy(waiting_for=tuple(self._open_requests.get(session, ())))
            self._announce(StatusChanged(session_id=session, status=status))


class LocalApi(Struct, frozen=True, kw_only=True):
    """The `Api` of one directory, in this process. Each method checks the ids and calls the module that does the work."""

    runtime: Runtime
    runner: Runner
    bus: Bus
    statuses: SessionStatuses
    parts: ApiParts
    sharing: Sharer

    @property
    def workspace(self) -> Workspace:
        return self.parts.workspace

    @property
    def configuration(self) -> Configuration:
        return self.parts.configuration

    @property
    def files(self) -> Files:
        return self.parts.files

    @property
    def terminals(self) -> Terminals:
        return self.parts.terminals

    @property
    def mcp(self) -> Mcp:
        return self.parts.mcp

    @property
    def worktrees(self) -> Worktrees:
        return self.parts.worktrees

    @property
    def trials(self) -> Trials:
        from weft.local.trials import LocalTrials  # noqa: PLC0415  few calls compare sessions

        return LocalTrials(self.runtime, self.parts.sources, self.runner)

    @property
    def data(self) -> Data:
        return self.parts.data

    @property
    def moves(self) -> Moves:
        from weft.local.move_arrival import LocalMoves  # noqa: PLC0415  few sessions are moved

        return LocalMoves(self.runtime, self.parts.sources, self.statuses.list_all)

    async def current_project(self) -> Project:
        own = self.runtime.place.project
        return await self.runtime.store.find_project(own.id) or own

    # --- sessions ---

    async def create_session(self, input: SessionInput) -> SessionInfo:
        return await self.create_next(input)

    async def create_next(
        self, input: SessionInput, *, id: SessionID | None = None, directory: str | None = None
    ) -> SessionInfo:
        if input.workspace is not None:
            hint = "only a server on a Postgres store has workspaces: weft serve --workspace NAME=REPOSITORY"
            raise NotFoundError("workspace", input.workspace[:80], hint=hint)
        parent = None if input.parent_id is None else await self.get_session(input.parent_id)
        if id is not None and await lifecycle.exists(
            self.runtime.store, SessionID(check_new_id("session", id))
        ):
            raise ConflictError("session", id, "already exists")
        session = await lifecycle.create(self.runtime.maker, input, parent=parent, id=id, directory=directory)
        self.sharing.on_created(session)
        return session

    async def get_session(self, id: SessionID) -> SessionInfo:
        return hide_share_secret(await self.runtime.store.get_session(SessionID(check_id("session", id))))

    async def list_sessions(self, query: SessionQuery = ALL_SESSIONS) -> list[SessionInfo]:
        found = await lifecycle.list_sessions(self.runtime.store, self.runtime.place.project.id, query)
        return [hide_share_secret(session) for session in found]

    async def list_children(self, id: SessionID) -> list[SessionInfo]:
        parent = await self.get_session(id)
        found = await self.runtime.store.query_sessions(SessionQuery(parent_id=parent.id))
        return [hide_share_secret(session) for session in reversed(found)]

    async def get_tree(self, id: SessionID) -> SessionTree:
        root = await self.get_session(id)
        descendants = await lifecycle.list_descendants(self.runtime.store, root.id)
        return selection.build_tree(map(hide_share_secret, descendants), root)

    async def update_session(
        self, id: SessionID, change: SessionChange, *, expected: SessionInfo | None = None
    ) -> SessionInfo:
        now, id = self.runtime.clock.now(), SessionID(check_id("session", id))
        changed = await lifecycle.edit(
            self.runtime.journal, id, lambda it: lifecycle.apply_change(it, change, now), expected=expected
        )
        return hide_share_secret(changed)

    async def touch_session(self, id: SessionID) -> SessionInfo:
        id = SessionID(check_id("session", id))
        touch = lifecycle.make_touch(self.runtime.clock.now())
        return hide_share_secret(await self.runtime.journal.edit(id, touch))

    async def rename_session(self, id: SessionID, title: str) -> SessionInfo:
        return await self.update_session(id, SessionChange(title=title))

    async def archive_session(self, id: SessionID, *, archived: bool = True) -> SessionInfo:
        return await self.update_session(id, SessionChange(archived=archived))

    async def pin_session(self, id: SessionID, *, pinned: bool = True) -> SessionInfo:
        return await self.update_session(id, SessionChange(pinned=pinned))

    async def tag_session(self, id: SessionID, *tags: str) -> SessionInfo:
        return await self.update_session(id, SessionChange(tag=tags))

    async def untag_session(self, id: SessionID, *tags: str) -> SessionInfo:
        return await self.update_session(id, SessionChange(untag=tags))

    async def fork_session(self, id: SessionID, *, at: MessageID | None = None) -> SessionInfo:
        from weft.session.fork import fork  # noqa: PLC0415  few sessions are forked

        source, pin = await self.get_session(id), self.runtime.undo_context.snapshots.pin
        return await fork(self.runtime.maker, self.runtime.store, source, at=at, pin=pin)

    async def remove_session(self, id: SessionID, *, trash: bool = True) -> list[SessionInfo]:
        from weft.session.remove import remove  # noqa: PLC0415  few sessions are removed
        from weft.undo.context import release_sessions  # noqa: PLC0415  few calls undo

        removed = await remove(self.make_remover(), SessionID(check_id("session", id)), trash=trash)
        await self.runtime.end_jobs(*(session.id for session in removed))
        await self.runtime.gate.forget(*(session.id for session in removed))
        self.parts.client_tools.forget(*(session.id for session in removed))
        if not trash:
            await release_sessions(self.runtime.undo_context, removed)
        return [hide_share_secret(session) for session in removed]

    async def restore_session(self, id: SessionID) -> list[SessionInfo]:
        from weft.session.remove import restore  # noqa: PLC0415  few sessions are removed

        restored = await restore(self.runtime.journal, self.runtime.store, SessionID(check_id("session", id)))
        return [hide_share_secret(session) for session in restored]

    async def list_trash(self) -> list[TrashBundle]:
        return [
            replace(each, sessions=tuple(map(hide_share_secret, each.sessions)))
            for each in await self.runtime.store.list_trash()
        ]

    async def list_diff(self, session: SessionID, *, message: MessageID | None = None) -> list[FileDiff]:
        from weft.undo.context import list_message_diffs  # noqa: PLC0415  few calls undo

        await self.get_session(session)
        if message is None:
            return await self.runtime.store.list_diff(session)
        return await list_message_diffs(self.runtime.undo_context, await self.get_message(session, message))

    async def list_todos(self, session: SessionID) -> list[Todo]:
        await self.get_session(session)
        return await self.runtime.store.list_todos(session)

    def make_remover(self) -> Remover:
        from weft.session.remove import Remover  # noqa: PLC0415  few sessions are removed

        runtime = self.runtime
        return Remover(
            store=runtime.store,
            journal=runtime.journal,
            clock=runtime.clock,
            owner=runtime.owner,
            stop=self.runner.abort,
            revoke=self.sharing.revoke,
        )

    # --- messages ---

    async def list_messages(
        self, session: SessionID, *, limit: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        await self.get_session(session)
        return await self.runtime.store.list_messages(session, last=limit, before=before)

    async def get_message(self, session: SessionID, id: MessageID) -> MessageWithParts:
        return await messages.get_message(self.runtime.store, session, id)

    def stream_messages(self, session: SessionID) -> AsyncIterator[MessageWithParts]:
        return messages.iterate_newest_first(self.runtime.store, SessionID(check_id("session", session)))

    async def update_message(self, message: AnyMessage) -> AnyMessage:
        return await messages.put_message(self._make_message_editor(message.session_id), message)

    async def update_part(self, part: AnyPart, *, delta: str | None = None) -> AnyPart:
        return await messages.put_part(self._make_message_editor(part.session_id), part, delta=delta)

    async def remove_message(self, session: SessionID, id: MessageID) -> None:
        # A run must not lose the prompt that it is answering.
        self.runner.check_idle(session)
        await messages.remove_message(self._make_message_editor(session), session, id)

    async def remove_part(self, session: SessionID, message: MessageID, id: PartID) -> None:
        await messages.remove_part(self._make_message_editor(session), session, message, id)

    def _make_message_editor(self, session: SessionID) -> messages.MessageEditor:
        return messages.MessageEditor(
            self.runtime.journal, self.runtime.store, self.runner.find_transcript(session)
        )

    # --- search ---

    async def search(self, words: str, *, limit: int = 20, everywhere: bool = False) -> list[Hit]:
        project = None if everywhere else self.runtime.place.project.id
        return await self.runtime.store.search(words, limit=limit, project=project)

    async def get_spending(self, session: SessionID) -> Spending:
        return await get_spending(self.runtime.store, await self.get_session(session))

    async def get_figures(self, *, days: int | None = None, project: ProjectID | None = None) -> Figures:
        query = to_statistics_query(self.runtime.clock.now(), days=days, project=project)
        return await self.runtime.store.figures(query)

    # --- transfers ---

    async def export_session(self, id: SessionID) -> SessionExport:
        from weft.transfer.session_import import pack_session  # noqa: PLC0415  few calls transfer sessions

        await self.runtime.journal.flush()
        export = await pack_session(self.runtime.store, SessionID(check_id("session", id)))
        return replace(export, info=hide_share_secret(export.info))

    async def import_session(self, export: SessionExport, *, dry_run: bool = False) -> ImportResult:
        from weft.transfer.document import check_export  # noqa: PLC0415  few calls transfer sessions
        from weft.transfer.session_import import ImportOptions, SessionImporter  # noqa: PLC0415  few calls transfer sessions
        from weft.undo.context import pin_session  # noqa: PLC0415  few calls undo

        store, place = self.runtime.store, self.runtime.place
        options = ImportOptions(find_project=make_stored_lookup(store, place), dry_run=dry_run)
        importer = SessionImporter(store, self.runtime.journal, place, options)
        received = await importer.receive(check_export(export, where=export.info.id))
        if not dry_run:
            await pin_session(self.runtime.undo_context, await self.get_session(received.id))
        return received

    # --- runs ---

    async def check_prompt(self, input: PromptInput) -> None:
        choose_models(self.runtime, input, ())

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        return await self.runner.prompt(SessionID(check_id("session", session)), input)

    async def submit(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        return await self.runner.submit(SessionID(check_id("session", session)), input)

    async def compact(self, session: SessionID, *, model: ModelRef | None = None) -> MessageWithParts:
        return await self.runner.compact(SessionID(check_id("session", session)), model=model)

    async def uncompact(self, session: SessionID) -> bool:
        return await self.runner.uncompact(SessionID(check_id("session", session)))

    async def initialize(
        self, session: SessionID, *, model: ModelRef | None = None, message_id: MessageID | None = None
    ) -> MessageWithParts:
        from weft.run.commands import initialize  # noqa: PLC0415  few prompts are commands

        id = SessionID(check_id("session", session))
        return await initialize(self.runtime, self.runner, id, model=model, message_id=message_id)

    async def list_commands(self) -> list[Command]:
        return list({**self.runtime.mcp().list_commands(), **self.runtime.commands}.values())

    async def get_command(self, name: str) -> Command:
        from weft.run.commands import resolve_command  # noqa: PLC0415  few prompts are commands

        return await resolve_command(self.runtime, name)

    async def command(self, session: SessionID, input: CommandInput) -> MessageWithParts:
        from weft.run.commands import execute_command  # noqa: PLC0415  few prompts are commands

        return await execute_command(
            self.runtime, self.runner, SessionID(check_id("session", session)), input
        )

    async def shell(self, session: SessionID, input: ShellInput) -> MessageWithParts:
        return await self.runner.shell(SessionID(check_id("session", session)), input)

    async def revert(
        self,
        session: SessionID,
        message: MessageID,
        part: PartID | None = None,
        *,
        files: tuple[str, ...] | None = None,
        dry_run: bool = False,
    ) -> RevertResult:
        to = MessageID(check_id("message", message)), part and PartID(check_id("part", part))
        id = SessionID(check_id("session", session))
        reverted = await self.runner.revert(id, to, RevertScope(files=files, dry_run=dry_run))
        return replace(reverted, session=hide_share_secret(reverted.session))

    async def unrevert(
        self, session: SessionID, *, files: tuple[str, ...] | None = None, dry_run: bool = False
    ) -> RevertResult:
        id = SessionID(check_id("session", session))
        reverted = await self.runner.unrevert(id, RevertScope(files=files, dry_run=dry_run))
        return replace(reverted, session=hide_share_secret(reverted.session))

    async def abort(self, session: SessionID) -> bool:
        id = SessionID(check_id("session", session))
        aborted = await self.runner.abort(id)
        await self.runtime.end_jobs(id)
        holder = None if aborted else await self.runtime.store.find_holder(id)
        if holder is not None and not self.runner.is_in_use(id):
            raise SessionBusyError(id, holder or "another process")
        return aborted

    async def get_status(self, session: SessionID) -> AnyStatus:
        return self.statuses.get(SessionID(check_id("session", session)))

    async def list_status(self) -> dict[SessionID, AnyStatus]:
        return self.statuses.list_all()

    # --- tools of clients ---

    async def offer_tools(self, session: SessionID, client: str, tools: Sequence[ClientTool]) -> None:
        self.parts.client_tools.offer((await self.get_session(session)).id, client, tools)

    async def list_tool_requests(self) -> list[ClientToolRequest]:
        return self.parts.client_tools.list_open()

    async def accept_tool(self, id: ToolRequestID) -> None:
        self.parts.client_tools.accept(ToolRequestID(check_id("tool", id)))

    async def ask_for_tool(self, id: ToolRequestID, ask: ClientToolAsk) -> None:
        await self.parts.client_tools.ask(ToolRequestID(check_id("tool", id)), ask)

    async def report_tool(self, id: ToolRequestID, report: ClientToolReport) -> None:
        await self.parts.client_tools.report(ToolRequestID(check_id("tool", id)), report)

    async def finish_tool(self, id: ToolRequestID, result: ClientToolResult) -> None:
        self.parts.client_tools.finish(ToolRequestID(check_id("tool", id)), result)

    # --- permissions ---

    async def list_permissions(self) -> list[PermissionRequest]:
        pending = [request.permission for request in await self.runtime.gate.pending()]
        return [
            each
            for each in pending
            if each is not None and await lifecycle.exists(self.runtime.store, each.session_id)
        ]

    async def reply_permission(
        self, id: PermissionID, reply: Reply, *, message: str = "", grant: GrantTerms = DEFAULT_GRANT_TERMS
    ) -> None:
        request = PermissionID(check_id("permission", id))
        await self.runtime.gate.reply(request, reply, message=message, terms=grant)

    async def list_grants(self) -> list[Grant]:
        return await self.runtime.gate.list_grants()

    async def revoke_grant(self, id: GrantID) -> None:
        await self.runtime.gate.revoke(GrantID(check_id("grant", id)))

    async def list_decisions(self, *, limit: int = 100) -> list[PermissionDecision]:
        return await read_decisions(self.runtime.store, permission_project(self.runtime.place), limit=limit)

    # --- questions ---

    async def list_questions(self) -> list[QuestionRequest]:
        pending = await self.runtime.questions.pending()
        return [each for each in pending if await lifecycle.exists(self.runtime.store, each.session_id)]

    async def reply_question(self, id: QuestionID, answers: tuple[tuple[str, ...], ...]) -> None:
        await self.runtime.questions.reply(QuestionID(check_id("question", id)), answers)

    async def reject_question(self, id: QuestionID) -> None:
        await self.runtime.questions.reject(QuestionID(check_id("question", id)))

    # --- events ---

    def events(self, *, after: int | None = None) -> AsyncIterator[PublishedEvent]:
        # The listener starts at this call, not at the first `anext`, so that no event in between is missed.
        return aiter(self.bus.listen(after))

    async def publish(self, event: Event) -> None:
        if isinstance(event, Durable):
            raise InvalidInputError("event", f"{event.type} is a stored event: only weft itself publishes it")
        await self.runtime.journal.commit(event)
