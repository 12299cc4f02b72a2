"""Arguments that several commands take, and the types of their values.

Every command imports this module, so it imports nothing of weft and uses no regular expressions.
"""

import argparse
from collections.abc import Sequence
from typing import Final

SESSION_HELP: Final = (
    "the session: its id, the start of its id, or `last` for the last one in this checkout or directory"
)

MAX_PORT: Final = 65_535
_UNIT_MS = {
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
    "y": 365 * 86_400_000,
}
_UNIT_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def add_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="ID", help=SESSION_HELP)


def add_format(parser: argparse.ArgumentParser, choices: Sequence[str] = ("table", "json")) -> None:
    """Add `--format`; the first choice is the default."""
    parser.add_argument(
        "--format", choices=tuple(choices), default=choices[0], help="how to print the result"
    )


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def add_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", metavar="PATH", default=".", help="work in this directory instead of the current one"
    )


def add_store(parser: argparse.ArgumentParser, *, memory: bool = False) -> None:
    """Add `--store`; `memory` if the command can also use a store that ends with its process."""
    kinds = f"a directory, sqlite:PATH{', postgres://… or memory:' if memory else ' or postgres://…'}"
    parser.add_argument("--store", metavar="URL", help=f"where sessions are stored: {kinds}")


def add_cluster_store(parser: argparse.ArgumentParser) -> None:
    """Add `--store` for a command that needs the store of a cluster."""
    parser.add_argument("--store", metavar="URL", help="the store of the cluster: postgres://…")


def add_place(parser: argparse.ArgumentParser, *, memory: bool = False) -> None:
    """Add `--dir` and `--store`."""
    add_directory(parser)
    add_store(parser, memory=memory)


def add_continuation(parser: argparse.ArgumentParser) -> None:
    """Add the options to continue a session instead of beginning one."""
    add = parser.add_argument
    add(
        "-c",
        "--continue",
        dest="continue_last",
        action="store_true",
        help="continue the last session of this checkout or directory",
    )
    add("-s", "--session", metavar="ID", help="continue this session")
    add("--fork", action="store_true", help="with -c or -s: continue a copy of the session")


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Add the options of a conversation, on this machine or on a server: model, agent, variant, and plain output."""
    add = parser.add_argument
    add("-m", "--model", metavar="PROVIDER/MODEL", help="the model to use")
    add("--agent", help="the agent to use")
    add("--variant", help="the variant of the model, such as its thinking effort")
    add("--ax", action="store_true", help="print plain lines for a screen reader, and redraw nothing")


def add_full(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--full",
        action="store_true",
        help="begin in the full screen; Ctrl-X f switches to inline mode and back",
    )


def parse_count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: write a number from 0 to {MAX_PORT}")
    return int(text)


def parse_positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def parse_dollars(text: str) -> str:
    """Check an amount of dollars and return it without the `$`, as text: a float would round it."""
    amount = text.removeprefix("$")
    if not amount.replace(".", "", 1).isdecimal() or not amount.strip("0."):
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of dollars above 0, such as 1.50")
    return amount


def parse_age(text: str) -> int:
    """Return an age such as `90d` in milliseconds.

    Any number but 0 needs its unit: a wrong guess could delete sessions that somebody wants to keep.
    """
    number, unit = text.strip().lower()[:-1], text.strip().lower()[-1:]
    if text.strip() == "0":
        return 0
    if not number.isdecimal() or unit not in _UNIT_MS:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age: write 90d, 12h, 8w or 1y")
    return int(number) * _UNIT_MS[unit]


def parse_size(text: str) -> int:
    """Return a size such as `2G` in bytes; `2GB` and `2GiB` mean the same."""
    bare = text.strip().lower().removesuffix("b").removesuffix("i")
    number = bare.rstrip("kmgt")
    unit = bare[len(number) :]
    if not number.replace(".", "", 1).isdecimal() or unit not in _UNIT_BYTES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write 500M or 2G")
    size = float(number) * _UNIT_BYTES[unit]
    if size == float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is too large for a size")
    return int(size)
