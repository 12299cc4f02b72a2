"""Find the plugins and tool files of a directory, without reading or running them."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from types import FunctionType
from typing import Any, Final, Literal

from msgspec import Struct

from weft.config.flags import read_flags
from weft.config.load import LoadedConfig, get_plugin_name
from weft.config.schema import PluginsConfig
from weft.config.sources import ConfigDirectory, ConfigScope, list_sources
from weft.config.trust import list_tools
from weft.errors import ConfigError

ENTRY_POINT_GROUP: Final = "[weft.plugins]"
METADATA_ENDINGS: Final = (".dist-info", ".egg-info")
MAX_ENTRY_POINT_BYTES: Final = 1 << 20


class EntryPoint(Struct, frozen=True, kw_only=True):
    """A line `name = module` of an `entry_points.txt`, and the path of that file."""

    name: str
    module: str
    path: str


def list_entry_points(directories: Sequence[str]) -> list[EntryPoint]:
    """Return the entry points of all packages in these directories. Of several with the same name, the first one counts."""
    found: dict[str, EntryPoint] = {}
    for directory in directories:
        for path in _list_entry_point_files(directory):
            for point in _read_entry_points(path):
                found.setdefault(point.name, point)
    return list(found.values())


def _list_entry_point_files(directory: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return
    for name in names:
        if name.endswith(METADATA_ENDINGS):
            yield os.path.join(directory, name, "entry_points.txt")


def _read_entry_points(path: str) -> Iterator[EntryPoint]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(MAX_ENTRY_POINT_BYTES)
    except OSError:
        return  # most packages have no entry points
    in_group = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            in_group = line.replace(" ", "") == ENTRY_POINT_GROUP
        elif in_group and "=" in line and not line.startswith(("#", ";")):
            name, _, module = line.partition("=")
            yield EntryPoint(name=name.strip(), module=module.strip(), path=path)


Kind = Literal["package", "file", "module", "tools", "given"]

PYTHON_ENDING: Final = ".py"
MODULE_NAME: Final = r"(?a)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
SHOWN_NAMES: Final = 6


class PluginSource(Struct, frozen=True, kw_only=True):
    """A plugin to load. `where` is its file or module, `named_in` the file that names it.

    For kind `given`, `namespace` holds the namespace of a module or functions that the program passed in.
    """

    name: str
    kind: Kind
    where: str
    named_in: str = ""
    namespace: Any = None


class FoundPlugins(Struct, frozen=True, kw_only=True):
    """The plugins to load, in order, the entries that are not Python plugins, and errors in the configuration."""

    sources: tuple[PluginSource, ...] = ()
    skipped: tuple[str, ...] = ()
    problems: tuple[ConfigError, ...] = ()


def find_plugins(loaded: LoadedConfig, scope: ConfigScope, extra: Sequence[Any] = ()) -> FoundPlugins:
    """Find plugins: first of installed packages, then configured ones, then tool files, then those in `extra`."""
    off = set(read_plugin_settings(loaded).off or ())
    search = _PluginSearch(scope)
    if not read_flags(scope.env).disable_default_plugins:
        search.add_packages()
    for index, entry in enumerate(loaded.config.plugin or ()):
        origin = loaded.origins.get(("plugin", str(index)))
        search.add_entry(entry, origin.path if origin else "")
    search.add_tool_files()
    sources = [each for each in search.sources if each.name not in off]
    return FoundPlugins(
        sources=(*sources, *_to_extra_sources(extra)),
        skipped=tuple(search.skipped),
        problems=tuple(search.problems),
    )


def read_plugin_settings(loaded: LoadedConfig) -> PluginsConfig:
    return loaded.config.weft_settings.plugins or PluginsConfig()


def to_skipped_warning(skipped: Sequence[str]) -> ConfigError:
    """Return one warning for all entries that were skipped."""
    more = f" and {len(skipped) - SHOWN_NAMES} more" if len(skipped) > SHOWN_NAMES else ""
    named = f"{', '.join(skipped[:SHOWN_NAMES])}{more}"
    return ConfigError("plugin", f"weft runs Python plugins only and skips these: {named}")


class _PluginSearch:
    """Collects the plugins of a directory, the entries that weft cannot run, and errors in the configuration."""

    def __init__(self, scope: ConfigScope) -> None:
        self._scope = scope
        self.sources: list[PluginSource] = []
        self.skipped: list[str] = []
        self.problems: list[ConfigError] = []

    def add_packages(self) -> None:
        for point in list_entry_points(self._list_install_directories()):
            if re.fullmatch(MODULE_NAME, point.module):
                self._add(point.name, "package", point.module, point.path)
            else:
                reason = "an entry point of weft.plugins must name a module, not an object in it"
                self.problems.append(ConfigError(point.path, reason, key=point.name))

    def _list_install_directories(self) -> list[str]:
        """Return the directories of `sys.path`. Leave out the project's directory itself unless the project is trusted.

        A directory below it stays: the person chose it, as the `.venv` from which weft runs, or by `PYTHONPATH`.
        """
        here = {os.path.realpath(each) for each in (self._scope.directory, self._scope.worktree, ".")}
        return [
            place
            for place in dict.fromkeys(sys.path)
            if place and (self._scope.trusted or os.path.realpath(place) not in here)
        ]

    def add_entry(self, entry: str, named_in: str) -> None:
        path = self._find_path(entry, named_in)
        if path is not None:
            self._add_file(path, entry, named_in)
        elif re.fullmatch(MODULE_NAME, entry) and _is_installed(entry):
            self._add(entry, "module", entry, named_in)
        elif re.fullmatch(MODULE_NAME, entry) and "." in entry:
            reason = f"there is no module {entry!r}"
            self.problems.append(ConfigError(named_in or "plugin", reason, key="plugin"))
        else:
            self.skipped.append(entry)  # an npm package, as in OpenCode

    def _find_path(self, entry: str, named_in: str) -> str | None:
        """Return the path that an entry names, or None if it names a package or module."""
        if entry.startswith("file://"):
            bare = entry.removeprefix("file://")
        elif entry.startswith(("./", "../", "/", "~/")) or entry.endswith(PYTHON_ENDING):
            bare = entry
        else:
            return None
        if bare.startswith("~/"):
            bare = os.path.join(self._scope.paths.os_home, bare[2:])
        base = os.path.dirname(named_in) if os.path.isabs(named_in) else self._scope.directory
        return os.path.normpath(os.path.join(base, bare))

    def _add_file(self, path: str, entry: str, named_in: str) -> None:
        if not path.endswith(PYTHON_ENDING):
            self.skipped.append(entry.removeprefix("file://"))
        elif not os.path.isfile(path):
            self.problems.append(ConfigError(named_in or "plugin", f"there is no file {path}", key="plugin"))
        else:
            self._add(get_plugin_name(f"file://{path}"), "file", path, named_in)

    def add_tool_files(self) -> None:
        for directory in self._list_config_directories():
            for path in list_tools(directory):
                if path.endswith(PYTHON_ENDING):
                    stem = os.path.basename(path).removesuffix(PYTHON_ENDING)
                    self._add(stem, "tools", path, directory)
                else:
                    self.skipped.append(path)

    def _list_config_directories(self) -> Iterator[str]:
        for source in list_sources(self._scope, read_flags(self._scope.env)):
            if isinstance(source, ConfigDirectory) and (source.origin.own or self._scope.trusted):
                yield source.origin.path

    def _add(self, name: str, kind: Kind, where: str, named_in: str) -> None:
        self.sources.append(PluginSource(name=name, kind=kind, where=where, named_in=named_in))


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def _to_extra_sources(extra: Sequence[Any]) -> Iterator[PluginSource]:
    """Return one source for each module, and one for all functions together."""
    functions = [each for each in extra if isinstance(each, FunctionType)]
    for each in extra:
        if not isinstance(each, FunctionType):
            name = str(getattr(each, "__name__", type(each).__name__))
            where = str(getattr(each, "__file__", None) or name)
            yield PluginSource(name=name, kind="given", where=where, namespace=vars(each))
    if functions:
        together = {f"{index} {each.__name__}": each for index, each in enumerate(functions)}
        yield PluginSource(
            name="functions", kind="given", where=functions[0].__code__.co_filename, namespace=together
        )
