"""What the commands that look after stored sessions take."""

import argparse

from weft.cli.care.amount import age, size

JSON = ("table", "json")


def storage_du(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=("kind", "project", "session"), default="kind")
    _format(parser)
    _store(parser)


def storage_gc(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dry-run", action="store_true", help="only say what would go")
    add("--age", type=age, default=age("1d"), metavar="AGE", help="leave alone what is younger (default 1d)")
    add("--compact-summaries", action="store_true", help="shrink summaries that hold whole files, too")
    _format(parser)
    _store(parser)


def storage_prune(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--older-than", type=age, metavar="AGE", help="sessions not used for so long, such as 90d")
    add(
        "--larger-than",
        type=size,
        metavar="SIZE",
        help="while sessions take up more than this, such as 2G: the least recently used",
    )
    add("--project", metavar="ID", help="of this project alone")
    add("--empty-trash", type=age, metavar="AGE", help="throw away what has lain in the trash for so long")
    add("--dry-run", action="store_true", help="only say what would go")
    add("--yes", action="store_true", help="do not ask")
    _format(parser)
    _store(parser)


def storage_verify(parser: argparse.ArgumentParser) -> None:
    _format(parser)
    _store(parser)


def storage_migrate(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--from", dest="source", metavar="URL", required=True, help="the store to read")
    add("--to", dest="target", metavar="URL", required=True, help="the store to write")
    add("--dry-run", action="store_true", help="only say what would be written")
    _format(parser)


def doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fix", action="store_true", help="put right what can be, originals kept aside")
    _format(parser)
    _place(parser)


def session_adopt(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("session", nargs="*", metavar="ID", help="sessions to record in this directory's project")
    add("--all", action="store_true", help="every session that was held in some project's checkouts")
    add("--dry-run", action="store_true", help="only say what would be recorded where")
    _format(parser)
    _place(parser)


def project_list(parser: argparse.ArgumentParser) -> None:
    _format(parser)
    _store(parser)


def project_merge(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", metavar="ID", help="the project whose sessions are to move")
    add("target", metavar="INTO", help="the project they are to belong to")
    add("--yes", action="store_true", help="do not ask")
    _store(parser)


def _format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=JSON, default="table")


def _place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", metavar="PATH", default=".", help="work here instead of in the current directory"
    )
    _store(parser)


def _store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", metavar="URL", help="where sessions are kept: a directory or file:PATH")
