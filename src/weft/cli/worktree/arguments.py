"""What the commands on worktrees take, and `run` for its own."""

import argparse

NAME = "which one; without it the only one there is"


def option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--worktree",
        nargs="?",
        const="",
        metavar="NAME",
        help="work in a checkout of its own; one of that name is used again (weft worktree merge brings the work back)",
    )


def list_(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("table", "json"), default="table")
    _place(parser)


def merge(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help=NAME)
    add(
        "--commit",
        nargs="?",
        const="",
        metavar="MESSAGE",
        help="commit what was brought, and nothing else; without a message by the session's title",
    )
    add("--again", action="store_true", help="all of the work, also what was merged before")
    add("--discard", action="store_true", help="discard the worktree afterwards")
    add("--format", choices=("table", "json"), default="table")
    _place(parser)


def discard(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help=NAME)
    add("--force", action="store_true", help="also if there is work in it that is nowhere else")
    add("--yes", action="store_true", help="do not ask")
    _place(parser)


def _place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", metavar="PATH", default=".", help="work here instead of in the current directory"
    )
    parser.add_argument("--store", metavar="URL", help="where sessions are kept: a directory or file:PATH")
