"""The promise kept in this process."""

from collections.abc import AsyncIterator

from msgspec import Struct

from weft.bus import Bus
from weft.model.event import Told
from weft.model.ids import PermissionID, SessionID, checked
from weft.model.input import PromptInput, SessionInput
from weft.model.message import MessageWithParts
from weft.model.permission import PermissionRequest, Reply
from weft.model.project import Project
from weft.model.session import Session
from weft.run.admit import choose
from weft.run.kit import Kit
from weft.run.runner import Runner
from weft.session import lifecycle


class Local(Struct, frozen=True, kw_only=True):
    """An `Api` over one directory. Each method hands on to the module that knows how."""

    kit: Kit
    bus: Bus
    runner: Runner
    maker: lifecycle.Maker

    async def current_project(self) -> Project:
        return self.kit.place.project

    # --- sessions ---

    async def create_session(self, input: SessionInput) -> Session:
        if input.parent_id is not None:
            await self.get_session(input.parent_id)
        return await lifecycle.create(self.maker, input)

    async def get_session(self, id: SessionID) -> Session:
        return await self.kit.store.get_session(SessionID(checked("session", id)))

    async def list_sessions(self, *, roots: bool = False, limit: int | None = None) -> list[Session]:
        project = self.kit.place.project.id
        return await lifecycle.list_newest(self.kit.store, project, roots=roots, limit=limit)

    async def list_messages(self, session: SessionID, *, limit: int | None = None) -> list[MessageWithParts]:
        await self.get_session(session)
        return await self.kit.store.list_messages(session, last=limit)

    # --- runs ---

    async def check_prompt(self, input: PromptInput) -> None:
        choose(self.kit, input, ())

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        return await self.runner.prompt(SessionID(checked("session", session)), input)

    async def abort(self, session: SessionID) -> bool:
        return await self.runner.abort(SessionID(checked("session", session)))

    # --- permissions ---

    async def list_permissions(self) -> list[PermissionRequest]:
        return self.kit.gate.pending()

    async def reply_permission(self, id: PermissionID, reply: Reply, *, message: str = "") -> None:
        await self.kit.gate.reply(PermissionID(checked("permission", id)), reply, message=message)

    # --- events ---

    def events(self, *, after: int | None = None) -> AsyncIterator[Told]:
        # Made here and now, not at the first `anext`: what happens from this call on is heard.
        return aiter(self.bus.listen(after))
