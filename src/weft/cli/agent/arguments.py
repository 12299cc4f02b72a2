"""What the commands on agents take."""

import argparse


def list_(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--all", action="store_true", help="those that work behind the scenes, too")
    add("--verbose", action="store_true", help="with the rules of each")
    _format(parser)
    _directory(parser)


def show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the agent")
    _format(parser)
    _directory(parser)


def create(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--name", required=True, help="what it is called, and its file")
    add("--description", required=True, help="what it is for: by this other agents choose it")
    add(
        "--prompt",
        metavar="TEXT",
        help="what it is told; - reads it from standard input (default: the description)",
    )
    add(
        "--mode", choices=("all", "primary", "subagent"), default="all", help="who may call it (default: all)"
    )
    add("--tools", metavar="A,B", help="the tools it may use; without this, all")
    add("-m", "--model", metavar="PROVIDER/MODEL", help="the model it asks")
    add(
        "--path",
        metavar="DIR",
        help="where: DIR/agent/NAME.md (default: .opencode of the checkout, else yours)",
    )
    _directory(parser)


def _format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("table", "json"), default="table")


def _directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="PATH", default=".", help="as seen from this directory")
