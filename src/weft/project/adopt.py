"""Adopting: sessions that were recorded under another id, and were all along about this project."""

import os
from collections.abc import Iterable

from msgspec.structs import replace

from weft.model.session import Session
from weft.project.facts import Adoption, Checkout, inside
from weft.project.look import checkout_of


def adopted(adoption: Adoption, sessions: Iterable[Session]) -> list[Session]:
    """Those of the sessions that belong to the adopting project, as they should be stored."""
    verdicts: dict[str, bool] = {}
    taken: list[Session] = []
    for session in sessions:
        directory = session.directory
        if directory not in verdicts:
            verdicts[directory] = os.path.isabs(directory) and _belongs(adoption, directory)
        if verdicts[directory] and session.project_id in adoption.sources:
            taken.append(replace(session, project_id=adoption.project))
    return taken


def _belongs(adoption: Adoption, directory: str) -> bool:
    try:
        return takes(adoption, checkout_of(os.path.realpath(directory)))
    except (OSError, ValueError):
        return False


def takes(adoption: Adoption, at: Checkout) -> bool:
    """Whether work done at a place is the adopting project's: inside one of its checkouts, and in nobody else's."""
    # OpenCode adopts what was done in the very top directory alone, and whatever names no directory.
    tops = [top for top in adoption.tops if inside(at.directory, top)]
    if not tops:
        return False
    nearest = max(tops, key=len)
    if any(
        inside(at.directory, each) and each != nearest and inside(each, nearest)
        for each in adoption.strangers
    ):
        return False
    nested = at.top and at.common_dir != adoption.common_dir and inside(at.top, nearest)
    return not nested or at.top == nearest
