"""Read and check every document of a store, and count and hash it by session."""

from collections.abc import Collection, Iterator

from msgspec import Struct

from weft.errors import WeftError
from weft.maintenance.migrate import Tally, Told, read_parcel, tally
from weft.model.damage import Damage
from weft.model.ids import SessionID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.parcel import Parcel
from weft.model.session import Session
from weft.store.contract import Store
from weft.store.files.inventory import Inventory, find_damage, find_misplaced, take_inventory
from weft.store.files.messages import Messages
from weft.store.files.reader import Tree

PARENT_GONE = "its parent"
DAY_MS = 24 * 60 * 60 * 1000


class Fault(Struct, frozen=True, kw_only=True):
    """Something wrong with a stored thing: what it is of, where it lies if that is known, and what is wrong."""

    session: SessionID | None = None
    where: str
    reason: str


def find_faults(parcel: Parcel, known: Collection[str], *, now: int) -> list[Fault]:
    """`known` are the ids of all sessions there are."""
    session = parcel.info
    found = [
        *_session_faults(session, known, now),
        *_revert_faults(parcel),
        *(
            (message.info.id, reason)
            for message in parcel.messages
            for reason in _message_faults(message, parcel, now)
        ),
    ]
    return [Fault(session=session.id, where=where, reason=reason) for where, reason in found]


def _session_faults(session: Session, known: Collection[str], now: int) -> Iterator[tuple[str, str]]:
    time = session.time
    if session.parent_id is not None and session.parent_id not in known:
        yield session.id, f"{PARENT_GONE} {session.parent_id} is gone"
    if session.parent_id == session.id:
        yield session.id, "it is its own parent"
    if time.created <= 0 or time.updated < time.created:
        yield session.id, f"created at {time.created} and updated at {time.updated}: that cannot be"
    if max(time.created, time.updated) > now + DAY_MS:
        yield session.id, "its time lies in the future"


def _revert_faults(parcel: Parcel) -> Iterator[tuple[str, str]]:
    revert = parcel.info.revert
    if revert is not None and revert.message_id not in {message.info.id for message in parcel.messages}:
        yield parcel.info.id, f"it was taken back to {revert.message_id}, which is gone"


def _message_faults(message: MessageWithParts, parcel: Parcel, now: int) -> Iterator[str]:
    info = message.info
    if info.session_id != parcel.info.id:
        yield f"it names another session, {info.session_id}"
    if info.time.created <= 0 or info.time.created > now + DAY_MS:
        yield f"created at {info.time.created}: that cannot be"
    if isinstance(info, AssistantMessage):
        done = info.time.completed
        if done is not None and done < info.time.created:
            yield "completed before it was created"
        if info.parent_id and all(each.info.id != info.parent_id for each in parcel.messages):
            yield f"the prompt it answers, {info.parent_id}, is gone"
    for part in message.parts:
        if (part.message_id, part.session_id) != (info.id, parcel.info.id):
            yield f"its part {part.id} names {part.message_id} of {part.session_id}"


REMEMBERED = 64 << 20


class Verdict(Struct, frozen=True, kw_only=True):
    """The sessions that were read, and what is wrong.

    `damage` is what cannot be read, `misplaced` what lies elsewhere than it says, `lost` what nothing leads to;
    `faults` are those of what can be read.
    """

    tallies: tuple[Tally, ...] = ()
    damage: tuple[Fault, ...] = ()
    misplaced: tuple[Fault, ...] = ()
    lost: tuple[Fault, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def problems(self) -> tuple[Fault, ...]:
        return (*self.damage, *self.misplaced, *self.lost, *self.faults)


class Reader(Struct, frozen=True, kw_only=True):
    """A tree to be read, each document once as far as memory allows."""

    tree: Tree
    inventory: Inventory


def open_reader(root: str) -> Reader:
    tree = Tree(root, remembered=REMEMBERED)
    return Reader(tree=tree, inventory=take_inventory(tree.layout))


def verify_tree(reader: Reader, *, now: int, told: Told = lambda _, __: None) -> Verdict:
    """A tree, without an event loop: also what only files can be, such as in the wrong place."""
    tree, inventory = reader.tree, reader.inventory
    tallies, misplaced, faults = list[Tally](), list[Fault](), list[Fault]()
    ids = sorted(inventory.sessions)
    for number, id in enumerate(ids):
        told(number, len(ids))
        found = find_misplaced(tree, inventory, SessionID(id))
        misplaced += [_to_fault(each, SessionID(id)) for each in found]
        session = tree.find_session(SessionID(id))
        if session is not None:
            parcel = read_from(tree, session)
            tallies.append(tally(parcel))
            faults += find_faults(parcel, inventory.sessions, now=now)
    return Verdict(
        tallies=tuple(tallies),
        damage=tuple(_to_fault(damage) for damage in find_damage(tree)),
        misplaced=tuple(misplaced),
        lost=tuple(list_lost(inventory)),
        faults=tuple(faults),
    )


async def verify_store(store: Store, *, now: int, told: Told = lambda _, __: None) -> Verdict:
    sessions = await store.list_sessions()
    known = {session.id for session in sessions}
    tallies: list[Tally] = []
    faults: list[Fault] = []
    for number, session in enumerate(sessions):
        told(number, len(sessions))
        try:
            parcel = await read_parcel(store, session)
        except WeftError as error:
            faults.append(Fault(session=session.id, where=session.id, reason=str(error)))
            continue
        tallies.append(tally(parcel))
        faults += find_faults(parcel, known, now=now)
    damage = tuple(_to_fault(damage) for damage in await store.damage())
    return Verdict(tallies=tuple(tallies), damage=damage, faults=tuple(faults))


def read_from(tree: Tree, session: Session) -> Parcel:
    return Parcel(
        info=session,
        messages=tuple(Messages(tree).list_messages(session.id)),
        diff=tuple(tree.list_diff(session.id)),
        todos=tuple(tree.list_todos(session.id)),
    )


def list_lost(inventory: Inventory) -> list[Fault]:
    """What nothing leads to: messages, diffs and todos without a session, parts without a message."""
    lost: list[tuple[str, str]] = []
    for kind, names in (
        ("messages", inventory.messages),
        ("diff", inventory.diffs),
        ("todos", inventory.todos),
    ):
        lost += [
            (name, f"its session is gone, its {kind} are here")
            for name in sorted(names)
            if not inventory.is_there(name)
        ]
    lost += [
        (message, "the message is gone, its parts are here")
        for message in sorted(inventory.parts - inventory.owners.keys())
    ]
    return [Fault(where=where, reason=reason) for where, reason in lost]


def _to_fault(damage: Damage, session: SessionID | None = None) -> Fault:
    return Fault(session=session, where=damage.where, reason=damage.reason)
