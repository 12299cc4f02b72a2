"""The `Api` of a directory on one node: what is wanted of a session goes through the inbox to the node that runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

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
from weft.local.api import LocalApi
from weft.model.ids import MessageID, PartID, PermissionID, QuestionID, SessionID, check_id
from weft.model.input import CommandInput, PromptInput, ShellInput
from weft.model.message import MessageWithParts
from weft.model.part import ModelRef
from weft.model.permission import DEFAULT_GRANT_TERMS, GrantTerms, Reply
from weft.model.session import RevertResult
from weft.model.wire import decode
from weft.store.cluster import Delivery


class NodeApi(LocalApi, frozen=True, kw_only=True):
    """A `LocalApi` whose prompts, commands, aborts, replies and undos reach the session wherever it runs."""

    inbox: Inbox
    directory: str
    serves: Callable[[str], bool]

    async def _call(self, session: SessionID, kind: str, arguments: Any, key: str | None = None) -> Any:
        id = SessionID(check_id("session", session))
        session_directory = (await self.get_session(id)).directory  # raises before anything is stored
        # A session runs where its directory is. One that should be here and is gone continues in ours.
        directory = self.directory if self.serves(session_directory) else session_directory
        return await self.inbox.call(id, kind, arguments, directory=directory, key=key)

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
        if delivery.kind == "submit":
            stored = await LocalApi.submit(self, delivery.session, given)
            outcome = encode_value(stored)
            await tell(outcome)
            if not given.no_reply:
                await LocalApi.prompt(self, delivery.session, given)  # it is done when it is answered
            return outcome
        return encode_value(await self._do(delivery.kind, delivery.session, given))

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
