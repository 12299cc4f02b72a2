"""`weft plugin list`: list plugins and custom tools with their status, hooks and tools."""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct

from weft.cli.arguments import add_directory, add_format
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, sanitize, to_table, warn, write_json
from weft.config.load import LoadedConfig, get_plugin_name, load_config
from weft.config.sources import ConfigScope
from weft.errors import ConfigError
from weft.host.clock import SystemClock
from weft.host.paths import paths_from
from weft.local.plugin_host import list_hook_commands
from weft.local.plugin_sources import FoundPlugins, PluginSource, find_plugins, read_plugin_settings
from weft.local.plugin_tools import LOAD_SECONDS, FailedPlugin, Plugin, PluginLoader, name_tools
from weft.plugin.worker import Failed, OnStrayError
from weft.project.checkout import find_checkout
from weft.trust.decision import is_trusted

HEADER: Final = ("plugin", "state", "hooks and tools", "from")

HELD_KINDS: Final = ("plugin", "tool", "hook")
State = Literal["loaded", "failed", "held back", "passed over"]


class PluginRow(Struct, frozen=True, kw_only=True):
    """One plugin as `weft plugin list` shows it.

    `kind` is `file`, `tools`, `module`, `package` or `command`. What is held back has the kind `plugin`, `tool` or `hook`, and what is
    passed over has `other`. `why` says what is wrong, if anything is.
    """

    name: str
    kind: str
    where: str
    state: State
    hooks: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    why: str = ""


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    add_directory(parser)


def list_plugins_command(args: argparse.Namespace) -> int:
    rows, problems = asyncio.run(list_plugins(args.dir, os.environ))
    for problem in problems:
        warn(problem)
    if args.format == "json":
        write_json(rows)
        return ExitCode.DONE
    if not rows:
        print(
            "no plugins: put Python files with hooks into .opencode/plugin/, or with tools into .opencode/tool/"
        )
        return ExitCode.DONE
    cells = [(row.name, row.state, format_contents(row), f"{row.kind} {row.where}") for row in rows]
    print("\n".join(to_table(HEADER, cells, Paint(sys.stdout))))
    for row in rows:
        if row.state == "failed":
            print(f"{Paint(sys.stderr).red('failed:')} {sanitize(row.why)}", file=sys.stderr)
    return ExitCode.DONE


def format_contents(row: PluginRow) -> str:
    """Return the hooks and tools of a plugin, or why it is not loaded."""
    if row.state in ("held back", "passed over"):
        return row.why
    return ", ".join((*row.hooks, *(f"tool {name}" for name in row.tools)))


async def list_plugins(directory: str, env: Mapping[str, str]) -> tuple[list[PluginRow], list[ConfigError]]:
    """Return every plugin, in the order of their hooks, and other problems. Load the plugins, but do not run their `setup`."""
    at, paths = find_checkout(directory), paths_from(env)
    worktree = at.top or at.directory
    trusted = is_trusted(paths, env, worktree, at.directory)
    scope = ConfigScope(directory=at.directory, worktree=worktree, paths=paths, env=env, trusted=trusted)
    loaded = load_config(scope)
    found = find_plugins(loaded, scope)
    problems = [*loaded.problems, *found.problems]
    loader = PluginLoader(
        SystemClock(), _ignore_faults, seconds=read_plugin_settings(loaded).load_seconds or LOAD_SECONDS
    )
    try:
        results = await loader.load_all(found.sources)
    finally:
        await loader.close()
    rows = [
        *_to_rows(results, problems),
        *_to_command_rows(loaded, problems),
        *_to_skipped_rows(loaded, found),
    ]
    return rows, problems


def _ignore_faults(_: PluginSource) -> OnStrayError:
    def ignore(failed: Failed) -> None:
        del failed  # without `setup`, no task of a plugin matters

    return ignore


def _to_rows(results: list[Plugin | FailedPlugin], problems: list[ConfigError]) -> Iterator[PluginRow]:
    named = name_tools([each for each in results if isinstance(each, Plugin)], problems.append)
    for each in results:
        source = each.source
        if isinstance(each, FailedPlugin):
            why = str(each.error)
            yield PluginRow(name=source.name, kind=source.kind, where=source.where, state="failed", why=why)
        else:
            yield PluginRow(
                name=source.name,
                kind=source.kind,
                where=source.where,
                state="loaded",
                hooks=_unique(hooked.hook for hooked in each.contents.hooks),
                tools=tuple(name for name, tool in named.items() if tool.plugin is each),
            )


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _to_command_rows(loaded: LoadedConfig, problems: list[ConfigError]) -> Iterator[PluginRow]:
    for command in list_hook_commands(loaded, problems.append):
        line = " ".join(command.argv)
        yield PluginRow(name=line, kind="command", where=line, state="loaded", hooks=(command.hook,))


def _to_skipped_rows(loaded: LoadedConfig, found: FoundPlugins) -> Iterator[PluginRow]:
    for held in loaded.held:
        if held.kind in HELD_KINDS:
            why = "the project is not trusted: weft trust"
            # A plugin that is a file has the name of the file, as when it is loaded.
            name = get_plugin_name(f"file://{held.name}") if os.path.isabs(held.name) else held.name
            yield PluginRow(name=name, kind=held.kind, where=held.path, state="held back", why=why)
    for skipped in found.skipped:
        why = "weft runs Python plugins"
        yield PluginRow(name=skipped, kind="other", where=skipped, state="passed over", why=why)
