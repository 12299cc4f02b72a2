"""What the commands on commands take."""

import argparse


def list_(parser: argparse.ArgumentParser) -> None:
    _format(parser)


def show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the command, with or without its slash")
    _format(parser)


def _format(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--format", choices=("table", "json"), default="table")
    add("--dir", metavar="PATH", default=".", help="as seen from this directory")
