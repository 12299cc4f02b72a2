"""Find and run the programs that help tools: formatters and language servers."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from weft.sandbox.policy import OPEN, Sandbox


class Ground(Struct, frozen=True, kw_only=True):
    """The directory we work in, the top of its checkout, and the environment that programs see.

    Nothing that a project brings along is run if it is not `trusted`; nothing at all if the `sandbox` refuses.
    """

    directory: str
    worktree: str
    environment: Mapping[str, str]
    trusted: bool = False
    sandbox: Sandbox = OPEN


def upwards(start: str, top: str) -> Iterator[str]:
    """A directory and those above it, up to `top`; of one that is elsewhere, that one alone."""
    directory, top = os.path.normpath(start), os.path.normpath(top)
    if os.path.commonpath((directory, top)) != top:
        yield directory
        return
    while True:
        yield directory
        if directory == top:
            return
        directory = os.path.dirname(directory)


def has_any(directory: str, names: Iterable[str]) -> bool:
    return any(os.path.exists(os.path.join(directory, name)) for name in names)


def find_program(name: str, near: Iterable[str], ground: Ground) -> str | None:
    """Where a program is installed: in one of the directories `near`, if the project is trusted, else in PATH."""
    if ground.sandbox.refusal:
        return None
    if os.sep in name:  # as a person wrote it
        path = os.path.join(ground.directory, os.path.expanduser(name))
        return path if os.access(path, os.X_OK) else None
    own = [os.path.join(directory, name) for directory in near] if ground.trusted else []
    found = shutil.which(name, path=ground.environment.get("PATH", ""))
    # A relative entry in PATH leads into the project.
    paths = [*own, *([found] if found and os.path.isabs(found) else ())]
    return next((path for path in paths if os.access(path, os.X_OK)), None)
