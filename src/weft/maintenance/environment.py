"""Check the machine and the configuration as far as weft depends on them."""

import os
import sys
from collections.abc import Iterator, Mapping

from msgspec import Struct

from weft.config.load import LoadedConfig, load_config
from weft.config.sources import ConfigScope
from weft.errors import ConfigError, WeftError
from weft.host.machine import find_existing, find_git_version, get_free_space, get_public_mode
from weft.host.mounts import find_network_file_system
from weft.host.paths import Paths
from weft.model.health import DoctorFinding, FindingItem
from weft.project.checkout import find_checkout
from weft.store.maintenance import StoreMaintenance, get_sqlite_version, open_maintenance
from weft.store.url import find_store_path

OLDEST_GIT = (2, 22)
ENOUGH_FREE_BYTES = 1 << 30
LEAST_FREE_BYTES = 64 << 20


class DoctorInput(Struct, frozen=True, kw_only=True):
    """What the doctor examines: environment, paths, working directory, URL of the store; and the current time."""

    env: Mapping[str, str]
    paths: Paths
    directory: str
    url: str
    now: int

    @property
    def root(self) -> str:
        """The path of the store; the data directory, if the store is not on a disk of this machine."""
        return find_store_path(self.url) or self.paths.data

    def open_maintenance(self) -> StoreMaintenance:
        return open_maintenance(self.url, cache=self.paths.cache)

    def load_config(self) -> LoadedConfig:
        """Return the configuration of the directory. Raise `WeftError` or `OSError` if it cannot be read."""
        at = find_checkout(self.directory)
        scope = ConfigScope(
            directory=at.directory, worktree=at.top or at.directory, paths=self.paths, env=self.env
        )
        return load_config(scope)


def examine_environment(target: DoctorInput) -> list[DoctorFinding]:
    return [
        *_check_versions(target),
        *_check_free_space(target),
        *_check_privacy(target),
        *_check_writable(target),
        *_check_file_system(target),
    ]


def _check_versions(target: DoctorInput) -> Iterator[DoctorFinding]:
    python = ".".join(str(number) for number in sys.version_info[:3])
    yield DoctorFinding(
        severity="note", area="environment", what=f"Python {python}, SQLite {get_sqlite_version()}"
    )
    git = find_git_version(target.env)
    if not git:
        yield DoctorFinding(
            severity="warning",
            area="environment",
            what="git is not installed, or not on PATH",
            means="projects are identified by their path alone, and undo cannot restore files",
            repair="install git",
        )
    elif _parse_version(git) < OLDEST_GIT:
        yield DoctorFinding(
            severity="warning",
            area="environment",
            what=f"git {git} is older than {'.'.join(str(each) for each in OLDEST_GIT)}",
            means="it lacks features that undo needs",
            repair="upgrade git",
        )
    else:
        yield DoctorFinding(severity="note", area="environment", what=f"git {git}")


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in version.split(".")[:2] if word.isdigit())


def _check_free_space(target: DoctorInput) -> Iterator[DoctorFinding]:
    try:
        free_bytes = get_free_space(target.root)
    except OSError as error:
        yield DoctorFinding(severity="problem", area="environment", what=f"{target.root}: {error.strerror}")
        return
    if free_bytes < ENOUGH_FREE_BYTES:
        yield DoctorFinding(
            severity="problem" if free_bytes < LEAST_FREE_BYTES else "warning",
            area="environment",
            what=f"{free_bytes >> 20} MB are free where sessions are stored",
            means="on a full disk nothing new is stored; existing sessions stay readable",
            repair="weft storage du",
        )


def _is_our_store(target: DoctorInput) -> bool:
    """Return False if the file is another program's. Then nothing here may change it; the check of the store reports it."""
    try:
        target.open_maintenance().check_format()
    except WeftError:
        return False
    return True


def _check_privacy(target: DoctorInput) -> Iterator[DoctorFinding]:
    wanted = [(target.paths.data, "0700"), (target.paths.auth_file, "0600")]
    if not os.path.isfile(target.root):
        wanted.append((target.root, "0700"))
    elif _is_our_store(target):
        wanted.append((target.root, "0600"))
    exposed = [
        FindingItem(where=path, reason=f"should be {mode}") for path, mode in wanted if get_public_mode(path)
    ]
    # Nobody else can read files in a private directory. OpenCode leaves its own files readable for everybody.
    if any(item.where in (target.paths.data, target.paths.auth_file) for item in exposed) or (
        exposed and not target.root.startswith(f"{target.paths.data}/")
    ):
        yield DoctorFinding(
            severity="warning",
            area="environment",
            what="other users of this machine can read sessions or keys",
            means="transcripts contain code, and often secrets",
            repair="weft doctor --fix",
            cure="lock-up",
            items=tuple(exposed),
        )


def _check_writable(target: DoctorInput) -> Iterator[DoctorFinding]:
    if not os.access(find_existing(target.root), os.W_OK):
        yield DoctorFinding(
            severity="problem",
            area="environment",
            what=f"{find_existing(target.root)} cannot be written to",
            means="sessions can be read, but nothing new can be stored",
            repair="change its permissions, or point --store at another place",
        )


def _check_file_system(target: DoctorInput) -> Iterator[DoctorFinding]:
    if kind := find_network_file_system(target.root):
        yield DoctorFinding(
            severity="warning",
            area="environment",
            what=f"sessions are stored on a network file system ({kind})",
            means="locks between machines may not work there, and writing is slow",
            repair="weft storage migrate <here> file:<a local directory>",
        )


def examine_configuration(target: DoctorInput) -> list[DoctorFinding]:
    try:
        loaded = target.load_config()
    except ConfigError as error:
        return [_to_finding("problem", error)]
    except (WeftError, OSError) as error:
        hint = error.hint if isinstance(error, WeftError) else ""
        return [DoctorFinding(severity="problem", area="configuration", what=str(error), repair=hint)]
    return [
        *(_to_finding("problem", error) for error in loaded.problems),
        *(_to_finding("warning", error) for error in loaded.warnings),
    ]


def _to_finding(severity: str, error: ConfigError) -> DoctorFinding:
    is_problem = severity == "problem"
    return DoctorFinding(
        severity="problem" if is_problem else "warning",
        area="configuration",
        what=str(error) + (f" ({error.hint})" if error.near else ""),
        means="no run starts here until this is corrected" if is_problem else "",
        repair=(error.hint if not error.near else "") or "edit it; weft config shows the effective settings",
    )
