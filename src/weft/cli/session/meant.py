"""The session that a person means by what they typed."""

import os
from contextlib import suppress

from weft.app.reading import Reading
from weft.errors import InvalidIdError
from weft.model.ids import SessionID, checked
from weft.model.session import Session
from weft.session.choose import choose


def read(directory: str, store: str | None) -> Reading:
    return Reading(directory, os.environ, store=store)


def meant(reading: Reading, given: str) -> Session:
    """By its whole id without a look at the others, else by what there is."""
    with suppress(InvalidIdError):
        found = reading.tree.find_session(SessionID(checked("session", given)))
        if found is not None:
            return found
    return choose(given, reading.list_sessions(), reading.list_sessions(everywhere=True))
