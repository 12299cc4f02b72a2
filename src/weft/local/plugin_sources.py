"""Find the plugins, tool files and hook commands of a directory, without reading or running them."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from types import FunctionType
from typing import Any, Final, Literal

from msgspec import Struct

from weft.config.check import nearest
from weft.config.finish import plugin_name
from weft.config.flags import read_flags
from weft.config.load import Loaded
from weft.config.schema import Experimental, Own, Plugins
from weft.config.sources import Directory, Situation, list_sources
from weft.config.trust import list_tools
from weft.errors import ConfigError
from weft.plugin.chain import SECONDS
from weft.plugin.command import CommandHook
from weft.plugin.hooks import COMMAND_BEFORE, EVENT, HOOKS, PERMISSION_ASK, TOOL_AFTER, TOOL_BEFORE

GROUP: Final = "[weft.plugins]"
ENDINGS: Final = (".dist-info", ".egg-info")
LIMIT: Final = 1 << 20


class EntryPoint(Struct, frozen=True, kw_only=True):
    """`name = module`, and the file that says it."""

    name: str
    module: str
    path: str


def list_entry_points(places: Sequence[str]) -> list[EntryPoint]:
    """Those of all packages in these places, in order. As in Python itself, the first place that has a package counts."""
    found: dict[str, EntryPoint] = {}
    for place in places:
        for path in _list_files(place):
            for point in _read(path):
                found.setdefault(point.name, point)
    return list(found.values())


def _list_files(place: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(place))
    except OSError:
        return
    for name in names:
        if name.endswith(ENDINGS):
            yield os.path.join(place, name, "entry_points.txt")


def _read(path: str) -> Iterator[EntryPoint]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(LIMIT)
    except OSError:
        return  # most packages have none
    here = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            here = line.replace(" ", "") == GROUP
        elif here and "=" in line and not line.startswith(("#", ";")):
            name, _, module = line.partition("=")
            yield EntryPoint(name=name.strip(), module=module.strip(), path=path)


Kind = Literal["package", "file", "module", "tools", "given"]

ENDING: Final = ".py"
MODULE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
SHOWN: Final = 6


class Wanted(Struct, frozen=True, kw_only=True):
    """Something to be loaded: `where` is its file or module, `said` the file that names it.

    A `given` one is there already: a module, or functions.
    """

    name: str
    kind: Kind
    where: str
    said: str = ""
    given: Any = None


class Found(Struct, frozen=True, kw_only=True):
    """What is to be loaded, in order; what is not for us; what is said wrongly."""

    wanted: tuple[Wanted, ...] = ()
    passed: tuple[str, ...] = ()
    problems: tuple[ConfigError, ...] = ()


def find_plugins(loaded: Loaded, situation: Situation, given: Sequence[Any] = ()) -> Found:
    """Installed packages' first, then those configured, then tools, then those handed over by a program."""
    off = set(read_terms(loaded).off or ())
    search = _Search(situation)
    if not read_flags(situation.env).disable_default_plugins:
        search.packages()
    for index, entry in enumerate(loaded.config.plugin or ()):
        origin = loaded.origins.get(("plugin", str(index)))
        search.entry(entry, origin.path if origin else "")
    search.tools()
    wanted = [each for each in search.wanted if each.name not in off]
    return Found(
        wanted=(*wanted, *_to_given(given)), passed=tuple(search.passed), problems=tuple(search.problems)
    )


def read_terms(loaded: Loaded) -> Plugins:
    own = (loaded.config.experimental or Experimental()).weft or Own()
    return own.plugins or Plugins()


def to_warning(passed: Sequence[str]) -> ConfigError:
    """One line for all that was passed over."""
    more = f" and {len(passed) - SHOWN} more" if len(passed) > SHOWN else ""
    named = f"{', '.join(passed[:SHOWN])}{more}"
    return ConfigError("plugin", f"weft runs Python plugins, so these are passed over: {named}")


class _Search:
    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self.wanted: list[Wanted] = []
        self.passed: list[str] = []
        self.problems: list[ConfigError] = []

    def packages(self) -> None:
        for point in list_entry_points(self._places()):
            if MODULE.fullmatch(point.module):
                self._want(point.name, "package", point.module, point.path)
            else:
                reason = "an entry point of weft.plugins names a module, and nothing in it"
                self.problems.append(ConfigError(point.path, reason, key=point.name))

    def _places(self) -> list[str]:
        """Where packages are installed. The directory one happens to be in is no such place, unless it is trusted."""
        here = {os.path.realpath(each) for each in (self._situation.directory, self._situation.worktree, ".")}
        return [
            place
            for place in dict.fromkeys(sys.path)
            if place and (self._situation.trusted or os.path.realpath(place) not in here)
        ]

    def entry(self, entry: str, said: str) -> None:
        path = self._path(entry, said)
        if path is not None:
            self._file(path, entry, said)
        elif MODULE.fullmatch(entry) and _is_there(entry):
            self._want(entry, "module", entry, said)
        elif MODULE.fullmatch(entry) and "." in entry:
            reason = f"there is no module {entry!r}"
            self.problems.append(ConfigError(said or "plugin", reason, key="plugin"))
        else:
            self.passed.append(entry)  # a package of npm's, as OpenCode has them

    def _path(self, entry: str, said: str) -> str | None:
        """The file that an entry names, if it names one."""
        if entry.startswith("file://"):
            bare = entry.removeprefix("file://")
        elif entry.startswith(("./", "../", "/", "~/")) or entry.endswith(ENDING):
            bare = entry
        else:
            return None
        if bare.startswith("~/"):
            bare = os.path.join(self._situation.paths.os_home, bare[2:])
        base = os.path.dirname(said) if os.path.isabs(said) else self._situation.directory
        return os.path.normpath(os.path.join(base, bare))

    def _file(self, path: str, entry: str, said: str) -> None:
        if not path.endswith(ENDING):
            self.passed.append(entry.removeprefix("file://"))
        elif not os.path.isfile(path):
            self.problems.append(ConfigError(said or "plugin", f"there is no file {path}", key="plugin"))
        else:
            self._want(plugin_name(f"file://{path}"), "file", path, said)

    def tools(self) -> None:
        for directory in self._directories():
            for path in list_tools(directory):
                if path.endswith(ENDING):
                    stem = os.path.basename(path).removesuffix(ENDING)
                    self._want(stem, "tools", path, directory)
                else:
                    self.passed.append(path)

    def _directories(self) -> Iterator[str]:
        for source in list_sources(self._situation, read_flags(self._situation.env)):
            if isinstance(source, Directory) and (source.origin.own or self._situation.trusted):
                yield source.origin.path

    def _want(self, name: str, kind: Kind, where: str, said: str) -> None:
        self.wanted.append(Wanted(name=name, kind=kind, where=where, said=said))


def _is_there(module: str) -> bool:
    try:
        return find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def _to_given(given: Sequence[Any]) -> Iterator[Wanted]:
    """Modules one by one; functions together, as if they stood in one."""
    functions = [each for each in given if isinstance(each, FunctionType)]
    for each in given:
        if not isinstance(each, FunctionType):
            name = str(getattr(each, "__name__", type(each).__name__))
            where = str(getattr(each, "__file__", None) or name)
            yield Wanted(name=name, kind="given", where=where, given=vars(each))
    if functions:
        together = {f"{index} {each.__name__}": each for index, each in enumerate(functions)}
        yield Wanted(name="functions", kind="given", where=functions[0].__code__.co_filename, given=together)


KEY: Final = "experimental.weft.hooks"
MATCHED: Final = {each.name for each in (TOOL_BEFORE, TOOL_AFTER, EVENT, COMMAND_BEFORE, PERMISSION_ASK)}


def list_commands(loaded: Loaded, warn: Callable[[ConfigError], None]) -> Iterator[CommandHook]:
    """Every command to be asked, hook by hook, in the order configured."""
    own = (loaded.config.experimental or Experimental()).weft or Own()
    usual = (own.plugins.seconds if own.plugins else None) or SECONDS
    for name, commands in (own.hooks or {}).items():
        origin = loaded.origins.get((*KEY.split("."), name))
        path, key = origin.path if origin else KEY, f"{KEY}.{name}"
        if name not in HOOKS:
            warn(ConfigError(path, "there is no such hook", key=key, near=nearest(name, HOOKS)))
            continue
        for each in commands:
            if not each.command:
                warn(ConfigError(path, "the command is empty", key=key))
                continue
            if each.matcher is not None and name not in MATCHED:
                warn(ConfigError(path, "a matcher means nothing at this hook, and is passed over", key=key))
            yield CommandHook(
                hook=name, argv=each.command, matcher=each.matcher, seconds=each.timeout or usual
            )
