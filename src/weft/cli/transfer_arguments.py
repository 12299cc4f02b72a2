"""What the commands that move sessions take."""

import argparse

KINDS = ("opencode", "opencode-sqlite", "claude", "codex")


def export(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "session",
        nargs="?",
        metavar="ID",
        help="the session; without one, the last worked on, or your choice",
    )
    add("--all", action="store_true", help="every session of this project, in a bundle")
    add("-o", "--output", metavar="FILE", help="write here instead of to standard output")
    add("--bundle", metavar="FILE", help="one file with its children, attachments, todos and diffs")
    add("--redact", action="store_true", help="cover keys, tokens and passwords wherever they stand")
    add("--preview", action="store_true", help="with --redact: only show what would be covered")
    add("--format", choices=("default", "json"), default="default", help="how a preview is printed")
    _place(parser)


def import_(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("path", metavar="FILE", help="an exported session or bundle; with --from, what that program wrote")
    add(
        "--from",
        dest="kind",
        choices=KINDS,
        default="",
        help="import all that another program has kept there",
    )
    add(
        "--rebind",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="what lay below OLD lies below NEW here (repeatable)",
    )
    add("--dry-run", action="store_true", help="only say what would become of each session")
    add("--format", choices=("table", "json"), default="table")
    _place(parser)


def _place(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dir", metavar="PATH", default=".", help="work here instead of in the current directory")
    add("--store", metavar="URL", help="where sessions are kept: a directory or file:PATH")
