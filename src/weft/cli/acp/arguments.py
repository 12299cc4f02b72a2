"""What `weft acp` takes."""

import argparse


def acp(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--cwd", metavar="PATH", default=".", help="the directory of who names none (the current one)")
    add("--store", metavar="URL", help="where sessions are kept: a directory, file:PATH or memory:")
    # OpenCode listens for HTTP as well, and takes where. Here there is nothing to listen for.
    for flag in ("--port", "--hostname"):
        add(flag, help=argparse.SUPPRESS)
    add("--mdns", action="store_true", help=argparse.SUPPRESS)
    add("--cors", nargs="+", action="extend", help=argparse.SUPPRESS)
