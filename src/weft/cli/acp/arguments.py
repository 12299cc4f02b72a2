"""What `weft acp` takes."""

import argparse


def acp(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--cwd", metavar="PATH", default=".", help="the directory of who names none (the current one)")
    add("--store", metavar="URL", help="where sessions are kept: a directory, file:PATH or memory:")
