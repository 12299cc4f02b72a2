"""The machine and the configuration, as far as weft depends on them."""

import os
import sys
from collections.abc import Iterator, Mapping

from msgspec import Struct

from weft.config.load import load_config
from weft.config.sources import Situation
from weft.errors import ConfigError, WeftError
from weft.host.machine import NETWORKED, file_system, free_space, git_version, nearest, open_to_others
from weft.host.paths import Paths
from weft.maintenance.findings import Finding, Item
from weft.project.look import look
from weft.search.database import doubt
from weft.store.opencode_database import sqlite_version

OLDEST_GIT = (2, 22)
ROOM = 1 << 30
LITTLE_ROOM = 64 << 20


class Case(Struct, frozen=True, kw_only=True):
    """Whom a doctor looks at: the environment, its paths, a directory of work, the root of a store, and when."""

    env: Mapping[str, str]
    paths: Paths
    directory: str
    root: str
    now: int


def examine_environment(case: Case) -> list[Finding]:
    return [*_versions(case), *_room(case), *_permissions(case), *_file_system(case)]


def _versions(case: Case) -> Iterator[Finding]:
    python = ".".join(str(number) for number in sys.version_info[:3])
    yield Finding(severity="note", area="environment", what=f"Python {python}, SQLite {sqlite_version()}")
    if said := doubt():
        yield Finding(severity="note", area="environment", what=said, means="it keeps the index of sessions")
    git = git_version(case.env)
    if not git:
        yield Finding(
            severity="warning",
            area="environment",
            what="git is not installed, or not on PATH",
            means="projects are told apart by their path alone, and files cannot be taken back by undo",
            repair="install git",
        )
    elif _numbers(git) < OLDEST_GIT:
        yield Finding(
            severity="warning",
            area="environment",
            what=f"git {git} is older than {'.'.join(str(each) for each in OLDEST_GIT)}",
            means="some of what undo needs is missing from it",
            repair="upgrade git",
        )
    else:
        yield Finding(severity="note", area="environment", what=f"git {git}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in version.split(".")[:2] if word.isdigit())


def _room(case: Case) -> Iterator[Finding]:
    try:
        room = free_space(case.root)
    except OSError as error:
        yield Finding(severity="problem", area="environment", what=f"{case.root}: {error.strerror}")
        return
    if room < ROOM:
        yield Finding(
            severity="problem" if room < LITTLE_ROOM else "warning",
            area="environment",
            what=f"{room >> 20} MB are free where sessions are stored",
            means="on a full disk nothing more is stored; what is there stays readable",
            repair="weft storage du",
        )


def _permissions(case: Case) -> Iterator[Finding]:
    wanted = ((case.paths.data, "0700"), (case.root, "0700"), (case.paths.auth_file, "0600"))
    seen = [Item(where=path, reason=f"should be {mode}") for path, mode in wanted if open_to_others(path)]
    # What lies in a directory that is closed is closed too; OpenCode leaves its files open to everybody.
    if any(item.where in (case.paths.data, case.paths.auth_file) for item in seen) or (
        seen and not case.root.startswith(f"{case.paths.data}/")
    ):
        yield Finding(
            severity="warning",
            area="environment",
            what="other users of this machine can read sessions or keys",
            means="transcripts hold code, and often secrets",
            repair="weft doctor --fix",
            cure="lock-up",
            items=tuple(seen),
        )
    if not os.access(nearest(case.root), os.W_OK):
        yield Finding(
            severity="problem",
            area="environment",
            what=f"{nearest(case.root)} cannot be written to",
            means="sessions can be read, and nothing new can be stored",
            repair="change its permissions, or point --store at another place",
        )


def _file_system(case: Case) -> Iterator[Finding]:
    kind = file_system(case.root)
    if kind in NETWORKED:
        yield Finding(
            severity="warning",
            area="environment",
            what=f"sessions lie on a network file system ({kind})",
            means="locks between machines may not hold there, and writing is slow",
            repair="weft storage migrate --from <here> --to file:<a local directory>",
        )


def examine_configuration(case: Case) -> list[Finding]:
    try:
        at = look(case.directory)
        situation = Situation(
            directory=at.directory, worktree=at.top or at.directory, paths=case.paths, env=case.env
        )
        loaded = load_config(situation)
    except ConfigError as error:
        return [_config_finding("problem", error)]
    except (WeftError, OSError) as error:
        return [Finding(severity="problem", area="configuration", what=str(error))]
    return [
        *(_config_finding("problem", error) for error in loaded.problems),
        *(_config_finding("warning", error) for error in loaded.warnings),
    ]


def _config_finding(severity: str, error: ConfigError) -> Finding:
    is_problem = severity == "problem"
    return Finding(
        severity="problem" if is_problem else "warning",
        area="configuration",
        what=str(error) + (f" ({error.hint})" if error.hint else ""),
        means="this setting is not in force" if is_problem else "",
        repair="edit it; weft config shows what is in force",
    )
