"""What the commands that show sessions to others take."""

import argparse

from weft.cli.care.amount import age
from weft.cli.session.arguments import WHICH


def share(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("session", metavar="ID|list", help=f"{WHICH}; or the word list, for what is shared")
    add(
        "--to",
        metavar="FILE.html|server|URL",
        default="",
        help="a page in a file, a running weft serve --share, or a share server",
    )
    add("--expires", type=age, metavar="AGE", help="shown no longer than this, such as 7d")
    add("--preview", action="store_true", help="only show what would be covered; nothing leaves")
    add("--no-redact", action="store_true", help="show keys, tokens and passwords as they stand")
    add("--no-attachments", action="store_true", help="leave out what is in attached files")
    add("-y", "--yes", action="store_true", help="do not ask")
    add("--format", choices=("default", "json"), default="default")
    _place(parser)


def unshare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("share", metavar="ID", help="the session, or the share's own id")
    add(
        "--forget",
        action="store_true",
        help="without asking the server that shows it: it may go on showing it",
    )
    _place(parser)


def serving(parser: argparse.ArgumentParser) -> None:
    """For `weft serve`."""
    add = parser.add_argument
    add("--share", action="store_true", help="show shared sessions to whoever has their address, below /s/")
    add("--share-url", metavar="URL", help="the address that others reach this server at (with --share)")


def _place(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dir", metavar="PATH", default=".", help="work here instead of in the current directory")
    add("--store", metavar="URL", help="where sessions are kept: a directory or file:PATH")
