"""Conversations at rest, kept in this process: sessions, messages, finding them again, moving them."""

from collections.abc import AsyncIterator

from msgspec import Struct
from msgspec.structs import replace

from weft.app import finding
from weft.app.homes import recorded_home
from weft.app.library import Library
from weft.errors import ConflictError, NotFoundError, UnreadableError
from weft.model.diff import FileDiff
from weft.model.finding import Figures, Hit
from weft.model.ids import MessageID, PartID, ProjectID, SessionID, check_new, checked
from weft.model.input import SessionInput
from weft.model.message import AnyMessage, MessageWithParts
from weft.model.parcel import Parcel, Received
from weft.model.part import AnyPart
from weft.model.session import (
    EVERY,
    Session,
    SessionChange,
    SessionQuery,
    SessionTree,
    Trashed,
    without_secret,
)
from weft.model.spent import Spending
from weft.model.todo import Todo
from weft.run.kit import Kit
from weft.run.runner import Runner
from weft.session import edit, fork, lifecycle, messages, remove, trash, tree
from weft.session.transfer.document import sound
from weft.session.transfer.intake import Intake, Terms, pack
from weft.session.undo.keep import diff_of, pin_all, release_all


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
        changed = await edit.edit(
            self.kit.journal, id, lambda it: edit.changed(it, change, now), expected=expected
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
        back = await trash.restore(self.kit.journal, self.kit.store, SessionID(checked("session", id)))
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
        return await finding.search(self.kit.store, self.library, words, limit=limit, project=project)

    async def get_spending(self, session: SessionID) -> Spending:
        return await finding.get_spending(self.kit.store, await self.get_session(session))

    async def get_figures(self, *, days: int | None = None, project: ProjectID | None = None) -> Figures:
        wanted = finding.want(self.kit.clock.now(), days=days, project=project)
        return await finding.get_figures(self.kit.store, self.library, wanted)

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
