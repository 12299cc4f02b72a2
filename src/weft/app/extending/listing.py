"""The plugins of a directory for who wants to see them: each with where it comes from, what it brings, and how it stands."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct

from weft.app.extending.finding import Found, Wanted, find_plugins, read_terms
from weft.app.extending.loading import LOAD_SECONDS, Loader, Plugin, Unloaded
from weft.app.extending.shell import list_commands
from weft.app.extending.tooling import name_tools
from weft.app.trust import is_trusted
from weft.config.finish import plugin_name
from weft.config.load import Loaded, load_config
from weft.config.sources import Situation
from weft.errors import ConfigError
from weft.host.clock import SystemClock
from weft.host.paths import paths_from
from weft.plugin.room import Failed, Stray
from weft.project.look import look

HELD: Final = ("plugin", "tool", "hook")

State = Literal["loaded", "failed", "held back", "passed over"]


class Row(Struct, frozen=True, kw_only=True):
    """`kind` says what it is (`file`, `tools`, `module`, `package`, `command`), `why` what is wrong, if anything is."""

    name: str
    kind: str
    where: str
    state: State
    hooks: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    why: str = ""


async def list_plugins(directory: str, env: Mapping[str, str]) -> tuple[list[Row], list[ConfigError]]:
    """Every plugin, in the order they are asked, and what is wrong besides. They are loaded for it, and not set up."""
    at, paths = look(directory), paths_from(env)
    worktree = at.top or at.directory
    trusted = is_trusted(paths, env, worktree, at.directory)
    situation = Situation(directory=at.directory, worktree=worktree, paths=paths, env=env, trusted=trusted)
    loaded = load_config(situation)
    found = find_plugins(loaded, situation)
    wrong = [*loaded.problems, *found.problems]
    loader = Loader(SystemClock(), _nobody_hears, seconds=read_terms(loaded).load_seconds or LOAD_SECONDS)
    try:
        came = await loader.load_all(found.wanted)
    finally:
        await loader.close()
    rows = [*_to_rows(came, wrong), *_commands(loaded, wrong), *_left_out(loaded, found)]
    return rows, wrong


def _nobody_hears(_: Wanted) -> Stray:
    def stray(failed: Failed) -> None:
        del failed  # nothing is set up here, so nothing goes on that would be missed

    return stray


def _to_rows(came: list[Plugin | Unloaded], wrong: list[ConfigError]) -> Iterator[Row]:
    named = name_tools([each for each in came if isinstance(each, Plugin)], wrong.append)
    for each in came:
        wanted = each.wanted
        if isinstance(each, Unloaded):
            why = str(each.error)
            yield Row(name=wanted.name, kind=wanted.kind, where=wanted.where, state="failed", why=why)
        else:
            yield Row(
                name=wanted.name,
                kind=wanted.kind,
                where=wanted.where,
                state="loaded",
                hooks=_once(hooked.hook for hooked in each.carried.hooks),
                tools=tuple(name for name, tool in named.items() if tool.plugin is each),
            )


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _commands(loaded: Loaded, wrong: list[ConfigError]) -> Iterator[Row]:
    for command in list_commands(loaded, wrong.append):
        said = " ".join(command.argv)
        yield Row(name=said, kind="command", where=said, state="loaded", hooks=(command.hook,))


def _left_out(loaded: Loaded, found: Found) -> Iterator[Row]:
    for held in loaded.held:
        if held.kind in HELD:
            why = "nobody has vouched for the project: weft trust"
            # A plugin that is a file is called by the file, as when it is loaded.
            name = plugin_name(f"file://{held.name}") if os.path.isabs(held.name) else held.name
            yield Row(name=name, kind=held.kind, where=held.path, state="held back", why=why)
    for passed in found.passed:
        why = "weft runs Python plugins"
        yield Row(name=passed, kind="other", where=passed, state="passed over", why=why)
