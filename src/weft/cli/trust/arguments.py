"""What the command on trust takes."""

import argparse


def trust(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("path", nargs="?", default=".", metavar="PATH", help="a directory of the project (default: this one)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="only show what is held back, and what changed")
    what.add_argument("--list", action="store_true", help="the projects that were trusted or refused")
    what.add_argument("--revoke", action="store_true", help="trust it no more")
    add("--yes", action="store_true", help="do not ask")
    add("--format", choices=("table", "json"), default="table")
