"""`weft plugin list`: the plugins there are in a directory, what they bring along, and what is wrong with them."""

import argparse
import asyncio
import os
import sys

from weft.cli.exit import Exit
from weft.cli.offers import warn
from weft.cli.paint import Paint, plain, write_json
from weft.cli.table import to_table
from weft.local.plugins import Row, list_plugins

HEAD = ("plugin", "state", "hooks and tools", "from")


def list_command(chosen: argparse.Namespace) -> int:
    rows, wrong = asyncio.run(list_plugins(chosen.dir, os.environ))
    for problem in wrong:
        warn(problem)
    if chosen.format == "json":
        write_json(rows)
        return Exit.DONE
    if not rows:
        print("no plugins; docs/plugins.md says how to write one")
        return Exit.DONE
    shown = [(row.name, row.state, brings(row), f"{row.kind} {row.where}") for row in rows]
    print("\n".join(to_table(HEAD, shown, Paint(sys.stdout))))
    for row in rows:
        if row.state == "failed":
            print(f"{Paint(sys.stderr).red('failed:')} {plain(row.why)}", file=sys.stderr)
    return Exit.DONE


def brings(row: Row) -> str:
    if row.state in ("held back", "passed over"):
        return row.why
    return ", ".join((*row.hooks, *(f"tool {name}" for name in row.tools)))
