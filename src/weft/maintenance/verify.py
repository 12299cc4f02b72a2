"""Read and check every document of a store, and count and hash them by session."""

from collections.abc import Collection, Iterator

from msgspec import Struct

from weft.errors import WeftError
from weft.maintenance.migrate import CopyProgress, SessionDigest, digest_session, read_export
from weft.model.damage import Damage
from weft.model.ids import SessionID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.session import Session
from weft.model.transfer import SessionExport
from weft.store.contract import Store
from weft.store.files.inventory import Inventory, find_damage, find_misplaced, take_inventory
from weft.store.files.messages import MessageReader
from weft.store.files.tree import Tree

PARENT_GONE = "its parent"
DAY_MS = 24 * 60 * 60 * 1000


class Fault(Struct, frozen=True, kw_only=True):
    """Something wrong with a document: its session, its location, and what is wrong."""

    session: SessionID | None = None
    where: str
    reason: str


def find_faults(export: SessionExport, known: Collection[str], *, now: int) -> list[Fault]:
    """Check the contents of a session. `known` are the ids of all sessions."""
    session = export.info
    found = [
        *_check_session(session, known, now),
        *_check_revert(export),
        *(
            (message.info.id, reason)
            for message in export.messages
            for reason in _check_message(message, export, now)
        ),
    ]
    return [Fault(session=session.id, where=where, reason=reason) for where, reason in found]


def _check_session(session: Session, known: Collection[str], now: int) -> Iterator[tuple[str, str]]:
    time = session.time
    if session.parent_id is not None and session.parent_id not in known:
        yield session.id, f"{PARENT_GONE} {session.parent_id} is gone"
    if session.parent_id == session.id:
        yield session.id, "it is its own parent"
    if time.created <= 0 or time.updated < time.created:
        yield session.id, f"created at {time.created} and updated at {time.updated}, which is impossible"
    if max(time.created, time.updated) > now + DAY_MS:
        yield session.id, "its time is in the future"


def _check_revert(export: SessionExport) -> Iterator[tuple[str, str]]:
    revert = export.info.revert
    if revert is not None and revert.message_id not in {message.info.id for message in export.messages}:
        yield export.info.id, f"it was reverted to {revert.message_id}, which is gone"


def _check_message(message: MessageWithParts, export: SessionExport, now: int) -> Iterator[str]:
    info = message.info
    if info.session_id != export.info.id:
        yield f"it names another session, {info.session_id}"
    if info.time.created <= 0 or info.time.created > now + DAY_MS:
        yield f"created at {info.time.created}, which is impossible"
    if isinstance(info, AssistantMessage):
        done = info.time.completed
        if done is not None and done < info.time.created:
            yield "completed before it was created"
        if info.parent_id and all(each.info.id != info.parent_id for each in export.messages):
            yield f"the prompt it answers, {info.parent_id}, is gone"
    for part in message.parts:
        if (part.message_id, part.session_id) != (info.id, export.info.id):
            yield f"its part {part.id} names {part.message_id} of {part.session_id}"


CACHE_BYTES = 64 << 20


class VerifyResult(Struct, frozen=True, kw_only=True):
    """Digests of the sessions that were read, and what is wrong.

    `damage` are unreadable documents, `misplaced` those whose content contradicts their path, `lost` those that nothing
    refers to; `faults` are errors in the contents.
    """

    tallies: tuple[SessionDigest, ...] = ()
    damage: tuple[Fault, ...] = ()
    misplaced: tuple[Fault, ...] = ()
    lost: tuple[Fault, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def problems(self) -> tuple[Fault, ...]:
        return (*self.damage, *self.misplaced, *self.lost, *self.faults)


class OpenTree(Struct, frozen=True, kw_only=True):
    """A tree with a document cache, and its inventory."""

    tree: Tree
    inventory: Inventory


def open_tree(root: str) -> OpenTree:
    tree = Tree(root, remembered=CACHE_BYTES)
    return OpenTree(tree=tree, inventory=take_inventory(tree.layout))


def verify_tree(
    reader: OpenTree, *, now: int, on_progress: CopyProgress = lambda _, __: None
) -> VerifyResult:
    """Verify a tree. This also finds problems that only files can have, such as a wrong path. Calls block."""
    tree, inventory = reader.tree, reader.inventory
    tallies, misplaced, faults = list[SessionDigest](), list[Fault](), list[Fault]()
    ids = sorted(inventory.sessions)
    for number, id in enumerate(ids):
        on_progress(number, len(ids))
        found = find_misplaced(tree, inventory, SessionID(id))
        misplaced += [_to_fault(each, SessionID(id)) for each in found]
        session = tree.find_session(SessionID(id))
        if session is not None:
            export = read_parcel_from_tree(tree, session)
            tallies.append(digest_session(export))
            faults += find_faults(export, inventory.sessions, now=now)
    return VerifyResult(
        tallies=tuple(tallies),
        damage=tuple(_to_fault(damage) for damage in find_damage(tree)),
        misplaced=tuple(misplaced),
        lost=tuple(find_lost(inventory)),
        faults=tuple(faults),
    )


async def verify_store(
    store: Store, *, now: int, on_progress: CopyProgress = lambda _, __: None
) -> VerifyResult:
    """Verify any store through its contract."""
    sessions = await store.list_sessions()
    known = {session.id for session in sessions}
    tallies: list[SessionDigest] = []
    faults: list[Fault] = []
    for number, session in enumerate(sessions):
        on_progress(number, len(sessions))
        try:
            export = await read_export(store, session)
        except WeftError as error:
            faults.append(Fault(session=session.id, where=session.id, reason=str(error)))
            continue
        tallies.append(digest_session(export))
        faults += find_faults(export, known, now=now)
    damage = tuple(_to_fault(damage) for damage in await store.damage())
    return VerifyResult(tallies=tuple(tallies), damage=damage, faults=tuple(faults))


def read_parcel_from_tree(tree: Tree, session: Session) -> SessionExport:
    return SessionExport(
        info=session,
        messages=tuple(MessageReader(tree).list_messages(session.id)),
        diff=tuple(tree.list_diff(session.id)),
        todos=tuple(tree.list_todos(session.id)),
    )


def find_lost(inventory: Inventory) -> list[Fault]:
    """Return documents that nothing refers to: messages, diffs and todos without a session, parts without a message."""
    lost: list[tuple[str, str]] = []
    for kind, names in (
        ("messages", inventory.messages),
        ("diff", inventory.diffs),
        ("todos", inventory.todos),
    ):
        lost += [
            (name, f"its session is gone, but its {kind} exist")
            for name in sorted(names)
            if not inventory.is_there(name)
        ]
    lost += [
        (message, "the message is gone, but its parts exist")
        for message in sorted(inventory.parts - inventory.owners.keys())
    ]
    return [Fault(where=where, reason=reason) for where, reason in lost]


def _to_fault(damage: Damage, session: SessionID | None = None) -> Fault:
    return Fault(session=session, where=damage.where, reason=damage.reason)
