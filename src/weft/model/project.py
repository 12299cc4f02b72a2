"""Projects, and the place in one where a session works. Sessions outside of a repository belong to `global`."""

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
    """A repository, or `global`. `worktree` is the main checkout; `sandboxes` are its other checkouts."""

    id: ProjectID
    worktree: str
    vcs: Literal["git"] | None = None
    name: str | None = None
    icon: ProjectIcon | None = None
    commands: ProjectCommands | None = None
    time: ProjectTime
    sandboxes: tuple[str, ...] = always(())


class Place(Struct, frozen=True, kw_only=True):
    """A working directory, the top of its checkout, and its project. `worktree` is `/` if there is no checkout."""

    project: Project
    directory: str
    worktree: str


def get_root(place: Place) -> str:
    """Return the root of a place: the top of the checkout, or the directory if there is no checkout."""
    return place.directory if place.worktree == "/" else place.worktree


def is_at(place: Place, directory: str) -> bool:
    """Return True if `directory` (a real path) belongs to this place.

    It must be in the same checkout or, without a checkout, be the same directory. A checkout inside this one is another
    place.
    """
    root = get_root(place)
    if place.worktree == "/":
        return directory == root
    checkouts = (place.project.worktree, *place.project.sandboxes)
    nested = [top for top in checkouts if top != root and is_within(top, root)]
    return is_within(directory, root) and not any(is_within(directory, top) for top in nested)


def is_within(path: str, top: str) -> bool:
    """Return True if `path` is `top` or below it. Both are compared as they are written: links are not resolved."""
    return path == top or path.startswith(top.rstrip("/") + "/")
