"""Where snapshots lie, and their limits from `experimental.weft.snapshots`."""

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
from weft.snapshot.contract import MAX_BYTES, MAX_FILE_BYTES, WAIT_SECONDS, Limits

NAME_LENGTH: Final = 16

# The attributes have the last word over a `.gitattributes`: whatever that says, bytes go in and come out as they are.
_FILES: Final = {
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


class Place:
    """The names of what belongs to the snapshots of one directory (`root`, real and absolute)."""

    def __init__(self, home: str, root: str) -> None:
        self.home = home
        self.root = root

    @property
    def git_dir(self) -> str:
        return f"{self.home}/git"

    @property
    def objects(self) -> str:
        return f"{self.git_dir}/objects"

    @property
    def pins(self) -> str:
        return f"{self.git_dir}/refs/weft"

    @property
    def index(self) -> str:
        """What the last process knew of the files: where the next one begins."""
        return f"{self.home}/index"

    @property
    def live(self) -> str:
        """A directory for each process that is at work."""
        return f"{self.home}/live"

    @property
    def lock(self) -> str:
        """Shared by who writes objects, held alone by who removes them."""
        return f"{self.home}/lock"

    @property
    def restore_lock(self) -> str:
        return f"{self.home}/restore.lock"

    @property
    def intent(self) -> str:
        """What a restoring is about to change."""
        return f"{self.home}/restore.json"

    def make(self, avoid: Iterable[str]) -> None:
        """Have all of it there. `avoid` are directories below `root` that are never looked at: our own."""
        for directory in (self.objects, self.pins, self.live, f"{self.git_dir}/info"):
            make_directory(directory)
        excluded = "".join(f"{_pattern(self.root, each)}\n" for each in avoid)
        for name, text in (*_FILES.items(), ("info/exclude", excluded), ("../root", f"{self.root}\n")):
            self._write(f"{self.git_dir}/{name}", os.fsencode(text))
        with open(self.lock, "ab"):
            pass

    def _write(self, path: str, raw: bytes) -> None:
        with suppress(OSError), open(path, "rb") as file:
            if file.read() == raw:
                return
        write_atomic(path, raw, temp=f"{path}.{os.getpid()}~")


def place_of(base: str, project: ProjectID, root: str) -> Place:
    """The place below `base`. Two checkouts of a project have one each: they must not share what they know."""
    real = os.path.realpath(root)
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:NAME_LENGTH]
    return Place(f"{base}/{project}/{digest}", real)


def list_places(base: str) -> list[Place]:
    """All there are, whether or not their directories still exist."""
    found: list[Place] = []
    for project in _names(base):
        for name in _names(f"{base}/{project}"):
            with suppress(OSError), open(f"{base}/{project}/{name}/root", "rb") as file:
                found.append(Place(f"{base}/{project}/{name}", os.fsdecode(file.read()[:-1])))
    return found


def is_below(path: str, root: str) -> bool:
    """Whether a path is `root` or lies in it."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def _pattern(root: str, path: str) -> str:
    relative = os.path.relpath(path, root)
    return "/" + "".join(f"\\{char}" if char in "\\*?[ !#" else char for char in relative)


def _names(directory: str) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(directory))
    return []


KEY: Final = ("experimental", "weft", "snapshots")


class _Given(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    max_bytes: int = MAX_BYTES
    max_file_bytes: int = MAX_FILE_BYTES
    wait_seconds: float = WAIT_SECONDS


def to_limits(given: Any) -> Limits:
    """What a person wrote, None for nothing. `InvalidInputError` names what cannot be meant."""
    try:
        found = msgspec.convert({} if given is None else given, _Given)
    except msgspec.ValidationError as error:
        hint = '{"maxBytes": 2147483648, "maxFileBytes": 10485760, "waitSeconds": 30}'
        raise InvalidInputError(".".join(KEY), str(error), hint=hint) from error
    if min(found.max_bytes, found.max_file_bytes, found.wait_seconds) < 0:
        raise InvalidInputError(".".join(KEY), "a limit cannot be below zero")
    return Limits(
        max_bytes=found.max_bytes, max_file_bytes=found.max_file_bytes, wait_seconds=found.wait_seconds
    )


def snapshot_base(data: str) -> str:
    """Where all snapshots lie. OpenCode's own are in `snapshot`, and we keep away from them."""
    return f"{data}/weft/snapshot"


def base_for(paths: Paths, url: str) -> str:
    """Where the snapshots of a store's sessions lie. Each store has a place of its own: what the sessions of one no
    longer need, those of another may."""
    usual, storage = snapshot_base(paths.data), os.path.realpath(paths.storage)
    if url.startswith("file:"):
        url = f"file:{os.path.realpath(url.removeprefix('file:'))}"
    if url == f"file:{storage}":
        return usual
    return f"{usual}-{hashlib.sha256(os.fsencode(url)).hexdigest()[:NAME_LENGTH]}"
