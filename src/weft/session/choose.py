"""Choose: which session somebody means by what they typed. Pure."""

import re
from collections.abc import Sequence
from difflib import get_close_matches

from weft.errors import AmbiguousError, InvalidIdError, NotFoundError
from weft.model.ids import GLOBAL_PROJECT, PREFIXES
from weft.model.session import Session, SessionQuery
from weft.session.select import select

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
