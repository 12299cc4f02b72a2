"""Projects, the place in one where a session works, and the trust in one. Sessions outside of a repository belong to `global`."""

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
    nested = [top for top in checkouts if top != root and _is_within(top, root)]
    return _is_within(directory, root) and not any(_is_within(directory, top) for top in nested)


def _is_within(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


# --- trust ---

HeldKind = Literal[
    "provider",
    "mcp",
    "plugin",
    "hook",
    "tool",
    "command",
    "formatter",
    "lsp",
    "skill",
    "instructions",
    "setting",
    "substitution",
    "link",
]
TrustReason = Literal["environment", "configured", "given", "refused", "changed", "unknown"]


class HeldItem(Struct, frozen=True, kw_only=True):
    """A setting or file that is held back. `path` is its file, `does` what it would do. Neither contains a secret,
    because placeholders are not resolved.
    """

    kind: HeldKind
    name: str
    path: str
    does: str


class TrustChange(Struct, frozen=True, kw_only=True):
    """A file that has changed since the person trusted the project."""

    what: Literal["new", "changed"]
    name: str


class TrustReport(Wire, frozen=True, kw_only=True):
    """Whether the project at `path` is trusted and why, what changed since, and what it brings along.

    `fingerprint` names the state that this report is about. A request to trust the project repeats it, so that nothing is trusted
    that has changed since the report was read.
    """

    path: str
    trusted: bool
    why: TrustReason
    changes: tuple[TrustChange, ...] = always(())
    held: tuple[HeldItem, ...] = always(())
    fingerprint: str
