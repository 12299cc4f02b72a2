"""What the commands on permissions take."""

import argparse

from weft.cli.care.amount import age

JSON = ("table", "json")
SCOPES = ("turn", "session", "project", "user")


def list_(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="of every project")
    _format(parser)
    _place(parser)


def reply(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("id", metavar="ID", help="of the question, or the beginning of it, or last")
    add("reply", choices=("once", "always", "reject"))
    add("--message", default="", metavar="WORDS", help="with reject: what the agent should do instead")
    add("--scope", choices=SCOPES, help="with always: how far it reaches (usually the session)")
    add("--expires", type=age, metavar="AGE", help="with always: for how long, such as 12h or 7d")
    add("--any-agent", action="store_true", help="with always: for every agent, not only the one that asks")
    _place(parser)


def grants(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="of every project")
    _format(parser)
    _place(parser)


def revoke(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="of the grant, or the beginning of it, or last")
    _place(parser)


def explain(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("command", metavar="COMMAND", help="as an agent would give it to the bash tool; it is never run")
    add("--agent", metavar="NAME", help="by whose rules (default: the agent that answers when none is named)")
    add("--format", choices=JSON, default="table")
    add("--dir", default=".", metavar="PATH", help="the directory (default: this one)")
    parser.epilog = "exit codes: 0 it is allowed, 7 somebody is asked first, 3 it is denied, 2 wrong usage"


def log(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--verify", action="store_true", help="check that nothing was changed, added or taken out")
    add("--session", metavar="ID", help="of this session alone")
    add("-n", "--max-count", type=int, metavar="N", help="the last N alone")
    _format(parser)
    _place(parser)


def _format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=JSON, default="table")


def _place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", default=".", metavar="PATH", help="the directory (default: this one)")
    parser.add_argument("--store", metavar="URL", help="where sessions are kept")
