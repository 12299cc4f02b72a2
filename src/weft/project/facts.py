"""What is known when a directory is turned into a project, and what comes of it. Values only."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from weft.errors import DocumentError
from weft.model.ids import GLOBAL_PROJECT, ProjectID
from weft.model.project import Place, Project
from weft.model.wire import Wire, from_plain, to_plain

Vcs = Literal["git"] | None

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_DRIVE = re.compile(r"[A-Za-z]:")


class History(Protocol):
    """Git, as far as an identity needs it. Raises `GitError`."""

    def root_commits(self, worktree: str) -> Sequence[str]: ...


class Inode(Struct, frozen=True, kw_only=True):
    """Which directory it is, whatever it is called: moving keeps it, copying does not. Empty where unknown."""

    number: str = ""
    device: str = ""


class Checkout(Struct, frozen=True, kw_only=True):
    """What plain files say about the place a directory lies in.

    `top` holds the nearest `.git`; all of a repository's checkouts share `common_dir` and have one `main`. A `.git`
    that leads nowhere is not `sound`. `id` is what the id file says, "" for nothing usable.
    """

    directory: str
    top: str = ""
    main: str = ""
    common_dir: str = ""
    sound: bool = False
    # OpenCode reads the id file only where `.git` is a directory; elsewhere it goes by the root commit every time.
    git_file: bool = False
    shallow: bool = False
    id: str = ""
    inode: Inode = Inode()
    fake_vcs: Vcs = None


class Home(Struct, frozen=True, kw_only=True):
    """What is found today where a project was last seen."""

    exists: bool = False
    common_dir: str = ""
    id: str = ""
    inode: Inode = Inode()


class Alias(Wire, frozen=True, kw_only=True):
    """Where a project was last seen: kept beside its record, because OpenCode turns the record to any clone it opens."""

    worktree: str
    common_dir: str = ""
    inode: str = ""
    roots: tuple[str, ...] = ()


class Known(Struct, frozen=True, kw_only=True):
    """What the store holds: project records, and our aliases of them."""

    projects: Mapping[ProjectID, Project]
    aliases: Mapping[ProjectID, Alias]

    def has(self, id: str) -> bool:
        return id in self.projects or id in self.aliases


class Facts(Struct, frozen=True, kw_only=True):
    """All an identity is decided from. `roots` is None where git was not asked, or could not tell."""

    checkout: Checkout
    roots: tuple[str, ...] | None = None
    homes: Mapping[ProjectID, Home] = {}


class Verdict(Struct, frozen=True, kw_only=True):
    """Which project it is, where its checkouts are, and under which other ids its sessions may have been recorded."""

    id: ProjectID
    worktree: str
    main: str
    vcs: Vcs
    roots: tuple[str, ...] = ()
    sources: tuple[ProjectID, ...] = ()
    # False where only a path remembers the project: then its repository's last home is left as it is on record.
    at_home: bool = True


class IdFile(Struct, frozen=True, kw_only=True):
    """An id to be written into a repository, where OpenCode and the next of us will find it."""

    common_dir: str
    id: ProjectID


class Adoption(Struct, frozen=True, kw_only=True):
    """Sessions recorded under `sources` whose directory lies in this project's checkouts belong to it."""

    project: ProjectID
    sources: tuple[ProjectID, ...]
    tops: tuple[str, ...]
    common_dir: str
    strangers: tuple[str, ...]


class Resolution(Struct, frozen=True, kw_only=True):
    """A directory's project, and what has to be stored because of it: nothing, most of the time.

    `project` and `alias` are None when the store has them already.
    """

    place: Place
    project: Project | None = None
    alias: Alias | None = None
    id_file: IdFile | None = None
    adoption: Adoption | None = None

    @property
    def settled(self) -> bool:
        return not (self.project or self.alias or self.id_file or self.adoption)


def alias_key(project: ProjectID) -> tuple[str, str]:
    """Where the store keeps a project's alias."""
    return "alias", project


def alias_to_plain(alias: Alias) -> Any:
    return to_plain(alias)


def alias_from_plain(kept: Any) -> Alias | None:
    """The alias that was kept, None if there is none that makes sense."""
    try:
        return None if kept is None else from_plain(kept, Alias, where="alias")
    except DocumentError:
        return None


def is_commit(id: str) -> bool:
    return _COMMIT.fullmatch(id) is not None


def is_named(id: str, known: Known) -> bool:
    """Whether an id file's text is to be believed: it is a commit, or a project somebody has recorded."""
    return id != GLOBAL_PROJECT and (is_commit(id) or known.has(id))


def inside(path: str, home: str) -> bool:
    """Whether a path is `home` or below it; both are real paths."""
    within = spelled(home).rstrip("/")
    return spelled(path) == within or spelled(path).startswith(within + "/")


def spelled(path: str) -> str:
    """One spelling for what Windows spells in many: `C:\\x`, `C:/x` and `c:\\x`."""
    if _DRIVE.match(path) is None:
        return path
    return path[0].lower() + path[1:].replace("\\", "/")
