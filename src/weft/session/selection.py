"""Select sessions: by tree, or by what a person typed (pure)."""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from weft.errors import AmbiguousError, InvalidIdError, NotFoundError, find_similar
from weft.model.ids import GLOBAL_PROJECT, PREFIXES, SessionID
from weft.model.session import SessionInfo, SessionTree, newest_sort_key
from weft.model.session_query import SessionQuery


class FamilySearch:
    """Finds all sessions below one: run each query that `next_query` returns, and `add` its result."""

    def __init__(self, root: SessionID) -> None:
        self._root = root
        self._found: dict[SessionID, SessionInfo] = {}
        self._waiting = deque([root])

    def next_query(self) -> SessionQuery | None:
        """Return a query for the children of the next session, None if all were found."""
        return SessionQuery(parent_id=self._waiting.popleft()) if self._waiting else None

    def add(self, children: Sequence[SessionInfo]) -> None:
        """Add the result of the query, which is newest first."""
        for child in reversed(children):
            # Each session once: a circle of parents would not end.
            if child.id != self._root and child.id not in self._found:
                self._found[child.id] = child
                self._waiting.append(child.id)

    @property
    def descendants(self) -> list[SessionInfo]:
        """All sessions found so far, each after its parent, and siblings oldest first."""
        return list(self._found.values())


def build_tree(sessions: Iterable[SessionInfo], root: SessionInfo) -> SessionTree:
    """Return a session with all of these sessions that are below it."""
    by_parent = _group_by_parent(sessions)
    search = FamilySearch(root.id)
    while (query := search.next_query()) is not None:
        search.add(by_parent[query.parent_id or SessionID("")][::-1])
    descendants = search.descendants
    built: dict[SessionID, SessionTree] = {}
    for session in (*reversed(descendants), root):  # children first
        children = tuple(built.pop(child.id) for child in by_parent[session.id] if child.id in built)
        built[session.id] = SessionTree(session=session, children=children)
    return built[root.id]


def _group_by_parent(sessions: Iterable[SessionInfo]) -> defaultdict[SessionID, list[SessionInfo]]:
    found: defaultdict[SessionID, list[SessionInfo]] = defaultdict(list)
    for session in sorted(sessions, key=newest_sort_key, reverse=True):
        if session.parent_id is not None:
            found[session.parent_id].append(session)
    return found


LAST = "last"
LIST_HINT = "list them: weft session list --all"
START_HINT = 'start one: weft run "…"; or name one: weft session list --all'
MAX_SUGGESTIONS = 3
_ID_OR_PREFIX = r"[0-9A-Za-z_]{1,64}"
ID_START = f"{PREFIXES['session']}_"


def choose_session(
    typed: str, here: Sequence[SessionInfo], everywhere: Sequence[SessionInfo], *, hint: str = LIST_HINT
) -> SessionInfo:
    """Return the session that an id or the beginning of an id names. Sessions `here` come before those `everywhere`.

    Raise `InvalidIdError`, `AmbiguousError` or `NotFoundError`.
    """
    if re.fullmatch(_ID_OR_PREFIX, typed) is None:
        raise InvalidIdError("session", typed)
    for sessions in (here, everywhere):
        matches = [session for session in sessions if _has_prefix(session, typed)]
        if len(matches) > 1:
            raise AmbiguousError("session", typed, [session.id for session in matches])
        if matches:
            return matches[0]
    ids = [session.id for session in everywhere]
    near = find_similar(typed, ids, n=MAX_SUGGESTIONS, cutoff=0.8)
    if hint == LIST_HINT:  # nothing in the trash has this name
        near += find_similar(typed, [LAST], cutoff=0.7)
    raise NotFoundError("session", typed, near=near, hint=hint)


def _has_prefix(session: SessionInfo, prefix: str) -> bool:
    return session.id == prefix or session.id.startswith((prefix, ID_START + prefix))


# The sessions that were last used, page by page. Children and archived sessions do not count.
LAST_USED = SessionQuery(roots=True, archived=False, order="updated", limit=50)


def to_no_last_session(other: SessionInfo | None, place: str, *, hint: str = START_HINT) -> NotFoundError:
    """Return the error for a place without sessions. Its hint names the last session of the repository, if there is one."""
    elsewhere = hint
    if other is not None and other.project_id != GLOBAL_PROJECT:
        elsewhere = f"the last of this project is {other.id}, in {other.directory}"
    return NotFoundError("session", LAST, hint=f"none has worked in {place} or all are archived; {elsewhere}")
