"""What `weft undo` and `weft redo` take."""

import argparse

WHICH = (
    "the session: its id, the beginning of it, or last, the last of this checkout or directory (as always)"
)


def undo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", default="last", metavar="SESSION", help=WHICH)
    parser.add_argument(
        "--to", metavar="MESSAGE", help="back to before this message; else one prompt further back"
    )
    _common(parser)


def redo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", default="last", metavar="SESSION", help=WHICH)
    _common(parser)


def _common(parser: argparse.ArgumentParser) -> None:
    some = parser.add_mutually_exclusive_group()
    some.add_argument(
        "--file", action="append", metavar="PATH", help="touch only this file (repeatable); else all of them"
    )
    some.add_argument("--no-files", action="store_true", help="the conversation alone: touch no file")
    parser.add_argument("--dry-run", action="store_true", help="only say what would become of each file")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument(
        "--dir", metavar="PATH", default=".", help="work here instead of in the current directory"
    )
    parser.add_argument("--store", metavar="URL", help="where sessions are kept: a directory or file:PATH")
