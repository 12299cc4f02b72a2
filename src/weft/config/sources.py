"""Which files and directories speak, in which order. See `weft.config.load` for the order and its reasons."""

import os
from collections.abc import Iterator, Mapping

from msgspec import Struct

from weft.config.flags import Flags
from weft.config.layer import Kind, Origin
from weft.host.paths import Paths


class Situation(Struct, frozen=True, kw_only=True):
    """For whom configuration is loaded: a directory, the top of its checkout, the environment.

    A project that is not `trusted` gets none of the person's environment and files into its text.
    """

    directory: str
    worktree: str
    paths: Paths
    env: Mapping[str, str]
    trusted: bool = True


class File(Struct, frozen=True):
    """A file of settings. One that a person `named` is missed if it is not there."""

    origin: Origin
    named: bool = False


class Directory(Struct, frozen=True):
    """A directory with agents, commands, modes and plugins."""

    origin: Origin


class Inline(Struct, frozen=True):
    """Settings given as they are, in the environment."""

    origin: Origin
    text: str


Source = File | Directory | Inline


def list_sources(situation: Situation, flags: Flags) -> list[Source]:
    """Everything that may speak, the weakest first."""
    return _in_opencode_order(situation, flags) if flags.opencode_order else _in_order(situation, flags)


def _in_order(situation: Situation, flags: Flags) -> list[Source]:
    paths, custom = situation.paths, _custom_directory(situation, flags)
    sources: list[Source] = [
        *_global_files(paths),
        Directory(_own("global", paths.config)),
        *_with_files(_own("home", _home_directory(paths))),
        *_named_file(situation, flags),
        *_project_files(situation, flags),
    ]
    for directory in reversed(_project_directories(situation, flags)):
        sources += _with_files(Origin(kind="project", path=directory, own=False))
    if custom is not None:
        sources = [
            each for each in sources if custom not in (each.origin.path, os.path.dirname(each.origin.path))
        ]
        sources += _with_files(_own("custom directory", custom))
    return [*sources, *_inline(flags)]


def _in_opencode_order(situation: Situation, flags: Flags) -> list[Source]:
    paths, custom = situation.paths, _custom_directory(situation, flags)
    sources: list[Source] = [
        *_global_files(paths),
        *_named_file(situation, flags),
        *_project_files(situation, flags),
        *_inline(flags),
        Directory(_own("global", paths.config)),
    ]
    for directory in _project_directories(situation, flags):
        sources += _with_files(Origin(kind="project", path=directory, own=False))
    sources += _with_files(_own("home", _home_directory(paths)))
    if custom is not None and not any(each.origin.path == custom for each in sources):
        sources += _with_files(_own("custom directory", custom))
    return sources


def _home_directory(paths: Paths) -> str:
    return os.path.join(paths.home, ".opencode")


def _inline(flags: Flags) -> Iterator[Inline]:
    if flags.config_content:
        yield Inline(_own("inline", "OPENCODE_CONFIG_CONTENT"), flags.config_content)


def _own(kind: Kind, path: str) -> Origin:
    return Origin(kind=kind, path=path, own=True)


def _custom_directory(situation: Situation, flags: Flags) -> str | None:
    return _absolute(situation, flags.config_dir) if flags.config_dir else None


def _absolute(situation: Situation, path: str) -> str:
    return os.path.normpath(os.path.join(situation.directory, path))


def _global_files(paths: Paths) -> Iterator[File]:
    # `config` without an ending is the TOML file of the earliest versions.
    for name in ("config", "config.json", "opencode.json", "opencode.jsonc"):
        yield File(_own("global", os.path.join(paths.config, name)))


def _named_file(situation: Situation, flags: Flags) -> Iterator[File]:
    if flags.config:
        yield File(_own("custom", _absolute(situation, flags.config)), named=True)


def _with_files(origin: Origin) -> Iterator[Source]:
    for name in ("opencode.jsonc", "opencode.json"):
        path = os.path.join(origin.path, name)
        yield File(Origin(kind=origin.kind, path=path, own=origin.own))
    yield Directory(origin)


def _project_files(situation: Situation, flags: Flags) -> Iterator[File]:
    if flags.disable_project_config:
        return
    # Someone at work in their own configuration directory is not in a project of somebody else's.
    directories = [each for each in _upwards(situation) if each != situation.paths.config]
    for name in ("opencode.jsonc", "opencode.json"):
        for directory in reversed(directories):
            yield File(Origin(kind="project", path=os.path.join(directory, name), own=False))


def _project_directories(situation: Situation, flags: Flags) -> list[str]:
    """Every `.opencode` from the directory up to the worktree, nearest first, the person's own left out."""
    if flags.disable_project_config:
        return []
    own = _home_directory(situation.paths)
    found = (os.path.join(each, ".opencode") for each in _upwards(situation))
    return [each for each in found if each != own]


def _upwards(situation: Situation) -> Iterator[str]:
    directory, top = os.path.normpath(situation.directory), os.path.normpath(situation.worktree)
    while True:
        yield directory
        parent = os.path.dirname(directory)
        if directory in (top, parent):
            return
        directory = parent
