"""The promise kept in this process."""

from collections.abc import AsyncIterator

from msgspec.structs import replace

from weft.api import Sharing
from weft.app.at_rest import AtRest
from weft.app.statuses import Statuses
from weft.bus import Bus
from weft.errors import InvalidInputError, SessionBusyError
from weft.model.agent import Command
from weft.model.event import Durable, Event, Told
from weft.model.ids import GrantID, MessageID, PartID, PermissionID, QuestionID, SessionID, checked
from weft.model.input import CommandInput, PromptInput, ShellInput
from weft.model.message import MessageWithParts
from weft.model.part import ModelRef
from weft.model.permission import USUAL_TERMS, Grant, GrantTerms, PermissionRequest, Reply
from weft.model.project import Project
from weft.model.question import QuestionRequest
from weft.model.session import Reverted, without_secret
from weft.model.status import AnyStatus
from weft.outlook import Configuration, Files, Mcp, Surroundings, Terminals, Worktrees
from weft.run.admit import choose
from weft.run.command.acting import execute, find_command
from weft.run.initialize import initialize
from weft.session.undo.revert import Wish


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
