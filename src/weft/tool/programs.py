"""Find helper programs: formatters and language servers."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from weft.model.project import is_within
from weft.sandbox.policy import NO_SANDBOX, Sandbox


class ProgramContext(Struct, frozen=True, kw_only=True):
    """Where and how helper programs run.

    Programs in the project itself are only used if it is `trusted`. If the `sandbox` has a refusal, no program is used.
    """

    directory: str
    worktree: str
    environment: Mapping[str, str]
    trusted: bool = False
    sandbox: Sandbox = NO_SANDBOX


def list_parents(start: str, top: str) -> Iterator[str]:
    """Yield a directory and its parents up to `top`. For a directory outside of `top`, yield it alone."""
    directory, top = os.path.normpath(start), os.path.normpath(top)
    if not is_within(directory, top):
        yield directory
        return
    while True:
        yield directory
        if directory == top:
            return
        directory = os.path.dirname(directory)


def has_any(directory: str, names: Iterable[str]) -> bool:
    """Return True if a directory contains a file or directory with one of these names."""
    return any(os.path.exists(os.path.join(directory, name)) for name in names)


def find_program(name: str, directories: Iterable[str], context: ProgramContext) -> str | None:
    """Return the path of a program, or None. In trusted projects, search `directories` before PATH."""
    if context.sandbox.refusal:
        return None
    if os.sep in name:  # configured as a path
        path = os.path.join(context.directory, os.path.expanduser(name))
        return path if os.access(path, os.X_OK) else None
    project_paths = [os.path.join(directory, name) for directory in directories] if context.trusted else []
    installed = shutil.which(name, path=context.environment.get("PATH", ""))
    # A relative entry in PATH would lead into the project.
    paths = [*project_paths, *([installed] if installed and os.path.isabs(installed) else ())]
    return next((path for path in paths if os.access(path, os.X_OK)), None)
