"""Which directories a caller may name: those of projects that are known, and what the person who serves has let in."""

import os
from collections.abc import Iterable

from weft.errors import DirectoryNotServedError
from weft.model.project import Project


def is_below(path: str, top: str) -> bool:
    """Whether a path is a directory or below it; both by their real names."""
    return path == top or path.startswith(top.rstrip(os.sep) + os.sep)


def check_known(directory: str, projects: Iterable[Project]) -> None:
    """Raises `DirectoryNotServedError` for one that is in no checkout of any project.

    What has no version control is all in one project, whose checkout is the root: that lets nobody in anywhere.
    """
    for project in projects:
        for top in (project.worktree, *project.sandboxes):
            if top.strip(os.sep) and is_below(directory, os.path.realpath(top)):
                return
    raise DirectoryNotServedError(directory)
