"""Where snapshots are stored, and their limits from `experimental.weft.snapshots`."""

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Struct

from weft.errors import InvalidInputError
from weft.host.files import make_directory, write_atomic
from weft.host.paths import Paths
from weft.model.ids import ProjectID
from weft.model.project import is_within
from weft.model.url import to_store_identity
from weft.snapshot.contract import MAX_BYTES, MAX_FILE_BYTES, WAIT_SECONDS, SnapshotLimits

NAME_LENGTH: Final = 16
HOLDS_HOME: Final = "it contains your home directory, which is too large to scan"

# These attributes override every `.gitattributes`, so that contents are stored and restored byte for byte.
_REPOSITORY_FILES: Final = {
    "HEAD": "ref: refs/heads/none\n",
    "info/attributes": "* -text !eol -filter -ident !working-tree-encoding !diff !merge\n",
    "config": """[core]
	repositoryformatversion = 0
	bare = false
	filemode = true
	symlinks = true
	ignorecase = false
	precomposeunicode = false
	autocrlf = false
	safecrlf = false
	fsmonitor = false
	untrackedCache = false
	splitIndex = false
	trustctime = true
	protectHFS = false
	protectNTFS = false
	quotePath = false
	attributesFile = /dev/null
	hooksPath = /dev/null
	logAllRefUpdates = false
	compression = 1
	looseCompression = 1
[gc]
	auto = 0
[maintenance]
	auto = false
[diff]
	ignoreSubmodules = all
	renames = false
[fastimport]
	unpackLimit = 0
[safe]
	directory = *
""",
}


class SnapshotSite(Struct, frozen=True, kw_only=True):
    """A directory to track, and its project. Snapshots are stored below `base`; paths in `avoid` are never tracked.

    `user_home` is the user's home directory. A directory that contains it is not scanned.
    """

    root: str
    project: ProjectID
    base: str
    avoid: tuple[str, ...] = ()
    user_home: str = ""


class SnapshotLocation:
    """The paths of the snapshots of one directory (`root`, real and absolute)."""

    def __init__(self, directory: str, root: str) -> None:
        self.directory = directory
        self.root = root

    @property
    def git_dir(self) -> str:
        return f"{self.directory}/git"

    @property
    def objects(self) -> str:
        return f"{self.git_dir}/objects"

    @property
    def pins(self) -> str:
        return f"{self.git_dir}/refs/weft"

    @property
    def index(self) -> str:
        """The index of the last process, from which the next one starts."""
        return f"{self.directory}/index"

    @property
    def live(self) -> str:
        """Contains a directory for each process that runs, or that died and was not recovered yet."""
        return f"{self.directory}/live"

    @property
    def lock(self) -> str:
        """Held shared by processes that write objects, exclusively by one that removes them."""
        return f"{self.directory}/lock"

    @property
    def restore_lock(self) -> str:
        return f"{self.directory}/restore.lock"

    @property
    def intent(self) -> str:
        """The file that says what a restore is about to change."""
        return f"{self.directory}/restore.json"

    def make(self, avoid: Iterable[str]) -> None:
        """Create the repository. `avoid` are directories of ours below `root`, which are never tracked."""
        for directory in (self.objects, self.pins, self.live, f"{self.git_dir}/info"):
            make_directory(directory)
        excluded = "".join(f"{_to_pattern(self.root, each)}\n" for each in avoid)
        for name, text in (
            *_REPOSITORY_FILES.items(),
            ("info/exclude", excluded),
            ("../root", f"{self.root}\n"),
        ):
            self._write(f"{self.git_dir}/{name}", os.fsencode(text))
        with open(self.lock, "ab"):
            pass

    def _write(self, path: str, raw: bytes) -> None:
        with suppress(OSError), open(path, "rb") as file:
            if file.read() == raw:
                return
        write_atomic(path, raw, temp=f"{path}.{os.getpid()}~")


def locate_snapshots(base: str, project: ProjectID, root: str) -> SnapshotLocation:
    """Return the location below `base`. Each checkout of a project has its own."""
    real = os.path.realpath(root)
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:NAME_LENGTH]
    return SnapshotLocation(f"{base}/{project}/{digest}", real)


def find_scan_obstacle(site: SnapshotSite, place: SnapshotLocation) -> str:
    """Return why a directory is not scanned; "" if it is."""
    user_home = os.path.realpath(site.user_home) if site.user_home else ""
    if place.root == "/" or (user_home and is_within(user_home, place.root)):
        return HOLDS_HOME
    return ""


def list_locations(base: str) -> list[SnapshotLocation]:
    """Return all locations, whether or not their directories still exist."""
    found: list[SnapshotLocation] = []
    for project in _list_names(base):
        for name in _list_names(f"{base}/{project}"):
            with suppress(OSError), open(f"{base}/{project}/{name}/root", "rb") as file:
                found.append(SnapshotLocation(f"{base}/{project}/{name}", os.fsdecode(file.read()[:-1])))
    return found


def _to_pattern(root: str, path: str) -> str:
    relative = os.path.relpath(path, root)
    return "/" + "".join(f"\\{char}" if char in "\\*?[ !#" else char for char in relative)


def _list_names(directory: str) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(directory))
    return []


LIMITS_KEY: Final = ("experimental", "weft", "snapshots")


class _LimitsInput(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    max_bytes: int = MAX_BYTES
    max_file_bytes: int = MAX_FILE_BYTES
    wait_seconds: float = WAIT_SECONDS


def to_limits(setting: Any) -> SnapshotLimits:
    """Read the limits from the configuration, None for the defaults. Raise `InvalidInputError` if they make no sense."""
    try:
        limits = msgspec.convert({} if setting is None else setting, _LimitsInput)
    except msgspec.ValidationError as error:
        hint = '{"maxBytes": 2147483648, "maxFileBytes": 10485760, "waitSeconds": 30}'
        raise InvalidInputError(".".join(LIMITS_KEY), str(error), hint=hint) from error
    if min(limits.max_bytes, limits.max_file_bytes, limits.wait_seconds) < 0:
        raise InvalidInputError(".".join(LIMITS_KEY), "a limit cannot be below zero")
    return SnapshotLimits(
        max_bytes=limits.max_bytes, max_file_bytes=limits.max_file_bytes, wait_seconds=limits.wait_seconds
    )


def get_default_base(data: str) -> str:
    """Return the directory of all snapshots. OpenCode's own are in `snapshot`, which we do not touch."""
    return f"{data}/weft/snapshot"


def choose_base(paths: Paths, url: str) -> str:
    """Return the directory for the snapshots of a store's sessions.

    Each store has its own, because garbage collection only knows the sessions of one store.
    """
    default, path = get_default_base(paths.data), _find_path(url)
    if path == os.path.realpath(paths.storage):
        return default
    name = to_store_identity(url) if path is None else f"{url.partition(':')[0]}:{path}"
    return f"{default}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:NAME_LENGTH]}"


def find_opencode_snapshots(paths: Paths, url: str) -> str:
    """Return the directory of OpenCode's own snapshots: next to its tree, if the store is one."""
    path = _find_path(url) if url.startswith("file:") else None
    return paths.snapshots if path is None else os.path.join(os.path.dirname(path), "snapshot")


def _find_path(url: str) -> str | None:
    """Return the path in the URL of a store, None if it has none."""
    _, _, rest = url.partition(":")
    return os.path.realpath(rest) if rest.startswith("/") and not rest.startswith("//") else None
