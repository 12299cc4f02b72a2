"""Prune: move old sessions to the trash, by age or until a size is reached. This only runs on request."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from weft.errors import NotFoundError, UnreadableError
from weft.model.ids import ProjectID, SessionID
from weft.model.session import SessionInfo, get_weft_data
from weft.session.lifecycle import briefing_key
from weft.store.contract import Store

# Somebody may still be working with a session that was used this recently.
RECENT_MS = 60 * 60 * 1000


class PrunePolicy(Struct, frozen=True, kw_only=True):
    """What to prune: sessions last used before a time, or the least recently used ones until at most `at_most` bytes stay.

    With both, sessions that are too old go first, and then as many more as needed. `project` limits it to one project.
    """

    before: int | None = None
    at_most: int | None = None
    project: ProjectID | None = None


class SessionFamily(Struct, frozen=True, kw_only=True):
    """A session and its descendants. They are pruned together or not at all."""

    root: SessionInfo
    members: tuple[SessionInfo, ...]
    bytes: int

    @property
    def used(self) -> int:
        return max(session.time.updated for session in self.members)


class SparedFamily(Struct, frozen=True, kw_only=True):
    """A family that is not pruned, and why."""

    family: SessionFamily
    reason: str


class PruneChoice(Struct, frozen=True, kw_only=True):
    """The families to prune, least recently used first, and those that are spared."""

    chosen: tuple[SessionFamily, ...]
    spared: tuple[SparedFamily, ...]


def choose_families(
    sessions: Sequence[SessionInfo], weights: Mapping[str, int], policy: PrunePolicy, *, now: int
) -> PruneChoice:
    """Apply a policy. `weights` are the sizes of the sessions in bytes."""
    families = sorted(to_families(sessions, weights), key=lambda family: (family.used, family.root.id))
    left = sum(weights.values())
    chosen: list[SessionFamily] = []
    spared: list[SparedFamily] = []
    for family in families:
        if policy.project is not None and family.root.project_id != policy.project:
            continue
        too_old = policy.before is not None and family.used < policy.before
        too_much = policy.at_most is not None and left > policy.at_most
        if not (too_old or too_much):
            continue
        reason = find_reason_to_spare(family, now)
        if reason:
            spared.append(SparedFamily(family=family, reason=reason))
        else:
            chosen.append(family)
            left -= family.bytes
    return PruneChoice(chosen=tuple(chosen), spared=tuple(spared))


def to_families(sessions: Iterable[SessionInfo], weights: Mapping[str, int]) -> list[SessionFamily]:
    """Group sessions into families. A child whose parent is gone heads its own family, as does one of a cycle."""
    by_id = {session.id: session for session in sessions}
    children: defaultdict[SessionID, list[SessionInfo]] = defaultdict(list)
    for session in by_id.values():
        if session.parent_id is not None:
            children[session.parent_id].append(session)
    seen: set[SessionID] = set()
    heads = [each for each in by_id.values() if each.parent_id is None or each.parent_id not in by_id]
    families: list[SessionFamily] = []
    for head in (*heads, *by_id.values()):
        members = _list_descendants(head, children, seen)
        if members:
            size = sum(weights.get(member.id, 0) for member in members)
            families.append(SessionFamily(root=head, members=tuple(members), bytes=size))
    return families


def _list_descendants(
    head: SessionInfo, children: Mapping[SessionID, list[SessionInfo]], seen: set[SessionID]
) -> list[SessionInfo]:
    found: list[SessionInfo] = []
    waiting = [head]
    while waiting:
        session = waiting.pop()
        if session.id not in seen:
            seen.add(session.id)
            found.append(session)
            waiting += children.get(session.id, [])
    return found


def find_reason_to_spare(family: SessionFamily, now: int) -> str:
    """Return why a family must not be pruned, "" if it may be."""
    if any(get_weft_data(session).pinned for session in family.members):
        return "pinned"
    if any(session.share is not None for session in family.members):
        return "shared"
    if family.used > now - RECENT_MS:
        return "just used"
    return ""


class PruneResult(Struct, frozen=True, kw_only=True):
    """The families moved to the trash, with their bundles, and those that were spared."""

    discarded: tuple[tuple[SessionFamily, str], ...]
    spared: tuple[SparedFamily, ...]


async def prune(store: Store, choice: PruneChoice, *, now: int) -> PruneResult:
    """Move the chosen families to the trash, except those that run, and those that somebody changed since they were chosen."""
    discarded: list[tuple[SessionFamily, str]] = []
    spared = list(choice.spared)
    for family in choice.chosen:
        busy = await _find_busy(store, family)
        if busy:
            spared.append(SparedFamily(family=family, reason=f"running ({busy})"))
            continue
        try:
            if [await store.get_session(session.id) for session in family.members] != [*family.members]:
                spared.append(SparedFamily(family=family, reason="changed meanwhile"))
                continue
            bundle = await store.discard([session.id for session in family.members], at=now)
        except (NotFoundError, UnreadableError):
            spared.append(SparedFamily(family=family, reason="gone meanwhile"))
            continue
        discarded.append((family, bundle.id))
    return PruneResult(discarded=tuple(discarded), spared=tuple(spared))


async def _find_busy(store: Store, family: SessionFamily) -> str:
    """Return who runs a session of the family; "" if nobody does."""
    for session in family.members:
        # Taking the lease would answer, too, but would drop the mark of a dead run that is still to be settled.
        holder = await store.find_holder(session.id)
        if holder is not None:
            return holder or "another process"
    return ""


async def empty_trash(store: Store, *, before: int) -> list[str]:
    """Delete the bundles that have been in the trash since before a time. Return their ids."""
    old = [trashed for trashed in await store.list_trash() if trashed.time < before]
    purged: list[str] = []
    for trashed in old:
        try:
            await store.purge(trashed.id)
        except NotFoundError:
            continue  # somebody restored or deleted it meanwhile
        for session in trashed.sessions:
            await store.put_value(briefing_key(session.id), None)
        purged.append(trashed.id)
    return purged
