"""Values for identifying the project of a directory: the facts, the identity, and what has to be stored (pure)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from weft.errors import DocumentError
from weft.model.ids import GLOBAL_PROJECT, ProjectID
from weft.model.project import Place, Project
from weft.model.wire import Wire, from_plain

Vcs = Literal["git"] | None

_COMMIT = r"[0-9a-f]{40}|[0-9a-f]{64}"
_DRIVE = r"[A-Za-z]:"


class RootCommits(Protocol):
    """The part of git that identification needs: the commits without a parent. Raises `GitError`."""

    def root_commits(self, worktree: str) -> Sequence[str]: ...


class Inode(Struct, frozen=True, kw_only=True):
    """Identifies a directory independently of its name: moving keeps it, copying does not. Empty if unknown."""

    number: str = ""
    device: str = ""


class Checkout(Struct, frozen=True, kw_only=True):
    """What plain files say about the checkout that contains a directory.

    `top` contains the nearest `.git`. All checkouts of a repository share `common_dir` and `main`. `is_valid` is False if
    `.git` points to a missing repository. `id` is the id in the id file, "" if there is none. `fake_vcs` is what
    `OPENCODE_FAKE_VCS` says: a directory without a repository is then recorded as if it had one.
    """

    directory: str
    top: str = ""
    main: str = ""
    common_dir: str = ""
    is_valid: bool = False
    # OpenCode reads the id file only if `.git` is a directory; otherwise it uses the root commit every time.
    git_file: bool = False
    shallow: bool = False
    id: str = ""
    inode: Inode = Inode()
    fake_vcs: Vcs = None


class LastLocation(Struct, frozen=True, kw_only=True):
    """What is now in the directory where a project was last seen."""

    exists: bool = False
    common_dir: str = ""
    id: str = ""
    inode: Inode = Inode()


class LastSeen(Wire, frozen=True, kw_only=True):
    """Where a project was last seen. It is stored next to the record, because OpenCode changes that for every clone."""

    worktree: str
    common_dir: str = ""
    inode: str = ""
    roots: tuple[str, ...] = ()


class KnownProjects(Struct, frozen=True, kw_only=True):
    """The project records in the store, and where each project was last seen."""

    projects: Mapping[ProjectID, Project]
    last_seen: Mapping[ProjectID, LastSeen]

    def has(self, id: str) -> bool:
        return id in self.projects or id in self.last_seen


class CheckoutFacts(Struct, frozen=True, kw_only=True):
    """The input for `identify`. `roots` is None if git was not asked or could not tell."""

    checkout: Checkout
    roots: tuple[str, ...] | None = None
    last_locations: Mapping[ProjectID, LastLocation] = {}


class ProjectIdentity(Struct, frozen=True, kw_only=True):
    """The id of a project, its checkouts, and other ids under which its sessions may have been recorded (`sources`)."""

    id: ProjectID
    worktree: str
    main: str
    vcs: Vcs
    roots: tuple[str, ...] = ()
    sources: tuple[ProjectID, ...] = ()
    # False if the project is known only by its path. The recorded location of its repository is then not changed.
    has_repository: bool = True


class IdFile(Struct, frozen=True, kw_only=True):
    """An id to write into a repository, where OpenCode and later runs of weft find it."""

    common_dir: str
    id: ProjectID


class Adoption(Struct, frozen=True, kw_only=True):
    """Says that sessions under `sources` belong to `project` if their directory is in its checkouts (`tops`).

    `other_tops` are checkouts of other projects. Sessions in them stay where they are, also if such a checkout is nested in `tops`.
    """

    project: ProjectID
    sources: tuple[ProjectID, ...]
    tops: tuple[str, ...]
    common_dir: str
    other_tops: tuple[str, ...]


class Resolution(Struct, frozen=True, kw_only=True):
    """The project of a directory, and what has to be stored because of it, which is usually nothing.

    `project` and `last_seen` are None if the store has them already.
    """

    place: Place
    project: Project | None = None
    last_seen: LastSeen | None = None
    id_file: IdFile | None = None
    adoption: Adoption | None = None

    @property
    def is_stored(self) -> bool:
        """True if the store and the repository have everything already."""
        return not (self.project or self.last_seen or self.id_file or self.adoption)


def last_seen_key(project: ProjectID) -> tuple[str, str]:
    """Return the key in the store for where a project was last seen. Older versions called this its alias."""
    return "alias", project


def parse_last_seen(stored: Any) -> LastSeen | None:
    """Return where a project was last seen, from its stored form. Return None if there is none or it is invalid."""
    try:
        return (
            None if stored is None else from_plain(stored, LastSeen, where="the last location of a project")
        )
    except DocumentError:
        return None


def is_commit(id: str) -> bool:
    return re.fullmatch(_COMMIT, id) is not None


def is_valid_id(id: str, known: KnownProjects) -> bool:
    """Return True if the text of an id file can be trusted: it is a commit, or the id of a recorded project."""
    return id != GLOBAL_PROJECT and (is_commit(id) or known.has(id))


def is_inside(path: str, directory: str) -> bool:
    """Return True if a path is a directory or below it. Both are real paths."""
    prefix = normalise_path(directory).rstrip("/")
    return normalise_path(path) == prefix or normalise_path(path).startswith(prefix + "/")


def normalise_path(path: str) -> str:
    """Give different spellings of a Windows path one form: `C:\\x`, `C:/x` and `c:\\x`."""
    if re.match(_DRIVE, path) is None:
        return path
    return path[0].lower() + path[1:].replace("\\", "/")
