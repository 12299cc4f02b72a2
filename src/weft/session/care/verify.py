"""Verify: every document of a store read and checked, counted, and hashed by session. Nothing is changed."""

from msgspec import Struct

from weft.errors import WeftError
from weft.model.damage import Damage
from weft.model.ids import SessionID
from weft.model.parcel import Parcel
from weft.model.session import Session
from weft.session.care.faults import Fault, find_faults
from weft.session.care.tally import Tally, Told, read_parcel, tally
from weft.store.checkup import find_damage
from weft.store.contract import Store
from weft.store.files_care.inventory import Inventory, take_inventory
from weft.store.files_care.places import find_misplaced
from weft.store.messages import Messages
from weft.store.tree import Tree

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
