"""Select sessions: the tree they form, filters, the one a person means, and what a child may do (pure)."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from weft.errors import AmbiguousError, InvalidIdError, NotFoundError
from weft.model.ids import GLOBAL_PROJECT, PREFIXES, SessionID
from weft.model.permission import Ruleset
from weft.model.session import (
    Session,
    SessionOwn,
    SessionQuery,
    SessionTree,
    is_archived,
    newest_first,
    own_of,
)


def children_of(sessions: Iterable[Session], parent: SessionID) -> list[Session]:
    """Those right below it, oldest first."""
    found = [session for session in sessions if session.parent_id == parent]
    return sorted(found, key=newest_first, reverse=True)


def below(sessions: Iterable[Session], root: SessionID) -> list[Session]:
    """All that is below it, each after its parent."""
    by_parent = _by_parent(sessions)
    found: dict[SessionID, Session] = {}
    waiting = [root]
    while waiting:
        for child in by_parent[waiting.pop(0)]:
            if child.id != root and child.id not in found:
                found[child.id] = child
                waiting.append(child.id)
    return list(found.values())


def grow_tree(sessions: Iterable[Session], root: Session) -> SessionTree:
    kin = below(sessions, root.id)
    by_parent = _by_parent(kin)
    grown: dict[SessionID, SessionTree] = {}
    for session in (*reversed(kin), root):  # children first: each finds its own ready
        children = tuple(grown.pop(child.id) for child in by_parent[session.id] if child.id in grown)
        grown[session.id] = SessionTree(session=session, children=children)
    return grown[root.id]


def _by_parent(sessions: Iterable[Session]) -> defaultdict[SessionID, list[Session]]:
    found: defaultdict[SessionID, list[Session]] = defaultdict(list)
    for session in sorted(sessions, key=newest_first, reverse=True):
        if session.parent_id is not None:
            found[session.parent_id].append(session)
    return found


def select(sessions: Iterable[Session], query: SessionQuery) -> list[Session]:
    """Those that fit, newest first."""
    found = [session for session in sessions if _fits(session, query)]
    found.sort(key=newest_first)
    if query.order == "updated":
        found.sort(key=lambda session: session.time.updated, reverse=True)
    return found if query.limit is None else found[: query.limit]


def _fits(session: Session, query: SessionQuery) -> bool:
    wanted = query
    return (
        not (wanted.roots and session.parent_id)
        and (wanted.start is None or session.time.updated >= wanted.start)
        and (wanted.search is None or wanted.search.casefold() in session.title.casefold())
        and (wanted.tag is None or wanted.tag in own_of(session).tags)
        and (wanted.directory is None or session.directory == wanted.directory)
        and (wanted.archived is None or wanted.archived == is_archived(session))
    )


LAST = "last"
SEE_ALL = "see them all: weft session list --all"
NEAR = 3
_TYPED = re.compile(r"[0-9A-Za-z_]{1,64}")
_PREFIX = f"{PREFIXES['session']}_"


def choose(
    given: str, here: Sequence[Session], everywhere: Sequence[Session], *, hint: str = SEE_ALL
) -> Session:
    """The one session that somebody means: by id, or by the beginning of one.

    Whoever works in a project means a session of it, if there is one that fits; else any.
    """
    if _TYPED.fullmatch(given) is None:
        raise InvalidIdError("session", given)
    for sessions in (here, everywhere):
        found = [session for session in sessions if _begins(session, given)]
        if len(found) > 1:
            raise AmbiguousError("session", given, [session.id for session in found])
        if found:
            return found[0]
    near = get_close_matches(given, [session.id for session in everywhere], n=NEAR, cutoff=0.8)
    raise NotFoundError("session", given, near=near, hint=hint)


def _begins(session: Session, given: str) -> bool:
    return session.id == given or session.id.startswith((given, _PREFIX + given))


def choose_last(
    here: Sequence[Session], project: Sequence[Session], place: str, *, hint: str = SEE_ALL
) -> Session:
    """Return the session last worked on at a place. `here` are the sessions of the place, `project` those of its project.

    Raise `NotFoundError` if there is none here; its hint names the last session of the repository, if there is one.
    """
    found = find_last(here)
    if found is not None:
        return found
    other = find_last([each for each in project if each.project_id != GLOBAL_PROJECT])
    elsewhere = f"the last of this project is {other.id}, in {other.directory}" if other else hint
    raise NotFoundError("session", LAST, hint=f"none has worked in {place}; {elsewhere}")


def find_last(sessions: Sequence[Session]) -> Session | None:
    """Return the session last worked on, without children and what is archived."""
    found = select(sessions, SessionQuery(roots=True, archived=False, order="updated", limit=1))
    return found[0] if found else None


def child_rules(given: Ruleset | None, parent: Session) -> Ruleset | None:
    """Return the rules that were given to a child, followed by all that the parent's own rules withhold.

    OpenCode forgets the parent's rules, so that a child may do what its parent may not. Here they come last, where
    they have the last word, without those that allow: these would undo what the child was denied.
    """
    withheld = tuple(rule for rule in parent.permission or () if rule.action != "allow")
    if not withheld:
        return given
    return (*(rule for rule in given or () if rule not in withheld), *withheld)


def child_own(parent: Session) -> SessionOwn | None:
    """What a child is told of those above its parent: their limits are its own."""
    limits = own_of(parent).limits
    return SessionOwn(limits=limits) if limits else None
