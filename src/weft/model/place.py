"""Place: where work happens."""

from msgspec import Struct

from weft.model.project import Project


class Place(Struct, frozen=True, kw_only=True):
    """A directory, the top of the checkout it lies in, and the project that is."""

    project: Project
    directory: str
    worktree: str
