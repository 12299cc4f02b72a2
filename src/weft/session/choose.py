"""Choose: which session somebody means by what they typed. Pure."""

import re
from collections.abc import Sequence
from difflib import get_close_matches

from weft.errors import AmbiguousError, InvalidIdError, NotFoundError
from weft.model.ids import PREFIXES
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
    """The one session that somebody means: by id, by the beginning of one, or as `last`.

    Whoever works in a project means a session of it, if there is one that fits; else any.
    """
    if _TYPED.fullmatch(given) is None:
        raise InvalidIdError("session", given)
    if given == LAST:
        return _last(here)
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


def _last(here: Sequence[Session]) -> Session:
    found = select(here, SessionQuery(roots=True, archived=False, order="updated", limit=1))
    if not found:
        raise NotFoundError("session", LAST, hint="there is none in this project")
    return found[0]
