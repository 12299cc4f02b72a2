"""What `weft attach` takes, and `weft run --attach`."""

import argparse
from collections.abc import Sequence
from typing import Any


class Elsewhere(argparse.Action):
    """A prompt for a server is a command of its own."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        del parser, option_string
        setattr(namespace, self.dest, values)
        namespace.runs = "attached.run:run_attached"


def option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--attach", metavar="URL", action=Elsewhere, help="run it on this server, of weft or OpenCode"
    )


def attach(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("url", nargs="?", default="http://127.0.0.1:4096", help="the server (http://127.0.0.1:4096)")
    add(
        "-c",
        "--continue",
        dest="go_on",
        action="store_true",
        help="go on with the last session of this checkout or directory",
    )
    add("-s", "--session", metavar="ID", help="go on with this session")
    add("--fork", action="store_true", help="with -c or -s: go on with a copy, and leave that one as it is")
    add("-m", "--model", metavar="PROVIDER/MODEL", help="the model to ask")
    add("--agent", help="the agent to use")
    add("--dir", metavar="PATH", default=".", help="work there, instead of where the server was started")
