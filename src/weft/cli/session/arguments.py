"""What the commands on sessions at rest take."""

import argparse

WHICH = "the session: its id, the beginning of it, or last, the last of this checkout or directory"


def filters(parser: argparse.ArgumentParser) -> None:
    """Which sessions a list shows."""
    add = parser.add_argument
    add("--search", metavar="WORDS", help="those with these words in the title")
    add("--tag", metavar="TAG", help="those with this tag")
    add("--archived", action="store_true", help="those that were archived, and only those")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--roots", action="store_true", help="those that no other session began (as always)")
    kind.add_argument("--children", action="store_true", help="those that other sessions began, too")


def tree(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", metavar="ID", help=f"{WHICH}; without one, all of the project")
    _format(parser)
    _place(parser)


def rename(parser: argparse.ArgumentParser) -> None:
    _session(parser)
    parser.add_argument("title", nargs="+", help="its title from now on; none is made up in its place")
    _format(parser)
    _place(parser)


def tag(parser: argparse.ArgumentParser) -> None:
    _session(parser)
    parser.add_argument("tag", nargs="+")
    parser.add_argument("--remove", action="store_true", help="take these tags away")
    _format(parser)
    _place(parser)


def note(parser: argparse.ArgumentParser) -> None:
    _session(parser)
    parser.add_argument(
        "text", nargs="*", help="told to the model now, and never summed up; without any, the notes there are"
    )
    parser.add_argument(
        "--remove", type=int, action="append", default=[], metavar="N", help="take note N away"
    )
    _format(parser)
    _place(parser)


def compact(parser: argparse.ArgumentParser) -> None:
    _session(parser)
    parser.add_argument("-m", "--model", metavar="PROVIDER/MODEL", help="who sums up")
    _format(parser)
    _place(parser)


def pin(parser: argparse.ArgumentParser) -> None:
    _session(parser)
    parser.add_argument("--off", action="store_true", help="no longer")
    _format(parser)
    _place(parser)


def archive(parser: argparse.ArgumentParser) -> None:
    _session(parser)
    parser.add_argument("--off", action="store_true", help="bring it back")
    _format(parser)
    _place(parser)


def fork(parser: argparse.ArgumentParser) -> None:
    _session(parser)
    parser.add_argument("--at", metavar="MESSAGE", help="up to this message and without it; else all of it")
    _format(parser)
    _place(parser)


def rm(parser: argparse.ArgumentParser) -> None:
    _session(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--no-trash", action="store_true", help="for good: it cannot be restored")
    _format(parser)
    _place(parser)


def restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "session", metavar="ID", help="a session in the trash, the beginning of its id, or last"
    )
    _format(parser)
    _place(parser)


def trash(parser: argparse.ArgumentParser) -> None:
    _format(parser)
    _place(parser)


def diff(parser: argparse.ArgumentParser) -> None:
    _session(parser)
    parser.add_argument(
        "--message", metavar="ID", help="what one prompt led to, or one answer did; else all of it"
    )
    parser.add_argument(
        "--format", choices=("table", "json", "patch"), default="table", help="patch: as a unified diff"
    )
    _place(parser)


def one(parser: argparse.ArgumentParser) -> None:
    _session(parser)
    _format(parser)
    _place(parser)


def _session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="ID", help=WHICH)


def _format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("table", "json"), default="table")


def _place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", metavar="PATH", default=".", help="work here instead of in the current directory"
    )
    parser.add_argument("--store", metavar="URL", help="where sessions are kept: a directory or file:PATH")
