"""Where a session's plan is written down."""

import os

from weft.model.project import Place
from weft.model.session import Session


def plan_path(session: Session, place: Place, plans: str) -> str:
    """In the checkout, where it can be looked at and kept; without one, in `plans`."""
    name = f"{session.time.created}-{session.slug or session.id}.md"
    if place.project.vcs is None:
        return os.path.join(plans, name)
    return os.path.join(place.worktree, ".opencode", "plans", name)
