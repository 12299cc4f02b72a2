"""The bounds of a project that nobody has vouched for: where what it brings along must really lie."""

import os

from weft.config.sources import Situation

FOLDER = ".opencode"


def find_root(situation: Situation, path: str) -> str:
    """Where a file of the project must lie: in the checkout, or without one in the directory it configures."""
    if os.path.normpath(situation.worktree) != os.sep:
        return situation.worktree
    level, folder, _ = path.partition(f"{os.sep}{FOLDER}{os.sep}")
    return (level or os.sep) if folder else os.path.dirname(path)


def is_inside(path: str, root: str) -> bool:
    """Whether a path really leads to something below a directory, whatever links there are on the way."""
    real, home = os.path.realpath(path), os.path.realpath(root)
    return real == home or real.startswith(home.rstrip(os.sep) + os.sep)


def is_plain(path: str, root: str) -> bool:
    """Whether a file lies openly in a project: not in `.git`, not in an `.env` that a person keeps there."""
    inner = os.path.relpath(os.path.realpath(path), os.path.realpath(root))
    return not any(part.startswith(".") and part != FOLDER for part in inner.split(os.sep))
