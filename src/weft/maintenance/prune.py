"""Prune: sessions nobody has used for long, or the oldest when there is too much, into the trash. Only when told to."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from weft.errors import SessionBusyError
from weft.model.ids import ProjectID, SessionID
from weft.model.session import Session, own_of
from weft.store.contract import Store

# Whoever has just been working may be about to go on.
REST_MS = 60 * 60 * 1000
OWNER = "weft storage prune"


class Policy(Struct, frozen=True, kw_only=True):
    """What may go: what was last used before a time, or the least recently used until no more than so many bytes stay.

    With both, what is too old goes, and then as much more as it takes. `project` leaves all others alone.
    """

    before: int | None = None
    at_most: int | None = None
    project: ProjectID | None = None


class Family(Struct, frozen=True, kw_only=True):
    """A session and all that were started from it: they go together or not at all."""

    root: Session
    members: tuple[Session, ...]
    bytes: int

    @property
    def used(self) -> int:
        return max(session.time.updated for session in self.members)


class Spared(Struct, frozen=True, kw_only=True):
    family: Family
    reason: str


class Choice(Struct, frozen=True, kw_only=True):
    """The families to go, least recently used first, and those that would go too but for a reason."""

    chosen: tuple[Family, ...]
    spared: tuple[Spared, ...]


def choose(sessions: Sequence[Session], weights: Mapping[str, int], policy: Policy, *, now: int) -> Choice:
    """What a policy comes to. `weights` are the bytes of each session."""
    families = sorted(to_families(sessions, weights), key=lambda family: (family.used, family.root.id))
    left = sum(weights.values())
    chosen: list[Family] = []
    spared: list[Spared] = []
    for family in families:
        if policy.project is not None and family.root.project_id != policy.project:
            continue
        too_old = policy.before is not None and family.used < policy.before
        too_much = policy.at_most is not None and left > policy.at_most
        if not (too_old or too_much):
            continue
        reason = reason_to_spare(family, now)
        if reason:
            spared.append(Spared(family=family, reason=reason))
        else:
            chosen.append(family)
            left -= family.bytes
    return Choice(chosen=tuple(chosen), spared=tuple(spared))


def to_families(sessions: Iterable[Session], weights: Mapping[str, int]) -> list[Family]:
    """Every session is in one family. A child whose parent is gone heads its own; so does one of a circle."""
    by_id = {session.id: session for session in sessions}
    children: defaultdict[SessionID, list[Session]] = defaultdict(list)
    for session in by_id.values():
        if session.parent_id is not None:
            children[session.parent_id].append(session)
    seen: set[SessionID] = set()
    heads = [each for each in by_id.values() if each.parent_id is None or each.parent_id not in by_id]
    families: list[Family] = []
    for head in (*heads, *by_id.values()):
        members = _below(head, children, seen)
        if members:
            size = sum(weights.get(member.id, 0) for member in members)
            families.append(Family(root=head, members=tuple(members), bytes=size))
    return families


def _below(head: Session, children: Mapping[SessionID, list[Session]], seen: set[SessionID]) -> list[Session]:
    found: list[Session] = []
    waiting = [head]
    while waiting:
        session = waiting.pop()
        if session.id not in seen:
            seen.add(session.id)
            found.append(session)
            waiting += children.get(session.id, [])
    return found


def reason_to_spare(family: Family, now: int) -> str:
    """Why a family must stay, "" if nothing speaks for it."""
    if any(own_of(session).pinned for session in family.members):
        return "pinned"
    if any(session.share is not None for session in family.members):
        return "shared"
    if family.used > now - REST_MS:
        return "just used"
    return ""


class Pruned(Struct, frozen=True, kw_only=True):
    """What went into which bundle of the trash, and what stayed all the same."""

    discarded: tuple[tuple[Family, str], ...]
    spared: tuple[Spared, ...]


async def prune(store: Store, choice: Choice, *, now: int) -> Pruned:
    discarded: list[tuple[Family, str]] = []
    spared = list(choice.spared)
    for family in choice.chosen:
        busy = await _busy(store, family)
        if busy:
            spared.append(Spared(family=family, reason=f"running ({busy})"))
            continue
        bundle = await store.discard([session.id for session in family.members], at=now)
        discarded.append((family, bundle.id))
    return Pruned(discarded=tuple(discarded), spared=tuple(spared))


async def _busy(store: Store, family: Family) -> str:
    """Who runs a member of it; "" if nobody does."""
    for session in family.members:
        try:
            async with store.lease(session.id, OWNER):
                pass
        except SessionBusyError as error:
            return error.owner or "another process"
    return ""


async def empty_trash(store: Store, *, before: int) -> list[str]:
    """Throw away for good what has lain in the trash since before a time."""
    old = [trashed.id for trashed in await store.list_trash() if trashed.time < before]
    for id in old:
        await store.purge(id)
    return old
