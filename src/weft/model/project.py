"""Project: what sessions belong to, a repository, or `global` for all that is in none; and where in it work happens."""

from typing import Literal

from msgspec import Struct

from weft.model.ids import ProjectID
from weft.model.wire import Wire, always


class ProjectTime(Wire, frozen=True, kw_only=True):
    created: int
    updated: int = always(0)
    initialized: int | None = None


class ProjectIcon(Wire, frozen=True, kw_only=True):
    url: str | None = None
    override: str | None = None
    color: str | None = None


class ProjectCommands(Wire, frozen=True, kw_only=True):
    start: str | None = None


class Project(Wire, frozen=True, kw_only=True):
    """A place of work. `worktree` is the main checkout; `sandboxes` are its other checkouts."""

    id: ProjectID
    worktree: str
    vcs: Literal["git"] | None = None
    name: str | None = None
    icon: ProjectIcon | None = None
    commands: ProjectCommands | None = None
    time: ProjectTime
    sandboxes: tuple[str, ...] = always(())


class Place(Struct, frozen=True, kw_only=True):
    """Where work happens: a directory, the top of the checkout it lies in, and the project that is."""

    project: Project
    directory: str
    worktree: str


def root_of(place: Place) -> str:
    """What belongs together there: the whole checkout, for an agent reaches all of it from below; else the directory."""
    return place.directory if place.worktree == "/" else place.worktree


def is_at(place: Place, directory: str) -> bool:
    """Return whether work in `directory` (a real path) is work at this place: in the same checkout, or, where there is
    no checkout, in the very same directory. A checkout that lies within this one is another place."""
    root = root_of(place)
    if place.worktree == "/":
        return directory == root
    checkouts = (place.project.worktree, *place.project.sandboxes)
    nested = [top for top in checkouts if top != root and _is_within(top, root)]
    return _is_within(directory, root) and not any(_is_within(directory, top) for top in nested)


def _is_within(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")
