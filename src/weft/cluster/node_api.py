"""The `Api` of a directory on one node: what is wanted of a session goes through the inbox to the node that runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.cluster.inbox import Inbox
from weft.cluster.operation import (
    OPERATIONS,
    PATIENT,
    CompactArguments,
    InitializeArguments,
    NoArguments,
    PermissionReplyArguments,
    QuestionReplyArguments,
    RevertArguments,
    UnrevertArguments,
    encode_error,
    encode_value,
)
from weft.errors import ConflictError, InvalidInputError, WeftError
from weft.local.api import LocalApi
from weft.model.ids import MessageID, PartID, PermissionID, QuestionID, SessionID, check_id, check_new_id
from weft.model.input import CommandInput, PromptInput, SessionInput, ShellInput
from weft.model.message import MessageWithParts
from weft.model.part import ModelRef
from weft.model.permission import DEFAULT_GRANT_TERMS, GrantTerms, Reply
from weft.model.session import RevertResult, SessionInfo
from weft.model.wire import decode
from weft.session.lifecycle import create, exists
from weft.store.cluster import Delivery, InboxStore

if TYPE_CHECKING:  # for types alone: few nodes have git workspaces, and few sessions are removed
    from weft.cluster.git_workspace import Workspaces
    from weft.session.remove import Remover


# How long an abort waits for a node that has taken a prompt to begin with it, and how often it looks.
BEGIN_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.1


class NodeApi(LocalApi, frozen=True, kw_only=True):
    """A `LocalApi` whose prompts, commands, aborts, replies and undos reach the session wherever it runs."""

    inbox: Inbox
    directory: str
    serves: Callable[[str], bool]
    workspaces: Workspaces | None = None
    open_api: Callable[[str], Awaitable[NodeApi]] | None = None

    async def _call(self, session: SessionID, kind: str, arguments: Any, key: str | None = None) -> Any:
        id = SessionID(check_id("session", session))
        session_directory = (await self.get_session(id)).directory  # raises before anything is stored
        # A session runs where its directory is. If this node serves that directory, the server has called the `Api` of it, unless it is
        # gone or the caller named another: then the session continues in ours. The checkout of a git workspace is made again instead.
        is_ours = self.serves(session_directory) and self._find_checkout_session(session_directory) is None
        directory = self.directory if is_ours else session_directory
        return await self.inbox.call(
            id, kind, arguments, directory=directory, key=key, store=self._inbox_store
        )

    @property
    def _inbox_store(self) -> InboxStore:
        assert self.runtime.store.event_log is not None, "only a store with a log has nodes"
        return self.runtime.store.event_log.inbox

    # --- git workspaces ---

    def _find_checkout_session(self, directory: str) -> SessionID | None:
        """Return the session whose checkout in a git workspace contains a directory, None if none does."""
        return None if self.workspaces is None else self.workspaces.find_session(directory)

    async def create_next(
        self, input: SessionInput, *, id: SessionID | None = None, directory: str | None = None
    ) -> SessionInfo:
        if input.workspace is not None and self.workspaces is not None:
            return await self._create_in_workspace(self.workspaces, input, id)
        if input.parent_id is None:
            self._refuse_sharing(directory or self.directory)
        return await LocalApi.create_next(self, input, id=id, directory=directory)

    async def _create_in_workspace(
        self, workspaces: Workspaces, input: SessionInput, id: SessionID | None
    ) -> SessionInfo:
        """Create a session with a checkout of its own. Nothing is left of one that could not be created."""
        assert input.workspace is not None
        assert self.open_api is not None
        if input.parent_id is not None:
            raise InvalidInputError("workspace", "a child session works in the checkout of its parent")
        if id is not None and await exists(self.runtime.store, SessionID(check_new_id("session", id))):
            raise ConflictError("session", id, "already exists")
        id = id or self.runtime.mint.session()
        directory = await workspaces.begin(input.workspace, id)
        try:
            api = await self.open_api(directory)
            session = await create(api.runtime.maker, input, id=id)
        except WeftError:
            await workspaces.discard(id, directory)
            raise
        api.sharing.on_created(session)
        return session

    async def fork_session(self, id: SessionID, *, at: MessageID | None = None) -> SessionInfo:
        source = await self.get_session(SessionID(check_id("session", id)))
        if self.workspaces is not None and self._find_checkout_session(source.directory) is not None:
            return await self._fork_in_workspace(self.workspaces, source, at)
        self._refuse_sharing(self.directory)
        return await LocalApi.fork_session(self, id, at=at)

    async def _fork_in_workspace(
        self, workspaces: Workspaces, source: SessionInfo, at: MessageID | None
    ) -> SessionInfo:
        """Fork a session into a checkout of its own, with the files that the original had after its last step.

        Nothing is left of one that could not be forked.
        """
        from weft.cluster.git_workspace import make_fork_editor, rename_source  # noqa: PLC0415  few nodes have git workspaces
        from weft.session.fork import fork  # noqa: PLC0415  few sessions are forked

        assert self.open_api is not None
        await self.runtime.journal.flush()
        id = self.runtime.mint.session()
        old, new = await workspaces.copy(source.directory, id)
        try:
            api = await self.open_api(new)
            edit, renamed = make_fork_editor(id, source, old, new), rename_source(source, old, new)
            forked = await fork(api.runtime.maker, api.runtime.store, renamed, at=at, edit=edit)
            try:
                await api.runner.settle(forked.id)  # whoever takes its lease takes over the files
            except WeftError:
                await LocalApi.remove_session(api, forked.id, trash=False)
                raise
        except WeftError:
            await workspaces.discard(id, new)
            raise
        return forked

    async def remove_session(self, id: SessionID, *, trash: bool = True) -> list[SessionInfo]:
        removed = await LocalApi.remove_session(self, id, trash=trash)
        if self.workspaces is not None:
            await self.workspaces.remove(removed, trash=trash)
        return removed

    def make_remover(self) -> Remover:
        withdraw = partial(self._withdraw, kinds=PATIENT, why="was removed")
        return replace(LocalApi.make_remover(self), withdraw=withdraw)

    def _refuse_sharing(self, directory: str) -> None:
        """Raise `ConflictError` for a directory that one session has to itself: two could not be continued on two nodes."""
        session = self._find_checkout_session(directory)
        if session is not None:
            raise ConflictError(
                "session",
                session,
                "has this checkout to itself",
                hint='create one with a checkout of its own: POST /session {"workspace": NAME}',
            )

    # --- what callers here want ---

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        return await self._send_prompt(session, "prompt", input)

    async def submit(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        return await self._send_prompt(session, "submit", input)

    async def _send_prompt(self, session: SessionID, kind: str, input: PromptInput) -> MessageWithParts:
        # With an id it is one prompt, however often and by whichever nodes it is done.
        id = input.message_id or self.runtime.mint.message()
        answer: MessageWithParts = await self._call(
            session, kind, replace(input, message_id=id), f"{session}/{kind}/{id}"
        )
        return answer

    async def compact(self, session: SessionID, *, model: ModelRef | None = None) -> MessageWithParts:
        summary: MessageWithParts = await self._call(session, "compact", CompactArguments(model=model))
        return summary

    async def uncompact(self, session: SessionID) -> bool:
        return bool(await self._call(session, "uncompact", NoArguments()))

    async def initialize(
        self, session: SessionID, *, model: ModelRef | None = None, message_id: MessageID | None = None
    ) -> MessageWithParts:
        arguments = InitializeArguments(model=model, message_id=message_id)
        answer: MessageWithParts = await self._call(session, "initialize", arguments)
        return answer

    async def command(self, session: SessionID, input: CommandInput) -> MessageWithParts:
        key = f"{session}/command/{input.message_id}" if input.message_id else None
        answer: MessageWithParts = await self._call(session, "command", input, key)
        return answer

    async def shell(self, session: SessionID, input: ShellInput) -> MessageWithParts:
        message: MessageWithParts = await self._call(session, "shell", input)
        return message

    async def revert(
        self,
        session: SessionID,
        message: MessageID,
        part: PartID | None = None,
        *,
        files: tuple[str, ...] | None = None,
        dry_run: bool = False,
    ) -> RevertResult:
        arguments = RevertArguments(message_id=message, part_id=part, files=files, dry_run=dry_run)
        result: RevertResult = await self._call(session, "revert", arguments)
        return result

    async def unrevert(
        self, session: SessionID, *, files: tuple[str, ...] | None = None, dry_run: bool = False
    ) -> RevertResult:
        result: RevertResult = await self._call(
            session, "unrevert", UnrevertArguments(files=files, dry_run=dry_run)
        )
        return result

    async def abort(self, session: SessionID) -> bool:
        id = SessionID(check_id("session", session))
        withdrawn = await self._withdraw(id, kinds=PATIENT)
        clock, waited = self.runtime.clock, 0.0
        while not self.runner.is_in_use(id):
            if await self._runs_elsewhere(id):
                return bool(await self._call(id, "abort", NoArguments())) or withdrawn
            # A node that has just taken the prompt may still be opening the directory.
            if waited >= BEGIN_SECONDS or not await self._inbox_store.is_begun(id):
                break
            await clock.sleep(LOOK_SECONDS)
            waited += LOOK_SECONDS
        return await LocalApi.abort(self, id) or withdrawn

    async def remove_message(self, session: SessionID, id: MessageID) -> None:
        keys = [f"{session}/{kind}/{id}" for kind in ("prompt", "submit", "command")]
        if not await self._withdraw(SessionID(check_id("session", session)), keys=keys):
            await LocalApi.remove_message(self, session, id)

    async def _withdraw(
        self,
        session: SessionID,
        *,
        kinds: Sequence[str] = (),
        keys: Sequence[str] = (),
        why: str = "was aborted",
    ) -> bool:
        """Withdraw what waits for a node and was not begun, and tell its senders why. Return True if there was anything."""
        await self.get_session(session)  # raises before anything is changed
        told = ConflictError("session", session, f"{why} before a node could begin with this")
        return await self._inbox_store.withdraw_all(
            session, kinds=kinds, keys=keys, outcome=encode_error(told)
        )

    async def reply_permission(
        self, id: PermissionID, reply: Reply, *, message: str = "", grant: GrantTerms = DEFAULT_GRANT_TERMS
    ) -> None:
        session = next((each.session_id for each in await self.runtime.gate.pending() if each.id == id), None)
        if session is not None and await self._runs_elsewhere(session):
            arguments = PermissionReplyArguments(id=id, reply=reply, message=message, grant=grant)
            await self._call(session, "reply_permission", arguments)
        else:
            await LocalApi.reply_permission(self, id, reply, message=message, grant=grant)

    async def reply_question(self, id: QuestionID, answers: tuple[tuple[str, ...], ...]) -> None:
        session = await self._find_asking_session(id)
        if session is None:
            await LocalApi.reply_question(self, id, answers)
        else:
            await self._call(session, "reply_question", QuestionReplyArguments(id=id, answers=answers))

    async def reject_question(self, id: QuestionID) -> None:
        session = await self._find_asking_session(id)
        if session is None:
            await LocalApi.reject_question(self, id)
        else:
            await self._call(session, "reject_question", QuestionReplyArguments(id=id))

    async def _find_asking_session(self, id: QuestionID) -> SessionID | None:
        """Return the session of an open question that another node asks; None if nobody else does."""
        pending = await self.runtime.questions.pending()
        session = next((each.session_id for each in pending if each.id == id), None)
        return session if session is not None and await self._runs_elsewhere(session) else None

    async def _runs_elsewhere(self, session: SessionID) -> bool:
        return (
            not self.runner.is_in_use(session) and await self.runtime.store.find_holder(session) is not None
        )

    # --- what was taken from the inbox ---

    async def perform(self, delivery: Delivery, tell: Callable[[bytes], Awaitable[None]]) -> bytes:
        """Do what a delivery wants, in this process, and return the outcome. `tell` reports an earlier one to its caller."""
        given = decode(delivery.body, OPERATIONS[delivery.kind].takes, where=f"delivery {delivery.key}")
        await self._refuse_lone_child(delivery.session)
        if delivery.kind == "submit":
            stored = await LocalApi.submit(self, delivery.session, given)
            outcome = encode_value(stored)
            await tell(outcome)
            if not given.no_reply:
                await LocalApi.prompt(self, delivery.session, given)  # it is done when it is answered
            return outcome
        return encode_value(await self._do(delivery.kind, delivery.session, given))

    async def _refuse_lone_child(self, id: SessionID) -> None:
        """Raise `ConflictError` for a child in a checkout that nobody holds here: the files go with the lease of its parent."""
        if self.workspaces is None:
            return
        session = await self.get_session(id)
        parent = self._find_checkout_session(session.directory)
        if session.parent_id is not None and parent is not None and not self.runtime.journal.holds(parent):
            raise ConflictError(
                "session",
                id,
                "works in the checkout of its parent, which does not run",
                hint=f"prompt the parent: {parent}",
            )

    async def _do(self, kind: str, session: SessionID, given: Any) -> Any:
        match kind:
            case "prompt":
                return await LocalApi.prompt(self, session, given)
            case "command":
                from weft.run.commands import execute_command  # noqa: PLC0415  few prompts are commands

                # Its prompt is a delivery of its own, which another node can continue.
                return await execute_command(self.runtime, self, session, given)
            case "initialize":
                from weft.run.commands import initialize  # noqa: PLC0415  few prompts are commands

                return await initialize(
                    self.runtime, self, session, model=given.model, message_id=given.message_id
                )
            case "shell":
                return await LocalApi.shell(self, session, given)
            case "compact":
                return await LocalApi.compact(self, session, model=given.model)
            case "uncompact":
                return await LocalApi.uncompact(self, session)
            case "revert":
                scope = {"files": given.files, "dry_run": given.dry_run}
                return await LocalApi.revert(self, session, given.message_id, given.part_id, **scope)
            case "unrevert":
                return await LocalApi.unrevert(self, session, files=given.files, dry_run=given.dry_run)
            case "abort":
                return await LocalApi.abort(self, session)
            case _:
                return await self._reply(kind, given)

    async def _reply(self, kind: str, given: Any) -> None:
        match kind:
            case "reply_permission":
                await LocalApi.reply_permission(
                    self, given.id, given.reply, message=given.message, grant=given.grant
                )
            case "reply_question":
                await LocalApi.reply_question(self, given.id, given.answers)
            case _:
                await LocalApi.reject_question(self, given.id)
