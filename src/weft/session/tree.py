"""Select sessions: by tree, by query, or by what a person typed. Make the rules of child sessions (pure)."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from weft.errors import AmbiguousError, InvalidIdError, NotFoundError
from weft.model.ids import GLOBAL_PROJECT, PREFIXES, SessionID
from weft.model.permission import Ruleset
from weft.model.session import (
    Session,
    SessionQuery,
    SessionTree,
    WeftSessionData,
    get_weft_data,
    is_archived,
    newest_sort_key,
)


def list_children(sessions: Iterable[Session], parent: SessionID) -> list[Session]:
    """Return the children of a session, oldest first."""
    found = [session for session in sessions if session.parent_id == parent]
    return sorted(found, key=newest_sort_key, reverse=True)


def list_descendants(sessions: Iterable[Session], root: SessionID) -> list[Session]:
    """Return all sessions below one, each after its parent."""
    by_parent = _group_by_parent(sessions)
    found: dict[SessionID, Session] = {}
    waiting = [root]
    while waiting:
        for child in by_parent[waiting.pop(0)]:
            if child.id != root and child.id not in found:
                found[child.id] = child
                waiting.append(child.id)
    return list(found.values())


def build_tree(sessions: Iterable[Session], root: Session) -> SessionTree:
    """Return a session with all sessions below it."""
    descendants = list_descendants(sessions, root.id)
    by_parent = _group_by_parent(descendants)
    built: dict[SessionID, SessionTree] = {}
    for session in (*reversed(descendants), root):  # children first
        children = tuple(built.pop(child.id) for child in by_parent[session.id] if child.id in built)
        built[session.id] = SessionTree(session=session, children=children)
    return built[root.id]


def _group_by_parent(sessions: Iterable[Session]) -> defaultdict[SessionID, list[Session]]:
    found: defaultdict[SessionID, list[Session]] = defaultdict(list)
    for session in sorted(sessions, key=newest_sort_key, reverse=True):
        if session.parent_id is not None:
            found[session.parent_id].append(session)
    return found


def select_sessions(sessions: Iterable[Session], query: SessionQuery) -> list[Session]:
    """Return the sessions that match a query, newest first."""
    found = [session for session in sessions if _matches(session, query)]
    found.sort(key=newest_sort_key)
    if query.order == "updated":
        found.sort(key=lambda session: session.time.updated, reverse=True)
    return found if query.limit is None else found[: query.limit]


def _matches(session: Session, query: SessionQuery) -> bool:
    return (
        not (query.roots and session.parent_id)
        and (query.start is None or session.time.updated >= query.start)
        and (query.search is None or query.search.casefold() in session.title.casefold())
        and (query.tag is None or query.tag in get_weft_data(session).tags)
        and (query.directory is None or session.directory == query.directory)
        and (query.archived is None or query.archived == is_archived(session))
    )


LAST = "last"
LIST_HINT = "list them: weft session list --all"
MAX_SUGGESTIONS = 3
_ID_OR_PREFIX = re.compile(r"[0-9A-Za-z_]{1,64}")
_PREFIX = f"{PREFIXES['session']}_"


def choose_session(
    typed: str, here: Sequence[Session], everywhere: Sequence[Session], *, hint: str = LIST_HINT
) -> Session:
    """Return the session that an id or the beginning of an id names. Sessions `here` come before those `everywhere`.

    Raise `InvalidIdError`, `AmbiguousError` or `NotFoundError`.
    """
    if _ID_OR_PREFIX.fullmatch(typed) is None:
        raise InvalidIdError("session", typed)
    for sessions in (here, everywhere):
        matches = [session for session in sessions if _has_prefix(session, typed)]
        if len(matches) > 1:
            raise AmbiguousError("session", typed, [session.id for session in matches])
        if matches:
            return matches[0]
    near = get_close_matches(typed, [session.id for session in everywhere], n=MAX_SUGGESTIONS, cutoff=0.8)
    raise NotFoundError("session", typed, near=near, hint=hint)


def _has_prefix(session: Session, prefix: str) -> bool:
    return session.id == prefix or session.id.startswith((prefix, _PREFIX + prefix))


def choose_last_session(
    here: Sequence[Session], project: Sequence[Session], place: str, *, hint: str = LIST_HINT
) -> Session:
    """Return the session that was last used at a place. `here` are its sessions, `project` those of the whole project.

    Raise `NotFoundError` if there is none here; its hint names the last session of the repository, if there is one.
    """
    found = find_last_session(here)
    if found is not None:
        return found
    other = find_last_session([session for session in project if session.project_id != GLOBAL_PROJECT])
    elsewhere = f"the last of this project is {other.id}, in {other.directory}" if other else hint
    raise NotFoundError("session", LAST, hint=f"none has worked in {place}; {elsewhere}")


def find_last_session(sessions: Sequence[Session]) -> Session | None:
    """Return the session that was last used. Children and archived sessions do not count."""
    found = select_sessions(sessions, SessionQuery(roots=True, archived=False, order="updated", limit=1))
    return found[0] if found else None


def make_child_rules(rules: Ruleset | None, parent: Session) -> Ruleset | None:
    """Return the rules of a child, followed by its parent's rules that deny or ask.

    The last matching rule wins, so the parent's rules come last. Its rules that allow are left out: they would override what the
    child is denied. OpenCode ignores the parent's rules, so that a child may do what its parent may not.
    """
    restrictions = tuple(rule for rule in parent.permission or () if rule.action != "allow")
    if not restrictions:
        return rules
    return (*(rule for rule in rules or () if rule not in restrictions), *restrictions)


def make_child_data(parent: Session) -> WeftSessionData | None:
    """Return what a child inherits from its parent: the limits of its ancestors."""
    limits = get_weft_data(parent).limits
    return WeftSessionData(limits=limits) if limits else None
