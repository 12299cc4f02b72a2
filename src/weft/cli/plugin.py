"""`weft plugin list`: list plugins and custom tools with their status, hooks and tools."""

import argparse
import asyncio
import os
import sys

from weft.cli.arguments import add_directory, add_format
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, sanitize, to_table, warn, write_json
from weft.local.plugin_host import PluginRow, list_plugins

HEADER = ("plugin", "state", "hooks and tools", "from")


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
