"""What the commands on MCP servers take."""

import argparse


def list_(parser: argparse.ArgumentParser) -> None:
    _format(parser)
    _directory(parser)


def add(parser: argparse.ArgumentParser) -> None:
    put = parser.add_argument
    put("name", help="what to call the server; its tools are called NAME_TOOL")
    put("--url", help="where it is, if it is a remote one")
    put(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="sent with every request (repeatable)",
    )
    put(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for a program's environment (repeatable)",
    )
    put("--project", action="store_true", help="into the project's configuration instead of your own")
    command = put("command", nargs="+", help="the program of a local one and its arguments, after --")
    # With "*" argparse would take it for absent as soon as an option follows the name.
    command.required = False
    _directory(parser)


def one(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the server")
    _directory(parser)


def debug(parser: argparse.ArgumentParser) -> None:
    one(parser)
    _format(parser)


def auth(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the server; without one, the logins there are")
    _directory(parser)


def _format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("table", "json"), default="table")


def _directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="PATH", default=".", help="as seen from this directory")
