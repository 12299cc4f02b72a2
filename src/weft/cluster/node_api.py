"""The `Api` of a directory on one node: what is wanted of a session goes through the inbox to the node that runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weft.cluster.inbox import Inbox
from weft.cluster.operation import (
    OPERATIONS,
    CompactArguments,
    InitializeArguments,
    NoArguments,
    PermissionReplyArguments,
    QuestionReplyArguments,
    RevertArguments,
    UnrevertArguments,
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
from weft.session.lifecycle import create
from weft.store.cluster import Delivery

if TYPE_CHECKING:  # for types alone: few nodes have git workspaces
    from weft.cluster.workspace import Workspaces


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
        # A session runs where its directory is. One that should be here and is gone continues in ours; a checkout is made again.
        is_ours = self.serves(session_directory) and self._find_owner(session_directory) is None
        directory = self.directory if is_ours else session_directory
        return await self.inbox.call(id, kind, arguments, directory=directory, key=key)

    # --- git workspaces ---

    def _find_owner(self, directory: str) -> SessionID | None:
        """Return the session that has a checkout in a git workspace to itself, None for any other directory."""
        return None if self.workspaces is None else self.workspaces.find_owner(directory)

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
        if id is not None and await self._exists(SessionID(check_new_id("session", id))):
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
        self._refuse_sharing(self.directory)
        return await LocalApi.fork_session(self, id, at=at)

    async def remove_session(self, id: SessionID, *, trash: bool = True) -> list[SessionInfo]:
        removed = await LocalApi.remove_session(self, id, trash=trash)
        if self.workspaces is not None:
            await self.workspaces.remove(removed, trash=trash)
        return removed

    def _refuse_sharing(self, directory: str) -> None:
        """Raise `ConflictError` for a directory that one session has to itself: two could not be continued on two nodes."""
        owner = self._find_owner(directory)
        if owner is not None:
            raise ConflictError(
                "session",
                owner,
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
        if await self._runs_elsewhere(id):
            return bool(await self._call(id, "abort", NoArguments()))
        return await LocalApi.abort(self, id)

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
        """Do what a delivery wants, in this process, and return the outcome. `tell` tells its caller an earlier one."""
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
        owner = self._find_owner(session.directory)
        if session.parent_id is not None and owner is not None and not self.runtime.journal.holds(owner):
            raise ConflictError(
                "session",
                id,
                "works in the checkout of its parent, which does not run",
                hint=f"prompt the parent: {owner}",
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
