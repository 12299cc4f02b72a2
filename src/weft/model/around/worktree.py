"""Worktrees as others see them: checkouts of a project that were made for sessions."""

from weft.model.wire import Wire


class WorktreeInfo(Wire, frozen=True, kw_only=True):
    """What it is called, the branch it is on, and where it is."""

    name: str
    branch: str
    directory: str
