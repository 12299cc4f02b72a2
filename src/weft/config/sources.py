"""List the files and directories that hold configuration, in order. `weft.config.load` explains the order."""

import os
from collections.abc import Iterator, Mapping

from msgspec import Struct

from weft.config.flags import Flags
from weft.config.layer import ConfigOrigin, OriginKind
from weft.host.paths import Paths


class ConfigScope(Struct, frozen=True, kw_only=True):
    """What the configuration is loaded for: a directory, the top of its checkout, and the environment.

    If the project is not `trusted`, its files cannot refer to the user's environment and files.
    """

    directory: str
    worktree: str
    paths: Paths
    env: Mapping[str, str]
    trusted: bool = True


class ConfigFile(Struct, frozen=True):
    """A settings file. If it is `named` by the user, it must exist."""

    origin: ConfigOrigin
    named: bool = False


class ConfigDirectory(Struct, frozen=True):
    """A directory with agents, commands, modes and plugins."""

    origin: ConfigOrigin


class InlineConfig(Struct, frozen=True):
    """Settings in an environment variable."""

    origin: ConfigOrigin
    text: str


ConfigSource = ConfigFile | ConfigDirectory | InlineConfig


def list_sources(scope: ConfigScope, flags: Flags) -> list[ConfigSource]:
    """Return all possible sources, the weakest first."""
    return _list_in_opencode_order(scope, flags) if flags.opencode_order else _list_in_order(scope, flags)


def _list_in_order(scope: ConfigScope, flags: Flags) -> list[ConfigSource]:
    paths, custom = scope.paths, _find_custom_directory(scope, flags)
    sources: list[ConfigSource] = [
        *_list_global_files(paths),
        ConfigDirectory(_make_own_origin("global", paths.config)),
        *_list_directory_sources(_make_own_origin("home", _get_home_directory(paths))),
        *_list_named_file(scope, flags),
        *_list_project_files(scope, flags),
    ]
    for directory in reversed(_list_project_directories(scope, flags)):
        sources += _list_directory_sources(ConfigOrigin(kind="project", path=directory, own=False))
    if custom is not None:
        sources = [
            source
            for source in sources
            if custom not in (source.origin.path, os.path.dirname(source.origin.path))
        ]
        sources += _list_directory_sources(_make_own_origin("custom directory", custom))
    return [*sources, *_list_inline(flags)]


def _list_in_opencode_order(scope: ConfigScope, flags: Flags) -> list[ConfigSource]:
    paths, custom = scope.paths, _find_custom_directory(scope, flags)
    sources: list[ConfigSource] = [
        *_list_global_files(paths),
        *_list_named_file(scope, flags),
        *_list_project_files(scope, flags),
        *_list_inline(flags),
        ConfigDirectory(_make_own_origin("global", paths.config)),
    ]
    for directory in _list_project_directories(scope, flags):
        sources += _list_directory_sources(ConfigOrigin(kind="project", path=directory, own=False))
    sources += _list_directory_sources(_make_own_origin("home", _get_home_directory(paths)))
    if custom is not None and not any(source.origin.path == custom for source in sources):
        sources += _list_directory_sources(_make_own_origin("custom directory", custom))
    return sources


def _get_home_directory(paths: Paths) -> str:
    return os.path.join(paths.home, ".opencode")


def _list_inline(flags: Flags) -> Iterator[InlineConfig]:
    if flags.config_content:
        yield InlineConfig(_make_own_origin("inline", "OPENCODE_CONFIG_CONTENT"), flags.config_content)


def _make_own_origin(kind: OriginKind, path: str) -> ConfigOrigin:
    return ConfigOrigin(kind=kind, path=path, own=True)


def _find_custom_directory(scope: ConfigScope, flags: Flags) -> str | None:
    return _make_absolute(scope, flags.config_dir) if flags.config_dir else None


def _make_absolute(scope: ConfigScope, path: str) -> str:
    return os.path.normpath(os.path.join(scope.directory, path))


def _list_global_files(paths: Paths) -> Iterator[ConfigFile]:
    # `config` without a suffix is the TOML file of the earliest versions.
    for name in ("config", "config.json", "opencode.json", "opencode.jsonc"):
        yield ConfigFile(_make_own_origin("global", os.path.join(paths.config, name)))


def _list_named_file(scope: ConfigScope, flags: Flags) -> Iterator[ConfigFile]:
    if flags.config:
        yield ConfigFile(_make_own_origin("custom", _make_absolute(scope, flags.config)), named=True)


def _list_directory_sources(origin: ConfigOrigin) -> Iterator[ConfigSource]:
    for name in ("opencode.jsonc", "opencode.json"):
        path = os.path.join(origin.path, name)
        yield ConfigFile(ConfigOrigin(kind=origin.kind, path=path, own=origin.own))
    yield ConfigDirectory(origin)


def _list_project_files(scope: ConfigScope, flags: Flags) -> Iterator[ConfigFile]:
    if flags.disable_project_config:
        return
    # In the user's own configuration directory the files are the user's, not a project's.
    directories = [each for each in walk_up(scope) if each != scope.paths.config]
    for name in ("opencode.jsonc", "opencode.json"):
        for directory in reversed(directories):
            yield ConfigFile(ConfigOrigin(kind="project", path=os.path.join(directory, name), own=False))


def _list_project_directories(scope: ConfigScope, flags: Flags) -> list[str]:
    """Return every `.opencode` from the directory up to the worktree, nearest first, without the user's own."""
    if flags.disable_project_config:
        return []
    home_directory = _get_home_directory(scope.paths)
    directories = (os.path.join(directory, ".opencode") for directory in walk_up(scope))
    return [directory for directory in directories if directory != home_directory]


def walk_up(scope: ConfigScope) -> Iterator[str]:
    """Yield the directory and its parents, up to the top of the checkout."""
    directory, top = os.path.normpath(scope.directory), os.path.normpath(scope.worktree)
    while True:
        yield directory
        parent = os.path.dirname(directory)
        if directory in (top, parent):
            return
        directory = parent
