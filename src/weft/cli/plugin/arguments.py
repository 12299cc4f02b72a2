"""What the commands on plugins take."""

import argparse


def list_(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--format", choices=("table", "json"), default="table")
    add("--dir", metavar="PATH", default=".", help="as seen from this directory")
